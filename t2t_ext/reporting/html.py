"""Builds HTML with escaping in one place, and the frame of all pages: light or dark, wide or narrow, self-contained."""

import hashlib
import html
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable

from t2t_ext.version import __version__

_NOT_IN_XML = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # control characters, such as in the name of a system
_STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1a1a1a; --soft: #555; --line: #ddd; --edge: #999;
  --link: #00508c; --top: #e6f0fa; --note: #fff6d6; --note-edge: #b58900; --wrong: #fde3c8;
  --heat: #08306b; --unseen: #e4e4e4; --bound: #d55e00; }
@media (prefers-color-scheme: dark) {
  :root { --page: #16181c; --text: #e4e4e4; --soft: #aaa; --line: #33373d; --edge: #6b7078; --link: #86bdf0;
    --top: #1d3145; --note: #37300f; --note-edge: #c79c1a; --wrong: #5d3813;
    --heat: #a6d0ff; --unseen: #3a3e45; --bound: #ff9d4d; }
  figure.drawn svg { filter: invert(.91) hue-rotate(180deg); }
}
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); max-width: 76rem;
  margin: 2rem auto; padding: 0 1.2rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin-bottom: .3rem; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .6rem; border-bottom: 1px solid var(--edge); }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .3rem; }
a { color: var(--link); }
code { font-size: .8rem; color: var(--soft); }
.scroll { overflow-x: auto; margin: .5rem 0 1rem; max-width: 100%; }
table { border-collapse: collapse; }
.caption { font-weight: 600; margin: 1rem 0 .2rem; }
th, td { padding: .22rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: pre;
  font-variant-numeric: tabular-nums; overflow-wrap: break-word; }
th:first-child, .words { text-align: left; }
th:first-child { position: sticky; left: 0; background: var(--page); max-width: 24rem; white-space: pre-wrap; }
thead th { border-bottom: 2px solid var(--edge); vertical-align: bottom; }
th[title] { text-decoration: underline dotted; text-underline-offset: .2em; cursor: help; }
tr.top > * { background: var(--top); font-weight: 600; }
figure { display: inline-block; vertical-align: top; margin: .5rem 1rem .5rem 0; max-width: 100%; }
figure svg { display: block; }
figure.drawn svg { max-width: 100%; height: auto; background: #fff; stroke-linejoin: round; stroke-linecap: butt; }
.grid { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, var(--map)), 1fr)); }
.grid figure { min-width: 0; margin: 0; }
.map rect { fill: var(--heat); } .map .unseen { fill: var(--unseen); } .map text { fill: var(--text); }
.map .frame { fill: none; stroke: var(--edge); } .map .bound { stroke: var(--bound); stroke-width: 2; }
.map rect:hover { stroke: var(--bound); stroke-width: 2; }
.scale { display: flex; flex-wrap: wrap; align-items: center; gap: .3rem .6rem; }
.scale i { width: 9rem; height: 1rem; border: 1px solid var(--edge);
  background: linear-gradient(to right, transparent, var(--heat)); print-color-adjust: exact; }
.scale i.unseen { width: 1rem; margin-left: 1rem; background: var(--unseen); }
figcaption { color: var(--soft); font-size: .9rem; }
details { margin: .2rem 0 1rem; } summary { cursor: pointer; color: var(--link); }
nav > ul { columns: 18rem; column-gap: 2.5rem; } nav ul { padding-left: 1.3rem; margin: 0; }
nav > ul > li { break-inside: avoid; }
dl { display: grid; grid-template-columns: fit-content(14rem) minmax(0, 1fr); gap: .2rem 1rem; }
dt { font-weight: 600; } dd { margin: 0; }
.card { border: 1px solid var(--line); border-radius: .4rem; padding: 0 .8rem; margin: 1rem 0; }
.note { background: var(--note); border-left: 4px solid var(--note-edge); padding: .3rem .8rem; margin: .4rem 0; }
.small, .weak { color: var(--soft); font-size: .85rem; font-weight: 400; }
.wrong { background: var(--wrong); } .differs { text-decoration: underline 2px; font-weight: 600; }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
@media (max-width: 40rem) {
  body { padding: 0 .7rem; } dl { display: block; } dd { margin-bottom: .5rem; }
  th:first-child { max-width: 42vw; }
}
@media print { details > * { display: block; } nav { display: none; } }
"""


class Html(str):
    """Text that is already HTML; any other text is escaped when it is added to an element."""


def joined(parts: Iterable[str]) -> Html:
    """Joins parts, escaping those that are not ``Html``."""
    return Html("".join(part if isinstance(part, Html) else html.escape(part) for part in parts))


def element(name: str, *content: str, **attributes: str) -> Html:
    """Returns an element; content that is not ``Html`` and attribute values are escaped.

    Attributes with empty values are left out. In attribute names, a trailing underscore is removed, and other
    underscores become hyphens.
    """
    given = "".join(
        f' {key.removesuffix("_").replace("_", "-")}="{html.escape(value, quote=True)}"'
        for key, value in attributes.items()
        if value
    )
    return Html(f"<{name}{given}>{joined(content)}</{name}>")


def drawing(svg: bytes, described: str) -> Html:
    """Returns an SVG picture of ``figures`` for a page, with a description for people who cannot see it.

    Ids inside the picture are made unique, because other pictures on the page may have the same ids. Tooltips, fonts
    and sizes are kept.
    """
    root = ET.fromstring(_NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}".encode(), svg))
    prefix = f"g{hashlib.sha256(svg).hexdigest()[:8]}-"
    for parent in list(root.iter()):
        parent.tag = parent.tag.rpartition("}")[2]
        for child in list(parent):
            if child.tag.rpartition("}")[2] in ("metadata", "style"):  # licenses; rules for the whole page
                parent.remove(child)
        for key, value in list(parent.attrib.items()):
            name = key.rpartition("}")[2]
            is_link = name == "href" and value.startswith("#")
            own = f"{prefix}{value}" if name == "id" else f"#{prefix}{value[1:]}" if is_link else value
            del parent.attrib[key]
            parent.set(name, own.replace("url(#", f"url(#{prefix}"))
    root.attrib.update({"role": "img", "aria-label": described})
    return Html(ET.tostring(root, "unicode", method="html"))


def page(title: str, body: Html, command: str) -> str:
    """Returns a complete page with a title and a body; the footer names the command that made it."""
    head = joined([
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">\n'),
        element("title", title), element("style", Html(_STYLE)),
    ])  # fmt: skip
    main = element("main", element("h1", title), Html("\n"), body)
    footer = element("footer", f"{command} {__version__}")
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>{main}\n{footer}</body></html>\n'
