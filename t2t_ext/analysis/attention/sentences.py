"""Computes a model's attention in a sentence, with its own translation or with a given one (teacher forcing).

Legend: S source positions, T target positions.
"""

from typing import Any

import numpy as np

from t2t_ext.analysis.attention.maps import SIDES, Looked, read_maps, sentence_of
from t2t_ext.data.text.special_ids import EOS_ID, PAD_ID
from t2t_ext.errors import UserError
from t2t_ext.models.seq2seq import Seq2Seq
from t2t_ext.translation.hypothesis import NO_TRANSLATION
from t2t_ext.translation.translator import Hypothesis, Translator


def look(translator: Translator, source: str, reference: str = "", partner: str = "", most_pieces: int = 100) -> Looked:
    """Computes the attention in a sentence, with a reference or with the model's own translation.

    Texts are raw. A model with two directions should search with ``beam_size=2`` and return both hypotheses: there is
    then one per direction, and each attends to the same other hypothesis throughout. ``partner`` is the target of the
    other direction for such a model; empty: the reference again. Source and target may have at most ``most_pieces``
    subwords each.

    Raises:
      UserError: The sentence is empty or too long, or the model has no translation of it or no attention that can be
        shown.
    """
    model = translator.model
    if not isinstance(model, Seq2Seq):
        raise UserError("Attention is shown of one run, not of an ensemble. Give one --output_dir.")
    source_ids = _ids(translator.source_encoder, source)
    if not source.strip() or source_ids == [EOS_ID]:
        raise UserError("The sentence is empty: there is no attention to show. Give one with words.")
    # Checked before the search, since translating a long source takes a while.
    _check_length(source_ids, "The sentence", source, most_pieces)
    best, notes = "", []
    if reference:
        both = translator.two_sided
        texts = [reference, partner or reference] if both else [reference]
        sides = [_ids(translator.target_encoder, text) for text in texts]
        if both and not partner:
            notes.append("Both directions are given the same sentence, so each sees what it is about to predict.")
        if both or translator.target_direction == "r2l":
            sides[-1] = sides[-1][-2::-1] + sides[-1][-1:]
    else:
        sides, best, notes = _translated(translator, source)
    for ids in sides:
        _check_length(ids, "The reference" if reference else "Its translation", reference or source, most_pieces)
    inputs = np.array([source_ids], np.int32)
    if model.target_sides == 2 and not translator.two_sided:
        ids = np.asarray(model.generate_backward(inputs, model.encode(inputs)))[0]  # right-to-left
        sides.append([int(token) for token in ids if token != PAD_ID])
        notes.append("The backward decoder generated its target itself, as it does whenever the model translates.")
    width = max(map(len, sides))
    targets = np.array([[*ids, *[PAD_ID] * (width - len(ids))] for ids in sides], np.int32)[np.newaxis]
    weights = model.attention_weights(inputs, targets if len(sides) == 2 else targets[:, 0])
    target_encoder = translator.target_encoder
    pieces = [target_encoder.pieces(ids) for ids in sides]
    words = sentence_of(model, translator.source_encoder.pieces(source_ids), pieces)
    maps = read_maps({name: np.asarray(values) for name, values in weights.items()}, words)
    if not maps:
        raise UserError(f"The model {type(model).__name__} has no attention that could be shown.")
    restored = {}
    for side, ids in zip(words.sides, sides, strict=True):
        body = [token for token in ids if token != EOS_ID]
        text = target_encoder.decode(body[::-1] if side.direction == "r2l" else body)
        (restored[side.direction],) = target_encoder.restore([text])
    return Looked(source, restored, bool(reference), best, tuple(notes), tuple(maps))


def _ids(encoder: Any, text: str) -> list[int]:
    """Returns the ids of a raw text, with EOS."""
    return encoder.encode_batch(encoder.prepare([text]), add_eos=True)[0]


def _check_length(ids: list[int], what: str, text: str, most: int) -> None:
    subwords = len(ids) - (ids[-1:] == [EOS_ID])
    if subwords > most:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        raise UserError(
            f"{what} is too long for a picture: {subwords} subwords, at most {most} (--max_subwords): {shown} Give a "
            "shorter one, or raise --max_subwords."
        )


def _translated(translator: Translator, source: str) -> tuple[list[list[int]], str, list[str]]:
    """Translates; returns the ids of one direction or of both, the winning direction ("" for one), and notes."""
    (found,) = translator.translate([source])
    if not found[0].length:
        raise UserError(f"There is {NO_TRANSLATION}.")
    notes = [] if found[0].finished else ["The translation was truncated at the length limit."]
    if translator.truncated_lines:
        notes.append(f"The source is truncated to {translator.describe_limits()}.")
    if not translator.two_sided:
        return [list(found[0].ids)], "", notes
    by_side: dict[str, Hypothesis] = {}
    for hypothesis in found:
        by_side.setdefault(hypothesis.direction, hypothesis)
    sides = []
    for side in SIDES:
        ids = list(by_side.get(side, found[0]).ids)
        if side not in by_side:
            ids = ids[-2::-1] + ids[-1:] if ids[-1:] == [EOS_ID] else ids[::-1]
            notes.append(f"The search kept no {side} hypothesis: the best one, reversed, is shown in its place.")
        sides.append(ids)
    return sides, found[0].direction, notes
