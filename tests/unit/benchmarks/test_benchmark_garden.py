"""Tests of the arithmetic of benchmarks/garden.py, compared with the matrix products that the models compute."""

import argparse
import contextlib
import importlib
import math
import pathlib
import re

import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).parents[3] / "benchmarks"
SOURCE, TARGET, VOCAB, BEAMS, STEPS = 7, 5, 30, 3, 4


@pytest.fixture(scope="module")
def benchmark():
    return importlib.import_module("garden")


@pytest.fixture(scope="module")
def arithmetic(benchmark):
    return importlib.import_module("_arithmetic")


@contextlib.contextmanager
def products():
    """Yields a list that collects the shapes [..., n, k, m] of all matrix products that are computed eagerly."""
    from tensorflow.python.framework import op_callbacks

    found = []

    def note(op_type, inputs, attrs, outputs, op_name=None, graph=None):
        if op_type in ("MatMul", "BatchMatMulV2"):
            named = dict(zip(attrs[::2], attrs[1::2], strict=True))
            turned = named["transpose_a" if op_type == "MatMul" else "adj_x"]
            inner = inputs[0].shape[-2 if turned else -1]
            found.append((*outputs[0].shape[:-1], inner, outputs[0].shape[-1]))
        return outputs

    op_callbacks.add_op_callback(note)
    try:
        yield found
    finally:
        op_callbacks.remove_op_callback(note)


CHANGES = {
    "transformer": [{"ffn_activation": "swiglu", "attention_key_channels": 8}],
    "layer_coordination": [
        {"num_hidden_layers": 3},
        {"num_hidden_layers": 3, "lwc_mixed_attention": False, "attention_value_channels": 24},
        {"num_hidden_layers": 2, "lwc_share_weights": False},
    ],
    "cross_view_transformer": [
        {"source_view": "gca", "integration": "soft"},
        {"source_view": "fma", "integration": "soft"},
    ],
    "dynamic_conv": [{}, {"conv_glu": False, "conv_type": "lightweight"}],
    "context_gate_transformer": [{}, {"context_gate": "channel"}],
    "dual_context_transformer": [
        {"dc_encoder_layers": "all", "dc_decoder_layers": "2", "dc_kernel_size": 3},
        {"dc_decoder_layers": "all", "attention_key_channels": 8, "attention_value_channels": 24},
    ],
}
CASES = [
    pytest.param(model, changes, marks=pytest.mark.slow if number else ())
    for model, several in CHANGES.items()
    for number, changes in enumerate(several)
]


def built(model, changes):
    speed = importlib.import_module("_speed")
    hparams = speed.sized(model, "transformer_test", "float32", use_target_space_embedding=False, **changes)
    return hparams, speed.build(model, hparams, VOCAB)


@pytest.mark.parametrize(("name", "changes"), CASES)
def test_multiplications_of_training(arithmetic, name, changes):
    hparams, model = built(name, changes)
    rng = np.random.default_rng(1)
    inputs, targets = (rng.integers(5, VOCAB, [2, length]).astype(np.int32) for length in (SOURCE, TARGET))
    with products() as found:
        model(inputs, targets)
    # A convolution is computed as a product with a band matrix, whose zeros do not count.
    bands = [shape for shape in found if len(shape) == 6]
    counted = sum(math.prod(shape) for shape in found) - sum(math.prod(shape) for shape in bands)
    taps = 0
    if bands:
        taps = SOURCE * sum(hparams.encoder_kernels) + TARGET * sum(hparams.decoder_kernels)
        assert name == "dynamic_conv"
    expected = arithmetic.training(hparams, VOCAB, SOURCE, TARGET, name)
    assert 2 * (1e6 * math.fsum(expected.values()) - hparams.hidden_size * taps) == pytest.approx(counted)


@pytest.mark.parametrize(("name", "changes"), CASES)
def test_multiplications_of_decoding(arithmetic, name, changes):
    hparams, model = built(name, changes)
    inputs = np.random.default_rng(1).integers(5, VOCAB, [2, SOURCE]).astype(np.int32)
    ids = np.zeros([2, 1, BEAMS], np.int32)
    with products() as found:
        state = model.start(inputs)
        for step in range(STEPS):
            visible = np.ones([2, 1, BEAMS, (step + 1) * BEAMS], bool)
            _, state = model.step(ids, visible, None, ids, state)
    counted = sum(math.prod(shape) for shape in found if not (name == "dynamic_conv" and is_band(shape, SOURCE)))
    expected = 1e6 * math.fsum(arithmetic.decoding(hparams, VOCAB, SOURCE, STEPS, BEAMS, name).values())
    if name == "dynamic_conv":
        expected -= hparams.hidden_size * SOURCE * sum(hparams.encoder_kernels)
    assert 2 * expected == pytest.approx(counted)


def is_band(shape, length):
    """Returns whether a product has the shape of the encoder's convolution: [B, stretches, H, n, w, d]."""
    return len(shape) == 6 and shape[3] == shape[4] == length


def test_layer_coordination_beside_the_transformer(benchmark, arithmetic):
    """Layer coordination needs 168 squares of the width per step instead of 84, and twice the training arithmetic."""
    first, second = (
        benchmark.hparams_of(name, "transformer_iwslt_small", "float32")
        for name in ("transformer", "layer_coordination")
    )
    assert arithmetic.decoding_step_in_squares(first, "transformer") == 84
    assert arithmetic.decoding_step_in_squares(second, "layer_coordination") == 168
    totals = [
        math.fsum(value for part, value in arithmetic.training(hparams, 1, 16, 16, model).items() if part != "softmax")
        for hparams, model in ((first, "transformer"), (second, "layer_coordination"))
    ]
    assert totals[1] / totals[0] == pytest.approx(2.0, abs=0.05)


def test_what_is_measured_has_the_published_sizes(benchmark):
    from t2t_ext import registry

    for name, hparams_set in (
        ("layer_coordination", "layer_coordination_small"),
        ("dynamic_conv", "dynamic_conv_small"),
    ):
        ours, named = benchmark.hparams_of(name, "transformer_iwslt_small", "float32"), registry.hparams(hparams_set)
        for field in (
            "num_hidden_layers",
            "encoder_layers",
            "decoder_layers",
            "hidden_size",
            "filter_size",
            "num_heads",
        ):
            assert getattr(ours, field) == getattr(named, field), (name, field)


def test_table_of_all_models(benchmark):
    """A row of a report shows the measured speeds; reranking has none because it consists of two runs."""
    made = importlib.import_module("_garden_table")
    figures = [{"name": "test", "mean": 21.0}, {"name": "parameters", "mean": 2e6}]
    report = {
        "recipe": "mine",
        "figures": [{"name": "parameters", "mean": 3e6}],
        "beside": {"base": figures, "rerank": figures},
        "rows": {"base": "Transformer", "rerank": "Rerank", "mine": "Mine"},
        "comparisons": [
            {"split": "dev", "label": "BLEU", "systems": {}},
            {
                "split": "test",
                "label": "BLEU",
                "systems": {
                    "base": {"score": 21.0, "confidence": 1.25},
                    "mine": {"score": 22.5, "confidence": None, "difference": 1.5, "p_randomization": 0.002},
                },
            },
        ],
        "commands": [
            "t2t_ext-datagen --x=1",
            "t2t_ext-pseudo-references --decode_hparams=beam_size=2",
            "t2t_ext-translate-all '--decode_hparams=beam_size=4,alpha=0.6' --y=2",
        ],
    }
    seconds = {"base": [1.0, 1.25, 0.8], "mine": [2.0, 2.0, 2.5]}
    speed = {"per_second": {"base": 1000.0, "mine": 500.0}, "ratios": {"base": 1.0, "mine": 0.5}, "seconds": seconds}
    rows = [made._row(name, report, {"training": speed, "decoding": speed}) for name in made._order(report)]
    assert [row["name"] for row in rows] == ["base", "rerank", "mine"]
    assert made._decode_hparams(report) == "beam_size=4,alpha=0.6"
    assert made.markdown(rows).splitlines()[2:] == [
        "| Transformer | 2.00M (1.00) | 21.00 ± 1.25 |  | 1,000 (1.00); 800 to 1,250 | 1,000 (1.00); 800 to 1,250 |",
        "| Rerank | 2.00M (1.00) | - |  | - | - |",
        "| Mine | 3.00M (1.50) | 22.50 | +1.50 (0.002) | 500 (0.50); 400 to 500 | 500 (0.50); 400 to 500 |",
    ]
    # Reranking may come first: speeds are then compared with the first row that has some.
    assert "| 1,000 (1.00); 800 to 1,250 |" in made.markdown([rows[1], rows[0], rows[2]])


def test_without_a_new_report_of_the_experiment_nothing_is_measured(tmp_path, monkeypatch, capsys):
    table = importlib.import_module("_garden_table")
    report = tmp_path / "garden_table" / "report.json"
    report.parent.mkdir()
    report.write_text("{}")  # of an earlier call
    monkeypatch.setattr(table.subprocess, "run", lambda *args, **options: argparse.Namespace(returncode=0))
    table.make(argparse.Namespace(recipe="garden_table", table=tmp_path), ["--dry_run"])
    assert "Nothing is measured" in capsys.readouterr().out


def test_unknown_parts_are_refused(monkeypatch):
    synchronous = importlib.import_module("synchronous")
    monkeypatch.setattr("sys.argv", ["synchronous.py", "--parts=decode,tran"])
    with pytest.raises(SystemExit, match="'tran' is none of graph, decode, train"):
        synchronous.main()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--table=W", "--precision=mixed_bfloat16"], "--precision has no effect with --table"),
        (["--table=W", "--out=other.json"], "--out has no effect with --table"),
        (["--recipe=deep_encoder"], "--recipe has no effect without --table=W"),
    ],
)
def test_flags_without_effect_are_refused(benchmark, monkeypatch, flags, message):
    monkeypatch.setattr(benchmark._garden_table, "make", lambda args, others: pytest.fail("the table is made"))
    monkeypatch.setattr(benchmark._speed, "run", lambda *args: pytest.fail("models are measured"))
    monkeypatch.setattr("sys.argv", ["garden.py", *flags])
    with pytest.raises(SystemExit, match=message):
        benchmark.main()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["garden", "--rounds=0"], "--rounds: '0' is no whole number from 1 on"),
        (["garden", "--table=W", "--lines=0"], "--lines: '0' is no whole number from 1 on"),
        (["datagen", "--pairs=-1"], "--pairs: '-1' is no whole number from 1 on"),
        (["datagen", "--tmp_dir={folder}/none"], "--tmp_dir=.*none: No such file"),
        (["decode", "RUN", "--input={folder}/none"], "--input=.*none cannot be read: .*No such file"),
        (["decode", "RUN", "--input={folder}/empty"], "--input=.*empty has no lines"),
        (["decode", "RUN", "--input={folder}/text", "--alone=0"], "--alone: '0' is no whole number from 1 on"),
        (["decode", "RUN", "--input={folder}/text", "--work_dir={folder}/none"], "--work_dir=.*none: No such file"),
        (["train", "--rounds=0"], "--rounds: '0' is no whole number from 1 on"),
        (["train", "--work_dir={folder}/none", "--parallel_slices=1"], "--work_dir=.*none: No such file"),
        (["train", "--hparams=precision=mixed_bfloat16"], "precision has a flag of its own: --precision"),
    ],
)
def test_mistakes_are_told_before_anything_is_measured(tmp_path, monkeypatch, capsys, flags, message):
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("a line\n")
    name, *given = flags
    monkeypatch.setattr("sys.argv", [f"{name}.py", *(flag.format(folder=tmp_path) for flag in given)])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(name).main()
    assert re.search(message, f"{ended.value} {capsys.readouterr().err}")


def test_waiting_time_of_a_single_line():
    found = importlib.import_module("decode")._waiting_times(lambda line: None, ["a line"])
    assert found["alone_p50_ms"] == found["alone_p95_ms"]
