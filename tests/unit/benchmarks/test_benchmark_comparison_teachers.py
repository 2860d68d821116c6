"""Tests of what benchmarks/comparison.py stores and reports about the models that make pseudo references."""

import importlib
import types

import pytest
from made_up_results import made_up

from t2t_ext.data.datasets.pseudo_references import PseudoManifest, SplitPseudo


@pytest.fixture
def teachers(benchmark):
    return importlib.import_module("_comparison_teachers")


def stages_with(tmp_path, weights):
    """Returns stages whose pseudo references of 100 pairs are made; the figures differ by split and direction."""

    def split(bleu):
        numbers = {"made": 98, "mean_length": 9.0, "mean_gold_length": 10.0, "identical_to_gold": 49,
                   "bleu_pairs": 100, "bleu_signature": "s"}  # fmt: skip
        statistics = {"l2r": {**numbers, "bleu": bleu}, "r2l": {**numbers, "bleu": bleu - 1, "identical_to_gold": 0}}
        return SplitPseudo(
            pairs=100, shards=[], texts={"l2r": "a", "r2l": "b"}, statistics=statistics,
            failures={"l2r": {"empty": 2}, "r2l": {"empty": 1, "too long": 1}},
        )  # fmt: skip

    models = {side: [{"run": "r", "model": "m", "step": 7, "weights": digest}] for side, digest in weights.items()}
    manifest = PseudoManifest(
        problem="P_synchronous", data={"digest": "0" * 64}, models=models, settings={}, files={}, versions={},
        splits={"train": split(51.0), "dev": split(41.0)},
    )  # fmt: skip
    path = tmp_path / "manifest.json"
    path.write_text(manifest.to_json())
    return [types.SimpleNamespace(kind="data"), types.SimpleNamespace(kind="pseudo", output=path)]


def test_who_made_pseudo_references_and_what_they_are_like(teachers, tmp_path):
    assert teachers.described([types.SimpleNamespace(kind="train")]) == {}
    stored = teachers.described(stages_with(tmp_path, {"l2r": "a" * 64, "r2l": "b" * 64}))["teachers"]
    assert stored["weights"] == {"l2r": [f"{'a' * 16}, step 7"], "r2l": [f"{'b' * 16}, step 7"]}
    assert stored["splits"]["train"]["r2l"] == {
        "made": 98, "mean_length": 9.0, "mean_gold_length": 10.0, "identical_to_gold": 0, "bleu": 50.0, "failed": 2,
    }  # fmt: skip


def test_report_tells_of_teachers_and_warns_of_different_ones(teachers, stores, plans, benchmark, tmp_path):
    store = stores.Store(tmp_path / "r.json")
    rows = [("comparison_synchronous", "tuning"), ("comparison_transformer_both_pseudo", "plain")]
    records = []
    for (row, variant), weights in zip(rows, ("a", "b"), strict=True):
        made = stages_with(tmp_path, {"l2r": weights * 64, "r2l": "c" * 64})
        record = made_up(stores, plans.Job(row, variant, (0.2, 0.0075), 1), 40.0)
        records.append({**record, **teachers.described(made)})
    again = {"date": "2026-11-24", "machine": "other", "precision": "float32", "BLEU": 39.5, "sha256": "1"}
    records.append({**made_up(stores, plans.Job("comparison_transformer", "plain", (0.2, 0.0075), 1), 40.0),
                    "made_again": [again]})  # fmt: skip
    assert teachers.warnings(records[:1]) == []
    for record in records:
        store.add(record)
    assert benchmark.main(["--report", f"--results={store.path}"]) == 0
    page = store.path.with_suffix(".md").read_text()
    assert max(map(len, page.splitlines())) <= 160
    assert page.count("| 1 | left to right | 51.0 | 50.0 | 0.900 | 2 | 41.0 | 50.0 | 0.900 | 2 |") == 2
    assert page.count("| 1 | right to left | 50.0 | 0.0 |") == 1
    text = page.replace("\n", " ")
    assert "Of seed 1 these learned from different teachers" in text
    assert "came out otherwise: test BLEU 39.50, stored 40.00." in text
