"""Tests of ``batch_size=auto``: search, refusals, stored and resumed sizes; and of the out-of-memory messages."""

import contextlib
import os

import numpy as np
import pytest
import tensorflow as tf

from t2t_ext import registry
from t2t_ext.config.hyperparameters import HParams
from t2t_ext.config.training import TrainConfig, TrainingSettings
from t2t_ext.data.datasets import batching
from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.errors import UserError
from t2t_ext.runs.run_directory import RunDirectory
from t2t_ext.training import auto_batch_size, available_memory, batch_size_probe, out_of_memory, setup_run


def config_of(data, run, **more):
    given = {
        "problem": "translate_parallel_text",
        "model": "transformer",
        "hparams_set": "transformer_test",
        "hparams": "batch_size=auto,num_hidden_layers=1",
        "data_dir": str(data),
        "train_steps": 3,
        "eval_bleu_sentences": -1,
        "best_checkpoint_metric": "loss",
        **more,
    }
    return TrainConfig(output_dir=str(run), **given)


@pytest.mark.parametrize("first", [1024, 6400])
@pytest.mark.parametrize("limit", [1, 64, 100, 700, 1024, 1025, 5000, 60_000])
def test_search_finds_the_largest_within_an_eighth(limit, first):
    tried = []

    def fits(size):
        tried.append(size)
        return size <= limit

    found = auto_batch_size.largest_that_fits(fits, 1 << 20, first)
    if limit < auto_batch_size.SMALLEST_SIZE:
        assert found is None
    else:
        assert limit / 1.125 - auto_batch_size.SMALLEST_SIZE <= found <= limit
    assert len(tried) == len(set(tried)) <= 14


def test_search_tries_nothing_that_holds_no_pair():
    tried = []
    assert auto_batch_size.largest_that_fits(lambda size: bool(tried.append(size)), 1 << 20, 1024, 320) is None
    assert tried == [1024, 512, 320]


def test_batches_of_few_pairs_are_told():
    """A hint explains that batch_size counts tokens, for example to Keras users who give batch_size=32."""
    assert auto_batch_size.hint(4096, 8.0, 100) == ""
    told = auto_batch_size.hint(32, 1.6, 100)
    assert told.startswith("batch_size=32 counts tokens, not sentences: a step sees 1.6 pairs on average; with ")
    assert "batch_size=600 it would be about 32" in told
    assert auto_batch_size.hint(4096, 6.0, 1) == "", "a batch that holds all pairs cannot hold more"


@pytest.mark.parametrize(
    ("text", "share", "row_multiple", "at_once"),
    [
        ("batch_size=2048", 2048, 1, None),
        ("batch_size=2048,gradient_accumulation_steps=4", 2304, 4, "2,304"),
        ("batch_size=2048,parallel_slices=2", 1024, 2, None),
        ("batch_size=2048,parallel_slices=2", 1198, 2, "2,396"),
        # The parts are computed one after the other, so each of them may have batch_size tokens.
        ("batch_size=2048,length_groups=4", 512, 1, None),
        ("batch_size=2048,length_groups=4", 600, 1, None),
        ("batch_size=256,length_groups=4", 72, 2, None),
        ("batch_size=2048,length_groups=4,gradient_accumulation_steps=2", 1024, 1, None),
        ("batch_size=256,length_groups=4,parallel_slices=4", 132, 1, "528"),
    ],
)
def test_batches_that_filling_makes_too_large_are_said(text, share, row_multiple, at_once):
    hparams = registry.resolve_hparams("transformer_small", text)
    told = auto_batch_size.hint_of_filling(hparams, share, row_multiple)
    assert (f"up to {at_once} tokens at once" in told) if at_once else told == ""
    if told:
        assert ("max_length leaves out long pairs" in told) == (row_multiple == 1), "no row is filled up"


def test_padding_to_few_shapes_is_said():
    hparams = registry.resolve_hparams("transformer_small", "batch_size=2048,length_groups=4,parallel_slices=2")
    told = auto_batch_size.hint_of_filling(hparams, 4096, 2, merged=True)
    assert "few shapes" in told
    assert "up to 8,192 tokens at once" in told
    assert "max_length" in told
    assert auto_batch_size.hint_of_filling(hparams, 1024, 2, merged=True) == ""
    on_cpu = auto_batch_size.hint_of_filling(hparams, 4096, 2, merged=True, on_cpu=True)
    assert "--xla_compile=false" in on_cpu


def test_search_ends_at_the_whole_data():
    assert auto_batch_size.largest_that_fits(lambda size: True, 3000) == 3000
    assert auto_batch_size.largest_that_fits(lambda size: True, 10) == auto_batch_size.FIRST_SIZE


@pytest.mark.parametrize("distribution", ["tpu", "multi_worker_mirrored"])
def test_several_machines_are_refused(toy_data, tmp_path, distribution):
    hparams = "batch_size=auto,batch_shapes=static"
    config = config_of(toy_data, tmp_path / "run", distribution=distribution, hparams=hparams)
    with pytest.raises(UserError, match=r"batch_size=auto probes the devices of one machine.*Give a number"):
        auto_batch_size.fill_in(setup_run.resolve(config), print)


def test_workers_of_the_environment_are_refused(toy_data, tmp_path, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}')
    config = config_of(toy_data, tmp_path / "run")
    with pytest.raises(UserError, match="several workers"):
        auto_batch_size.fill_in(setup_run.resolve(config), print)


def children():
    return {int(name) for name in os.listdir("/proc") if name.isdigit() and _parent(name) == os.getpid()}


def _parent(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])
    return 0


def test_probed_size_is_stored_and_stays(toy_data, tmp_path, monkeypatch):
    """A probed size is stored and used again on resuming; a real child process probes, and the whole corpus fits."""
    monkeypatch.setattr(auto_batch_size, "FIRST_SIZE", 4096)  # so that few probes suffice
    config, before, said = config_of(toy_data, tmp_path / "run"), children(), []
    run = auto_batch_size.fill_in(setup_run.resolve(config), said.append)
    assert children() == before
    size = run.hparams.batch_size
    assert size >= auto_batch_size.FIRST_SIZE
    assert run.config.hparams["batch_size"] == size
    assert run.config.origins["batch_size"].startswith("auto: probed")
    assert any("tokens fit: peak" in line for line in said)
    setup_run.open_run(run, GeneratedData.open(setup_run.make_problem(run), toy_data))
    assert RunDirectory.open(tmp_path / "run").hparams().batch_size == size

    monkeypatch.setattr(auto_batch_size, "Prober", None)  # a resumed run does not probe
    again = auto_batch_size.fill_in(setup_run.resolve(config), said.append)
    assert again.hparams.batch_size == size
    assert again.config.origins["batch_size"].startswith("auto: probed")


def test_probing_begins_where_the_longest_pair_fits(toy_data, tmp_path, monkeypatch):
    """Probing starts at the length of the longest pair; sizes below the shortest pair do not fit.

    A smaller first size would leave out some or all pairs.
    """
    monkeypatch.setattr(auto_batch_size, "FIRST_SIZE", 1)
    monkeypatch.setattr(auto_batch_size, "SMALLEST_SIZE", 1)
    asked = []

    class Recorder(auto_batch_size.Prober):
        def fits(self, size):
            asked.append(size)
            return super().fits(size) if len(asked) == 1 else False

    monkeypatch.setattr(auto_batch_size, "Prober", Recorder)
    run = setup_run.resolve(config_of(toy_data, tmp_path / "run"))
    store = ExampleStore.load(GeneratedData.open(setup_run.make_problem(run), toy_data), "train")
    tokens = batching.tokens_of(store.input_lengths, store.target_lengths, run.hparams.batch_tokens)
    found = auto_batch_size.fill_in(run, print)
    assert asked[0] == tokens.max()
    assert found.hparams.batch_size >= tokens.max()
    probe = batch_size_probe.Probe(run.asked)
    assert probe.steps(int(tokens.min()) - 1) == {"failure": f"the shortest pair has {tokens.min():,} tokens"}


def test_no_size_is_tried_that_hparams_do_not_allow(toy_data, tmp_path, monkeypatch):
    class Roomy:
        def __init__(self, config, limit, say):
            self.results = {}

        def needs(self):
            return {"shortest": 3, "longest": 9, "most": 11_000_000}

        def fits(self, size):
            self.results[size] = {"device": "CPU", "peak": 1}
            return True

        def close(self):
            pass

    monkeypatch.setattr(auto_batch_size, "Prober", Roomy)
    found = auto_batch_size.fill_in(setup_run.resolve(config_of(toy_data, tmp_path / "run")), print)
    assert found.hparams.batch_size == 10_000_000


def test_too_little_memory_is_an_error_and_leaves_nothing(toy_data, tmp_path, monkeypatch):
    config, before = config_of(toy_data, tmp_path / "run"), children()
    monkeypatch.setattr(available_memory, "available_bytes", lambda: 50_000_000)
    monkeypatch.setattr(auto_batch_size, "FIRST_SIZE", auto_batch_size.SMALLEST_SIZE)
    with pytest.raises(UserError, match=r"not even the model fits \(it takes more than 0.0 GB\).*smaller model"):
        auto_batch_size.fill_in(setup_run.resolve(config), print)
    assert children() == before
    assert not (tmp_path / "run").exists()


def test_auto_for_a_run_with_a_number_is_refused(toy_data, tmp_path):
    config = config_of(toy_data, tmp_path / "run", hparams="batch_size=512,num_hidden_layers=1")
    run = setup_run.resolve(config)
    setup_run.open_run(run, GeneratedData.open(setup_run.make_problem(run), toy_data))
    with pytest.raises(
        UserError, match=r"batch_size=auto, but the run .* was made with batch_size=512 \(origin: flag\)"
    ):
        setup_run.resolve(config_of(toy_data, tmp_path / "run"))


@pytest.mark.parametrize("error", [tf.errors.ResourceExhaustedError(None, None, "OOM when allocating"), MemoryError()])
def test_out_of_memory_names_batch_and_remedies(error):
    hparams = HParams(batch_size=2048, parallel_slices=2, gradient_accumulation_steps=3)
    with (
        pytest.raises(UserError) as raised,
        out_of_memory.explained("step 7", lambda: "96 rows x 22 + 21 tokens", out_of_memory.advice(hparams)),
    ):
        raise error
    for words in ("step 7", "96 rows x 22 + 21 tokens", "batch_size (now 2048; 1024 with gradient_accumulation_steps=6",
                  "max_length (now 256", "parallel_slices (now 2"):  # fmt: skip
        assert words in str(raised.value)


def test_out_of_memory_with_length_groups_advises_what_makes_parts_smaller():
    hparams = registry.resolve_hparams("transformer_test", "batch_size=256,length_groups=4,parallel_slices=2")
    told = out_of_memory.advice(hparams)
    for words in ("length_groups (now 4; 8 makes", "batch_size (now 256; with gradient_accumulation_steps as it is)",
                  "parallel_slices (now 2"):  # fmt: skip
        assert words in told
    assert "makes the same updates" not in told
    # Merged parts are divided into slices, like a batch of one part.
    assert "128 with gradient_accumulation_steps=2 makes the same updates" in out_of_memory.advice(hparams, merged=True)


@pytest.mark.parametrize(
    ("change", "smaller"),
    [
        ("batch_size=128,gradient_accumulation_steps=2", False),
        ("batch_size=128", True),
        ("length_groups=8", True),
    ],
)
def test_what_makes_parts_smaller(change, smaller):
    """The advice is right about which changes make the largest part, which must fit into memory, smaller."""
    lengths = np.random.default_rng(1).integers(3, 30, 400)

    def largest(text):
        grouped = registry.resolve_hparams("transformer_test", "batch_size=256,length_groups=4")
        hparams = grouped.override(text)
        return batching.BatchPlanner(lengths, lengths, hparams, seed=1).largest_share(1)

    before, after = largest("max_length=60"), largest(change)
    assert after < before if smaller else after == before


def test_out_of_memory_in_an_evaluation_names_the_batches_of_its_loss():
    hparams = HParams(batch_size=2048)
    told = out_of_memory.evaluation_advice(hparams, TrainingSettings(decode_hparams="beam_size=6,alpha=1"))
    for words in (
        '"beam_size=6,alpha=1,batch_size=8"',
        "now 32",
        "(--eval_bleu_sentences=-1 --best_checkpoint_metric=loss)",
        "batch_size tokens (--hparams, now 2048)",
    ):
        assert words in told
    stopping = TrainingSettings(decode_hparams="batch_size=16", eval_early_stopping_steps=100)
    told = out_of_memory.evaluation_advice(hparams, stopping)
    assert '"batch_size=4"' in told
    assert "--best_checkpoint_metric=loss --eval_early_stopping_metric=loss)" in told
    told = out_of_memory.evaluation_advice(hparams, TrainingSettings(eval_bleu_sentences=-1))
    assert "now 2048" in told
    assert "--decode_hparams" not in told


def write_groups(root, own, limit, usage):
    group = root / "memory" / "job"
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text(str(limit))
    (group / "memory.usage_in_bytes").write_text(str(usage))
    (group / "memory.stat").write_text("cache 5\ntotal_inactive_file 1000\n")
    own.write_text("4:memory:/job\n1:cpu:/\n")


def test_available_memory_is_the_control_groups(tmp_path):
    meminfo, own = tmp_path / "meminfo", tmp_path / "cgroup"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    own.write_text("0::/\n")
    assert available_memory.available_bytes(meminfo, tmp_path / "none", own) == 8000 * 1024
    write_groups(tmp_path / "one", own, 500_000, 200_000)
    assert available_memory.available_bytes(meminfo, tmp_path / "one", own) == 301_000
    two = tmp_path / "two"
    (two / "a" / "b").mkdir(parents=True)
    (two / "a" / "b" / "memory.max").write_text("max\n")
    (two / "a" / "memory.max").write_text("700000\n")
    (two / "a" / "memory.current").write_text("100000\n")
    own.write_text("0::/a/b\n")
    assert available_memory.available_bytes(meminfo, two, own) == 600_000
