"""What t2t_ext-analyze refuses or passes on before anything is loaded; stand-ins for runs, no TensorFlow."""

import types

import pytest

from t2t_ext.bin import _analyze_attention, _analyze_probing, _analyze_shortlist
from t2t_ext.bin._analyzed_runs import output_directory
from t2t_ext.errors import UserError


def test_an_output_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    flags = types.SimpleNamespace(out_dir=str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"--out_dir=.*file: the directory cannot be written to"):
        output_directory(flags, tmp_path / "run", "probing")
    flags.out_dir = ""
    assert output_directory(flags, tmp_path / "run", "probing") == tmp_path / "run" / "analysis" / "probing"
    assert not (tmp_path / "run").exists()  # the report at the end makes it


def test_a_reference_of_whitespace_stands_for_the_models_own(tmp_path):
    (tmp_path / "in").write_text("a\nb\nc\n")
    (tmp_path / "ref").write_text("x y\n \u3000\n\n")
    flags = ["--output_dir=RUN", f"--sentence_file={tmp_path / 'in'}", f"--reference_file={tmp_path / 'ref'}"]
    parsed = _analyze_attention.build_parser().parse_args(flags)
    assert _analyze_attention._sentences(parsed) == (["a", "b", "c"], ["x y", "", ""])


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("shortlist_file=-", "not written to standard output"),
        ("vmap_file=-", "not written to standard output"),
        ("shortlist_file={run}/config.json", "is a file of the run"),
        ("vmap_file={run}/vocab.source.model", "is a file of the run"),
    ],
)
def test_where_no_shortlist_is_written(tmp_path, monkeypatch, flag, message):
    run = types.SimpleNamespace(
        path=tmp_path, require_text=lambda what: None, holds=lambda path: path != str(tmp_path / "shortlist.npz")
    )
    monkeypatch.setattr(_analyze_shortlist.RunDirectory, "open", lambda path: run)
    flags = [f"--output_dir={tmp_path}", f"--{flag.format(run=tmp_path)}"]
    with pytest.raises(UserError, match=message):
        _analyze_shortlist.run(_analyze_shortlist.build_parser().parse_args(flags))


def test_the_layers_of_a_pretrained_encoder_are_not_those_of_the_set():
    flags = types.SimpleNamespace(layer="9")

    def run(**hparams):
        return types.SimpleNamespace(
            directory=types.SimpleNamespace(
                path="RUN", hparams=lambda: types.SimpleNamespace(encoder_layers=6, **hparams)
            )
        )

    assert _analyze_probing._check_layer(flags, [run(encoder_preset="a_model")]) == 9
    with pytest.raises(UserError, match="--layer=9: the encoder of RUN has 6 layers"):
        _analyze_probing._check_layer(flags, [run(encoder_preset="")])
