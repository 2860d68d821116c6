"""Checks for searches in one or two directions, and statistics of which direction won.

Imports no TensorFlow.
"""

import collections
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from t2t_ext.config.decode import DecodeHParams
from t2t_ext.errors import UserError

NAMES = {"l2r": "left to right", "r2l": "right to left"}


def directions_of(hparams: Any) -> int:
    """Returns the number of directions in which a model with these hparams generates at once."""
    return getattr(hparams, "directions", 1)


def check_directions(hparams: DecodeHParams, directions: int) -> None:
    """Checks that the decode hparams suit a model with this number of directions.

    Raises:
      UserError: The beam size is odd, its groups do not divide a direction's half of it, or sampling is set for a model
        of two directions; a coverage penalty is combined with sb_decode=recompute; or settings for two directions are
        given to a model of one.
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
    groups = hparams.diverse_groups
    if hparams.beam_size % (directions * groups):
        raise UserError(
            f"beam_size={hparams.beam_size} is not a multiple of {directions * groups}: this model generates in "
            f"{directions} directions, with diverse_groups={groups} in each."
        )
    if hparams.sb_decode == "recompute" and hparams.coverage_penalty:
        raise UserError(
            f"coverage_penalty={hparams.coverage_penalty:g} reads the attention of each step, which "
            "sb_decode=recompute does not keep: leave one of them out."
        )


def check_prefixes(directions: int, target_direction: str) -> None:
    """Checks that a model generates the beginning of a translation first, as prefixes require.

    Raises:
      UserError: The model generates in two directions at once, or its ``target_direction`` is ``r2l``.
    """
    if directions == 1 and target_direction == "l2r":
        return
    other = "as well. Leave the prefixes out, or take a run of a model that generates left to right alone."
    if directions == 1:
        other = "(target_direction=r2l). Leave the prefixes out, or take a run with target_direction=l2r."
    raise UserError(f"Prefixes need a model that begins at the beginning: this one generates right to left {other}")


def refuse_one_side(what: str, instead: str = "") -> NoReturn:
    """Raises a ``UserError`` saying that one direction of a model of two directions cannot be used alone.

    Args:
      what: The requested result, such as ``score``.
      instead: The call that also takes the other direction; empty if the message is for a command's user.
    """
    raise UserError(
        "The model generates left to right and right to left at once, and each direction attends to the other: the "
        f"{what} of a translation depends on what the other direction generates. Give that as the partner of each "
        f"translation, in text order: {instead and f'{instead}, or '}a third column in --score_file."
    )


def count_winners(best: Iterable[Any]) -> collections.Counter[tuple[str, int]]:
    """Counts best hypotheses by direction and length in tokens; lines without text do not count."""
    return collections.Counter((each.direction, each.length) for each in best if each.length)


def direction_shares(best: Iterable[Any]) -> dict[str, dict[str, float]]:
    """Returns how often each direction generated the best hypothesis of a line.

    Args:
      best: The best hypothesis of each line, with the attributes ``direction`` and ``length``.

    Returns:
      For ``l2r`` and ``r2l``: the ``count`` of translations, their ``share`` of all (0 to 1; 0 if there are none) and
      their ``mean_length`` in tokens with EOS.
    """
    return shares_of(count_winners(best))


def shares_of(winners: Mapping[tuple[str, int], int]) -> dict[str, dict[str, float]]:
    """Returns the same as ``direction_shares``, from the result of ``count_winners``."""
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
    """Returns the shares as one readable line."""
    parts = [
        f"{100 * each['share']:.1f}% {NAMES[name]} ({each['count']:,}, {each['mean_length']:.1f} tokens on average)"
        for name, each in shares.items()
    ]
    return f"Directions of the best translations: {', '.join(parts)}"
