"""What the commands that translate check of their files before anything is loaded; no TensorFlow."""

import types

import pytest

from t2t_ext.bin import translate_all
from t2t_ext.bin._run_text import check_files
from t2t_ext.errors import UserError


@pytest.mark.parametrize("references", ["-", "ref.txt,-", "-,-"])
def test_standard_input_is_read_for_one_text(references):
    flags = types.SimpleNamespace(decode_from_file="-", decode_reference=references, split="", data_dir="")
    with pytest.raises(UserError, match="cannot both be standard input"):
        check_files(flags, ("decode_from_file", "decode_reference"), ())
    with pytest.raises(UserError, match="cannot both be standard input"):
        translate_all._texts(flags, None)
