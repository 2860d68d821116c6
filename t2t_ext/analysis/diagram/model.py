"""What a built model is made of, for a diagram: its stacks, layers and sublayers, and what of them is no Transformer's.

Everything is read off the parts that the model has, whatever it is called: a sublayer says by its class what it is, a
sublayer of a user's own by the nearest class that is known here. ``diagram_text`` and ``diagram_svg`` draw it.

Legend: N encoder layers, M decoder layers, D width; e_j is what encoder layer j makes of the source, from e_1 to e_N.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import keras

from t2t_ext.analysis.gradients.groups import group_of
from t2t_ext.layers.attention import SelfAttention, SourceAttention
from t2t_ext.layers.cross_view_attention import TwoAttentions
from t2t_ext.layers.cross_views import CrossViews
from t2t_ext.layers.dual_context import DualContext
from t2t_ext.layers.dynamic_convolution import DecoderConvolution, EncoderConvolution
from t2t_ext.layers.embeddings import LearnedVectors, TargetSpaceEmbedding, TokenEmbedding
from t2t_ext.layers.feature_embedding import FeatureEmbedding
from t2t_ext.layers.feed_forward import FeedForward
from t2t_ext.layers.mixed_attention import MixedAttention
from t2t_ext.layers.source_views import LastView
from t2t_ext.layers.sublayer import Frame
from t2t_ext.layers.synchronous_attention import SidesSelfAttention, SynchronousAttention
from t2t_ext.models.context_gate import ContextGate
from t2t_ext.models.layer_coordination import CoordinatedLayer
from t2t_ext.models.seq2seq import Seq2Seq

TRANSFORMER = "Vaswani et al. 2017"
DUAL_CONTEXT = "Ampomah et al. 2021"
CROSS_VIEW = "Liu et al. 2020"
SYNCHRONOUS = "Zhou et al. 2019"
CONVOLUTION = "Wu et al. 2019"
COORDINATION = "He et al. 2018"
ASYNCHRONOUS = "Zhang et al. 2018"
GATE = "Tu et al. 2017"
PAPERS = (TRANSFORMER, DUAL_CONTEXT, CROSS_VIEW, SYNCHRONOUS, CONVOLUTION, COORDINATION, ASYNCHRONOUS, GATE)
OWN = "not of t2t_ext"

_ADDED = ""


@dataclasses.dataclass(frozen=True)
class Part:
    """A sublayer, an embedding or another part.

    Attributes:
      name: What it is.
      setting: What is particular to it, such as ``f = 2``.
      shape: Widths and heads, such as ``D = 512, 8 heads of 64``.
      paper: Whose it is; one of ``PAPERS`` or ``OWN``.
      replaces: The part of a Transformer in whose place it stands; empty where it is an addition; None where it is a
        part of a Transformer itself.
      parameters: Numbers that are learnt, with those of the norms around it; what two parts share counts at the first.
    """

    name: str
    setting: str = ""
    shape: str = ""
    paper: str = TRANSFORMER
    replaces: str | None = None
    parameters: int = 0

    @property
    def title(self) -> str:
        """The name with what is particular."""
        return f"{self.name}, {self.setting}" if self.setting else self.name

    @property
    def mark(self) -> str:
        """How it differs from a Transformer, in words; empty where it does not."""
        if self.replaces is None:
            return ""
        return "added" if self.replaces == _ADDED else f"<- {self.replaces}"


@dataclasses.dataclass(frozen=True)
class Group:
    """Layers of one make-up, one behind the other.

    Attributes:
      first: Number of the first one, counted from 1.
      last: Number of the last one.
      parts: The sublayers of each.
    """

    first: int
    last: int
    parts: tuple[Part, ...]

    @property
    def count(self) -> int:
        """How many layers these are."""
        return self.last - self.first + 1

    @property
    def title(self) -> str:
        """Which layers these are."""
        return f"layer {self.first}" if self.count == 1 else f"layers {self.first}-{self.last}"


@dataclasses.dataclass(frozen=True)
class Stack:
    """Layers one behind the other, with what is before and after them.

    Attributes:
      name: Such as ``encoder``.
      lanes: The sequences that go through it.
      before: Embeddings, from the input on.
      groups: The layers.
      after: Norms and softmax.
      paper: Whose the lanes are.
    """

    name: str
    lanes: tuple[str, ...]
    before: tuple[Part, ...]
    groups: tuple[Group, ...]
    after: tuple[Part, ...]
    paper: str = TRANSFORMER

    @property
    def depth(self) -> int:
        """How many layers it has."""
        return self.groups[-1].last if self.groups else 0


@dataclasses.dataclass(frozen=True)
class Reading:
    """Which encoder layers the layers of a decoder attend to.

    Attributes:
      what: The formula of what decoder layer i attends to.
      layers: For each decoder layer the encoder layers that its view is made of, from 1; empty where only the model's
        own code knows.
      joined: The encoder layer that every view is joined with; 0 where none is.
      part: The view's own weights.
    """

    what: str
    layers: tuple[tuple[int, ...], ...]
    joined: int
    part: Part


@dataclasses.dataclass(frozen=True)
class Diagram:
    """A model.

    Attributes:
      title: Its name.
      facts: What holds for all of it, such as its width.
      stacks: Encoder, decoders; or the one stack of both sides.
      reading: How decoders read the encoder; None where there is one stack.
      others: Parts that are in no stack.
      parameters: All numbers that are learnt.
    """

    title: str
    facts: tuple[str, ...]
    stacks: tuple[Stack, ...]
    reading: Reading | None
    others: tuple[Part, ...]
    parameters: int

    @property
    def parts(self) -> Iterator[Part]:
        """All parts, those of a group once."""
        for stack in self.stacks:
            yield from stack.before
            for group in stack.groups:
                yield from group.parts
            yield from stack.after
        if self.reading is not None:
            yield self.reading.part
        yield from self.others

    @property
    def papers(self) -> tuple[str, ...]:
        """Whose ideas are in it, in the order of ``PAPERS``."""
        found = {part.paper for part in self.parts} | {stack.paper for stack in self.stacks}
        return tuple(paper for paper in (*PAPERS, OWN) if paper in found)


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a sublayer stands: the attribute of its layer, that layer, and how its stack reads the encoder."""

    attribute: str
    owner: Any
    reading: Reading | None = None


def diagram_of(model: Seq2Seq, title: str) -> Diagram:
    """Returns what a model is made of.

    Args:
      model: A built model.
      title: What it is called.
    """
    return _Walk(model).diagram(title)


# === Sublayers ===


def _heads(layer: Any, count: str = "", heads: int = 0) -> str:
    """Returns the shape of an attention."""
    heads = heads or layer.heads
    keys, values = layer.key_width // heads, layer.value_width // heads
    of = f" of {keys}" if keys == values else f", keys of {keys}, values of {values}"
    return f"D = {layer.width}, {count}{heads} head{'s' if heads > 1 or count else ''}{of}"


@functools.singledispatch
def _described(layer: Any, place: _Place) -> Part:
    """Returns what a sublayer is; of a class that is not known here, its name alone."""
    return Part(place.attribute.replace("_", " "), f"a {type(layer).__name__}", paper=OWN, replaces=_ADDED)


@_described.register
def _(layer: SelfAttention, place: _Place) -> Part:
    return Part("self-attention", shape=_heads(layer))


@_described.register
def _(layer: SidesSelfAttention, place: _Place) -> Part:
    return Part("self-attention", "each direction by itself", _heads(layer))


@_described.register
def _(layer: SynchronousAttention, place: _Place) -> Part:
    if layer.gate is not None:
        setting = f"gate of {'each head' if layer.gated_heads else 'all heads'}"
    else:
        trained = {"none": "", "scalar": ", trained", "vector": ", trained vector"}[layer.trainable_lambda]
        setting = f"{layer.fusion}, lambda = {layer.start_lambda:g}{trained}"
    return Part("synchronous bidirectional attention", setting, _heads(layer), SYNCHRONOUS, "self-attention")


@_described.register
def _(layer: DualContext, place: _Place) -> Part:
    shape = _heads(layer, "2 x ", layer.heads // 2)
    return Part("dual contextual module", f"f = {layer.taps}", shape, DUAL_CONTEXT, "self-attention")


def _convolution(layer: Any, place: _Place) -> Part:
    shape = f"D = {layer.width}, {layer.heads} heads of {layer.width // layer.heads}"
    setting = f"{layer.taps} tap{'s' if layer.taps > 1 else ''}"
    name = f"{'dynamic' if layer.dynamic else 'lightweight'} convolution"
    return Part(name, setting, shape, CONVOLUTION, "self-attention")


_described.register(EncoderConvolution, _convolution)
_described.register(DecoderConvolution, _convolution)


@_described.register
def _(layer: MixedAttention, place: _Place) -> Part:
    if isinstance(layer, SynchronousAttention):
        part = _described.dispatch(SynchronousAttention)(layer, place)
        return dataclasses.replace(part, name="synchronous mixed attention")
    return Part("mixed attention", "", _heads(layer), COORDINATION)


def _of_both_sides(part: Part, mixed: bool) -> Part:
    """Returns the attention of a layer that source and target share, of which a target position asks for both."""
    setting = "source and past in one softmax" if mixed else "past, then source, same projections"
    name = part.name if mixed else part.name.replace("mixed", "shared")
    setting = ", ".join(filter(None, [part.setting, setting]))
    return dataclasses.replace(part, name=name, setting=setting, replaces="self-attention, attention to the source")


@_described.register
def _(layer: SourceAttention, place: _Place) -> Part:
    if place.attribute == "backward_attention":
        return Part("attention to the backward states", "", _heads(layer), ASYNCHRONOUS, _ADDED)
    reading = place.reading
    if reading is None or reading.part.replaces is None:
        return Part("attention to the source", reading.what if reading else "", _heads(layer))
    name = "two attentions to the source" if isinstance(layer, TwoAttentions) else "attention to the source"
    return Part(name, reading.what, _heads(layer), reading.part.paper, f"attention to {reading.part.replaces}")


@_described.register
def _(layer: ContextGate, place: _Place) -> Part:
    of = "each channel" if layer.gates == layer.width else "each head"
    return Part("context gate", f"z of {of}", f"2 x {layer.width} -> {layer.gates}", GATE, "the sum of both attentions")


@_described.register
def _(layer: FeedForward, place: _Place) -> Part:
    return Part("feed-forward", layer.activation, f"{layer.width} -> {layer.filter_width:,} -> {layer.width}")


@_described.register
def _(layer: TokenEmbedding, place: _Place) -> Part:
    return Part(place.attribute.replace("_", " "), shape=f"{layer.vocab_size:,} x {layer.width}")


@_described.register
def _(layer: FeatureEmbedding, place: _Place) -> Part:
    return Part("projection of feature vectors", shape=f"{layer.size:,} -> {layer.parts[0]}")


@_described.register
def _(layer: TargetSpaceEmbedding, place: _Place) -> Part:
    return Part("target space", f"number {layer.space}", f"{layer.SPACES} x {layer.width}")


@_described.register
def _(layer: LearnedVectors, place: _Place) -> Part:
    name = {"side_embedding": "vectors of source and target", "sos": "start of the target"}
    title = name.get(place.attribute, place.attribute.replace("_", " "))
    return Part(title, shape=f"{layer.count} x {layer.width}", paper=COORDINATION, replaces=_ADDED)


# === What the decoder reads ===


def _reading_of(views: Any, depth: int, decoder_depth: int) -> Reading:
    """Returns what a decoder of so many layers reads of an encoder of so many, by its ``SourceViews``."""
    last = f"e_{depth}"
    if type(views) is LastView:
        return Reading(last, ((depth,),) * decoder_depth, 0, Part("view of the source", last))
    if not isinstance(views, CrossViews):
        part = Part("views of the source", f"a {type(views).__name__}", paper=OWN, replaces=last)
        return Reading("R_i", (), 0, part)
    # What R_i is: the layers that it is made of, and how.
    formula = "R_i"
    if views.source_view == "fma":
        formula = f"R_i = sum of w_ij e_j, j = 1 to {depth}" if views.scalar else f"R_i = [e_1; ...; {last}] W_i + b_i"
    elif views.source_view == "ama":
        of = "of each query" if views.by_query else "of each source position"
        formula = f"R_i = sum of a_ij e_j, a_ij {of}"
    layers = tuple((j + 1,) for j in views.viewed_layers) or (tuple(range(1, depth + 1)),) * decoder_depth
    what = {"hard": "R_i", "soft": f"LN_i({last} + R_i)", "soft_two_attention": f"LN_i(MHA({last}) + MHA(R_i))"}
    kind = f"{views.source_view}, {views.integration.replace('_', ' ')} integration"
    part = Part("views of the source", kind, "" if formula == "R_i" else formula, CROSS_VIEW, last)
    return Reading(what[views.integration], layers, 0 if views.integration == "hard" else depth, part)


# === The walk ===


def _sublayers(layer: Any) -> list[tuple[str, Any]]:
    """Returns a layer's own sublayers with their attributes' names, as created, but the feed-forward one last."""
    found = []
    for name, value in vars(layer).items():
        each = value if isinstance(value, list) else [value]
        if not name.startswith("_"):
            found += [(name, one) for one in each if isinstance(one, keras.layers.Layer)]
    return sorted(found, key=lambda item: isinstance(item[1], FeedForward))


class _Walk:
    """Goes through a model once; every variable counts where it is met first."""

    def __init__(self, model: Seq2Seq) -> None:
        self.model = model
        self.counted: set[int] = set()
        self.attributes = _sublayers(model)
        in_stacks = [id(layer) for _, stack in self.attributes for layer in getattr(stack, "layers", ())]
        self.stacks = {name: stack.layers for name, stack in self.attributes if getattr(stack, "layers", None)}
        loose = [layer for _, layer in self.attributes if isinstance(layer, CoordinatedLayer)]
        if loose and id(loose[0]) not in in_stacks:
            self.stacks[""] = loose

    def diagram(self, title: str) -> Diagram:
        """Returns the diagram."""
        # What embeds is counted before what shares its matrix; the main decoder comes last.
        names = sorted(self.stacks, key=lambda name: (name == "decoder", name != "encoder"))
        reading = self._reading()
        stacks = []
        for name in names:
            before = self._before(name)
            groups = self._groups(name, reading if name != "encoder" else None)
            stacks.append(Stack(*self._lanes(name), before, groups, self._after(name, name == names[-1])))
        stacks = [
            dataclasses.replace(stack, paper=self._paper(name)) for name, stack in zip(names, stacks, strict=True)
        ]
        left = [variable for variable in self.model.variables if id(variable) not in self.counted]
        others: dict[str, int] = {}
        for variable in left:
            group = group_of(variable.path.split("/", 1)[1])
            others[group] = others.get(group, 0) + self._count([variable])
        return Diagram(
            title,
            self._facts(),
            tuple(stacks),
            reading,
            tuple(Part(name, paper=OWN, replaces=_ADDED, parameters=count) for name, count in others.items()),
            sum(math.prod(variable.shape) for variable in self.model.variables),
        )

    def _count(self, variables: list[Any]) -> int:
        """Counts the numbers in those variables that have not been counted."""
        fresh = {id(variable): variable for variable in variables if id(variable) not in self.counted}
        self.counted |= fresh.keys()
        return sum(math.prod(variable.shape) for variable in fresh.values())

    def _part(self, layer: Any, place: _Place, **changes: Any) -> Part:
        """Describes and counts a part with its frame."""
        part = _described(layer, place)
        if isinstance(place.owner, CoordinatedLayer) and place.attribute == "attention":
            part = _of_both_sides(part, place.owner.mixed)
        own = type(layer).__module__.split(".")[0] != "t2t_ext"
        if own and part.paper != OWN:
            part = dataclasses.replace(part, setting=", ".join(filter(None, [part.setting, type(layer).__name__])))
        frame = getattr(place.owner, f"{place.attribute}_frame", None)
        variables = [*layer.variables, *(frame.variables if isinstance(frame, Frame) else ())]
        return dataclasses.replace(part, parameters=self._count(variables), **changes)

    def _groups(self, name: str, reading: Reading | None) -> tuple[Group, ...]:
        """Returns the layers of a stack, equal neighbours together."""
        layers = [
            tuple(
                self._part(sublayer, _Place(attribute, layer, reading))
                for attribute, sublayer in _sublayers(layer)
                if not isinstance(sublayer, Frame)
            )
            for layer in self.stacks[name]
        ]
        groups, first = [], 1
        for parts, same in itertools.groupby(layers):
            count = len(list(same))
            groups.append(Group(first, first + count - 1, parts))
            first += count
        return tuple(groups)

    def _lanes(self, name: str) -> tuple[str, tuple[str, ...]]:
        """Returns a stack's name for people and the sequences that go through it."""
        if name == "":
            directions = ("left to right", "right to left") if self.model.directions == 2 else ("target",)
            return "one stack of source and target", ("source", *directions)
        if name == "encoder":
            return name, ("source",)
        if name == "backward_decoder":
            return "backward decoder", ("target, right to left",)
        if self.model.directions == 2:
            return name, ("left to right", "right to left")
        turned = getattr(self.model.hparams, "target_direction", "l2r") == "r2l"
        return name.replace("_", " "), ("target, right to left" if turned else "target",)

    def _paper(self, name: str) -> str:
        if name == "encoder":
            return TRANSFORMER
        if name == "":
            return COORDINATION
        if name == "backward_decoder":
            return ASYNCHRONOUS
        return SYNCHRONOUS if self.model.directions == 2 else TRANSFORMER

    def _reading(self) -> Reading | None:
        """Returns how decoders read the encoder; the views' weights are counted, whoever else holds them."""
        model = self.model
        if "encoder" not in self.stacks or "decoder" not in self.stacks:
            return None
        depth, decoder_depth = len(self.stacks["encoder"]), len(self.stacks["decoder"])
        views = getattr(model.decoder, "source_views", None) or getattr(model, "source_views", None)
        if views is None:
            # Layer-wise coordination without weight sharing: layer i of the target reads layer i of the source.
            layers = tuple((i + 1,) for i in range(decoder_depth))
            part = Part("the source at each layer", paper=COORDINATION, replaces=f"e_{depth}")
            return Reading("e_i", layers, 0, part)
        reading = _reading_of(views, depth, decoder_depth)
        others = [getattr(getattr(model, name), "source_views", None) for name in self.stacks if name != "encoder"]
        variables = [v for each in others if each is not None for v in each.variables] + list(views.variables)
        return dataclasses.replace(reading, part=dataclasses.replace(reading.part, parameters=self._count(variables)))

    def _embedding(self, attribute: str, **changes: Any) -> Part | None:
        layer = getattr(self.model, attribute, None)
        return None if layer is None else self._part(layer, _Place(attribute, self.model), **changes)

    def _before(self, name: str) -> tuple[Part, ...]:
        """Returns the embeddings of a stack's input."""
        model, parts = self.model, []
        positions = "sinusoids added" if getattr(model.hparams, "pos", "") == "timing" else "no positions"
        first = ""
        if model.directions == 2:
            tagged = "a zero vector" if getattr(model.hparams, "predict_tag", False) else "the direction's tag"
            first = f", begins with {tagged}"
        if name in ("encoder", ""):
            # Learnt vectors may be one matrix for both sides: whoever reads it first has it.
            ordered = positions
            if getattr(model, "source_features", None) is not None:
                ordered = positions if model.hparams.feature_positions == "timing" else "no positions"
                parts.append(self._embedding("source_features", setting=ordered))
            elif name == "":
                parts.append(
                    self._embedding(
                        "source_embedding",
                        name="embedding",
                        setting=positions + first.replace("begins", "a target begins"),
                    )
                )
            else:
                parts.append(self._embedding("source_embedding", setting=positions))
            parts += [self._embedding(attribute) for attribute in ("target_space", "side_embedding")]
        if name != "encoder":
            if name != "":
                same = getattr(model, "source_embedding", None) is getattr(model, "target_embedding", None)
                setting = f"{'the source matrix, ' if same else ''}{positions}{first}"
                parts.append(self._embedding("target_embedding", setting=setting))
            parts.append(self._embedding("sos"))
        return tuple(part for part in parts if part is not None)

    def _after(self, name: str, is_last: bool) -> tuple[Part, ...]:
        """Returns a stack's last norm, norms of the views of it, and behind the last stack the softmax."""
        model, parts = self.model, []
        stack = getattr(model, name, None) if name else model
        norm = getattr(stack, "final_norm", None) or (getattr(model, "final_norm", None) if is_last else None)
        if norm is not None:
            parts.append(Part("layer norm", parameters=self._count(norm.variables)))
        views = getattr(stack, "view_norms", None)
        if views is not None and views.variables:
            names = [f"e_{j + 1}" for j in views.seen]
            whole = len(names) > 2 and views.seen[-1] - views.seen[0] == len(names) - 1
            seen = f"{names[0]} to {names[-1]}" if whole else ", ".join(names)
            count = self._count(views.variables)
            parts.append(Part("layer norms of what is read", seen, "", CROSS_VIEW, _ADDED, count))
        if is_last and getattr(model, "softmax", None) is not None:
            shared = model.softmax in (
                getattr(model, "target_embedding", None),
                getattr(model, "source_embedding", None),
            )
            setting = "the embedding's matrix" if shared else ""
            shape = f"{model.softmax.width} x {model.softmax.vocab_size:,}"
            parts.append(self._part(model.softmax, _Place("softmax", model), setting=setting, shape=shape))
        return tuple(parts)

    def _facts(self) -> tuple[str, ...]:
        """Returns what holds for all stacks."""
        facts = [f"D = {self.model.hparams.hidden_size}"] if hasattr(self.model.hparams, "hidden_size") else []
        layers = [layer for stack in self.stacks.values() for layer in stack]
        frame = next((each for layer in layers for _, each in _sublayers(layer) if isinstance(each, Frame)), None)
        if frame is not None:
            facts.append("layer norm before every sublayer" if frame.pre_norm is not None else "layer norm after every "
                         "residual sum")  # fmt: skip
        return tuple(facts)
