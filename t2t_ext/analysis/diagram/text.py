"""Renders the diagram of a model as text for a terminal."""

from collections.abc import Iterator, Sequence

from t2t_ext.analysis.diagram.model import TRANSFORMER, CountedReading, Diagram, Part, Stack

_MOST_COLUMNS = 40  # decoder layers in a line


def diagram_text(diagram: Diagram) -> str:
    """Returns the diagram as lines of text, with each stack from its input to its output.

    A part that replaces one of the Transformer is marked ``<- part``, with its paper. Numbers of parameters are per
    layer.
    """
    blocks = [(stack.name == "encoder", _stack_rows(stack)) for stack in diagram.stacks]
    # Headings have a line of their own and do not affect the columns.
    parts = [row for _, rows in blocks for row in rows if any(row[1:])]
    widths = [max((len(row[column]) for row in parts), default=0) for column in range(4)]
    lines = [", ".join([diagram.title, *diagram.facts, f"{diagram.parameters:,} parameters"])]
    lines += [line for is_encoder, rows in blocks if is_encoder for line in _shown(rows, widths)]
    if diagram.reading is not None:
        lines += ["", *_reading(diagram.reading)]
    lines += [line for is_encoder, rows in blocks if not is_encoder for line in _shown(rows, widths)]
    if diagram.others:
        lines += _shown([("", "", "", ""), ("other parts", "", "", ""), *map(_row, diagram.others)], widths)
    return "\n".join(lines)


def with_paper(part: Part) -> str:
    """Returns a part's title, with its paper unless that is the Transformer's."""
    return part.title if part.paper == TRANSFORMER else f"{part.title} ({part.paper})"


def _row(part: Part, indent: str = "  ") -> tuple[str, str, str, str]:
    return indent + with_paper(part), part.mark, part.shape, f"{part.parameters:,}" if part.parameters else ""


def _stack_rows(stack: Stack) -> list[tuple[str, str, str, str]]:
    *first, last = stack.lanes
    lanes = f", {', '.join(first)} and {last} at once" if first else ""
    if stack.lanes[0].endswith("right to left") and len(stack.lanes) == 1:
        lanes = f", {stack.lanes[0]}"
    paper = f" ({stack.paper})" if stack.paper != TRANSFORMER else ""
    shared = stack.lanes == ("source", "target")  # the stack's name says so
    rows = [("", "", "", ""), (f"{stack.name}{'' if shared else lanes}{paper}", "", "", "")]
    rows += [_row(part) for part in stack.before]
    for group in stack.groups:
        rows.append((f"  {group.title}{f', x{group.count}' if group.count > 1 else ''}", "", "", ""))
        rows += [_row(part, "    ") for part in group.parts]
    return rows + [_row(part) for part in stack.after]


def _shown(rows: Sequence[tuple[str, ...]], widths: Sequence[int]) -> Iterator[str]:
    for name, mark, shape, count in rows:
        yield f"{name:{widths[0]}}  {mark:{widths[1]}}  {shape:{widths[2]}}  {count:>{widths[3]}}".rstrip()


def _reading(reading: CountedReading) -> Iterator[str]:
    """Yields lines that show which encoder layers the decoder's layers read."""
    part = reading.part
    mark = f"  {part.mark}" if part.mark else ""
    count = f", {part.parameters:,} parameters" if part.parameters else ""
    yield f"{with_paper(part)}{mark}{count}"
    if part.replaces is not None and reading.layers:
        yield f"  decoder layer i attends to {reading.what}{f', {part.shape}' if part.shape else ''}"
    if not reading.layers:
        return
    if len(set(reading.layers)) == 1:
        layers = reading.layers[0]
        which = f"layer {layers[0]}" if len(layers) == 1 else f"layers {layers[0]}-{layers[-1]}"
        yield f"  every decoder layer <- encoder {which}"
    else:
        for start in range(0, len(reading.layers), _MOST_COLUMNS):
            chosen = range(start, min(start + _MOST_COLUMNS, len(reading.layers)))
            yield "  decoder layer  " + "".join(f"{i + 1:>4}" for i in chosen)
            yield "                 " + "".join("   ^" for _ in chosen)
            yield "  encoder layer  " + "".join(f"{(reading.layers[i] or ('-',))[0]:>4}" for i in chosen)
    if reading.joined:
        yield f"  and encoder layer {reading.joined}, with which each of them is joined"
