"""Translates sources that are given as ids, and says which translations cannot be used as training text."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from t2t_ext.io.interruption import SignalWatch
from t2t_ext.pseudo.work import Translations

if TYPE_CHECKING:
    from t2t_ext.translation.translator import Hypothesis, Translator

# A translation of at least _LONG_ENOUGH_TO_REPEAT tokens counts as repetition if fewer than one in _MOST_REPETITION of
# them are distinct.
_LONG_ENOUGH_TO_REPEAT, _MOST_REPETITION = 12, 4


def translate_sources(
    translator: "Translator",
    sources: Sequence[np.ndarray],
    max_length: int,
    signals: SignalWatch,
    advance: Callable[[int], None],
) -> Translations:
    """Returns the best translation of each source, ids with EOS, or why there is none.

    Args:
      translator: Searches for the translations.
      sources: Ids with EOS, none at all for a line that is not UTF-8; or feature vectors, float [regions, F].
      max_length: Translations with more tokens, including EOS, count as failed.
      signals: A signal ends the search at once (``Interrupted``).
      advance: Called with the number of sources that are newly done.
    """
    vectors, most = any(np.ndim(source) == 2 for source in sources), translator.decode_hparams.max_input_length
    ids: list[Sequence[int]] = [()] * len(sources)
    texts, failures = [""] * len(sources), [""] * len(sources)
    for place, source in enumerate(sources):
        if vectors and not np.any(source):
            failures[place] = "empty source"
        elif not len(source):
            failures[place] = "not UTF-8"
        elif len(source) == 1 and not vectors:
            failures[place] = "empty source"
        elif len(source) > most + (not vectors):  # ids end with EOS
            failures[place] = f"source longer than {most} {'feature vectors' if vectors else 'tokens'}"
    places = [place for place, failure in enumerate(failures) if not failure]
    advance(len(sources) - len(places))
    done = 0

    def update(now: int, total: int) -> None:
        nonlocal done
        advance(now - done)
        done = now

    with signals.abandoning():
        given = [sources[place] if vectors else sources[place].tolist() for place in places]
        found = translator.translate_ids(given, update)
    for place, hypotheses in zip(places, found, strict=True):
        failures[place] = why_failed(hypotheses[0], max_length)
        if not failures[place]:
            ids[place], texts[place] = in_text_order(hypotheses[0]), hypotheses[0].text
    return Translations(ids, texts, failures)


def why_failed(hypothesis: "Hypothesis", max_length: int) -> str:
    """Returns why a translation cannot be used as a pseudo reference, or an empty string."""
    if not hypothesis.length:  # the model's probabilities are NaN, or the rules of the search leave none
        return "no translation"
    if not hypothesis.finished:
        return "ended by the length limit"
    if hypothesis.length <= 1 or not hypothesis.text.strip():
        return "empty"
    if hypothesis.length > max_length:
        return f"longer than {max_length} tokens"
    if hypothesis.length >= _LONG_ENOUGH_TO_REPEAT and len(set(hypothesis.ids)) * _MOST_REPETITION < hypothesis.length:
        return "repetition"
    return ""


def in_text_order(hypothesis: "Hypothesis") -> tuple[int, ...]:
    """Returns the ids of a finished translation in text order, EOS last."""
    ids = hypothesis.ids
    return (*ids[-2::-1], ids[-1]) if hypothesis.direction == "r2l" else ids
