"""Makes up results of trainings for the tests of benchmarks/comparison.py."""

import random

REFERENCES = ["a b c d e f g h", "b c d e f g", "c d e f a b d e f g h a"] * 20


def made_up(stores, job, bleu, loss=1.5, noise=0.2):
    """Returns a result with twenty translations of each of three sentences, in which some words are wrong."""
    from sacrebleu.metrics import BLEU

    rng = random.Random(repr(job))
    lines = [" ".join(word if rng.random() > noise else "x" for word in each.split()) for each in REFERENCES]
    counts = BLEU(references=[REFERENCES])._extract_corpus_statistics(lines, None)
    names = ("layer_prepostprocess_dropout", "learning_rate_constant")[: len(job.cell)]
    test = {
        "BLEU": bleu, "signature": "BLEU nrefs:1", "chrF2": 60.0, "length_ratio": 0.98, "first": 70.0, "last": 65.5,
        "by_length": {"<10": [40, bleu], "10-20": [20, bleu - 1], ">20": [0, None]}, "sha256": "0",
        "sentences": len(lines), "counts": stores.pack(counts),
    }  # fmt: skip
    return {
        "row": job.row, "variant": job.variant, "cell": dict(zip(names, job.cell, strict=True)), "seed": job.seed,
        "name": job.row, "words": job.row, "date": "2026-11-23", "machine": "a machine", "settings": {"train --a": "1"},
        "parameters": 1_896_448, "updates": 9000, "updates_to_best": 6500, "minutes": 25.0, "minutes_to_best": 18.0,
        "minutes_before": 0.0, "seconds": 1800, "ended": "early stopping", "tokens_per_second": 12000,
        "sentences_per_second": 150.0, "dev_loss": loss, "curve": [[500, 1.4, 2.1, bleu + 1]],
        "dev": {"BLEU": bleu + 1}, "test": test,
    }  # fmt: skip


def counts_of(stores, plans, noise, seed):
    record = made_up(stores, plans.Job("row", "plain", (), seed), 40.0, noise=noise)
    return stores.unpack(record["test"]["counts"], record["test"]["sentences"])
