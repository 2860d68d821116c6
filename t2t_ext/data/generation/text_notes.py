"""Notes about a problem's text and languages that a user should read before hours of training."""

import itertools
from collections.abc import Iterable, Iterator, Mapping

from t2t_ext.data.features.types import TARGET, Feature, text_features
from t2t_ext.data.generation.preparation import TextPreparation
from t2t_ext.data.generation.text_checks import script_share
from t2t_ext.data.text.text_steps import step_class
from t2t_ext.problem import Problem, Sample

_SAMPLES_LOOKED_AT = 200
_LETTERS_IN_A_WORD = 4  # more in text without spaces, fewer in words of Chinese
# Languages that put no spaces between words; ja has the scripts of Chinese, too.
_UNSPACED = ("ja", "th", "lo", "km", "my", "bo")


def language_notes(problem: Problem, preparation: TextPreparation, samples: Iterable[Sample]) -> Iterator[str]:
    """Yields notes about languages that are not given though the text's preparation or the scores depend on them.

    Args:
      problem: The problem.
      preparation: The preparation of its text, in the base problem's direction.
      samples: Training samples, of which only the first are read.
    """
    for side, steps, language in (
        ("source", preparation.source_steps, preparation.source_language),
        ("target", preparation.target_steps, preparation.target_language),
    ):
        assumed = [name for name in steps if step_class(name).assumed_language and not language]
        if assumed:
            yield (
                f"Note: {', '.join(assumed)} of the {side}: the rules are those of English, as the {side}'s language "
                f"is not given (--{side}_language=TAG)."
            )
    targets = [name for name, feature in text_features(problem.features()).items() if feature.side == TARGET]
    if problem.target_language or not targets:
        return
    first = "".join(_texts(sample[targets[0]])[0] for sample in itertools.islice(samples, _SAMPLES_LOOKED_AT))
    letters = sum(map(str.isalpha, first))
    spaced = letters < _LETTERS_IN_A_WORD * first.count(" ")  # such as words that a segmenter has separated
    if letters and not spaced and any(script_share([first], language)[0] > 0.5 for language in _UNSPACED):
        yield (
            "Note: the target seems to be written without spaces between words, and its language is not given. BLEU "
            "then takes a whole sentence as one word, also when it chooses a run's best checkpoint: give "
            "--target_language=TAG, such as zh, ja or th."
        )


def counting_empty_texts(
    samples: Iterable[Sample], features: Mapping[str, Feature], found: dict[str, list[int]]
) -> Iterator[Sample]:
    """Yields samples, and notes for each text feature the numbers, from 1, of those whose texts are all empty."""
    names = list(text_features(features))
    for number, sample in enumerate(samples, 1):
        for name in names:
            if not any(text.strip() for text in _texts(sample[name])):
                found.setdefault(name, []).append(number)
        yield sample


def empty_texts_note(split: str, found: Mapping[str, list[int]]) -> str:
    """Returns a note about what ``counting_empty_texts`` has found in a dev or test set; empty if that is nothing."""
    if not found:
        return ""
    counts = [f"{len(numbers):,} with empty {name} (first: {numbers[0]:,})" for name, numbers in found.items()]
    return f"Note: of the samples of {split} are {' and '.join(counts)}. They are kept and count in the scores."


def _texts(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
