"""Tests of stored JSON: values that match the schema are returned unchanged, others are refused with their location."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired, TypedDict

import pytest

from t2t_ext.errors import UserError
from t2t_ext.io import stored


class Part(TypedDict):
    size: stored.Count
    name: NotRequired[str]


@dataclasses.dataclass
class Whole:
    number: int
    parts: dict[str, Part]
    words: Sequence[str] = ()
    share: float | None = None
    described: Annotated[dict[str, Any], Part] = dataclasses.field(default_factory=lambda: {"size": 0})
    anything: Any = None
    norms: Mapping[str, stored.Real] = dataclasses.field(default_factory=dict)


GOOD = {
    "number": 1, "parts": {"a": {"size": 2, "more": None}}, "words": ["x"], "share": 1, "described": {"size": 3},
    "anything": [{}], "norms": {"a": float("nan")},
}  # fmt: skip


def test_what_fits_is_returned_as_it_is():
    assert repr(stored.parse(json.dumps(GOOD), Whole)) == repr(GOOD)
    assert stored.parse(b'{"number": 1, "parts": {}}', Whole) == {"number": 1, "parts": {}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"number": True}, "number is true, not a whole number"),
        ({"number": None}, "number is null, not a whole number"),
        ({"number": 1.0}, "number is 1.0, not a whole number"),
        ({"parts": []}, "parts is a list, not an object"),
        ({"parts": {"a": {}}}, "parts.a lacks 'size'"),
        ({"parts": {"a": {"size": -1}}}, "parts.a.size is -1, not a whole number from 0 to 9,007,199,254,740,991"),
        ({"parts": {"a": {"size": 10**4000}}}, "parts.a.size is a number of about 4,000 digits, not a whole number"),
        ({"parts": {"a": {"size": 1, "name": 3}}}, "parts.a.name is 3, not a string"),
        ({"words": ["x", 2]}, "words[1] is 2, not a string"),
        ({"words": "x" * 1000}, f'words is "{"x" * 59}..., not a list'),
        ({"share": "1"}, 'share is "1", not a number or null'),
        ({"share": float("inf")}, "share is inf, not a finite number"),
        ({"described": {"size": "3"}}, 'described.size is "3", not a whole number'),
        ({"norms": {"a": True}}, "norms.a is true, not a number"),
        ({"unheard": 1}, "it has the unknown key 'unheard'"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(change, message):
    with pytest.raises(stored.Damaged) as raised:
        stored.check({**GOOD, **change}, Whole)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("[1", "it is not JSON: "),
        ("[" * 100_000, "it is nested too deeply"),
        ("9" * 5000, "it holds a number of thousands of digits"),
        ('"\\ud800"', "it holds half of a character"),
        (b'"\xff"', "byte 1 is not UTF-8"),
    ],
)
def test_what_is_no_json_is_refused(text, message):
    with pytest.raises(stored.Damaged) as raised:
        stored.parse(text)
    assert str(raised.value).startswith(message)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "large.json"
    with open(path, "wb") as file:
        file.truncate(stored.MOST_BYTES + 1)
    with pytest.raises(stored.Damaged, match="more than any such file"):
        stored.read(path)


def test_a_path_that_is_not_utf_8_is_named():
    stored.check_unicode("--output_dir=läufe")
    with pytest.raises(UserError, match=r"'--output_dir=r\\udce9' is not UTF-8, .* Rename the file or folder"):
        stored.check_unicode('["--model=x", "--output_dir=r\udce9"]')
