"""Chooses the targets of examples: references, and pseudo references from two models (the hparam ``pseudo``).

Zhou et al. 2019, sections 3.4 and 4.7: a model that generates from both ends must not see its own future in the input
of the other side. So the two targets of an example are different sentences, such as a reference and another model's
translation of the source (except with ``pseudo=none``). Every *variant* makes N examples from the N pairs of a split:
example n is pair ``n % N`` in variant ``n // N``. The ids are stored once for all variants. This module does not import
TensorFlow.

Legend: N pairs, V variants, M = N * V examples.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from t2t_ext import registry
from t2t_ext.data.datasets import pseudo_references
from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.errors import UserError

# Share of examples without their pseudo reference above which the trainer warns.
_LOUD_SHARE = 0.2
_MAKE_AGAIN = (
    "Train the model that failed longer and make the pseudo references again: t2t_ext-pseudo-references --overwrite."
)
# Fields of a pair: the reference (G), and the pseudo references of the L2R and the R2L model; all in text order.
GOLD, FROM_L2R, FROM_R2L = "G", "L", "R"
_NAMES = {
    GOLD: "reference",
    FROM_L2R: "pseudo reference of the L2R model",
    FROM_R2L: "pseudo reference of the R2L model",
}

Variant = tuple[str, ...]
# Number of target sides -> pseudo -> for each variant, the field of every side. If there are two sides, the first is
# generated left to right, the second right to left. For two and six triples see section 4.7 of the paper.
VARIANTS: Mapping[int, Mapping[str, tuple[Variant, ...]]] = {
    1: {"none": (("G",),), "l2r": (("G",), ("L",)), "both": (("G",), ("L",), ("R",))},
    2: {
        "none": (("G", "G"),),
        "two": (("L", "G"), ("G", "R")),
        "six": (("G", "R"), ("R", "G"), ("L", "G"), ("G", "L"), ("L", "R"), ("R", "L")),
        "one": (("G", "R"),),
    },
}


@dataclasses.dataclass(frozen=True)
class Examples:
    """The examples of a split, with the origin of their targets.

    Attributes:
      variants: For each variant, the field of every side.
      num_pairs: N.
      gold_only: Whether loss is taken on references only (``sb_loss_on_pseudo=false``).
      input_lengths: int32 [M], tokens of the source, EOS included.
      target_lengths: int32 [M], tokens of the longer side, EOS included.
      target_tokens: int32 [M], tokens of all sides together.
      left_out: Reason -> bool [M], the examples that are left out for it; each has at most one reason.
    """

    variants: tuple[Variant, ...]
    num_pairs: int
    gold_only: bool
    input_lengths: np.ndarray
    target_lengths: np.ndarray
    target_tokens: np.ndarray
    left_out: Mapping[str, np.ndarray]

    @property
    def sides(self) -> int:
        """Number of target sequences of an example."""
        return len(self.variants[0])

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that occur in any variant, in the order G, L, R."""
        used = {field for variant in self.variants for field in variant}
        return tuple(field for field in _NAMES if field in used)

    @property
    def loss_on_pseudo(self) -> bool:
        """Whether loss is taken on any pseudo reference."""
        return not self.gold_only and any(field != GOLD for field in self.fields)

    @property
    def identity(self) -> str:
        """The meaning of the example numbers, for fingerprints; empty if examples are the pairs themselves."""
        if self.variants == VARIANTS[1]["none"]:
            return ""
        return " ".join("".join(variant) for variant in self.variants) + (" loss on G" if self.gold_only else "")

    @property
    def usable(self) -> np.ndarray:
        """The examples that are not left out, bool [M]."""
        usable = np.ones(len(self.input_lengths), bool)
        for mask in self.left_out.values():
            usable &= ~mask
        return usable

    @property
    def dropped(self) -> dict[str, int]:
        """Reason -> number of examples left out for it."""
        return {reason: int(mask.sum()) for reason, mask in self.left_out.items() if mask.any()}

    def sequences(self, store: ExampleStore, number: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """Returns the source of an example (numbered from 0) and its targets, in text order, with EOS."""
        variant, pair = divmod(number, self.num_pairs)
        targets = []
        for field in self.variants[variant]:
            ids, offsets = ids_of(store, field)
            targets.append(ids[offsets[pair] : offsets[pair + 1]])
        return store.example(pair)[0], targets


def examples_of(store: ExampleStore, hparams: Any, target_sides: int = 1) -> Examples:
    """Makes the examples of a split.

    Raises:
      UserError: ``pseudo`` is for models with another number of sides, or the split has no pseudo references.
    """
    variants = variants_of(hparams.pseudo, target_sides)
    if store.pseudo is None and hparams.pseudo != "none":
        raise UserError(
            f"pseudo={hparams.pseudo} needs pseudo references, which this split has not. Make them with "
            "t2t_ext-pseudo-references, or train on references alone: pseudo=none in --hparams."
        )
    gold_only = target_sides == 2 and hparams.pseudo != "none" and not getattr(hparams, "sb_loss_on_pseudo", True)
    return _examples(store, variants, gold_only)


def with_loss_on_references(store: ExampleStore, examples: Examples) -> Examples:
    """Returns the examples with loss on references only; examples without a reference are left out."""
    return _examples(store, examples.variants, gold_only=True)


def gold_examples(store: ExampleStore) -> Examples:
    """Makes one example of every pair, with the reference as target, even if the model is trained on other targets."""
    return _examples(store, VARIANTS[1]["none"], gold_only=False)


def ids_of(store: ExampleStore, field: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids and offsets of one field of all pairs, as ``ExampleStore`` keeps them.

    Raises:
      ValueError: The field is a pseudo reference, and the store has none.
    """
    if field == GOLD:
        return store.targets, store.target_offsets
    if store.pseudo is None:
        raise ValueError(f"{field}: the pairs have no pseudo references")
    return store.pseudo[0 if field == FROM_L2R else 1]


def variants_of(pseudo: str, target_sides: int) -> tuple[Variant, ...]:
    """Returns the variants of a value of ``pseudo``: for each, the field of every side.

    Raises:
      UserError: ``pseudo`` is for models with another number of sides.
    """
    known = VARIANTS[target_sides]
    if pseudo in known:
        return known[pseudo]
    one, two = "one target of a sentence", "two targets of a sentence (left to right and right to left)"
    this, other = (one, two) if target_sides == 1 else (two, one)
    raise UserError(
        f"pseudo={pseudo} is for models that learn from {other}; this one learns from {this}. For it, pseudo in "
        f"--hparams is one of {', '.join(known)}."
    )


def check_problem(hparams: Any, problem: Any, data_dir: str | os.PathLike, model: str = "") -> None:
    """Checks that a problem has the pseudo references that ``pseudo`` needs, before the model is built.

    Args:
      hparams: The hparams.
      problem: The problem.
      data_dir: The directory of its data, for the message.
      model: The model's name; the message suggests only what this model accepts.

    Raises:
      UserError: The problem lacks the pseudo references that ``pseudo`` needs; the message says what can be done.
    """
    if hparams.pseudo == "none" or problem.with_pseudo_references:
        return
    one_way = ""
    if getattr(hparams, "synchronous", False):
        one_way = ", or generate in one direction: synchronous=false"
        # A model whose name promises both directions refuses synchronous=false.
        if model in registry.model_names() and registry.model_attributes(model).get("slot") == "directions":
            one_way += f" with --model={model.removeprefix('synchronous_')}"
    name = problem.data_name
    raise UserError(
        f"pseudo={hparams.pseudo} trains on pseudo references, which {name} has not. Either make them with "
        f"{pseudo_references.command(name, data_dir)} and train on --problem={name}"
        f"{pseudo_references.SUFFIX}, or train on references alone: pseudo=none in --hparams{one_way}."
    )


def check_model(hparams: Any, target_sides: int) -> None:
    """Checks that a model can be trained on the targets that its hparams ask for.

    Raises:
      UserError: Settings contradict each other; the message says which ones and what to change.
    """
    variants_of(hparams.pseudo, target_sides)
    if target_sides == 2 and hparams.target_direction == "r2l":
        raise UserError(
            "target_direction=r2l turns the target of a model that generates in one direction. This one learns both: "
            "the first of its two targets is always from left to right, the second from right to left. Leave "
            "target_direction out."
        )
    if hparams.pseudo == "none" and not getattr(hparams, "sb_loss_on_pseudo", True):
        raise UserError(
            "sb_loss_on_pseudo=false takes no loss on pseudo references, but with pseudo=none there are none: both "
            "targets are the reference. Leave sb_loss_on_pseudo out, or choose another pseudo."
        )


def notes(hparams: Any, target_sides: int, *, has_pseudo: bool) -> list[str]:
    """Returns what a user should know about the targets before training begins, one line each."""
    if target_sides == 2 and hparams.pseudo == "none":
        return [
            "warning: pseudo=none trains both targets on the reference, so that each side can see its own future in "
            'the other side\'s input (Zhou et al. 2019, section 3.4: words "see themselves"). Loss, perplexity and '
            "accuracy come out far too good, those of the dev set as well, and say nothing of the translations, for "
            "which no side knows the future. Judge by BLEU, or train on pseudo references: "
            f"t2t_ext-pseudo-references, then --problem=NAME{pseudo_references.SUFFIX} with pseudo=two."
        ]
    if has_pseudo and hparams.pseudo == "none":
        return ["pseudo=none: the problem's pseudo references are not used."]
    return []


def failure_warning(examples: Examples) -> str:
    """Returns a warning if many examples are left out because their pseudo references failed, otherwise nothing."""
    failed = {field: examples.dropped.get(_failed(field), 0) for field in (FROM_L2R, FROM_R2L)}
    total = len(examples.usable)
    if sum(failed.values()) <= _LOUD_SHARE * total:
        return ""
    told = " and ".join(f"{count:,} {_failed(field)}" for field, count in failed.items() if count)
    return f"warning: of {total:,} examples, {told}, are left out. {_MAKE_AGAIN}"


def check_any_left(examples: Examples) -> None:
    """Checks that there are examples to evaluate, unless the split has no pairs at all.

    Raises:
      UserError: All examples are left out, for example because their pseudo references failed.
    """
    if not examples.num_pairs or examples.usable.any():
        return
    dropped = ", ".join(f"{count:,} {why}" for why, count in examples.dropped.items())
    raise UserError(
        f"There is nothing to evaluate: all {len(examples.usable):,} examples of the split are left out ({dropped}). "
        f"{_MAKE_AGAIN}"
    )


def _failed(field: str) -> str:
    """Returns the reason for leaving out examples whose pseudo reference failed."""
    return f"whose {_NAMES[field]} failed"


def describe(examples: Examples) -> str:
    """Returns in words what the targets are; empty if every example is just a pair."""
    if not examples.identity:
        return ""
    sides = (
        [_NAMES[variant[0]] for variant in examples.variants]
        if examples.sides == 1
        else [f"({_NAMES[first]}, {_NAMES[second]} backwards)" for first, second in examples.variants]
    )
    loss = "; loss on references only" if examples.gold_only else ""
    return (
        f"targets of each of {examples.num_pairs:,} pairs, {len(sides)} example{'s' if len(sides) > 1 else ''}: "
        f"{', '.join(sides)}{loss}"
    )


def _examples(store: ExampleStore, variants: tuple[Variant, ...], gold_only: bool) -> Examples:
    num_pairs = store.num_examples
    lengths = {field: np.diff(ids_of(store, field)[1]).astype(np.int32) for variant in variants for field in variant}
    of_sides = [np.concatenate([lengths[variant[side]] for variant in variants]) for side in range(len(variants[0]))]
    left_out: dict[str, np.ndarray] = {}
    usable = np.ones(num_pairs * len(variants), bool)

    def leave_out(reason: str, mask: np.ndarray) -> None:
        left_out[reason] = mask & usable
        usable[:] &= ~mask

    if gold_only:
        without_gold = np.repeat([GOLD not in variant for variant in variants], num_pairs)
        leave_out("without a reference (sb_loss_on_pseudo=false)", without_gold)
    for field in (FROM_L2R, FROM_R2L):
        if field in lengths:
            missing = [lengths[field] == 0 if field in variant else np.zeros(num_pairs, bool) for variant in variants]
            leave_out(_failed(field), np.concatenate(missing))
    return Examples(
        variants,
        num_pairs,
        gold_only,
        np.tile(store.input_lengths, len(variants)),
        np.maximum.reduce(of_sides),
        np.add.reduce(of_sides),
        left_out,
    )
