"""Tests of t2t_ext-experiment's flags: mistakes, a dry run and the list."""

import pytest

from t2t_ext.bin import experiment
from t2t_ext.errors import UserError


def run(*flags):
    """Runs the command without turning its errors into an exit status."""
    return experiment.main.__wrapped__(experiment.build_parser().parse_args(flags))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--recipe=NAME says"),
        (["--recipe=he2018_table1_deen_basline"], "Did you mean 'he2018_table1_deen_baseline'"),
        (["--recipe=cldr_ende_transformer_tiny", "--work_dir=W", "--size=base"], "have one size"),
        (
            ["--recipe=synchronous_pipeline", "--work_dir=W", "--problem=translate_ende_cldr_synchronous"],
            "without _sync",
        ),
        (["--recipe=synchronous_pipeline", "--work_dir=W", "--hparams=target_direction=r2l"], "of both directions"),
        (["--recipe=cldr_synchronous_rerank", "--work_dir=W", "--hparams=target_direction=l2r"], "of both directions"),
        (["--recipe=synchronous_pipeline", "--work_dir=W", "--beams=4,x"], "expects whole numbers separated by commas"),
        (["--recipe=synchronous_pipeline", "--work_dir=W", "--beams=2,3"], "beam_size=3: this model generates left to"),
        (["--recipe=synchronous_pipeline", "--work_dir=W", "--beams=2", "--decode_hparams=beam_size=8"], "beams of 2"),
        (["--recipe=cldr_synchronous_rerank", "--work_dir=W", "--beams=2"], "reranks lists of k translations"),
        (["--recipe=cldr_ende_transformer_tiny", "--work_dir=W", "--until=data", "--redo=train"], "does nothing with"),
        (["--recipe=synchronous_pipeline", "--work_dir=W", "--size=huge"], "'synchronous_transformer_huge' is unknown"),
        (["--recipe=synchronous_pipeline", "--work_dir=W", "--problem=translate_deen_multi3k"], "multi30k"),
        (["--recipe=synchronous_pipeline", "--work_dir=W", "--hparams=sb_lamda=1"], "Did you mean 'sb_lambda'"),
        (["--recipe=cldr_ende_transformer_tiny"], "--work_dir=DIR says"),
        (["--recipe=cldr_ende_transformer_tiny", "--work_dir=W", "--hparams=batchsize=3"], "Did you mean 'batch_size'"),
        (["--recipe=cldr_ende_transformer_tiny", "--work_dir=W", "--train=train_step=3"], "'--train_step|--train_step"),
        (["--recipe=cldr_ende_transformer_tiny", "--work_dir=W", "--train=train_steps=3"], "with --train_steps"),
        (
            ["--recipe=cldr_ende_transformer_tiny", "--work_dir=W", "--train=keep_checkpoint_max=4"],
            "averages the last 5",
        ),
        (
            ["--recipe=cldr_ende_transformer_tiny", "--work_dir=W", "--train=keep_checkpoint_max=x"],
            "expects an integer",
        ),
        (["--recipe=cldr_ende_transformer_tiny", "--work_dir=W\udce9"], "is not UTF-8"),
        (["--recipe=diversification", "--work_dir=W,X"], "is given 3 runs in this folder as a list"),
        (["--recipe=cldr_ende_transformer_tiny", "--work_dir=W", "--decode_hparams=beam=3"], "beam"),
        (["--recipe=cldr_ende_transformer_tiny", "--work_dir=W", "--redo=trian"], "Did you mean 'train'"),
        (["--recipe=cldr_ende_transformer_tiny", "--work_dir=W", "--redo=pseudo"], "--redo=pseudo: this recipe has no"),
        (["--recipe=cldr_ende_transformer_tiny", "--work_dir=W", "--stage=compare"], "stages are data, train, average"),
        (["--recipe=cldr_ende_transformer_tiny", "--work_dir=W", "--teachers_seed=2"], "has no teachers"),
        (["--recipe=cldr_ende_transformer_tiny", "--work_dir=W", "--stage=train", "--until=train"], "exclude"),
        (["--recipe=cldr_synchronous_rerank", "--work_dir=W", "--redo=train"], "belongs to cldr_synchronous_l2r and"),
        (["--list", "--recipe=he2020*"], "no recipe has such a name"),
        (["--list", "--recipes_dir=nowhere"], "there is no such directory"),
    ],
)
def test_mistakes_on_the_command_line(flags, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        run(*flags)
    assert not any(tmp_path.iterdir())


def test_a_file_in_the_place_of_the_report_names_the_flag(tmp_path):
    (tmp_path / "cldr_ende_transformer_tiny").touch()
    with pytest.raises(UserError, match=r"^--work_dir=.*cldr_ende_transformer_tiny: .* Choose another --work_dir"):
        run("--recipe=cldr_ende_transformer_tiny", f"--work_dir={tmp_path}")
    assert [path.name for path in tmp_path.iterdir()] == ["cldr_ende_transformer_tiny"]


def test_a_dry_run_of_one_stage(tmp_path, capsys):
    flags = ["--recipe=cldr_ende_transformer_tiny", f"--work_dir={tmp_path}", "--dry_run"]
    assert run(*flags, "--stage=score") == 0
    commands = [line for line in capsys.readouterr().out.splitlines() if line.startswith("t2t_ext-")]
    assert commands
    assert all(line.startswith("t2t_ext-translate-all ") for line in commands)
    with pytest.raises(UserError, match="exclude each other"):
        run(*flags, "--stage=score", "--until=train")


def test_list(capsys):
    assert experiment.main(["--list", "--recipe=he2018_table1*"]) == 0
    out = capsys.readouterr().out
    assert "Table 1: De-En, Transformer (small)  test 32.86" in out
    assert "6 recipes" in out
