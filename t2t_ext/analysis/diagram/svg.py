"""Draws the diagram of a model as an SVG picture.

The SVG is written directly: rectangles, lines and text, colored by paper, with styles for light and dark backgrounds.
Text is not measured; an upper estimate of its width determines the boxes. Inputs are at the top, outputs at the bottom.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from t2t_ext.analysis.diagram.model import OWN, TRANSFORMER, CountedReading, Diagram, Group, Part, Stack

_MARGIN = 24
_TOP = 84  # y of the columns
_GAP = 56  # between columns
_ARROW = 18  # between boxes
_PADDING = 12  # inside a group of layers
_NARROWEST = 250
_WIDEST = 300  # width of a line that can be broken
_SUM = 7  # radius of the sum sign
_LANE = 24  # height of a lane's label
_SPACING = 34  # between layers in the picture of the layers that are read
_RADIUS = 11
_TITLE, _NAME, _SMALL = 17, 13.5, 12  # font sizes
_LETTER = 0.57  # width of a letter relative to the font size; an upper estimate for text in common fonts

# Fill and line on white, fill and line on black, by paper; the last entry is for all other papers.
_COLORS = {
    TRANSFORMER: ("#f2f3f5", "#7a828c", "#2b3036", "#9aa4af"),
    "Ampomah et al. 2021": ("#fde3cf", "#c4661f", "#54301a", "#f0a06a"),
    "Liu et al. 2020": ("#d6e9fb", "#1f6fb5", "#17395a", "#74b4ee"),
    "Zhou et al. 2019": ("#d9f2dd", "#2b8a42", "#1c4727", "#78d08f"),
    "Wu et al. 2019": ("#eadffa", "#7a4fc0", "#3b2a5c", "#b797ec"),
    "He et al. 2018": ("#fbdde6", "#bd3f68", "#562337", "#ee8fae"),
    "Zhang et al. 2018": ("#fbf0c4", "#98790d", "#4c4016", "#dcc25a"),
    "Tu et al. 2017": ("#d3f1f0", "#1b8683", "#174645", "#6bcfcb"),
    OWN: ("#ffffff", "#444444", "#101010", "#bbbbbb"),
    "": ("#e6ecd2", "#66761c", "#333b15", "#a9ba5a"),
}
_SUBSCRIPTS = str.maketrans("0123456789ij", "₀₁₂₃₄₅₆₇₈₉ᵢⱼ")


def diagram_svg(diagram: Diagram) -> str:
    """Returns the diagram as an SVG file that is readable at its original size."""
    picture = _Picture()
    picture.text(_MARGIN, 34, diagram.title, _TITLE, kind="t b")
    facts = ", ".join([*diagram.facts, f"{diagram.parameters:,} parameters"])
    picture.text(_MARGIN, 56, facts, _SMALL)
    x: float = _MARGIN
    # The main decoder is next to the layers that it reads; a backward decoder comes after it.
    stacks = sorted(diagram.stacks, key=lambda stack: stack.name == "backward decoder")
    columns = []
    read = None
    for number, stack in enumerate(stacks):
        if number == 1 and diagram.reading is not None:
            read = _draw_reading(picture, x, diagram.reading, diagram)
            x = read[1] + _GAP
        columns.append(_Column(picture, x, stack))
        columns[-1].draw()
        x = columns[-1].right + _GAP
    if read is not None:
        # Arrows from the encoder through the picture of the layers that are read to the decoders.
        (left, right, middle), (encoder, decoder, *behind) = read, columns
        for start in encoder.starts(middle, diagram.reading.layers if diagram.reading else ()):
            picture.elbow(start, (left, middle))
        named = ("cross-attention", "two cross-attentions", "mixed attention")
        to = decoder.of_part(*named, default=decoder.beside(middle))
        picture.elbow((right, middle), (decoder.x + _PADDING, to))
        for column in behind:
            # The backward decoder's states go back to the main decoder.
            to = decoder.of_part("attention to the backward states", default=decoder.beside(column.y))
            picture.elbow((column.x + _PADDING, column.y - 12), (decoder.right - _PADDING, to))
    for part in diagram.others:
        picture.text(_MARGIN, picture.height + 24, f"{part.title}: {part.parameters:,} parameters", _SMALL)
    _legend(picture, diagram)
    return picture.file(f"{diagram.title}: {facts}")


def _pretty(text: str) -> str:
    """Returns terminal text with proper symbols, such as subscripts and arrows."""
    text = re.sub(r"_(\d+|ij?\b)", lambda match: match[1].translate(_SUBSCRIPTS), text)
    text = re.sub(r"(?<=\d) x (?=[\d])", " × ", text)
    return text.replace("->", "→").replace("lambda", "λ")


def _width(text: str, size: float) -> float:
    return _LETTER * size * len(_pretty(text))


class _Picture:
    """The SVG elements, and the width and height that they take."""

    def __init__(self) -> None:
        self.elements: list[str] = []
        self.width = self.height = 0.0

    def _reach(self, x: float, y: float) -> None:
        self.width, self.height = max(self.width, x), max(self.height, y)

    def text(self, x: float, y: float, words: str, size: float, *, kind: str = "t", anchor: str = "start") -> None:
        """Writes a line of text; y is its baseline."""
        shown = escape(_pretty(words), {'"': "&quot;"})
        self.elements.append(
            f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}">{shown}</text>'
        )
        reach = _width(words, size) * {"start": 1, "middle": 0.5, "end": 0}[anchor]
        self._reach(x + reach, y + 0.3 * size)

    def lines(self, x: float, y: float, lines: "_Lines") -> float:
        """Writes lines of text below each other, centered at x; returns the baseline of the last."""
        for words, size, kind in lines:
            y += size + 4
            self.text(x, y, words, size, kind=kind, anchor="middle")
        return y

    def frame(self, behind: int, x: float, y: float, width: float, height: float) -> None:
        """Draws the frame of a group behind all elements from index ``behind`` on."""
        self.box(x, y, width, height, "group", 10)
        self.elements.insert(behind, self.elements.pop())

    def box(self, x: float, y: float, width: float, height: float, kind: str, radius: float = 6) -> None:
        """Draws a rectangle."""
        self.elements.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:g}"/>'
        )
        self._reach(x + width, y + height)

    def arrow(self, x0: float, y0: float, x1: float, y1: float, kind: str) -> None:
        """Draws a straight arrow."""
        self.elements.append(
            f'<line class="{kind}" x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" marker-end="url(#head)"/>'
        )
        self._reach(max(x0, x1), max(y0, y1))

    def elbow(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Draws an arrow from one point to another that goes up or down halfway between them."""
        (x0, y0), (x1, y1) = start, end
        between = (x0 + x1) / 2
        self.elements.append(
            f'<path class="flow" d="M{x0:.1f} {y0:.1f} H{between:.1f} V{y1:.1f} H{x1:.1f}" marker-end="url(#head)"/>'
        )

    def around(self, x: float, y: float, side: float, end: float) -> None:
        """Draws an arrow from (x, y) to the same x further down, with a detour to ``side``."""
        toward = _SUM if side < x else -_SUM
        self.elements.append(
            f'<path class="flow" d="M{x:.1f} {y:.1f} H{side:.1f} V{end:.1f} H{x - toward:.1f}" '
            f'marker-end="url(#head)"/>'
        )

    def line(self, x: float, y: float, end: float) -> None:
        """Draws a line downward."""
        self.elements.append(f'<path class="flow" d="M{x:.1f} {y:.1f} V{end:.1f}"/>')

    def sum(self, x: float, y: float) -> None:
        """Draws a sum sign."""
        self.elements.append(f'<circle class="sum" cx="{x:.1f}" cy="{y:.1f}" r="{_SUM}"/>')
        arm = _SUM - 3
        cross = f"M{x - arm:.1f} {y:.1f} H{x + arm:.1f} M{x:.1f} {y - arm:.1f} V{y + arm:.1f}"
        self.elements.append(f'<path class="flow" d="{cross}"/>')

    def file(self, described: str) -> str:
        """Returns the content of the SVG file."""
        width, height = round(self.width + _MARGIN), round(self.height + _MARGIN)
        body = "\n".join(self.elements)
        words = escape(_pretty(described))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img">\n<title>{words}</title>\n<style>\n{_style()}</style>\n'
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path class="head" d="M0 0.8 L7.5 4 L0 7.2 z"/></marker></defs>\n'
            f'<rect class="page" width="{width}" height="{height}"/>\n{body}\n</svg>\n'
        )


def _class(paper: str) -> str:
    return f"p{list(_COLORS).index(paper if paper in _COLORS else '')}"


def _style() -> str:
    """Returns the style sheet: light, with a dark variant."""

    def colors(page: str, letters: str, faint: str, lines: str, group: str, place: int) -> Iterator[str]:
        yield f".page {{ fill: {page}; }} .t {{ fill: {letters}; }} .f {{ fill: {faint}; }}"
        yield f".flow, .read, .join {{ stroke: {lines}; }} .head {{ fill: {lines}; }}"
        yield f".group {{ fill: {group}; stroke: {lines}; }} .sum {{ fill: {page}; stroke: {lines}; }}"
        for paper, each in _COLORS.items():
            yield f".{_class(paper)} {{ fill: {each[place]}; stroke: {each[place + 1]}; }}"

    light = colors("#ffffff", "#16191d", "#4b535c", "#5d6670", "#fafbfc", 0)
    dark = colors("#12151a", "#eef1f4", "#b4bdc7", "#a2acb7", "#191e24", 2)
    return (
        "text { font-family: system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif; }\n"
        ".b { font-weight: 600; } rect { stroke-width: 1.2; } .page { stroke: none; }\n"
        ".group { stroke-width: 1; stroke-dasharray: 5 4; }\n"
        ".flow, .read, .join { stroke-width: 1.4; fill: none; } .join { stroke-dasharray: 3 4; stroke-width: 1; }\n"
        + "\n".join(light)
        + "\n@media (prefers-color-scheme: dark) {\n"
        + "\n".join(dark)
        + "\n}\n"
    )


# === Stacks ===

_Lines = list[tuple[str, float, str]]  # words, size, kind


def _lines_of(part: Part) -> _Lines:
    """Returns the lines of text in a part's box."""
    lines: _Lines = [(part.name, _NAME, "t b")]
    beside = [words for words in (part.setting, part.shape) if words]
    if _width("; ".join(beside), _SMALL) <= _WIDEST:
        beside = ["; ".join(beside)] if beside else []
    lines += [(words, _SMALL, "t") for long in beside for words in _wrapped(long)]
    if part.mark:
        instead = "added" if part.mark == "added" else f"in place of {part.replaces}"
        lines.append((f"{instead} ({part.paper})", _SMALL, "f"))
    return lines


def _wrapped(words: str) -> Iterator[str]:
    """Yields lines that are not too wide, broken after commas."""
    line = ""
    for piece in words.split(", "):
        longer = f"{line}, {piece}" if line else piece
        if line and _width(longer, _SMALL) > _WIDEST:
            yield f"{line},"
            longer = piece
        line = longer
    yield line


class _Column:
    """Draws a stack from the top down."""

    def __init__(self, picture: _Picture, x: float, stack: Stack) -> None:
        self.picture, self.x, self.y, self._stack = picture, x, float(_TOP), stack
        widths = [_width(words, size) for part in stack.parts for words, size, _ in _lines_of(part)]
        self.width = max(_NARROWEST, max(widths, default=0) + 2 * _PADDING + 24)
        self.right = x + self.width
        # The centers of the lanes, which are the sequences that pass through the stack.
        count, inner = len(stack.lanes), self.width - 2 * _PADDING
        self._lanes = [x + _PADDING + inner * (2 * lane + 1) / (2 * count) for lane in range(count)]
        self._middles: dict[str, float] = {}
        self._groups: list[float] = []

    def beside(self, y: float) -> float:
        """Returns the y coordinate within its layers that is nearest to the given one."""
        return min(max(y, min(self._groups) + _PADDING), max(self._groups) - _PADDING) if self._groups else y

    def starts(self, y: float, layers: Sequence[Sequence[int]]) -> Iterator[tuple[float, float]]:
        """Yields the points where arrows leave the stack: at its last norm for e_N, at the layers for other outputs."""
        yield from ((self.right - _PADDING, self._middles[part.name]) for part in self._stack.after)
        others = not layers or any(number != self._stack.depth for each in layers for number in each)
        if not self._stack.after or others:
            yield self.right, self.beside(y)

    def of_part(self, *names: str, default: float) -> float:
        """Returns the vertical center of the first box with one of these names, in the order of the names."""
        return next((self._middles[name] for name in names if name in self._middles), default)

    def draw(self) -> None:
        """Draws the stack."""
        picture, stack = self.picture, self._stack
        picture.text(self.x + self.width / 2, self.y + 4, stack.name, _TITLE - 2, kind="t b", anchor="middle")
        self.y += 14
        width = (self.width - 2 * _PADDING - 8 * (len(stack.lanes) - 1)) / len(stack.lanes)
        for name, middle in zip(stack.lanes, self._lanes, strict=True):
            picture.box(middle - width / 2, self.y, width, _LANE, _class(stack.paper), _LANE / 2)
            picture.text(middle, self.y + 16.5, name, _SMALL, anchor="middle")
        self.y += _LANE
        for part in stack.before:
            self._arrows()
            self._part(part)
        for group in stack.groups:
            self._arrows()
            self._group(group)
        # In a stack of both sides, the last layer's output for the source is not used.
        read = slice(1, None) if stack.lanes[0] == "source" and len(stack.lanes) > 1 else slice(None)
        for part in stack.after:
            self._arrows(read)
            self._part(part)
        if stack.after and stack.after[-1].name == "softmax":
            self._arrows(read)

    def _arrows(self, which: slice = slice(None)) -> None:
        for lane in self._lanes[which]:
            self.picture.arrow(lane, self.y, lane, self.y + _ARROW - 1, "flow")
        self.y += _ARROW

    def _part(self, part: Part) -> None:
        lines = _lines_of(part)
        height = 12 + sum(size + 4 for _, size, _ in lines)
        self.picture.box(self.x + _PADDING, self.y, self.width - 2 * _PADDING, height, _class(part.paper))
        self.picture.lines(self.x + self.width / 2, self.y + 4, lines)
        self._middles.setdefault(part.name, self.y + height / 2)
        self.y += height

    def _residuals(self, y: float) -> None:
        """Draws, in every lane, the residual connection from y around the part just drawn to its output."""
        half = (len(self._lanes) + 1) // 2
        end = self.y + _ARROW / 2 + 1
        for lanes, side in ((self._lanes[:half], self.x + 5), (self._lanes[half:][::-1], self.right - 5)):
            if lanes:
                self.picture.around(lanes[-1], y, side, end)
        for lane in self._lanes:
            self.picture.line(lane, self.y, end)
            self.picture.sum(lane, end)
        self.y = end + _SUM

    def _group(self, group: Group) -> None:
        place, start = len(self.picture.elements), self.y
        self.picture.text(self.x + 8, self.y + 16, group.title.replace("-", "–"), _SMALL, kind="f b")
        if group.count > 1:
            self.picture.text(self.x + self.width - 8, self.y + 16, f"×{group.count}", _NAME, kind="t b", anchor="end")
        self.y += 20
        branch = 0.0
        for part, following in itertools.zip_longest(group.parts, group.parts[1:]):
            branch = self.y + 4 if part.residual else branch
            self._arrows()
            self._part(part)
            # A part without a residual of its own, such as a gate, belongs to the residual branch before it.
            if branch and (following is None or following.residual):
                self._residuals(branch)
                branch = 0.0
        self.y += 4
        self._groups += [start, self.y]
        self.picture.frame(place, self.x, start, self.width, self.y - start)


# === What the decoder reads ===


def _draw_reading(picture: _Picture, x: float, reading: CountedReading, diagram: Diagram) -> tuple[float, float, float]:
    """Draws which encoder layers the decoder's layers read; returns the left and right edges and the layers' center."""
    depths = [stack.depth for stack in diagram.stacks if stack.name == "encoder" or stack.name.endswith("decoder")]
    part = reading.part
    lines: _Lines = [(part.name, _NAME, "t b")]
    lines += [(part.setting, _SMALL, "t")] if part.setting not in ("", reading.what) else []
    lines.append((f"layer i attends to {reading.what}", _SMALL, "t"))
    lines += [(part.shape, _SMALL, "t")] if part.shape else []
    lines += [(f"in place of {part.replaces} ({part.paper})", _SMALL, "f")] if part.replaces else []
    lines += [(f"{part.parameters:,} parameters", _SMALL, "f")] if part.parameters else []
    if reading.joined:
        dashed = any(reading.joined not in layers for layers in reading.layers)
        lines.append((f"{'dashed: ' if dashed else ''}e_{reading.joined}, joined with each", _SMALL, "f"))
    width = max(260.0, max(_width(words, size) for words, size, _ in lines) + 2 * _PADDING)
    place, start = len(picture.elements), float(_TOP + 14)
    left, right = x + 56, x + width - 56
    y = picture.lines(x + width / 2, start + 6, lines) + 24
    picture.text(left, y, "encoder layer", _SMALL, kind="f", anchor="middle")
    picture.text(right, y, "decoder layer", _SMALL, kind="f", anchor="middle")
    y += 20
    bottom = y + _SPACING * (max(depths) - 1)
    for number, layers in enumerate(reading.layers):
        to = y + number * _SPACING
        for layer in layers:
            picture.arrow(left + 14, y + (layer - 1) * _SPACING, right - 15, to, "read")
        if reading.joined and reading.joined not in layers:
            picture.arrow(left + 14, y + (reading.joined - 1) * _SPACING, right - 15, to, "join")
    for number in range(max(depths)):
        for column, depth in ((left, depths[0]), (right, depths[-1])):
            if number < depth:
                at = y + number * _SPACING
                picture.box(column - 13, at - _RADIUS, 26, 2 * _RADIUS, _class(TRANSFORMER), _RADIUS)
                picture.text(column, at + 4.3, str(number + 1), _SMALL, anchor="middle")
    picture.frame(place, x, start, width, bottom + 22 - start)
    return x, x + width, (y + bottom) / 2


def _legend(picture: _Picture, diagram: Diagram) -> None:
    """Draws the legend of the colors below all other elements."""
    x, y = float(_MARGIN), picture.height + 30
    most = max(picture.width, 600)
    for paper in diagram.papers:
        words = f"{paper} (the Transformer)" if paper == TRANSFORMER else paper
        width = 30 + _width(words, _SMALL) + 18
        if x > _MARGIN and x + width > most:
            x, y = float(_MARGIN), y + 24
        picture.box(x, y - 12, 20, 14, _class(paper), 3)
        picture.text(x + 28, y, words, _SMALL)
        x += width
