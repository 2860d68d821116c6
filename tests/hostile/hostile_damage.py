"""Damages stored files: JSON with wrong, missing, deep or huge values; bytes truncated, flipped or doubled."""

import copy
import json
import random
from collections.abc import Iterator

WRONG = (
    None, True, -1, 10**18, 1.5, "", "x" * 100_000, "\0", "../../etc/passwd", [], [1], {}, {"a": 1}, float("nan"),
    float("-inf"),
)  # fmt: skip
TEXTS = (
    b"", b"\0", b"{", b"[]", b"null", b"1", b'"a"', b"\xff\xfe", b"[" * 200_000, b'{"a":' * 100_000, b"9" * 10_000,
    b'"\\ud800"', b"{}" * 2, b"{} x", b"\xef\xbb\xbf{}", b"{\"format_version\": 999999}",
)  # fmt: skip


def of_json(content: bytes, most: int) -> list[tuple[str, bytes]]:
    """Returns (description, damaged content) pairs of a JSON file: other texts, truncated texts, and replaced values.

    Draws at most ``most`` of all cases, the same ones every time.
    """
    document = json.loads(content)
    cuts = [content[: len(content) * part // 4] for part in (1, 2, 3)]
    whole = [*TEXTS, *cuts, _dumped({**document, "unheard_of": 1})]
    changes = [(place, value) for place in places(document) for value in (*WRONG, _GONE)]
    chosen = random.Random(1).sample([*whole, *changes], min(most, len(whole) + len(changes)))
    cases = []
    for each in chosen:
        if isinstance(each, bytes):
            cases.append((f"is {each[:20]!r}", each))
        else:
            place, value = each
            what = "left out" if value is _GONE else f"= {str(value)[:20]!r}"
            cases.append((f"{'.'.join(map(str, place))} {what}", _dumped(replaced(document, place, value))))
    return cases


def of_bytes(content: bytes, count: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yields (description, damaged content) of any file: truncated, a bit flipped, a part doubled or set to zero."""
    rng = random.Random(seed)
    yield "empty", b""
    yield "zeros", bytes(len(content))
    yield "something before", b"\n" + content
    for _ in range(count):
        at = rng.randrange(len(content))
        yield f"cut at {at}", content[:at]
        flipped = bytearray(content)
        flipped[at] ^= 1 << rng.randrange(8)
        yield f"flipped at {at}", bytes(flipped)
        yield f"doubled from {at}", content + content[at:]
        yield f"zeros from {at}", content[:at] + bytes(len(content) - at)


def places(document, before: tuple = ()) -> Iterator[tuple]:
    """Yields the path of every value inside a document."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        yield (*before, key)
        if isinstance(value, dict | list):
            yield from places(value, (*before, key))


def replaced(document, place: tuple, value):
    """Returns a copy of a document with another value at a place, or without this place if ``value`` is ``_GONE``."""
    document = inner = copy.deepcopy(document)
    for key in place[:-1]:
        inner = inner[key]
    if value is _GONE:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return document


_GONE = object()


def _dumped(document) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
