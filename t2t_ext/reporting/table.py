"""Shows tables as text, TSV, JSON and HTML, for people and programs."""

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from t2t_ext.reporting.html import Html, element, joined

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?%?")


def harmless(cell: str) -> str:
    """Returns a cell with an apostrophe before it if a spreadsheet program would take it for a formula."""
    is_formula = len(cell) > 1 and cell[0] in "=+-@\t\r" and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if is_formula else cell


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
      heading: The heading of the column.
      format: How to show values that are not strings: a format specification such as ``.2f``, or a function.
      words: Whether the cells contain words, which are left-aligned.
      hint: An explanation of the heading, shown as a tooltip on a page.
    """

    heading: str
    format: str | Callable[[Any], str] = ""
    words: bool = False
    hint: str = ""

    def shown(self, value: Any, missing: str = "") -> str:
        """Returns a value as text for people; ``missing`` stands for None."""
        if value is None or isinstance(value, str):
            return missing if value is None else value
        return self.format(value) if callable(self.format) else format(value, self.format)


def columns(*headings: str, format: str | Callable[[Any], str] = "", words: bool = False) -> list[Column]:
    """Returns columns with the given headings and the same format."""
    return [Column(heading, format, words) for heading in headings]


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of values under headings.

    Attributes:
      columns: The columns; the first one contains the names of the rows.
      rows: The values of each row: strings, numbers, or None for no value.
      caption: The caption; empty for none.
      missing: The text shown for None.
      top: The index of the row that is highlighted on a page; None for no row.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    missing: str = ""
    top: int | None = None

    def cells(self) -> list[list[str]]:
        """Returns the rows with each value as text for people."""
        return [
            [column.shown(value, self.missing) for column, value in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]

    def text(self) -> str:
        """Returns the table for a terminal; the first column and words are left-aligned, the rest right-aligned."""
        rows = [[column.heading for column in self.columns], *self.cells()]
        widths = [max(len(row[number]) for row in rows) for number in range(len(self.columns))]
        left = [number == 0 or column.words for number, column in enumerate(self.columns)]
        lines = [
            "  ".join(
                cell.ljust(width) if to_left else cell.rjust(width)
                for cell, width, to_left in zip(row, widths, left, strict=True)
            ).rstrip()
            for row in rows
        ]
        return "\n".join([*filter(None, [self.caption]), *lines])

    def tsv(self) -> str:
        """Returns the headings and rows for programs: floats with six significant digits, empty for None and NaN.

        Text that a spreadsheet program would take for a formula gets an apostrophe before it.
        """

        def field(value: Any) -> str:
            if value is None or (isinstance(value, float) and math.isnan(value)):
                return ""
            if isinstance(value, float):
                return f"{value:.6g}"
            return harmless(str(value).replace("\t", " ").replace("\n", " "))

        rows = [[column.heading for column in self.columns], *([field(value) for value in row] for row in self.rows)]
        return "".join("\t".join(row) + "\n" for row in rows)

    def json(self) -> list[dict[str, Any]]:
        """Returns the rows as dictionaries whose keys are the headings."""
        return [{c.heading: value for c, value in zip(self.columns, row, strict=True)} for row in self.rows]

    def html(self) -> Html:
        """Returns the table for a page; it scrolls inside its frame if the page is narrow."""
        kinds = ["words" if number and column.words else "" for number, column in enumerate(self.columns)]
        head = [
            element("th", column.heading, scope="col", class_=kind, title=column.hint)
            for column, kind in zip(self.columns, kinds, strict=True)
        ]
        body = [
            element(
                "tr",
                element("th", row[0], scope="row"),
                *(element("td", cell, class_=kind) for cell, kind in zip(row[1:], kinds[1:], strict=True)),
                class_="top" if number == self.top else "",
            )
            for number, row in enumerate(self.cells())
        ]
        rows = joined(part for row in body for part in (Html("\n"), row))
        table = element("table", element("thead", element("tr", *head)), element("tbody", rows))
        caption = element("p", self.caption, class_="caption") if self.caption else Html()
        return joined([caption, element("div", table, class_="scroll", tabindex="0")])
