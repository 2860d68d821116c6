"""Reports the models that make pseudo references for rows of ``comparison.py``, and statistics of these references."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_ext.experiments.plan import Stage

Record = dict[str, Any]
_TOLD = ("made", "mean_length", "mean_gold_length", "identical_to_gold", "bleu")
_DIGITS = 16  # of a digest
_SIDES = {"l2r": "left to right", "r2l": "right to left"}

LEGEND = (
    "What the teachers of each seed write of the training text and of the development set. BLEU: of 2,000 pairs, or "
    "all. Reference: share of pairs whose pseudo reference is the reference, in percent. Length: over that of the "
    "references. Failed: pairs that have none."
)


def described(stages: Sequence[Stage]) -> Record:
    """Returns the record of a training's pseudo references: their teachers and statistics; empty if it has none."""
    stage = next((stage for stage in stages if stage.kind == "pseudo"), None)
    if stage is None:
        return {}
    manifest = json.loads(stage.output.read_text(encoding="utf-8"))
    weights = {
        side: [f"{each['weights'][:_DIGITS]}, step {each['step']}" for each in models]
        for side, models in manifest["models"].items()
    }
    splits = {
        split: {
            side: {**{name: numbers[name] for name in _TOLD}, "failed": sum(content["failures"][side].values())}
            for side, numbers in content["statistics"].items()
        }
        for split, content in manifest["splits"].items()
    }
    return {"teachers": {"weights": weights, "splits": splits}}


def lines_of_table(records: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Returns a line for each direction and seed: BLEU of the pseudo references, share equal to the reference, lengths.

    Pseudo references that were made by different weights have separate lines.
    """
    found: dict[tuple[Any, ...], list[str]] = {}
    for record in records:
        teachers = record.get("teachers")
        for side, words in _SIDES.items() if teachers else ():
            cells = [str(record["seed"]), words]
            for split in ("train", "dev"):
                numbers = teachers["splits"][split][side]
                ratio = numbers["mean_length"] / numbers["mean_gold_length"] if numbers["mean_gold_length"] else 0.0
                share = numbers["identical_to_gold"] / max(numbers["made"], 1)
                cells += [f"{numbers['bleu']:.1f}", f"{100 * share:.1f}", f"{ratio:.3f}", f"{numbers['failed']:,}"]
            found.setdefault((record["variant"] == "best", record["seed"], side, str(teachers["weights"][side])), cells)
    return list(found.values())


def warnings(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns warnings: which results had other teachers than the rest of their seed, and what was made again."""
    said, of_seed = [], dict[tuple[str, int], dict[str, list[str]]]()
    for record in records:
        if "teachers" in record:
            kind = "plain" if record["variant"] == "tuning" else record["variant"]
            made = of_seed.setdefault((kind, record["seed"]), {})
            made.setdefault(json.dumps(record["teachers"]["weights"], sort_keys=True), []).append(record["name"])
        for again in record.get("made_again", ()):
            said.append(
                f"{record['name']}, seed {record['seed']}, was trained again for others that take its run "
                f"({again['date']}, {again['machine']}, {again['precision']}), and came out otherwise: test BLEU "
                f"{again['BLEU']:.2f}, stored {record['test']['BLEU']:.2f}."
            )
    for (_, seed), made in of_seed.items():
        if len(made) > 1:
            parts = "; ".join(", ".join(names) for names in made.values())
            said.append(f"Of seed {seed} these learned from different teachers, though of the same settings: {parts}.")
    return said
