"""Tests of t2t_ext-translate-all: each checkpoint of a run is translated once, and again only after a change."""

import dataclasses
import json
import pathlib
import shutil

import pytest

from t2t_ext.bin import decoder, translate_all
from t2t_ext.data.text.text_encoder import EOS_ID
from t2t_ext.errors import UserError
from t2t_ext.evaluation.score_table import curves
from t2t_ext.runs import checkpoints

FOLDER = "dev.beam2.alpha0.6"


@pytest.fixture
def run(trained_run, tmp_path):
    shutil.copytree(trained_run.directory, tmp_path / "run")
    return tmp_path / "run"


def command(run, *flags, wait=0):
    return translate_all.main(
        [f"--output_dir={run}", "--decode_hparams=beam_size=2,alpha=0.6", f"--wait_minutes={wait}", *flags]
    )


def records(run, folder=FOLDER):
    lines = (run / "translations" / folder / "scores.jsonl").read_text().splitlines()
    return sorted((json.loads(line) for line in lines), key=lambda record: record["step"])


def curve(run, folder=FOLDER):
    """Returns TensorBoard's scalars as {tag: {step: value}}."""
    import tensorflow as tf

    points = {}
    for path in (run / "tensorboard" / "translations" / folder).glob("events*"):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                points.setdefault(value.tag, {})[event.step] = float(tf.make_ndarray(value.tensor))
    return points


def test_every_checkpoint_is_translated_scored_and_drawn(run, capsys, tmp_path):
    assert command(run) == 0
    out = capsys.readouterr().out
    folder = run / "translations" / FOLDER
    assert [record["step"] for record in records(run)] == [30, 60]
    assert "step 60: BLEU_cased " in out
    # The translations equal the decoder's, although the weights were loaded into a model that had other weights before.
    path = tmp_path / "60.txt"
    flags = [f"--output_dir={run}", "--checkpoint_path=60", "--split=dev", f"--decode_to_file={path}"]
    assert decoder.main([*flags, "--decode_hparams=beam_size=2,alpha=0.6"]) == 0
    assert path.read_bytes() == (folder / "model.ckpt-00000060.txt").read_bytes()
    assert path.read_bytes() != (folder / "model.ckpt-00000030.txt").read_bytes()
    table = [line.split("\t") for line in (folder / "scores.tsv").read_text().splitlines()]
    assert table[0][:3] == ["step", "BLEU_cased", "BLEU_uncased"]
    assert [row[0] for row in table[1:]] == ["30", "60"]
    assert (folder / "scores.png").read_bytes().startswith(b"\x89PNG")
    expected = {
        name: {record["step"]: pytest.approx(record["scores"][name], rel=1e-5) for record in records(run)}
        for name in ("BLEU_cased", "BLEU_uncased")
    }
    assert curve(run) == expected


def test_what_is_done_is_not_done_again(run, capsys):
    assert command(run, "--min_steps=31") == 0
    assert [record["step"] for record in records(run)] == [60]
    first = records(run)[0]
    capsys.readouterr()
    assert command(run) == 0
    assert capsys.readouterr().out.count(" lines in ") == 1  # step 30 only
    assert records(run)[1] == first
    # With another protocol, the stored translations are scored again, even if their checkpoint is gone.
    shutil.rmtree(run / "checkpoints" / "model.ckpt-00000030")
    assert command(run, "--scoring=chrf") == 0
    out = capsys.readouterr().out
    assert " lines in " not in out
    assert out.count("scored again") == 2
    assert all(set(record["scores"]) == {"chrF2_cased", "chrF2_uncased"} for record in records(run))
    assert set(curve(run)) == {"chrF2_cased", "chrF2_uncased"}
    assert set(curve(run)["chrF2_cased"]) == {30, 60}


def test_what_was_truncated_or_has_no_translation_is_said(run, capsys, monkeypatch):
    from t2t_ext.translation.translator import Translator

    real = Translator._search_all

    def search(self, *args, **options):
        first, second, *others = real(self, *args, **options)
        empty = [dataclasses.replace(first[0], text="", ids=(EOS_ID,))]
        return [empty, [dataclasses.replace(second[0], text="", ids=(), length=0)], *others]

    monkeypatch.setattr(Translator, "_search_all", search)
    assert command(run, "--last_only=true", "--decode_hparams=beam_size=2,alpha=0.6,max_input_length=3") == 0
    out = capsys.readouterr().out
    assert "warning: step 60: the translation is empty: it ended at once (min_length=1 in" in out
    assert "warning: step 60: no translation: the model's probabilities are NaN" in out
    assert "warning: step 60: truncated to max_input_length=3 subwords: " in out


def test_another_text_of_the_same_name_takes_nothing_away(run, toy_corpus, tmp_path, capsys):
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        for side, lines in (("in", toy_corpus.dev_source), ("ref", toy_corpus.dev_target)):
            texts = lines.read_text().splitlines(keepends=True)
            (tmp_path / folder / f"{side}.txt").write_text("".join(texts[:4] if folder == "x" else texts[4:8]))

    def translated(folder):
        here = tmp_path / folder
        return command(run, f"--decode_from_file={here / 'in.txt'}", f"--decode_reference={here / 'ref.txt'}")

    name = "in.txt.beam2.alpha0.6"
    assert translated("x") == 0
    before = records(run, name)
    shutil.rmtree(run / "checkpoints" / "model.ckpt-00000030")
    assert translated("y") == 0
    assert "steps 30, 60 were translated from another text" in capsys.readouterr().out
    assert [record["step"] for record in records(run, name)] == [60]
    assert records(run, f"{name}.old") == before
    assert translated("x") == 0
    assert (run / "translations" / f"{name}.old2").is_dir()


def test_a_shortlist_that_was_made_anew_is_another_search(run, tmp_path):
    from t2t_ext.bin import analyze

    path = tmp_path / "list.npz"

    def shortlist(frequent):
        path.unlink(missing_ok=True)
        flags = [f"--shortlist_file={path}", f"--frequent={frequent}", "--candidates=1"]
        assert analyze.main(["shortlist", f"--output_dir={run}", *flags]) == 0

    shortlist(1)
    flags = ["--last_only", f"--decode_hparams=beam_size=2,alpha=0.6,shortlist={path}"]
    assert command(run, *flags) == 0
    (folder,) = (run / "translations").iterdir()
    first = (folder / "model.ckpt-00000060.txt").read_text()
    shortlist(100)
    assert command(run, *flags) == 0
    assert (folder / "model.ckpt-00000060.txt").read_text() != first


def test_compare_takes_the_language_of_the_runs_data(run, capsys, monkeypatch):
    """t2t_ext-compare chooses sacrebleu's tokenizer by the language of the run's data, like the other commands."""
    from t2t_ext import registry
    from t2t_ext.bin import compare
    from t2t_ext.runs.run_directory import RunDirectory

    assert command(run, "--last_only") == 0
    flags = [f"--output_dir={run}", "--split=dev", "--n_bootstrap=50", "--n_trials=50", "--protocol=sacrebleu"]
    folder = str(run / "translations" / FOLDER)
    for language, tokenizer in (("de", "13a"), ("zh", "zh")):
        problem = type(registry.problem(RunDirectory.open(run).config.problem))
        monkeypatch.setattr(problem, "target_language", language)
        capsys.readouterr()
        assert compare.main([*flags, folder]) == 0
        assert f"tok:{tokenizer}" in capsys.readouterr().out
    assert compare.main([*flags, "--language=de", folder]) == 0
    assert "tok:13a" in capsys.readouterr().out


def test_two_runs_do_not_share_a_folder(run, tmp_path, capsys):
    flags = ["--last_only", f"--translations_dir={tmp_path / 'out'}"]
    assert command(run, *flags) == 0
    other = shutil.copytree(run, tmp_path / "other run")
    assert command(other, *flags) == 2
    assert f"has the translations of the run {run.resolve()}, not of {other.resolve()}" in capsys.readouterr().err
    shutil.rmtree(run)  # as if it had been moved
    assert command(other, *flags) == 0
    assert f"tensorboard --logdir='{other / 'tensorboard'}'" in capsys.readouterr().out


def test_checkpoints_that_are_deleted_or_damaged_are_passed_over_and_said(run, capsys, monkeypatch):
    """Damaged checkpoints, and ones deleted after listing as by keep_checkpoint_max, are skipped with a message."""
    shutil.copytree(run / "checkpoints" / "model.ckpt-00000030", run / "checkpoints" / "model.ckpt-00000020")
    file = run / "checkpoints" / "model.ckpt-00000030" / "model.data-00000-of-00001"
    data = bytearray(file.read_bytes())
    data[100] ^= 255
    file.write_bytes(data)
    description = run / "checkpoints" / "model.ckpt-00000020" / "checkpoint.json"
    description.write_text(description.read_text().replace('"step": 30', '"step": 20'))
    real = checkpoints.load_arrays

    def load(path, *args, **options):
        if pathlib.Path(path).name.endswith("20"):
            shutil.rmtree(path)
        return real(path, *args, **options)

    monkeypatch.setattr(checkpoints, "load_arrays", load)
    assert command(run) == 0
    out = capsys.readouterr().out
    assert "model.ckpt-00000020 was deleted by the trainer before it was read" in out
    assert "model.ckpt-00000030 is damaged" in out
    assert [record["step"] for record in records(run)] == [60]


def test_waiting_ends_with_the_minutes_and_with_training(run, capsys):
    """The command waits for new checkpoints of an unfinished run, but not of a finished one."""
    config = run / "config.json"
    stored = json.loads(config.read_text())
    stored["training"]["train_steps"] = 1000
    config.write_text(json.dumps(stored))
    assert command(run, "--every_steps=60", wait=0.001) == 0
    assert "no new checkpoint in 0.001 minutes" in capsys.readouterr().out
    assert [record["step"] for record in records(run)] == [60]
    stored["training"]["train_steps"] = 60
    config.write_text(json.dumps(stored))
    assert command(run, wait=60) == 0  # would wait for an hour
    assert [record["step"] for record in records(run)] == [30, 60]


def test_a_checkpoint_that_comes_as_training_ends_is_not_missed(run, monkeypatch):
    """A checkpoint saved after the last look at the folder is translated, even if the run is finished by then."""
    aside, saved = run / "aside", run / "checkpoints" / "model.ckpt-00000060"
    saved.rename(aside)

    def is_over(path):
        if aside.exists() and (run / "translations" / FOLDER / "scores.jsonl").exists():
            aside.rename(saved)
            return True
        return saved.exists()

    monkeypatch.setattr("t2t_ext.experiments.sweep.training_is_over", is_over)
    monkeypatch.setattr("t2t_ext.experiments.sweep._SECONDS_BETWEEN_LOOKS", 0.01)
    assert command(run, wait=0.1) == 0
    assert [record["step"] for record in records(run)] == [30, 60]


def test_search_settings_are_compared(run, capsys):
    flags = [f"--output_dir={run}", "--decode_hparams=max_input_length=50", "--search_grid=beam_size=1:2"]
    assert translate_all.main(flags) == 0
    out = capsys.readouterr().out
    assert out.count(" lines in ") == 2
    *_, heading, first, last, said = out.splitlines()
    assert heading.split() == ["beam_size", "BLEU_cased", "BLEU_uncased", "lines/s"]
    beam_size, score, *_ = first.split()
    assert float(score) >= float(last.split()[1])
    chosen = f"--decode_hparams=max_input_length=50,beam_size={beam_size}"
    assert said == f"best of 2 at step 60: {chosen} with BLEU_cased {score}"
    folders = [path.name for path in (run / "translations").iterdir() if path.is_dir()]
    assert len(folders) == 2
    assert {record["step"] for folder in folders for record in records(run, folder)} == {60}
    shutil.rmtree(run / "checkpoints" / "model.ckpt-00000060")
    shutil.rmtree(run / "checkpoints" / "model.ckpt-00000030")
    assert translate_all.main(flags) == 0
    again = capsys.readouterr().out
    assert " lines in " not in again
    assert again.splitlines()[-1] == said


def test_search_settings_are_not_compared_on_a_damaged_checkpoint(run, capsys):
    (weights,) = (run / "checkpoints" / "model.ckpt-00000060").glob("model.data-*")
    weights.write_bytes(weights.read_bytes()[:-1])
    assert translate_all.main([f"--output_dir={run}", "--search_grid=beam_size=1:2"]) == 2
    assert "checkpoints is damaged, or the trainer saved" in capsys.readouterr().err


def test_scoring_without_a_name_is_the_problems(run, capsys):
    assert command(run, "--last_only", "--scoring=,") == 0
    assert "BLEU_cased" in capsys.readouterr().out


def test_last_only_of_averages_and_a_file(run, toy_corpus, tmp_path):
    from t2t_ext.bin import avg_all

    assert avg_all.main([f"--output_dir={run}", "--n=2"]) == 0
    source, reference = toy_corpus.dev_source, toy_corpus.dev_target
    flags = ["--checkpoints=averaged", "--last_only", f"--decode_from_file={source}", f"--decode_reference={reference}"]
    assert command(run, *flags, f"--translations_dir={tmp_path / 'out'}") == 0
    (found,) = (tmp_path / "out").iterdir()
    assert found.name == f"averaged.{source.name}.beam2.alpha0.6"
    assert len((found / "model.ckpt-00000060.txt").read_text().splitlines()) == len(toy_corpus.dev)


def test_curves_that_cannot_be_written_are_no_traceback(tmp_path):
    """Such as those of a run that only others may write to."""
    (tmp_path / "tensorboard").write_text("")
    with (
        pytest.raises(UserError, match="Cannot write the curves for TensorBoard"),
        curves(tmp_path / "tensorboard", []),
    ):
        pass


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--scoring=multi_blue"], "Did you mean 'multi_bleu'"),
        (["--split=tset"], "has no tset split"),
        (["--decode_from_file=x"], "go together"),
        (["--decode_from_file=x", "--split=dev"], "exclude each other"),
        (["--checkpoints=averaged"], "has no averaged checkpoint yet"),
        (["--min_steps=99"], "--min_steps=99"),
        (["--min_steps=99", "--last_only"], "--min_steps=99"),
        (["--wait_minutes=-1"], "at least 0"),
        (["--beam_size=4"], "--decode_hparams"),
        (["--translations_dir=/nowhere/x"], "no directory /nowhere"),
        (["--output_dir=nowhere"], "nowhere"),
        (["--n_bootstrap=1"], "--n_bootstrap=1: an interval needs more samples"),
        (["--last_only", "--every_steps=7"], "--every_steps=7 has no effect beside --last_only"),
        (["--last_only", "--wait_minutes=7"], "--wait_minutes=7 has no effect beside --last_only"),
        (["--search_grid=beam_size=1:2"], "beam_size is in --search_grid and in --decode_hparams"),
        (["--search_grid=min_length=0:1", "--every_steps=7"], "--every_steps=7 has no effect beside --search_grid"),
        (["--search_grid=min_length=0:1", "--wait_minutes=1"], "--wait_minutes=1 has no effect beside --search_grid"),
        (["--decode_from_file=-", "--decode_reference=-"], "cannot both be standard input"),
        (["--decode_hparams=return_beams=true", "--min_steps=99"], "return_beams of --decode_hparams change nothing"),
    ],
)
def test_mistakes(run, flags, message, capsys):
    assert command(run, *flags) == 2
    assert message in capsys.readouterr().err


def test_the_number_of_hypotheses_may_change_the_best_where_the_search_ends_early(run, capsys):
    for given, is_idle in (("exact", True), ("heuristic", False)):
        for setting in ("num_hypotheses=2", "return_beams=true"):
            assert command(run, f"--decode_hparams={setting},early_stopping={given}", "--min_steps=99") == 2
            told = f"{setting.partition('=')[0]} of --decode_hparams change nothing" in capsys.readouterr().err
            assert told == is_idle
