"""Attention distributions of one sentence, labeled with the tokens of their rows and columns. Imports no TensorFlow.

Decoders are autoregressive: position t reads token t - 1 as its input and predicts token t. Rows (queries) and the
target's columns (keys) are therefore labeled by their *inputs*; each row's prediction is kept as well. The first input
is not a word, but a zero vector (``<start>``) or the tag of a direction.

Legend: H heads, Q rows (queries), K columns (keys).
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from t2t_ext.data.text.special_ids import L2R_ID, R2L_ID, SPECIAL_PIECES

START = "<start>"
TAGS = (SPECIAL_PIECES[L2R_ID], SPECIAL_PIECES[R2L_ID])
SIDES = ("l2r", "r2l")
# Kind -> its displayed name.
KINDS: Mapping[str, str] = {
    "source": "Cross-attention",
    "self": "Decoder self-attention",
    "mixed": "Mixed attention",
    "future": "Attention to the other direction",
    "backward": "Attention to the backward decoder's states",
    "encoder": "Encoder self-attention",
}
# The first and the second half of a dual contextual module's heads (Ampomah et al. 2021, equation 7).
DUAL_CONTEXT = "dual_context"
_DUAL_PARTS: Mapping[str, str] = {"local_context": "Local context attention", "global_context": "Global attention"}
_LAYER = re.compile(r"layer_(\d+)")


@dataclasses.dataclass(frozen=True)
class Side:
    """A target in generation order: its direction, and the input and the predicted token of each position."""

    direction: str
    inputs: tuple[str, ...]
    predicted: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Sentence:
    """The tokens at all positions of the source and of each target; of two targets, the left-to-right one is first."""

    source: tuple[str, ...]
    sides: tuple[Side, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionMap:
    """One attention of one layer.

    Attributes:
      name: The name, as in ``Seq2Seq.attention_weights``.
      stack: ``encoder``, ``decoder`` or ``backward_decoder``; empty if one stack serves both sides.
      layer: The layer, counted from 0.
      kind: A key of ``KINDS``.
      part: The sublayer's name; for a dual contextual module, ``local_context`` or ``global_context``.
      side: The direction of the rows; empty for source rows, and if the only target is left-to-right.
      weights: float32 [H, Q, K]; every row is a distribution.
      rows: Labels of the rows: inputs.
      predicted: The tokens that the rows predict; empty for source rows.
      columns: Labels of the columns: inputs, except for ``backward``: the tokens that the states generated.
      boundary: Number of source columns if target columns follow them (``mixed``); otherwise 0.
    """

    name: str
    stack: str
    layer: int
    kind: str
    part: str
    side: str
    weights: np.ndarray
    rows: tuple[str, ...]
    predicted: tuple[str, ...]
    columns: tuple[str, ...]
    boundary: int = 0

    @property
    def heads(self) -> int:
        """The number of heads, H."""
        return len(self.weights)

    @property
    def title(self) -> str:
        """The title of the map; layers count from 1."""
        stack = self.stack.replace("_", " ")
        usual = {"source": "source_attention", "self": "self_attention", "encoder": "self_attention"}
        part = "" if self.part in (usual.get(self.kind, self.part), "source_self_attention") else f" ({self.part})"
        where = f"{stack} layer {self.layer + 1}" if stack else f"layer {self.layer + 1}"
        what = f"{KINDS[self.kind]}{part}"
        if self.part in _DUAL_PARTS:
            dual = _DUAL_PARTS[self.part]
            what = dual if self.kind in ("self", "encoder") else f"{what}, {dual.lower()}"
        return f"{what}, {where}" + (f", {self.side}" if self.side else "")

    @property
    def hidden(self) -> np.ndarray:
        """The columns that a row cannot attend to, bool [Q, K]: later target positions."""
        later = np.zeros(self.weights.shape[1:], bool)
        if self.kind in ("self", "future", "mixed"):
            target = np.arange(self.weights.shape[2]) - self.boundary
            later = target[np.newaxis] > np.arange(self.weights.shape[1])[:, np.newaxis]
        return later

    def of_head(self, head: int | None) -> np.ndarray:
        """Returns the weights of a head, counted from 0, or the mean over all heads (None), float32 [Q, K]."""
        return self.weights.mean(axis=0) if head is None else self.weights[head]


@dataclasses.dataclass(frozen=True)
class Looked:
    """A sentence with a model's attention.

    Attributes:
      source: The source as given.
      targets: Direction -> target as text, in normal text order.
      given: Whether the user gave the (first) target; otherwise it is the model's translation.
      best: The direction that won, if the model translated in two directions; otherwise empty.
      notes: Notes for the reader.
      maps: The attention maps.
    """

    source: str
    targets: dict[str, str]
    given: bool
    best: str
    notes: tuple[str, ...]
    maps: tuple[AttentionMap, ...]


def generated(pieces: Sequence[str], direction: str, first: Sequence[str] = (START,)) -> Side:
    """Returns a target's positions, given its tokens in generation order, including EOS if it has one.

    ``first`` are the inputs before the first token; if there are several, each of them predicts the next one.
    """
    tokens = (*first, *pieces)
    return Side(direction, tokens[:-1], tokens[1:])


def sentence_of(model: Any, source: Sequence[str], targets: Sequence[Sequence[str]]) -> Sentence:
    """Returns the tokens at a model's positions; its ``directions`` and hparams determine the first inputs.

    ``targets`` are the pieces of one target or of both, each in generation order.
    """
    if len(targets) == 1:
        return Sentence(tuple(source), (generated(targets[0], model.hparams.target_direction),))
    firsts: list[tuple[str, ...]] = [(START,), (START,)]
    if model.directions == 2:
        before = (START,) if model.hparams.predict_tag else ()
        firsts = [(*before, tag) for tag in TAGS]
    sides = map(generated, targets, SIDES, firsts)
    return Sentence(tuple(source), tuple(sides))


def read_maps(distributions: Mapping[str, Any], sentence: Sentence) -> list[AttentionMap]:
    """Returns labeled attention maps; the local and global heads of a dual contextual module become two maps.

    ``distributions`` are float [1, H, Q, K] by name, as returned by ``Seq2Seq.attention_weights`` for one sentence.
    Padding after a shorter side, and distributions over anything but positions, are left out.
    """
    maps = []
    alone = [side.direction for side in sentence.sides] == ["l2r"]
    for name, found in distributions.items():
        parts = name.split("/")
        place = next((i for i, part in enumerate(parts) if _LAYER.fullmatch(part)), None)
        values = np.asarray(found).astype(np.float32)
        if place is None or place + 1 == len(parts) or values.ndim != 4:
            continue
        stack, part, tags = "/".join(parts[:place]), parts[place + 1], {*parts[place + 2 :]}
        side = sentence.sides[-1 if "r2l" in tags else 0]
        other = sentence.sides[0 if "r2l" in tags else -1]
        kind = _kind(stack, part, tags)
        part = next((name for name in _DUAL_PARTS if name in tags), part)
        columns: Mapping[str, tuple[str, ...]] = {
            "encoder": sentence.source,
            "source": sentence.source,
            "self": side.inputs,
            "mixed": (*sentence.source, *side.inputs),
            "future": other.inputs,
            "backward": other.predicted,
        }
        of_source = kind == "encoder"
        rows = sentence.source if of_source else side.inputs
        if values.shape[2] < len(rows) or values.shape[3] < len(columns[kind]):
            continue
        whole = AttentionMap(
            name=name,
            stack=stack,
            layer=int(parts[place].removeprefix("layer_")),
            kind=kind,
            part=part,
            side="" if of_source or alone else side.direction,
            weights=values[0, :, : len(rows), : len(columns[kind])],
            rows=rows,
            predicted=() if of_source else side.predicted,
            columns=columns[kind],
            boundary=len(sentence.source) if kind == "mixed" else 0,
        )
        if part == DUAL_CONTEXT:  # [2 H, Q, K]
            maps += [
                dataclasses.replace(whole, name=f"{name}/{half}", part=half, weights=weights)
                for half, weights in zip(_DUAL_PARTS, np.split(whole.weights, 2), strict=True)
            ]
        else:
            maps.append(whole)
    return maps


def _kind(stack: str, part: str, tags: set[str]) -> str:
    """Returns the key of ``KINDS`` for a distribution, given the parts of its name."""
    if stack == "encoder" or part == "source_self_attention":
        return "encoder"
    if part == "mixed_attention":
        return "mixed"
    if part == "backward_attention":
        return "backward"
    if "future" in tags:
        return "future"
    return "self" if part.endswith("self_attention") or part == DUAL_CONTEXT else "source"


def strongest(weights: np.ndarray, count: int = 3, least: float = 0.01) -> Iterator[list[tuple[int, float]]]:
    """Yields, for every row of weights float [Q, K], its strongest columns with their weights, strongest first.

    There are at most ``count`` per row; except for the first, none is weaker than ``least``.
    """
    for values in weights:
        order = np.argsort(-values, kind="stable")[:count]
        yield [
            (int(each), float(values[each])) for place, each in enumerate(order) if not place or values[each] >= least
        ]
