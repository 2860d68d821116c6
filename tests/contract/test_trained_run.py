"""A trained run, loaded from its directory: what it has learned and the translators of its checkpoints."""

import json

import numpy as np
import pytest


def test_the_run_has_learnt_something(trained_run):
    records = [json.loads(line) for line in (trained_run.directory / "metrics.jsonl").read_text().splitlines()]
    losses = [record["loss"] for record in records if record.get("kind", "train") == "train" and "loss" in record]
    assert records[-1]["step"] == 60
    assert losses[-1] < 0.8 * losses[0]


def test_the_translator_of_a_run_is_that_of_its_checkpoint(trained_run, toy_corpus):
    """A translator loaded from the run equals one with a model built by hand and the checkpoint's arrays."""
    from t2t_ext import registry
    from t2t_ext.models.seq2seq import build_model
    from t2t_ext.runs import checkpoints
    from t2t_ext.runs.run_directory import RunDirectory
    from t2t_ext.translation.translator import Translator

    lines = [source for source, _ in toy_corpus.dev[:6]]
    decode = "beam_size=3,num_hypotheses=3,max_length_offset=8"
    loaded = Translator.load(trained_run.directory, decode_hparams=decode)
    run = RunDirectory.open(trained_run.directory)
    source, target = run.text_encoders()
    model = build_model(registry.model(run.config.model), run.hparams(), source, target)
    model.assign(checkpoints.load_arrays(checkpoints.latest(trained_run.directory)))
    by_hand = Translator(model, source, target, loaded.decode_hparams, "l2r")
    for one, other in zip(loaded.translate(lines), by_hand.translate(lines), strict=True):
        assert [h.text for h in one] == [h.text for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-5)


def test_an_older_checkpoint_can_be_named(trained_run, toy_corpus):
    from t2t_ext.runs import checkpoints
    from t2t_ext.translation.translator import Translator

    paths = checkpoints.list_checkpoints(trained_run.directory)
    assert len(paths) == 2
    pairs = toy_corpus.dev[:8]
    early, late = (
        np.mean([score.log_prob for score in Translator.load(trained_run.directory, path).score(pairs)])
        for path in paths
    )
    assert late > early, "references have become likelier"
