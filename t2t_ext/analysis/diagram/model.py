"""Describes a built model for a diagram: stacks, layers and sublayers, and how they differ from a Transformer's.

Everything is read from the model's parts, whatever the model is called. Each layer describes itself (``described``); a
user's own layer inherits the description of its base class. ``diagram_text`` and ``diagram_svg`` draw the diagram.

Legend: N encoder layers, M decoder layers, D width; e_j is the output of encoder layer j, from e_1 to e_N.
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

import keras

from t2t_ext.analysis.gradients.groups import group_of
from t2t_ext.layers.base import Description, Layer
from t2t_ext.layers.feed_forward import FeedForward
from t2t_ext.layers.source_views import Reading
from t2t_ext.layers.sublayer import Frame
from t2t_ext.models.seq2seq import Seq2Seq

TRANSFORMER = "Vaswani et al. 2017"
CROSS_VIEW = "Liu et al. 2020"
SYNCHRONOUS = "Zhou et al. 2019"
COORDINATION = "He et al. 2018"
ASYNCHRONOUS = "Zhang et al. 2018"
OWN = "not of t2t_ext"

_ADDED = ""


@dataclasses.dataclass(frozen=True)
class Part(Description):
    """A sublayer, an embedding or another part; ``paper`` may be ``OWN``.

    Attributes:
      parameters: Number of parameters, including the norms around it; shared ones count only in the first part.
      residual: Whether it has a residual connection.
    """

    parameters: int = 0
    residual: bool = False

    @property
    def title(self) -> str:
        """The name with its particular setting, if there is one."""
        return f"{self.name}, {self.setting}" if self.setting else self.name

    @property
    def mark(self) -> str:
        """The difference from a Transformer, in words; empty if there is none."""
        if self.replaces is None:
            return ""
        return "added" if self.replaces == _ADDED else f"<- {self.replaces}"


@dataclasses.dataclass(frozen=True)
class Group:
    """Consecutive layers with the same parts: the numbers of the first and last layer, from 1, and each one's parts."""

    first: int
    last: int
    parts: tuple[Part, ...]

    @property
    def count(self) -> int:
        """The number of layers."""
        return self.last - self.first + 1

    @property
    def title(self) -> str:
        """The numbers of the layers."""
        return f"layer {self.first}" if self.count == 1 else f"layers {self.first}-{self.last}"


@dataclasses.dataclass(frozen=True)
class Stack:
    """A stack of layers, with the parts before and after them.

    Attributes:
      name: The name, such as ``encoder``.
      paper: The paper that proposed these lanes.
      lanes: The sequences that pass through it.
      before: Embeddings, in order from the input.
      groups: The layers.
      after: Norms and softmax.
    """

    name: str
    paper: str
    lanes: tuple[str, ...]
    before: tuple[Part, ...]
    groups: tuple[Group, ...]
    after: tuple[Part, ...]

    @property
    def depth(self) -> int:
        """The number of layers."""
        return self.groups[-1].last if self.groups else 0

    @property
    def parts(self) -> Iterator[Part]:
        """All parts; those of a group appear once."""
        yield from self.before
        for group in self.groups:
            yield from group.parts
        yield from self.after


@dataclasses.dataclass(frozen=True)
class CountedReading(Reading):
    """The encoder layers that a decoder reads, with the number of parameters of its views."""

    part: Part


@dataclasses.dataclass(frozen=True)
class Diagram:
    """The diagram of a model.

    Attributes:
      title: The model's name.
      facts: Properties of the whole model, such as its width.
      stacks: Encoder and decoders, or the single stack of both sides.
      reading: How decoders read the encoder; None if there is no separate encoder and decoder.
      others: Parts that are in no stack.
      parameters: Number of all parameters.
    """

    title: str
    facts: tuple[str, ...]
    stacks: tuple[Stack, ...]
    reading: CountedReading | None
    others: tuple[Part, ...]
    parameters: int

    @property
    def parts(self) -> Iterator[Part]:
        """All parts; those of a group appear once."""
        for stack in self.stacks:
            yield from stack.parts
        if self.reading is not None:
            yield self.reading.part
        yield from self.others

    @property
    def papers(self) -> tuple[str, ...]:
        """The papers whose ideas the model uses, sorted by year; ``OWN`` comes last."""
        found = {part.paper for part in self.parts} | {stack.paper for stack in self.stacks}
        return tuple(sorted(found, key=lambda paper: (paper == OWN, paper[-4:], paper != TRANSFORMER, paper)))


def diagram_of(model: Seq2Seq, title: str) -> Diagram:
    """Returns the diagram of a built model, with a title."""
    return _Walk(model).diagram(title)


def _sublayers(layer: Any) -> list[tuple[str, Any]]:
    """Returns a layer's sublayers with their attributes' names, in order of creation, but feed-forward ones last."""
    found = []
    for name, value in vars(layer).items():
        each = value if isinstance(value, list) else [value]
        if not name.startswith("_"):
            found += [(name, one) for one in each if isinstance(one, keras.layers.Layer)]
    return sorted(found, key=lambda item: isinstance(item[1], FeedForward))


class _Walk:
    """Walks through a model once; every variable is counted where it is first encountered."""

    def __init__(self, model: Seq2Seq) -> None:
        self.model = model
        self.counted: set[int] = set()
        self.attributes = _sublayers(model)
        in_stacks = [id(layer) for _, stack in self.attributes for layer in getattr(stack, "layers", ())]
        self.stacks = {name: stack.layers for name, stack in self.attributes if getattr(stack, "layers", None)}
        loose = [layer for name, layer in self.attributes if name == "coordinated"]
        if loose and id(loose[0]) not in in_stacks:
            self.stacks[""] = loose

    def diagram(self, title: str) -> Diagram:
        """Returns the diagram."""
        # Embeddings are counted before the parts that share their matrix; the main decoder comes last.
        names = sorted(self.stacks, key=lambda name: (name == "decoder", name != "encoder"))
        reading = self._reading()
        stacks = []
        for name in names:
            heading = self._heading(name)
            before = self._before(name)
            groups = self._groups(name, reading if name != "encoder" else None)
            stacks.append(Stack(*heading, before, groups, self._after(name, name == names[-1])))
        others: collections.Counter[str] = collections.Counter()
        for variable in self.model.weights:
            if id(variable) not in self.counted:
                others[group_of(variable.path.split("/", 1)[1])] += self._count([variable])
        facts = [f"D = {self.model.hparams.hidden_size}"] if hasattr(self.model.hparams, "hidden_size") else []
        sublayers = [each for stack in self.stacks.values() for layer in stack for _, each in _sublayers(layer)]
        frame = next((each for each in sublayers if isinstance(each, Frame)), None)
        if frame is not None:
            place = "after every residual sum" if frame.pre_norm is None else "before every sublayer"
            facts.append(f"layer norm {place}")
        return Diagram(
            title,
            tuple(facts),
            tuple(stacks),
            reading,
            tuple(Part(name, paper=OWN, replaces=_ADDED, parameters=count) for name, count in others.items()),
            sum(math.prod(variable.shape) for variable in self.model.weights),
        )

    def _count(self, variables: list[Any]) -> int:
        """Counts the parameters in those variables that have not been counted yet."""
        fresh = {id(variable): variable for variable in variables if id(variable) not in self.counted}
        self.counted |= fresh.keys()
        return sum(math.prod(variable.shape) for variable in fresh.values())

    def _part(
        self, layer: Any, attribute: str, owner: Any, reading: CountedReading | None = None, **changes: Any
    ) -> Part:
        """Describes and counts a part and its frame; a part without a description is named after its attribute."""
        found = layer.described(attribute) if isinstance(layer, Layer) else None
        part = Part(attribute.replace("_", " "), f"a {type(layer).__name__}", paper=OWN, replaces=_ADDED)
        if found is not None:
            part = Part(**vars(found))
            if reading is not None and attribute == "source_attention":
                part = dataclasses.replace(part, setting=reading.what)
                if (instead := reading.part.replaces) is not None:
                    part = dataclasses.replace(part, paper=reading.part.paper, replaces=f"attention to {instead}")
        settings = [part.setting]
        if attribute == "attention" and hasattr(owner, "mixed"):
            # A layer shared by source and target: target positions attend to both.
            name = part.name if owner.mixed else part.name.replace("mixed", "shared")
            settings.append("source and past in one softmax" if owner.mixed else "past, then source, same projections")
            part = dataclasses.replace(part, name=name, replaces="self-attention, cross-attention")
        if type(layer).__module__.split(".")[0] != "t2t_ext" and part.paper != OWN:
            settings.append(type(layer).__name__)
        part = dataclasses.replace(part, setting=", ".join(filter(None, settings)))
        frame = getattr(owner, f"{attribute}_frame", None)
        variables = [*layer.weights, *(frame.weights if isinstance(frame, Frame) else ())]
        return dataclasses.replace(
            part, parameters=self._count(variables), residual=isinstance(frame, Frame), **changes
        )

    def _groups(self, name: str, reading: CountedReading | None) -> tuple[Group, ...]:
        """Returns the layers of a stack, with consecutive equal layers grouped."""
        layers = [
            tuple(
                self._part(sublayer, attribute, layer, reading)
                for attribute, sublayer in _sublayers(layer)
                if not isinstance(sublayer, Frame)
            )
            for layer in self.stacks[name]
        ]
        groups: list[Group] = []
        for parts, same in itertools.groupby(layers):
            last = groups[-1].last if groups else 0
            groups.append(Group(last + 1, last + len(list(same)), parts))
        return tuple(groups)

    def _heading(self, name: str) -> tuple[str, str, tuple[str, ...]]:
        """Returns a stack's displayed name, the paper of its lanes, and its lanes."""
        both = ("left to right", "right to left") if self.model.directions == 2 else ()
        if name == "":
            stack = "one stack of source and target"
            if getattr(self.model.hparams, "lwc_source", "") == "last":
                stack += f", which reads layer {len(self.stacks[name])} of the source everywhere"
            return stack, COORDINATION, ("source", *(both or ("target",)))
        if name == "encoder":
            return name, TRANSFORMER, ("source",)
        if name == "backward_decoder":
            return "backward decoder", ASYNCHRONOUS, ("target, right to left",)
        if both:
            return name, SYNCHRONOUS, both
        turned = getattr(self.model.hparams, "target_direction", "l2r") == "r2l"
        return name.replace("_", " "), TRANSFORMER, ("target, right to left" if turned else "target",)

    def _reading(self) -> CountedReading | None:
        """Returns how decoders read the encoder, and counts the weights of all decoders' views."""
        model = self.model
        if "encoder" not in self.stacks or "decoder" not in self.stacks:
            return None
        depth, decoder_depth = len(self.stacks["encoder"]), len(self.stacks["decoder"])
        views = getattr(model.decoder, "source_views", None) or getattr(model, "source_views", None)
        if views is None:
            # Layer-wise coordination without weight sharing: target layer i reads the output of source layer i, or its
            # input. In the latter case the first layer reads the embeddings, which are no layer's output.
            part = Part("the source at each layer", paper=COORDINATION, replaces=f"e_{depth}")
            layers: tuple[tuple[int, ...], ...] = tuple((i + 1,) for i in range(decoder_depth))
            read = getattr(model.hparams, "lwc_source", "")
            if read == "last":
                view = Part("view of the source", f"e_{depth}")
                return CountedReading(f"e_{depth}", ((depth,),) * decoder_depth, 0, view)
            if read == "input":
                return CountedReading("e_(i-1), layer 1 to the embeddings", ((), *layers[:-1]), 0, part)
            return CountedReading("e_i", layers, 0, part)
        reading = views.read_by(decoder_depth, depth)
        if reading is None:
            own = Description("views of the source", f"a {type(views).__name__}", paper=OWN, replaces=f"e_{depth}")
            reading = Reading("R_i", (), 0, own)
        others = [getattr(getattr(model, name), "source_views", None) for name in self.stacks if name != "encoder"]
        variables = [v for each in others if each is not None for v in each.variables] + list(views.variables)
        counted = Part(**vars(reading.part), parameters=self._count(variables))
        return CountedReading(reading.what, reading.layers, reading.joined, counted)

    def _embedding(self, attribute: str, **changes: Any) -> Part | None:
        layer = getattr(self.model, attribute, None)
        return None if layer is None else self._part(layer, attribute, self.model, **changes)

    def _before(self, name: str) -> tuple[Part, ...]:
        """Returns the embeddings of a stack's input."""
        model, parts = self.model, []
        positions = "sinusoids added" if getattr(model.hparams, "pos", "") == "timing" else "no positions"
        first = ""
        if model.directions == 2:
            tagged = "a zero vector" if getattr(model.hparams, "predict_tag", False) else "the direction's tag"
            first = f", begins with {tagged}"
        if name in ("encoder", ""):
            # Both sides may share one embedding matrix, which counts for the side that reads it first.
            if getattr(model, "source_features", None) is not None:
                ordered = positions if model.hparams.feature_positions == "timing" else "no positions"
                parts.append(self._embedding("source_features", setting=ordered))
            elif name == "":
                setting = positions + first.replace("begins", "a target begins")
                parts.append(self._embedding("source_embedding", name="embedding", setting=setting))
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
        """Returns a stack's final norm, the norms of views of it, and after the last stack the softmax."""
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
            embeddings = [getattr(model, f"{side}_embedding", None) for side in ("target", "source")]
            setting = "the embedding's matrix" if model.softmax in embeddings else ""
            shape = f"{model.softmax.width} x {model.softmax.vocab_size:,}"
            parts.append(self._part(model.softmax, "softmax", model, setting=setting, shape=shape))
        return tuple(parts)
