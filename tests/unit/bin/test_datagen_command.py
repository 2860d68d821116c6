"""Tests that t2t_ext-datagen finds mistakes before it does any work."""

import os

from t2t_ext.bin import datagen


def test_all_names_are_checked_first(tmp_path, capsys):
    flags = ["--problem=translate_ende_cldr,translate_nope", f"--data_dir={tmp_path / 'data'}"]
    assert datagen.main(flags) == 2
    assert "Unknown problem 'translate_nope'" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []
