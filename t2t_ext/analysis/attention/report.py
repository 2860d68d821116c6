"""Writes the attention of sentences to files: pictures, one page with all of them, and machine-readable weights.

Imports no TensorFlow.
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import TypedDict

from t2t_ext.analysis.attention import pictures as drawing
from t2t_ext.analysis.attention.heat_map import heat_map, scale
from t2t_ext.analysis.attention.maps import KINDS, AttentionMap, Looked, strongest
from t2t_ext.config.layer_ranges import layer_numbers
from t2t_ext.errors import UserError
from t2t_ext.io import files, stored
from t2t_ext.reporting import figures
from t2t_ext.reporting import report as reporting
from t2t_ext.reporting.html import Html, element
from t2t_ext.reporting.report import Block, Definitions, Either, Note, Paragraph, Report, Section
from t2t_ext.reporting.table import Table, columns

PAGE, WEIGHTS = "attention.html", "attention.json"
MEAN, ALL = "mean", "all"
_STRONGEST = 3
_EXPLAINED = (
    "A row is a position of the sentence that attends, a column one that is attended to; more color is a larger "
    "weight, and every row adds up to 1. Positions of the target are labeled by the token that they read (left); → "
    "says which one they predict: the row of a word shows what was attended to when the word after it was predicted. "
    "Squares have tooltips."
)
_FIGURES = {"source": "2", "self": "3", "mixed": "4"}  # of He et al. (2018)


@dataclasses.dataclass(frozen=True)
class Choice:
    """The choice of attention maps to show.

    Attributes:
      kinds: Keys of ``KINDS``; empty: all kinds except the encoder's, if there are others.
      layers: ``all``, or numbers and ranges that count from 1, see ``layer_numbers``.
      heads: ``mean``, ``all``, or numbers and ranges that count from 1.
      direction: For a model with two directions: ``l2r``, ``r2l``, or empty for both.
    """

    kinds: tuple[str, ...] = ()
    layers: str = ALL
    heads: str = MEAN
    direction: str = ""

    def of(self, maps: Sequence[AttentionMap]) -> list[tuple[AttentionMap, int | None]]:
        """Returns pairs of a chosen map and a chosen head; heads count from 0, None is the mean of all heads.

        Raises:
          UserError: The model has no such attention, layer, head or direction.
        """
        there = list(dict.fromkeys(each.kind for each in maps))
        missing = [kind for kind in self.kinds if kind not in there]
        if missing:
            raise UserError(
                f"--attention={missing[0]}: this model has no {KINDS[missing[0]].lower()}; it has: {', '.join(there)}."
            )
        wanted = self.kinds or [kind for kind in there if kind != "encoder"] or there
        sides = {each.side for each in maps} - {""} or {"l2r"}
        if self.direction and self.direction not in sides:
            raise UserError(f"--direction={self.direction}: this model generates {' and '.join(sorted(sides))} only.")
        chosen = []
        layers = _numbers("layers", self.layers, 1 + max(each.layer for each in maps))  # of the deepest stack
        for each in maps:
            if (
                each.kind in wanted
                and each.layer in layers
                and (not self.direction or each.side in ("", self.direction))
            ):
                chosen += [(each, head) for head in self._heads(each.heads)]
        if not chosen:
            raise UserError(f"--layers={self.layers}: these layers have none of: {', '.join(wanted)}.")
        order = list(KINDS)
        return sorted(chosen, key=lambda pair: (order.index(pair[0].kind), pair[0].stack, pair[0].side, pair[0].layer))

    def check(self, layers: int, heads: int) -> None:
        """Checks the chosen layers and heads before a model is loaded.

        Args:
          layers: Number of layers of the model's deepest stack.
          heads: Number of heads of the model.

        Raises:
          UserError: There is no such layer or head.
        """
        _numbers("layers", self.layers, layers)
        self._heads(heads)

    def _heads(self, heads: int) -> tuple[int | None, ...]:
        if self.heads == MEAN:
            return (None,)
        return tuple(sorted(_numbers("heads", self.heads, heads)))


def _numbers(flag: str, text: str, count: int) -> frozenset[int]:
    try:
        numbers = layer_numbers(text, count)
    except ValueError as error:
        words = str(error)
        if flag == "heads":
            words = words.replace("layers", "heads").replace("no layer", "no head")
            words = words.replace("write all,", "write mean, all,")
        raise UserError(f"--{flag}={text}: {re.sub(r' [(]in --hparams: .*?[)]', '', words)}.") from None
    if not numbers:
        raise UserError(f"--{flag} names none; give all, or numbers from 1 to {count}.")
    return numbers


@dataclasses.dataclass(frozen=True)
class Picture:
    """A drawn attention map: the map, the head (counted from 0; None: the mean), and the name of the PNG file."""

    shown: AttentionMap
    head: int | None
    png: str

    @property
    def label(self) -> str:
        """The head's name."""
        return "mean" if self.head is None else f"head {self.head + 1}"


def write(
    directory: files.PathLike,
    sentences: Sequence[Looked],
    choice: Choice,
    about: Sequence[tuple[str, str]],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[str]:
    """Writes pictures, page and weights into a directory, which is created if it is missing.

    Pictures of an earlier call are removed. ``about`` are names and values that describe the pictures, such as the run.
    ``progress`` is called with (pictures drawn, pictures in all). Returns the names of the files, the page first.

    Raises:
      UserError: The choice does not fit the model, or the directory cannot be written to.
    """
    chosen = [choice.of(looked.maps) for looked in sentences]
    total = sum(map(len, chosen))
    most = max((float(shown.of_head(head).max()) for maps in chosen for shown, head in maps), default=0.0) or 1.0
    directory = reporting.directory_for(directory)
    drawn: list[list[Picture]] = []
    pictures: dict[str, bytes] = {}
    for number, maps in enumerate(chosen, 1):
        drawn.append([])
        for shown, head in maps:
            place = re.sub(r"layer_(\d+)", lambda match: f"layer{int(match[1]) + 1}", shown.name).replace("/", ".")
            of = f"sentence{number}." if len(sentences) > 1 else ""
            name = f"{of}{place}.{'mean' if head is None else f'head{head + 1}'}.png"
            pictures[name] = drawing.head_picture(shown, head, most)
            drawn[-1].append(Picture(shown, head, name))
            progress(len(pictures), total)
    _remove_earlier(directory, set(pictures))
    page, weights = _report(sentences, drawn, about, most).page(), _json(sentences, drawn, about)
    return reporting.write(directory, {PAGE: page, WEIGHTS: weights, **pictures})


class _Earlier(TypedDict):
    """The fields that are read from an earlier ``attention.json``."""

    files: list[str]


def _remove_earlier(directory: pathlib.Path, names: set[str]) -> None:
    """Removes pictures left by an earlier call, which could be mistaken for pictures of these sentences."""
    try:
        earlier = stored.read(directory / WEIGHTS, _Earlier)
    except (OSError, stored.Damaged):
        return
    for name in earlier["files"]:
        if name not in names and pathlib.PurePath(name).name == name and name.endswith(".png"):
            (directory / name).unlink(missing_ok=True)


def _json(sentences: Sequence[Looked], drawn: Sequence[Sequence[Picture]], about: Sequence[tuple[str, str]]) -> str:
    records = []
    for looked, pictures in zip(sentences, drawn, strict=True):
        maps = [
            {
                "name": picture.shown.name,
                "kind": picture.shown.kind,
                "layer": picture.shown.layer + 1,
                "head": "mean" if picture.head is None else picture.head + 1,
                "direction": picture.shown.side,
                "rows": picture.shown.rows,
                "predicted": picture.shown.predicted,
                "columns": picture.shown.columns,
                "source_columns": picture.shown.boundary,
                "weights": [[round(float(w), 5) for w in row] for row in picture.shown.of_head(picture.head)],
                "file": picture.png,
            }
            for picture in pictures
        ]
        records.append({"source": looked.source, "targets": looked.targets, "given": looked.given, "maps": maps})
    names = [picture.png for pictures in drawn for picture in pictures]
    return json.dumps({"about": dict(about), "files": names, "sentences": records}, ensure_ascii=False) + "\n"


# === The page ===


def _report(
    sentences: Sequence[Looked], drawn: Sequence[Sequence[Picture]], about: Sequence[tuple[str, str]], most: float
) -> Report:
    blocks: list[Block] = [Definitions(about), Paragraph(_EXPLAINED, "small"), Either("", scale(most))]
    for number, (looked, pictures) in enumerate(zip(sentences, drawn, strict=True), 1):
        texts, name = [("source", looked.source)], "reference" if looked.given else "translation"
        for side, words in looked.targets.items():
            which = f" {side}" if len(looked.targets) > 1 else ""
            texts.append((name + which + " (the better one)" * (side == looked.best), words))
            name = "other direction" if looked.given else name
        own: list[Block] = [Definitions(texts), *map(Note, looked.notes), *_grids(pictures, most)]
        title = f"Sentence {number}: {figures.short(looked.source, 60)}"
        blocks += [Section(title, own)] if len(sentences) > 1 else own
    return Report(f"Attention in {about[0][1]}" if about else "Attention", blocks, "t2t_ext-analyze attention")


def _grids(pictures: Sequence[Picture], most: float) -> list[Block]:
    """Returns sections with the heads of each map side by side or, for means of heads, the layers of each kind."""
    groups: dict[str, list[Picture]] = {}
    for picture in pictures:
        shown = picture.shown
        groups.setdefault(KINDS[shown.kind] if picture.head is None else shown.title, []).append(picture)
    sections: list[Block] = []
    kinds: set[str] = set()
    for title, members in groups.items():
        kind = members[0].shown.kind
        of = f" (as figure {_FIGURES[kind]} of He et al. 2018)" if kind in _FIGURES and kind not in kinds else ""
        kinds.add(kind)
        maps = [_figure(picture, most) for picture in members]
        widest = max(width for _, width in maps)
        grid = element("div", *(figure for figure, _ in maps), class_="grid", style=f"--map: {widest}px")
        sections.append(Section(title + of, [Either("", grid)]))
    return sections


def _figure(picture: Picture, most: float) -> tuple[Html, int]:
    """Returns the figure, with its title and the strongest links, and its width in pixels."""
    title = f"{picture.shown.title}, {picture.label}"
    svg, width = heat_map(picture.shown, picture.head, most, f"{title}; the table has the strongest links")
    links = element("details", element("summary", "Strongest links"), _links(picture).html())
    caption = element("figcaption", title if picture.head is None else picture.label, f" · {picture.png}")
    return element("figure", caption, element("div", svg, class_="scroll", tabindex="0"), links, class_="map"), width


def _links(picture: Picture) -> Table:
    shown = picture.shown
    with_target = bool(shown.predicted)
    headings = ["input" if with_target else "token", *(["predicts"] if with_target else []), "attends to"]
    headings += [""] * (_STRONGEST - 1)
    rows: list[list[str]] = []
    for number, links in enumerate(strongest(shown.of_head(picture.head), _STRONGEST)):
        row = [shown.rows[number], *([f"→ {shown.predicted[number]}"] if with_target else [])]
        for column, weight in links:
            side = "" if not shown.boundary else ("source " if column < shown.boundary else "target ")
            row.append(f"{side}{shown.columns[column]} {weight:.2f}")
        rows.append(row + [""] * (len(headings) - len(row)))
    return Table(columns(*headings, words=True), rows)
