"""Tests of the records and the decisions from them, of TensorBoard files, and of the lines shown to users."""

import dataclasses
import io
import json
import math
import pathlib
import resource

import numpy as np
import pytest
import tensorflow as tf

from t2t_ext.analysis.attention import maps as attention
from t2t_ext.analysis.attention.pictures import attention_picture
from t2t_ext.config.training import TrainConfig, TrainingSettings
from t2t_ext.errors import UserError
from t2t_ext.training import dev_metrics
from t2t_ext.training.monitor import Board
from t2t_ext.training.progress import Progress, describe_evaluation
from t2t_ext.training.records import Best, Records, best_of, best_weights_of, stopped_improving


def evaluations(metric, values):
    return [{"kind": "eval", "step": 10 * (i + 1), metric: value} for i, value in enumerate(values)]


def test_records_are_cut_to_the_restored_step(tmp_path):
    path = tmp_path / "metrics.jsonl"
    records = Records(path, 0)
    for step in (10, 20, 30):
        records.append({"kind": "train", "step": step, "loss": 1.0})
    with open(path, "a", encoding="utf-8") as file:
        file.write('{"kind": "train", "st')  # killed while it was writing
    again = Records(path, 20)
    assert [record["step"] for record in again.all] == [10, 20]
    again.append({"kind": "eval", "step": 20, "loss": 1.0})
    assert again.has_evaluation(20)
    assert not again.has_evaluation(10)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [10, 20, 20]


def test_what_is_no_number_is_null_in_the_file_and_nan_in_memory(tmp_path):
    """Values that are not JSON (NaN, Infinity) are stored as null, and a resumed run decides like the first one."""
    path = tmp_path / "metrics.jsonl"
    records = Records(path, 0)
    for step, loss in enumerate((math.nan, math.inf, 2.0)):
        records.append({"kind": "eval", "step": step, "loss": loss})

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    lines = [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]
    assert [line["loss"] for line in lines] == [None, None, 2.0]
    again = Records(path, 9)
    for each in (records, again):
        np.testing.assert_array_equal([record["loss"] for record in each.all], [math.nan, math.nan, 2.0])
        assert best_of(each.all, "loss") == Best(2, 2.0)


def test_records_of_earlier_versions_become_json(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "eval", "step": 1, "loss": NaN, "perplexity": Infinity}\n')
    assert math.isnan(Records(path, 9).all[0]["perplexity"])
    assert path.read_text() == '{"kind": "eval", "step": 1, "loss": null, "perplexity": null}\n'


def test_a_full_disk_keeps_the_records_that_were_there(tmp_path):
    path = tmp_path / "metrics.jsonl"
    records = Records(path, 0)
    records.append({"kind": "train", "step": 1})
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, limits[1]))  # there is room for half a line
    try:
        with pytest.raises(UserError, match=r"Cannot write .*metrics.jsonl: .*same command again"):
            records.append({"kind": "train", "step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert [record["step"] for record in records.all] == [1]


def test_a_worker_that_is_not_the_chief_writes_nothing(tmp_path):
    path = tmp_path / "metrics.jsonl"
    Records(path, 0, writable=False).append({"kind": "train", "step": 1})
    assert not path.exists()


@pytest.mark.parametrize(
    ("metric", "values", "expected"),
    [
        ("bleu", [1.0, 3.0, 3.0, 2.0], Best(20, 3.0)),
        ("loss", [3.0, 1.0, 2.0], Best(20, 1.0)),
        ("perplexity", [], None),
        ("perplexity", [None, "high", 3.0], Best(30, 3.0)),
        ("loss", [float("nan"), 3.0, float("nan"), 2.0], Best(40, 2.0)),
        ("loss", [float("inf"), 3.0], Best(20, 3.0)),
    ],
)
def test_best_is_the_first_of_the_best(metric, values, expected):
    assert best_of(evaluations(metric, values), metric) == expected


@pytest.mark.parametrize(
    ("bleu", "losses", "step"),
    [
        ([0.0, 0.0, 0.0], [3.0, 1.0, 2.0], 20),
        ([0.0, 0.0, 0.0], [3.0, 2.0, 2.0], 30),
        ([0.0, 0.0, 0.0], [None, None, None], 30),
        ([0.0, 0.0, 0.0], [3.0, float("nan"), None], 10),
        ([1.0, 3.0, 3.0], [1.0, 3.0, 2.0], 30),
        ([1.0, 3.0, 3.0], [1.0, 2.0, 3.0], 20),
        ([1.0, 3.0, 2.0], [3.0, 2.0, 1.0], 20),
        ([float("nan")] * 3, [3.0, 2.0, 1.0], 10),
        ([], [], None),
    ],
)
def test_of_equal_weights_those_with_the_lowest_loss_are_the_best(bleu, losses, step):
    found = evaluations("bleu", bleu)
    for record, loss in zip(found, losses, strict=True):
        record |= {} if loss is None else {"loss": loss}
    best = best_weights_of(found, "bleu")
    assert (best and best.step) == step
    # Early stopping counts from the first of the equal values.
    settings = TrainingSettings(eval_early_stopping_metric="bleu", eval_early_stopping_steps=20)
    if bleu[:1] == [0.0]:
        assert stopped_improving(found, settings) == Best(10, 0.0)


@pytest.mark.parametrize(("key", "values"), [("sentences", (8, 50)), ("search", ("beam_size=1", "beam_size=4"))])
def test_scores_of_other_sentences_or_searches_are_not_compared(key, values):
    """Scores from before a change of --eval_bleu_sentences or --decode_hparams do not count.

    Records of earlier versions do not contain these settings.
    """
    found = evaluations("bleu", [9.0, 30.0, 20.0, 25.0, 24.0])
    for record in found[1:]:
        record[key] = values[record["step"] > 20]
    assert best_of(found[:2], "bleu") == Best(20, 30.0)
    assert best_of(found, "bleu") == Best(40, 25.0)
    assert best_of([*found, {"kind": "eval", "step": 60, "loss": 1.0}], "loss") == Best(60, 1.0)
    settings = TrainingSettings(eval_early_stopping_metric="bleu", eval_early_stopping_steps=30)
    assert stopped_improving(found, settings) is None


def test_early_stopping_counts_steps_without_enough_improvement():
    settings = TrainingSettings(eval_early_stopping_steps=20, eval_early_stopping_metric_delta=0.1)
    assert stopped_improving(evaluations("loss", [3.0, 2.95]), settings) is None
    assert stopped_improving(evaluations("loss", [3.0, 2.95, 2.91]), settings) == Best(10, 3.0)
    assert stopped_improving(evaluations("loss", [3.0, 2.95, 2.85]), settings) is None
    assert stopped_improving(evaluations("loss", [3.0, 2.95, 2.91]), TrainingSettings()) is None


def test_early_stopping_of_a_run_whose_loss_is_never_a_number():
    settings = TrainingSettings(eval_early_stopping_steps=20)
    assert stopped_improving(evaluations("loss", [float("nan")] * 2), settings) is None
    assert stopped_improving(evaluations("loss", [float("nan")] * 3), settings).step == 10
    assert stopped_improving(evaluations("loss", [float("nan"), float("nan"), 5.0]), settings) is None


def test_early_stopping_can_be_turned_round():
    settings = TrainingSettings(
        eval_early_stopping_metric="loss",
        eval_early_stopping_steps=20,
        eval_early_stopping_metric_minimize=False,
    )
    assert stopped_improving(evaluations("loss", [3.0, 2.0, 1.0]), settings) == Best(10, 3.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"best_checkpoint_metric": "blue"}, "Did you mean 'bleu'"),
        ({"eval_early_stopping_metric": "approx_bleu_score"}, "loss, nll, perplexity, accuracy, bleu"),
        ({"train_steps": 0}, "at least 1"),
        ({"train_steps": "10"}, "train_steps is an integer"),
        ({"eval_bleu_sentences": -1}, "switches off"),
        ({"preempted_exit_code": 0}, "at least 1"),
        ({"preempted_exit_code": 256}, "at most 255"),  # the system would report it as 0
        ({"worker_timeout": float("nan")}, "must be finite"),
        ({"worker_timeout": 1e6}, "at most 86,400"),
    ],
)
def test_bad_settings_are_explained(settings, message):
    with pytest.raises(UserError, match=message):
        dev_metrics.check(TrainingSettings(**settings))


def test_config_has_every_setting():
    config = TrainConfig(output_dir="RUN", train_steps=7, deterministic=True)
    assert config.given_settings() == {"train_steps": 7, "deterministic": True}
    everything = {name: getattr(config, name) for name in TrainingSettings.names()}
    given = {name: value for name, value in everything.items() if value is not None}
    assert TrainConfig(output_dir="RUN", **everything).given_settings() == given


def test_config_tells_what_is_given_from_defaults():
    config = TrainConfig(output_dir="RUN", train_steps=250000, tpu=None)
    assert config.given() == {"output_dir": "RUN", "train_steps": 250000}
    assert config.replace(model="transformer").given() == {**config.given(), "model": "transformer"}
    assert config.tpu == ""
    # dataclasses.replace passes every field, so only values other than the default count as given.
    copy = dataclasses.replace(config, model="transformer")
    assert copy == config.replace(model="transformer")
    assert copy.given() == {"output_dir": "RUN", "model": "transformer"}


def points(directory, tag):
    """Returns the steps of a curve as TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(directory))
    accumulator.Reload()
    return [event.step for event in accumulator.Tensors(tag)] if tag in accumulator.Tags()["tensors"] else []


def test_event_files_are_cut_to_the_restored_step(tmp_path):
    board = Board(tmp_path, 0)
    for step in (10, 20, 30):
        board.record({"kind": "train", "step": step, "loss": 1.0})
    board.close()
    (written,) = (tmp_path / "train").iterdir()
    written.write_bytes(written.read_bytes() + b"half a rec")
    board = Board(tmp_path, 20)
    board.record({"kind": "train", "step": 25, "loss": 1.0})
    board.close()
    assert points(tmp_path / "train", "loss") == [10, 20, 25]


def test_what_is_done_again_has_no_second_points(tmp_path):
    """An interrupted evaluation is done again, and so is a run without a checkpoint: neither is there twice."""
    for restored, evaluated in ((None, False), (None, False), (20, False), (20, True)):
        board = Board(tmp_path, restored, evaluated=evaluated)
        if restored is None:
            board.hparams([("batch_size", 10, "flag")])
            for step in (10, 20):
                board.record({"kind": "train", "step": step, "loss": 1.0})
                board.record({"kind": "eval", "step": step, "loss": 1.0})
        elif not evaluated:
            board.record({"kind": "eval", "step": 20, "loss": 1.0})
        board.close()
    assert len(points(tmp_path, "hparams")) == 1
    assert points(tmp_path / "train", "loss") == points(tmp_path / "eval", "loss") == [10, 20]


def test_a_full_disk_while_event_files_are_cut(tmp_path):
    board = Board(tmp_path, None)
    for step in range(1, 60):
        board.record({"kind": "train", "step": step, "loss": 1.0})
    board.close()
    (written,) = (tmp_path / "train").iterdir()
    before, limits = written.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(UserError, match=r"Cannot write the curves for TensorBoard in .* Make room"):
            Board(tmp_path, 50)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert written.read_bytes() == before
    assert [path.name for path in (tmp_path / "train").iterdir()] == [written.name]


def test_numbers_of_a_training_that_diverges(tmp_path):
    """Event files, which hold float32, keep a point for a perplexity beyond float32 and for a loss of NaN."""
    board = Board(tmp_path, 0)
    board.record({"kind": "train", "step": 10, "loss": float("nan"), "perplexity": 1e304})
    board.close()
    assert points(tmp_path / "train", "perplexity") == points(tmp_path / "train", "loss") == [10]


def test_an_older_run_keeps_its_points_where_they_are(tmp_path):
    older = tmp_path / "tensorboard"
    with tf.summary.create_file_writer(str(older)).as_default():
        for step in (10, 30):
            tf.summary.scalar("train/loss", 1.0, step)
    board = Board(tmp_path, 20)
    board.record({"kind": "train", "step": 25, "loss": 1.0})
    board.close()
    assert points(older, "train/loss") == [10]
    assert points(older / "train", "loss") == [25]


def test_tensorboard_compares_losses_and_runs(tmp_path):
    """TensorBoard, given the folder of two runs, shows both losses in one chart and a row of hparams per run."""
    from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins.base_plugin import TBContext
    from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups

    for name, batch_size in (("small", 10), ("large", 20)):
        board = Board(tmp_path / name, 0)
        board.hparams(
            [("model", "transformer", "flag"), ("batch_size", batch_size, "flag"), ("pos", "none", "default")]
        )
        board.record({"kind": "train", "step": 5, "loss": 2.0})
        board.record({"kind": "eval", "step": 5, "loss": batch_size / 4, "bleu": 30.0})
        board.gradient_norms({"step": 5, "norms": {"all": 1.0, "encoder/layer_0": 0.5}})
        board.close()
    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(tmp_path))
    multiplexer.Reload()
    provider = MultiplexerDataProvider(multiplexer, str(tmp_path))
    curves = provider.list_scalars(RequestContext(), experiment_id="", plugin_name="scalars")
    assert [run for run, tags in sorted(curves.items()) if "loss" in tags] == [
        "large/eval", "large/train", "small/eval", "small/train",
    ]  # fmt: skip
    assert "gradient_norms/encoder/layer1" in curves["small/train"]
    context = backend_context.Context(TBContext(logdir=str(tmp_path), multiplexer=multiplexer, data_provider=provider))
    experiment = context.experiment_from_metadata(
        RequestContext(), "", False, context.hparams_metadata(RequestContext(), ""), []
    )
    request = api_pb2.ListSessionGroupsRequest(
        start_index=0, slice_size=10, allowed_statuses=[api_pb2.STATUS_UNKNOWN, api_pb2.STATUS_RUNNING],
        col_params=[api_pb2.ColParams(metric=info.name) for info in experiment.metric_infos],
    )  # fmt: skip
    rows = list_session_groups.Handler(RequestContext(), context, "", request).run().session_groups
    found = {row.sessions[0].name: row for row in rows}
    assert found.keys() == {"small", "large"}
    assert {name: value.number_value for name, value in found["large"].hparams.items() if name == "batch_size"} == {
        "batch_size": 20
    }
    measured = {(each.name.group, each.name.tag): each.value for each in found["large"].metric_values}
    assert (measured["eval", "loss"], measured["train", "loss"], measured["eval", "bleu"]) == (5, 2, 30)


def test_runs_of_the_same_relative_path_are_rows_of_their_own(tmp_path, monkeypatch):
    from tensorboard.plugins.hparams import api

    trials = []
    monkeypatch.setattr(api, "hparams", lambda values, trial_id: trials.append(trial_id))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        board = Board(pathlib.Path("run"), 0)
        board.hparams([("batch_size", 10, "flag")])
        board.close()
    assert trials == [f"{tmp_path}/one/run", f"{tmp_path}/two/run"]


def test_tensorboard_has_samples_pictures_and_hparams(tmp_path):
    board = Board(tmp_path, 0)
    board.hparams([("batch_size", 10, "flag")])
    board.samples(5, ["a | b"], ["<c>"], ["d"])
    weights = np.random.default_rng(0).random((1, 2, 3, 4))
    words = attention.Sentence(("▁a", "$", "日本", "</s>"), (attention.generated(["x", "y", "</s>"], "l2r"),))
    mixed = np.full((1, 2, 3, 7), 1 / 7)
    maps = attention.read_maps(
        {"decoder/layer_0/source_attention": tf.constant(weights), "layer_1/mixed_attention": tf.constant(mixed)}, words
    )
    board.attention(5, maps)
    board.close()
    assert points(tmp_path, "hparams")
    for tag in ("samples", "attention/decoder/layer1/source_attention", "attention/layer2/mixed_attention"):
        assert points(tmp_path / "eval", tag), tag
    picture = tf.image.decode_png(attention_picture(maps[0]))
    assert picture.shape[2] == 4
    assert len(np.unique(picture)) > 10


def test_no_event_files_where_they_are_switched_off(tmp_path):
    board = Board(tmp_path, 0, enabled=False)
    board.record({"kind": "train", "step": 1, "loss": 1.0})
    board.close()
    assert not list(tmp_path.iterdir())


def test_lines_without_a_terminal_are_plain():
    stream = io.StringIO()
    progress = Progress(10, stream=stream)
    progress.start(0)
    progress.advance(5)
    progress.note("fast")
    progress.line("[bold]step 5")
    progress.stop()
    assert stream.getvalue() == "[bold]step 5\n"


def test_a_terminal_gets_a_bar():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    progress = Progress(10, stream=stream)
    progress.start(2)
    progress.advance(5)
    progress.line("[bold]step 5")
    progress.stop()
    assert "[bold]step 5" in stream.getvalue()
    assert "5/10" in stream.getvalue()


def test_lines_say_which_loss_is_smoothed():
    record = {"step": 5, "loss": 1.5, "nll": 1.25, "perplexity": 3.49, "accuracy": 0.5}
    assert "loss 1.500 (label-smoothed; 1.250 without), perplexity 3.49" in describe_evaluation(record)
    assert "loss 1.250, perplexity 3.49" in describe_evaluation({**record, "loss": 1.25})
    same, other = {**record, "reference_loss": 1.5}, {**record, "reference_loss": 1.75}
    assert describe_evaluation(same) == describe_evaluation(record)
    assert "(label-smoothed; 1.250 without), on references alone 1.750, perplexity" in describe_evaluation(other)
    diverged = {**record, "loss": float("nan"), "reference_loss": float("nan")}
    assert "on references" not in describe_evaluation(diverged)


def test_evaluation_line_has_the_signature():
    line = describe_evaluation(
        {"step": 5, "loss": 1, "perplexity": 2, "accuracy": 0.5, "bleu": 12.345, "bleu_signature": "nrefs:1|x"}
    )
    assert "BLEU 12.35 [nrefs:1|x]" in line or "BLEU 12.34 [nrefs:1|x]" in line
    assert "token accuracy 50.0%" in line
