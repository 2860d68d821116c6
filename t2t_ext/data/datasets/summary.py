"""What generated data hold, in words for the user."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from t2t_ext.data.datasets.manifest import Manifest, SplitSummary

REASONS = {
    "empty": "an empty side",
    "too_long": "too long",
    "length_ratio": "length ratio",
    "invalid_utf8": "invalid UTF-8",
    "wrong_columns": "wrong number of columns",
    "no_translation": "no text in one of the languages",
    "duplicate_segment": "a segment id that is there twice",
    "misaligned_segment": "a segment without its translation",
    "extra_segment": "a translation without its segment",
    "encoding": "damaged characters (encoding)",
    "too_few_words": "too few words",
    "too_many_words": "too many words",
    "word_ratio": "ratio of words",
    "identical": "source and target identical",
    "script": "another script than the language's",
    "language": "the other side's language",
    "numbers": "different numbers",
    "test_overlap": "stands in a dev or test set",
    "duplicate": "occurred before",
    "carriage_returns": "a carriage return before the line feed removed",
    "byte_order_mark": "a byte order mark at the beginning of the file removed",
    "unpaired_file": "a file without its other side",
    "missing_features": "no features",
    "damaged_features": "damaged features",
    "no_caption": "no caption",
    "missing_story": "a story whose file is not there",
    "empty_article": "a story without an article",
    "no_highlights": "a story without highlights",
}


def lines(manifest: Manifest, data_dir: str | os.PathLike, published: Mapping[str, int] | None = None) -> Iterator[str]:
    """Yields lines that say what was generated, what was dropped and why.

    Args:
      manifest: Of the data.
      data_dir: Where they are.
      published: Number of pairs by split that the paper gives.
    """
    yield f"{manifest.problem} in {data_dir}:"
    yield f"  {_vocabulary(manifest, of_one_side=any(split.floats for split in manifest.splits.values()))}"
    for line in _preparation(manifest.settings):
        yield f"  {line}"
    for name, split in manifest.splits.items():
        yield f"  {name}: {_contents(split)}{beside_published(split.samples, (published or {}).get(name))}"
        for corpus, counted in split.corpora.items():
            yield f"    {corpus_line(corpus, counted)}"
        # Of a pair that weights repeat, every occurrence is a sample, but it is dropped once.
        pairs = " pairs" if _is_weighted(split) else ""
        for reason, count in split.drops.items():
            yield f"    dropped {count:,}{pairs}: {_reason(split, reason)}"
        for what, count in split.notes.items():
            yield f"    changed {count:,}: {_reason(split, what)}"


def beside_published(count: int, published: int | None) -> str:
    """Returns what to print behind a number of pairs: the published one, and by how much they differ."""
    if not published:
        return ""
    if count == published:
        return "; as published"
    return f"; published: {published:,} ({count - published:+,}, {(count - published) / published:+.2%})"


def _preparation(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yields what was done to the text and which pairs were left out, where anything was."""
    for side in ("source", "target"):
        if settings.get(f"{side}_steps", "none") != "none":
            yield f"{side} text: {settings[f'{side}_steps']}"
    if settings.get("cleaning"):
        yield "cleaning: " + ", ".join(f"{name}={value}" for name, value in settings["cleaning"].items())


def _vocabulary(manifest: Manifest, *, of_one_side: bool) -> str:
    vocab, training = manifest.vocab, manifest.vocab["training"]
    if of_one_side:
        sizes = f"{vocab['target']['size']:,} subwords"
    elif vocab["joint"]:
        sizes = f"{vocab['source']['size']:,} subwords, source and target joint"
    else:
        sizes = f"{vocab['source']['size']:,} source and {vocab['target']['size']:,} target subwords"
    if "reused" in training:
        return f"{sizes}; reused from {', '.join(training['reused'])}"
    used, read = training["samples_used"], training["samples_read"]
    share = f"all {read:,}" if used == read else f"a sample of {used:,} of the {read:,}"
    return f"{sizes}; trained on {share} training samples"


def _contents(split: SplitSummary) -> str:
    shards = f"{len(split.shards)} shard{'s' if len(split.shards) > 1 else ''}"
    sides = ", ".join(_side(split, name, count) for name, count in split.tokens.items())
    if _is_weighted(split):
        return f"{split.samples:,} samples in {shards}, by the weights below; {sides}"
    kept = f"{split.samples:,} of {split.read:,}" if split.drops else f"{split.samples:,}"
    return f"{kept} samples in {shards}; {sides}"


def _side(split: SplitSummary, name: str, count: int) -> str:
    if name not in split.floats:
        return f"{name} {count:,} tokens (longest {split.longest[name]:,})"
    kept = split.floats[name]
    return (
        f"{name} {count:,} vectors of {kept['depth']:,} x {kept['storage']} in {kept['sequences']:,} sequences "
        f"(longest {kept['longest']:,})"
    )


def _is_weighted(split: SplitSummary) -> bool:
    return any(corpus["weight"] != 1 for corpus in split.corpora.values())


def corpus_line(name: str, counted: Mapping[str, Any]) -> str:
    """Returns what a corpus holds: its pairs, its weight and how often its pairs occur with it, its tag."""
    tag = f", tag {counted['tag']}" if counted["tag"] else ""
    if counted["weight"] == 1:
        return f"{name}: {counted['pairs']:,} pairs{tag}"
    return f"{name}: {counted['pairs']:,} pairs, weight {counted['weight']:g}: {counted['occurrences']:,}{tag}"


def _reason(split: SplitSummary, reason: str) -> str:
    where = f" (first: {split.first[reason]})" if reason in split.first else ""
    return REASONS.get(reason, reason) + where
