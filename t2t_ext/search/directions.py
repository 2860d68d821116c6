"""Checks of searches in one or two directions, and statistics of which direction won.

Imports no TensorFlow.
"""

import collections
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from t2t_ext.config.decode import DecodeHParams
from t2t_ext.errors import UserError

NAMES = {"l2r": "left to right", "r2l": "right to left"}


def directions_of(hparams: Any) -> int:
    """Returns in how many directions a model of these hparams generates at once."""
    return getattr(hparams, "directions", 1)


def check_directions(hparams: DecodeHParams, directions: int) -> None:
    """Checks that a model of so many directions can be searched as the hparams say.

    Raises:
      UserError: The beam has no two halves, two directions are to sample, or settings of two directions are given to a
        model of one.
    """
    if directions == 1:
        given = [f"{name}={getattr(hparams, name)}" for name in hparams.synchronous_fields()]
        if given:
            raise UserError(
                f"{', '.join(given)}: this model generates in one direction, and what hypotheses of two directions see "
                "of each other means nothing to it. Leave it out, or decode a run of --model=synchronous_transformer."
            )
        return
    if hparams.sampling_method == "random":
        raise UserError(
            "sampling_method=random needs a model that generates in one direction: where two directions attend to each "
            "other, a sample of one of them is none of the model's distribution. Use sampling_method=argmax."
        )
    if hparams.beam_size % 2:
        raise UserError(
            f"beam_size={hparams.beam_size}: this model generates left to right and right to left at once, and each "
            "direction has half of the beam. Give an even number; beam_size=2 is one hypothesis a direction, the "
            "greedy search of such a model."
        )
    if hparams.sb_decode == "recompute" and hparams.coverage_penalty:
        raise UserError(
            f"coverage_penalty={hparams.coverage_penalty:g} reads the attention of each step, which "
            "sb_decode=recompute does not keep: leave one of them out."
        )


def check_prefixes(directions: int, target_direction: str) -> None:
    """Checks that a model begins at the beginning, as translations with a given beginning need.

    Raises:
      UserError: It generates in two directions at once, or in ``target_direction`` ``r2l``.
    """
    if directions == 1 and target_direction == "l2r":
        return
    other = "as well. Leave the prefixes out, or take a run of a model that generates left to right alone."
    if directions == 1:
        other = "(target_direction=r2l). Leave the prefixes out, or take a run with target_direction=l2r."
    raise UserError(f"Prefixes need a model that begins at the beginning: this one generates right to left {other}")


def refuse_one_side(what: str, instead: str = "") -> NoReturn:
    """Raises a ``UserError``: one direction of a model that generates in two cannot be used alone.

    Args:
      what: What was to be found, such as ``score``.
      instead: The call that gets the other direction as well; empty where a command's user is told.
    """
    raise UserError(
        "The model generates left to right and right to left at once, and each direction attends to the other: the "
        f"{what} of a translation depends on what the other direction generates. Give that as the partner of each "
        f"translation, in text order: {instead and f'{instead}, or '}a third column in --score_file."
    )


def count_winners(best: Iterable[Any]) -> collections.Counter[tuple[str, int]]:
    """Counts best hypotheses by direction and length in tokens; lines with nothing to translate do not count."""
    return collections.Counter((each.direction, each.length) for each in best if each.length)


def direction_shares(best: Iterable[Any]) -> dict[str, dict[str, float]]:
    """Returns how many of the best hypotheses (with ``direction`` and ``length``) of each line each direction won.

    They are for ``l2r`` and ``r2l`` the ``count`` of translations, their ``share`` of all (0 to 1; 0 where there are
    none) and their ``mean_length`` in tokens with EOS.
    """
    return shares_of(count_winners(best))


def shares_of(winners: Mapping[tuple[str, int], int]) -> dict[str, dict[str, float]]:
    """Returns the ``direction_shares`` of counted hypotheses."""
    shares = {}
    for name in NAMES:
        lengths = {length: count for (direction, length), count in winners.items() if direction == name}
        count = sum(lengths.values())
        shares[name] = {
            "count": count,
            "share": count / max(sum(winners.values()), 1),
            "mean_length": sum(length * times for length, times in lengths.items()) / max(count, 1),
        }
    return shares


def shown_shares(shares: Mapping[str, Mapping[str, float]]) -> str:
    """Returns the shares as a line for people."""
    parts = [
        f"{100 * each['share']:.1f}% {NAMES[name]} ({each['count']:,}, {each['mean_length']:.1f} tokens on average)"
        for name, each in shares.items()
    ]
    return f"Directions of the best translations: {', '.join(parts)}"
