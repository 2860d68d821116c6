"""Detects the encoding of a text: the declared one, otherwise UTF-8, otherwise the most likely of some candidates."""

import codecs
import collections
import functools
import re
from collections.abc import Sequence

from t2t_ext.data.corpora import compression, raw_files
from t2t_ext.errors import UserError

CHINESE = ("gb18030", "big5hkscs")
_DECLARED = re.compile(rb"""(?:encoding|charset)\s*=\s*["']?\s*([A-Za-z0-9._:-]+)""", re.I)
_BLOCK_BYTES = 1 << 16
_HEAD_BYTES = 1024
# Files that declare these encodings also contain characters of the larger encodings of which these are parts.
_EXTENDED = {name: "gb18030" for name in ("gb2312", "gb_2312-80", "gbk", "cp936")} | {"big5": "big5hkscs"}
# First and second bytes of the frequent characters. They make up nearly all of a text in the right encoding, but only
# half of a text in the wrong one.
_HIGH, _LOW = range(0xA1, 0xFF), range(0x40, 0x7F)
_FREQUENT = {"gb18030": (range(0xB0, 0xD8), (_HIGH,)), "big5hkscs": (range(0xA4, 0xC7), (_LOW, _HIGH))}
_PUNCTUATION = "，。、；：？！「」『』“”‘’（）《》…—·　％０１２３４５６７８９"
_MOST_SCORED_CHARACTERS = 200_000


def encoding_of(path: compression.PathLike, encodings: Sequence[str] = ()) -> str:
    """Returns the encoding of a text: the declared one, otherwise UTF-8 if valid, otherwise the most likely candidate.

    Args:
      path: The file.
      encodings: Candidates, such as ``CHINESE``. Among the candidates that decode the whole file, the one with the
        largest share of frequent characters wins.

    Raises:
      UserError: The declared encoding is unknown, or no encoding decodes the file. The message then names the line at
        which UTF-8 fails.
    """
    with raw_files.opened(path) as file:
        head = file.read(_HEAD_BYTES)
        if declared := _declared_encoding(path, head):
            return declared
        candidates = ["utf-8", *encodings]
        decoders = {name: codecs.getincrementaldecoder(name)() for name in candidates}
        seen: collections.Counter[str] = collections.Counter()  # non-ASCII characters
        frequent: collections.Counter[str] = collections.Counter()
        line, failed_at, block = 1, 1, head
        while block and decoders:
            for name in [*decoders]:
                try:
                    text = decoders[name].decode(block)
                except UnicodeDecodeError as error:
                    del decoders[name]
                    if name == "utf-8":
                        # error.object begins with the bytes of a character that the previous block cut apart.
                        failed_at = line + error.object[: error.start].count(b"\n")
                    continue
                if name in _FREQUENT and seen[name] < _MOST_SCORED_CHARACTERS:
                    beyond_ascii = [character for character in text if character > "\x7f"]
                    seen[name] += len(beyond_ascii)
                    frequent[name] += sum(map(_frequent_characters(name).__contains__, beyond_ascii))
            line += block.count(b"\n")
            block = file.read(_BLOCK_BYTES)
    whole = [name for name in decoders if not decoders[name].getstate()[0]]
    failed_at = line if "utf-8" in decoders else failed_at  # the file ends inside a character
    if "utf-8" in whole:
        return "utf-8-sig" if head.startswith(codecs.BOM_UTF8) else "utf-8"
    if not whole:
        tried = ", ".join(candidates)
        raise UserError(
            f"{path}, line {failed_at}: not UTF-8, and the file declares no encoding (tried: {tried}). Convert it, for "
            f"example with iconv -f ENCODING -t UTF-8."
        )
    return max(whole, key=lambda name: frequent[name] / max(1, seen[name]))


def encoding_of_lines(path: compression.PathLike, encodings: Sequence[str]) -> str:
    """Returns the encoding of a file of lines, some of which may be damaged; ignores a UTF-8 byte order mark.

    If the whole file is UTF-8, the result is UTF-8. Otherwise only non-ASCII lines count. UTF-8 is returned if it
    decodes more than half of them: the others are then damaged. Otherwise the result of ``encoding_of`` is returned; if
    there is none, the encoding that decodes the most of these lines.

    Args:
      path: The file.
      encodings: Candidates besides UTF-8.

    Raises:
      UserError: No encoding decodes more than half of the non-ASCII lines.
    """
    failure = found = None
    try:
        found = encoding_of(path, encodings).removesuffix("-sig")
    except UserError as error:
        failure = error
    if found == "utf-8":
        return found
    beyond_ascii, broken = 0, collections.Counter(dict.fromkeys(("utf-8", *encodings), 0))
    with raw_files.opened(path) as file:
        for line in file:
            if line.isascii():
                continue
            beyond_ascii += 1
            for name in broken:
                try:
                    line.decode(name)
                except UnicodeDecodeError:
                    broken[name] += 1
    if 2 * broken["utf-8"] < beyond_ascii:
        return "utf-8"
    if found is not None:
        return found
    likeliest = min(broken, key=broken.__getitem__)
    if failure is not None and 2 * broken[likeliest] >= beyond_ascii:
        raise failure
    return likeliest


def not_in(encoding: str) -> str:
    """Returns the error message for a line that cannot be decoded with an encoding."""
    return "invalid UTF-8" if encoding == "utf-8" else f"not in its encoding, {encoding}"


def is_known(encoding: str) -> bool:
    """Returns whether a name is the name of a text encoding (which ``hex`` and the like are not)."""
    try:
        "a".encode(encoding)
    except (LookupError, UnicodeError):
        return False
    return True


@functools.cache
def _frequent_characters(encoding: str) -> frozenset[str]:
    """Returns the frequent characters of a Chinese encoding."""
    first, seconds = _FREQUENT[encoding]
    pairs = (bytes((a, b)) for a in first for second in seconds for b in second)
    return frozenset("".join(pair.decode(encoding, "ignore") for pair in pairs) + _PUNCTUATION)


def _declared_encoding(path: compression.PathLike, head: bytes) -> str:
    for mark, name in ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")):
        if head.startswith(mark):
            return name
    match = _DECLARED.search(head.split(b"<seg", 1)[0]) if head.lstrip().startswith(b"<") else None
    if not match:
        return ""
    name = match[1].decode().lower()
    if not is_known(_EXTENDED.get(name, name)):
        raise UserError(f"{path} declares the encoding {name!r}, which is not known; convert it to UTF-8.")
    name = codecs.lookup(_EXTENDED.get(name, name)).name
    return "utf-8-sig" if name == "utf-8" else name
