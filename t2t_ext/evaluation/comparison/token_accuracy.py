"""Measures accuracy at both ends of the translations: whether their first and last tokens are right.

With this measure Zhou et al. (2019), table 1 and figure 7, show that a left-to-right decoder does better at the
beginning and a right-to-left decoder at the end. The paper does not define it. Here it is the share of the
translations' first (last) four tokens, over all sentences, that equal the reference's token at the same position,
counted from the beginning (end). With several references, it suffices that one of them has the token there.
"""

import dataclasses
from collections.abc import Sequence

DEFAULT_TOKENS = 4


@dataclasses.dataclass(frozen=True)
class EndsAccuracy:
    """The accuracy of tokens at both ends of translations, in percent; None if there are no tokens.

    Attributes:
      first: Accuracy of the first tokens.
      last: Accuracy of the last tokens.
      first_by_position: Accuracy of the first, second, ... token.
      last_by_position: Accuracy of the last, second-to-last, ... token.
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
    """Computes the accuracy of the first and last ``tokens`` tokens; shorter translations count with all tokens."""
    first, last = (_by_position(hypotheses, references, tokens, sign) for sign in (1, -1))
    return EndsAccuracy(_share(first), _share(last), _shares(first), _shares(last))


def _by_position(
    hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]], tokens: int, sign: int
) -> list[tuple[int, int]]:
    """Returns (right, all) for each position, counted from the beginning (``sign`` 1) or from the end (-1)."""
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
