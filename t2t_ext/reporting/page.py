"""Parts of HTML pages that hold everything and open without a network: no script, no outside file.

All text is escaped by the functions that take it.
"""

import base64
import html
import pathlib
from collections.abc import Iterable, Sequence

from t2t_ext.errors import UserError
from t2t_ext.io import files
from t2t_ext.version import __version__

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 76rem; margin: 2rem auto;
  padding: 0 1.2rem; }
h1 { font-size: 1.6rem; margin-bottom: .3rem; }
h2 { font-size: 1.3rem; margin-top: 2.8rem; border-bottom: 2px solid #bbb; padding-bottom: .2rem; }
h3 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
a { color: #00508c; }
table { border-collapse: collapse; margin: .5rem 0 1rem; display: block; overflow-x: auto; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .22rem .7rem; border-bottom: 1px solid #ddd; text-align: right; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; } thead th { border-bottom: 2px solid #888; vertical-align: bottom; }
table.words th, table.words td { text-align: left; white-space: nowrap; }
tr.top > * { background: #e6f0fa; font-weight: 600; }
figure { margin: .8rem 0; } figure img { max-width: 100%; height: auto; border: 1px solid #e2e2e2; }
figcaption { color: #444; font-size: .9rem; }
details { margin: .2rem 0 1rem; } summary { cursor: pointer; color: #00508c; }
nav table td, nav table th { text-align: center; } nav table th:first-child { text-align: left; }
dl { display: grid; grid-template-columns: max-content auto; gap: .2rem 1rem; }
dt { font-weight: 600; } dd { margin: 0; }
.note { background: #fff6d6; border-left: 4px solid #b58900; padding: .3rem .8rem; margin: .4rem 0; }
.small { color: #555; font-size: .85rem; } .weight { color: #666; font-size: .85em; }
footer { margin-top: 3rem; color: #666; font-size: .85rem; }
@media print { details > * { display: block; } nav { display: none; } }
"""


def page(title: str, parts: Iterable[str], command: str) -> str:
    """Returns a page of parts that are HTML already."""
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{text(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{text(title)}</h1>\n{body}\n</main>\n"
        f"<footer>{text(command)} {__version__}</footer>\n</body>\n</html>\n"
    )


def text(words: str) -> str:
    """Returns words as HTML."""
    return html.escape(words, quote=True)


def note(words: str) -> str:
    """Returns a paragraph that stands out."""
    return f'<p class="note">{text(words)}</p>'


def definitions(rows: Iterable[tuple[str, str]]) -> str:
    """Returns a list of names and what they stand for."""
    return "<dl>" + "".join(f'<dt>{text(name)}</dt><dd dir="auto">{text(value)}</dd>' for name, value in rows) + "</dl>"


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "", kind: str = "", top: int | None = None
) -> str:
    """Returns a table.

    Args:
      header: Of the columns.
      rows: Cells; the first of a row is its header.
      caption: Above it.
      kind: ``words`` for cells that are words, else numbers.
      top: Number of the row that stands out.
    """
    head = "".join(f'<th scope="col">{text(cell)}</th>' for cell in header)
    body = "\n".join(
        f'<tr{" class=top" if number == top else ""}><th scope="row">{text(row[0])}</th>'
        + "".join(f"<td>{text(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for number, row in enumerate(rows)
    )
    caption = f"<caption>{text(caption)}</caption>" if caption else ""
    return (
        f"<table{f' class={kind}' if kind else ''}>{caption}<thead><tr>{head}</tr></thead>\n"
        f"<tbody>{body}</tbody></table>"
    )


def figure(svg: bytes, described: str, caption: str = "") -> str:
    """Returns an SVG picture, embedded.

    Args:
      svg: The file.
      described: For those who do not see it.
      caption: Below it.
    """
    data = base64.b64encode(svg).decode("ascii")
    below = f"<figcaption>{text(caption)}</figcaption>" if caption else ""
    return f'<figure><img alt="{text(described)}" src="data:image/svg+xml;base64,{data}">{below}</figure>'


def made(directory: files.PathLike) -> pathlib.Path:
    """Makes the directory of a report where it is missing, and returns its path.

    Raises:
      UserError: It cannot be made.
    """
    path = pathlib.Path(directory)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"Cannot make the directory {path}: {error.strerror}. Choose another --out_dir.") from error
    return path
