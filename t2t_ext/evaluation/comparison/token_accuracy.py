"""Accuracy at both ends of the translations: are their first and last words right?

Zhou et al. (2019), table 1 and figure 7, show with it that a decoder from left to right does better at the
beginning and one from right to left at the end. The paper does not define it; here it is the share of a
translation's first (last) four tokens that equal the reference's token at the same position, counted from the
beginning (from the end), over all sentences. With several references any of them may have the token there.
"""

import dataclasses
from collections.abc import Sequence

DEFAULT_TOKENS = 4


@dataclasses.dataclass(frozen=True)
class EndsAccuracy:
    """How many tokens at the ends of translations are right, percent; None where there are no tokens.

    Attributes:
      first: Of the first tokens.
      last: Of the last tokens.
      first_by_position: Of the first, the second, ... token.
      last_by_position: Of the last, the last but one, ... token.
    """

    first: float | None
    last: float | None
    first_by_position: tuple[float | None, ...]
    last_by_position: tuple[float | None, ...]


def ends_accuracy(
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[Sequence[Sequence[str]]],
    tokens: int = DEFAULT_TOKENS,
) -> EndsAccuracy:
    """Computes the accuracy at both ends, of so many tokens each; of shorter translations all tokens count."""
    first, last = (_by_position(hypotheses, references, tokens, sign) for sign in (1, -1))
    return EndsAccuracy(_share(first), _share(last), _shares(first), _shares(last))


def _by_position(
    hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]], tokens: int, sign: int
) -> list[tuple[int, int]]:
    """Returns (right, all) for each position, counted from the beginning (sign 1) or from the end (-1)."""
    result = []
    for offset in range(tokens):
        position = offset if sign > 0 else -1 - offset
        right = total = 0
        for sentence, hypothesis in enumerate(hypotheses):
            if len(hypothesis) <= offset:
                continue
            total += 1
            right += any(
                len(each[sentence]) > offset and each[sentence][position] == hypothesis[position] for each in references
            )
        result.append((right, total))
    return result


def _share(counts: Sequence[tuple[int, int]]) -> float | None:
    total = sum(total for _, total in counts)
    return 100 * sum(right for right, _ in counts) / total if total else None


def _shares(counts: Sequence[tuple[int, int]]) -> tuple[float | None, ...]:
    return tuple(_share([each]) for each in counts)
