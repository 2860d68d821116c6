"""HTML that is escaped in one place, and the frame of every page: light and dark, wide and narrow, no outside files."""

import base64
import html
from collections.abc import Iterable

from t2t_ext.version import __version__

_STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1a1a1a; --soft: #555; --line: #ddd; --edge: #999;
  --link: #00508c; --top: #e6f0fa; --note: #fff6d6; --note-edge: #b58900; --wrong: #fde3c8; }
@media (prefers-color-scheme: dark) {
  :root { --page: #16181c; --text: #e4e4e4; --soft: #aaa; --line: #33373d; --edge: #6b7078; --link: #86bdf0;
    --top: #1d3145; --note: #37300f; --note-edge: #c79c1a; --wrong: #5d3813; }
  figure img { filter: invert(.91) hue-rotate(180deg); }
  figure.as-is img { filter: none; }
}
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); max-width: 76rem;
  margin: 2rem auto; padding: 0 1.2rem; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; margin-bottom: .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .6rem; border-bottom: 1px solid var(--edge); }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .3rem; }
a { color: var(--link); }
code { font-size: .8rem; color: var(--soft); overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: .5rem 0 1rem; max-width: 100%; }
table { border-collapse: collapse; }
.caption { font-weight: 600; margin: 1rem 0 .2rem; }
th, td { padding: .22rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: pre;
  font-variant-numeric: tabular-nums; }
th:first-child, .words { text-align: left; }
th:first-child { position: sticky; left: 0; background: var(--page); }
thead th { border-bottom: 2px solid var(--edge); vertical-align: bottom; }
th[title] { text-decoration: underline dotted; text-underline-offset: .2em; cursor: help; }
tr.top > * { background: var(--top); font-weight: 600; }
figure { display: inline-block; vertical-align: top; margin: .5rem 1rem .5rem 0; max-width: 100%; }
figure img { display: block; max-width: 100%; height: auto; background: #fff; }
figcaption { color: var(--soft); font-size: .9rem; }
details { margin: .2rem 0 1rem; } summary { cursor: pointer; color: var(--link); }
nav ul, nav ol { columns: 18rem; padding-left: 1.3rem; } nav td { text-align: center; }
dl { display: grid; grid-template-columns: max-content minmax(0, auto); gap: .2rem 1rem; }
dt { font-weight: 600; } dd { margin: 0; overflow-wrap: anywhere; }
.card { border: 1px solid var(--line); border-radius: .4rem; padding: 0 .8rem; margin: 1rem 0; }
.note { background: var(--note); border-left: 4px solid var(--note-edge); padding: .3rem .8rem; margin: .4rem 0; }
.small, .weak { color: var(--soft); font-size: .85rem; font-weight: 400; }
.wrong { background: var(--wrong); } .differs { text-decoration: underline 2px; font-weight: 600; }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
@media (max-width: 40rem) {
  body { padding: 0 .7rem; } dl { display: block; } dd { margin-bottom: .5rem; }
  th:first-child { max-width: 42vw; white-space: normal; }
}
@media print { details > * { display: block; } nav { display: none; } }
"""


class Html(str):
    """Text that is HTML already; all other text is escaped where it enters an element."""


def joined(parts: Iterable[str]) -> Html:
    """Joins parts, of which those that are not ``Html`` are escaped."""
    return Html("".join(part if isinstance(part, Html) else html.escape(part) for part in parts))


def element(name: str, *content: str, **attributes: str) -> Html:
    """Makes an element. Content that is not ``Html`` is escaped, as are attributes' values; empty ones are left out.

    An underscore at the end of an attribute's name is dropped.
    """
    given = "".join(
        f' {key.removesuffix("_")}="{html.escape(value, quote=True)}"' for key, value in attributes.items() if value
    )
    return Html(f"<{name}{given}>{joined(content)}</{name}>")


def image(svg: bytes, described: str) -> Html:
    """Embeds an SVG picture, described for those who do not see it."""
    data = base64.b64encode(svg).decode("ascii")
    return Html(f'<img alt="{html.escape(described, quote=True)}" src="data:image/svg+xml;base64,{data}">')


def page(title: str, body: Html, command: str) -> str:
    """Puts a body into the frame that all pages have, with the command that made it."""
    head = joined([
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">\n'),
        element("title", title), element("style", Html(_STYLE)),
    ])  # fmt: skip
    main = element("main", element("h1", title), Html("\n"), body)
    footer = element("footer", f"{command} {__version__}")
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>{main}\n{footer}</body></html>\n'
