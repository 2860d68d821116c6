"""What generated data hold, in words for the user."""

import os
from collections.abc import Iterator

from t2t_ext.data.manifest import Manifest, SplitSummary

_REASONS = {
    "empty": "an empty side",
    "too_long": "too long",
    "length_ratio": "length ratio",
    "invalid_utf8": "invalid UTF-8",
    "wrong_columns": "wrong number of columns",
    "carriage_returns": "a carriage return before the line feed removed",
}


def lines(manifest: Manifest, data_dir: str | os.PathLike) -> Iterator[str]:
    """Yields lines that say what was generated, what was dropped and why."""
    yield f"{manifest.problem} in {data_dir}:"
    yield f"  {_vocabulary(manifest)}"
    for name, split in manifest.splits.items():
        yield f"  {name}: {_contents(split)}"
        for reason, count in split.drops.items():
            yield f"    dropped {count:,}: {_reason(split, reason)}"
        for what, count in split.notes.items():
            yield f"    changed {count:,}: {_reason(split, what)}"


def _vocabulary(manifest: Manifest) -> str:
    vocab, training = manifest.vocab, manifest.vocab["training"]
    if vocab["joint"]:
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
    sides = ", ".join(
        f"{name} {count:,} tokens (longest {split.longest[name]:,})" for name, count in split.tokens.items()
    )
    kept = f"{split.samples:,} of {split.read:,}" if split.drops else f"{split.samples:,}"
    return f"{kept} samples in {shards}; {sides}"


def _reason(split: SplitSummary, reason: str) -> str:
    where = f" (first: {split.first[reason]})" if reason in split.first else ""
    return _REASONS.get(reason, reason) + where
