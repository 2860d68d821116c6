"""What the commands that translate check of their files before anything is loaded; no TensorFlow."""

import types

import pytest

from t2t_ext.bin import translate_all
from t2t_ext.bin._run_text import check_files
from t2t_ext.errors import UserError
from t2t_ext.evaluation.run_texts import reference_paths


@pytest.mark.parametrize("references", ["-", "ref.txt,-", "-,-"])
def test_standard_input_is_read_for_one_text(references):
    flags = types.SimpleNamespace(decode_from_file="-", decode_reference=references, split="", data_dir="")
    with pytest.raises(UserError, match="cannot both be standard input"):
        check_files(flags, ("decode_from_file", "decode_reference"), ())
    with pytest.raises(UserError, match="cannot both be standard input"):
        translate_all._texts(flags, None)


def test_a_name_with_a_comma_is_one_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {"decode_from_file": "x,out", "prefix_file": "x,-", "decode_reference": "ref,1.txt"}
    names = tuple(given)
    check_files(types.SimpleNamespace(**{**given, "decode_reference": ""}), names, ["out"])
    with pytest.raises(UserError, match=r"1\.txt is read and would be written over"):
        check_files(types.SimpleNamespace(**given), names, ["1.txt"])
    (tmp_path / "ref,1.txt").write_text("one\n")
    check_files(types.SimpleNamespace(**given), names, ["1.txt"])
    assert reference_paths("ref,1.txt") == ["ref,1.txt"]
    assert reference_paths("a,b") == ["a", "b"]
    assert reference_paths("") == []
