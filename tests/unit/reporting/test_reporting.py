"""Tests of tables, reports and pages: the same content as text, TSV, JSON and HTML, escaped exactly once."""

import html.parser
import math

import pytest

from t2t_ext.errors import UserError
from t2t_ext.reporting import figures
from t2t_ext.reporting import report as reporting
from t2t_ext.reporting.html import Html, element, joined, page
from t2t_ext.reporting.report import Definitions, Either, Figure, Items, Note, PageOnly, Paragraph, Report, Section
from t2t_ext.reporting.table import Column, Table, columns

EVIL = "<script>alert(\"x\")</script> & 'y'"
TABLE = Table(
    [Column("system", hint="What <it> is"), *columns("BLEU", "chrF", format=".2f"), Column("why", words=True)],
    [["a", 12.345, None, EVIL], ["long name", 7, math.nan, "tab\there"]],
    missing="-",
    top=1,
)


class Page(html.parser.HTMLParser):
    """Checks that elements are closed in order, and collects tags, attributes and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_text_aligns_numbers_right_and_words_left():
    assert TABLE.text().splitlines() == [
        "system      BLEU  chrF  why",
        f"a          12.35     -  {EVIL}",
        "long name   7.00   nan  tab\there",
    ]


def test_machines_get_values_not_what_people_read():
    rows = [line.split("\t") for line in TABLE.tsv().splitlines()]
    assert rows == [["system", "BLEU", "chrF", "why"], ["a", "12.345", "", EVIL], ["long name", "7", "", "tab here"]]
    assert TABLE.json()[0] == {"system": "a", "BLEU": 12.345, "chrF": None, "why": EVIL}


def test_all_text_is_escaped_once():
    found = Page(TABLE.html())
    assert "script" not in found.tags
    assert EVIL in found.text
    assert ("title", "What <it> is") in found.attributes
    assert element("p", "a < b", element("b", EVIL), title='"') == (
        '<p title="&quot;">a &lt; b<b>&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; &#x27;y&#x27;</b></p>'
    )
    assert joined(["<", Html("<br>")]) == "&lt;<br>"


def full_report(sections):
    blocks = [
        Paragraph(EVIL),
        Paragraph("an explanation", "small"),
        Note("take care"),
        Definitions([("run", EVIL), ("words", Either("[a] b", element("b", "a")))]),
        *(Section(f"Part {number} {EVIL}", [TABLE, Items([EVIL])]) for number in range(sections)),
        Section("Only a picture", [Figure(b"<svg/>", EVIL, EVIL), PageOnly(Paragraph("of the page"))]),
    ]
    return Report(f"All of it {EVIL}", blocks, "t2t_ext-test")


def test_a_terminal_shows_what_it_can():
    text = full_report(1).text()
    assert text.startswith(f"{EVIL}\n\nnote: take care\n\nrun    {EVIL}\nwords  [a] b\n\n== Part 0 {EVIL}\nsystem")
    assert text.endswith(f"\n* {EVIL}")
    for hidden in ("explanation", "Only a picture", "of the page", "svg"):
        assert hidden not in text


@pytest.mark.parametrize(("sections", "links"), [(1, 0), (4, 5)])
def test_a_page_holds_everything_and_needs_nothing(sections, links):
    text = full_report(sections).page()
    found = Page(text)
    assert "script" not in found.tags
    assert found.text.count(EVIL) == 5 + sections * 3 + (sections if links else 0)
    assert [value for name, value in found.attributes if name == "href"] == [f"#part{n}" for n in range(1, links + 1)]
    ids = [value for name, value in found.attributes if name == "id"]
    assert len(set(ids)) == len(ids)
    assert not [value for name, value in found.attributes if name == "src"]
    assert ("aria-label", EVIL) in found.attributes
    assert "http" not in text
    assert "url(" not in text
    assert "prefers-color-scheme: dark" in text
    assert ("name", "viewport") in found.attributes
    assert text.count("<table") == text.count('class="scroll" tabindex="0"><table') == sections


def test_figures_are_drawn_for_pages_alone():
    drawn = []
    report = Report("x", [Figure(lambda: drawn.append(1) or b"<svg/>", "described")], "t2t_ext-test")
    assert (report.text(), drawn) == ("", [])
    report.page()
    assert drawn == [1]


def test_sections_within_sections_have_places_of_their_own():
    inner = [Section("<one>", []), Section("two", [Section("deep", [])])]
    text = Report("x", [Paragraph("first"), Section("A", inner), Section("B", inner[:1])], "t2t_ext-test").page()
    found = Page(text)
    links = [value[1:] for name, value in found.attributes if name == "href"]
    assert links == ["part1", "part1-1", "part1-2", "part1-2-1", "part2", "part2-1"]
    assert [value for name, value in found.attributes if name == "id"] == links
    assert '<section id="part1-1"><h3>&lt;one&gt;</h3></section>' in text
    assert "<h4>deep</h4>" in text
    assert text.index("first") < text.index("<nav") < text.index("<h2>A")


def figure_with(*words):
    with figures.new_figure(3, 2) as figure:
        axes = figure.subplots()
        figures.bars(axes, 1, 0, [1.0, None], None, words)
        axes.plot([0, 1, 2], [1.0, 2.0, float("nan")], marker="o")
        figures.points(axes, [0, 1, 2], [1.0, 2.0, float("nan")], ["first", "second", "nothing"])
        figures.points(axes, range(999), [1.0] * 999, ["one of very many"] * 999)
        figures.legend(figure, ["<&>"])
        return figures.saved(figure, "svg"), figures.saved(figure, "png")


def test_bars_and_points_have_tooltips_and_pictures_of_a_page_do_not_share_names():
    (svg, png), (other, _) = figure_with(EVIL, "b"), figure_with("a", "b")
    assert png.startswith(b"\x89PNG")
    text = Report("x", [Figure(svg, "one"), Figure(other, "other")], "t2t_ext-test").page()
    found = Page(text)
    assert (found.text.count(EVIL), found.text.count("<&>")) == (1, 2)
    assert [text.count(f"<title>{words}</title>") for words in ("first", "second", "nothing")] == [2, 2, 0]
    assert "very many" not in text
    assert "http" not in text
    assert not {"script", "metadata", "image"} & set(found.tags)
    assert found.tags.count("style") == 1  # only the page's own style sheet
    ids = [value for name, value in found.attributes if name == "id"]
    assert len(set(ids)) == len(ids)
    used = [value[1:] for name, value in found.attributes if name == "href"]
    used += [value[5:-1] for name, value in found.attributes if name == "clip-path"]
    assert used
    assert set(used) <= set(ids)


def test_a_legend_has_as_many_columns_as_fit():
    with figures.new_figure(6, 2) as figure:
        assert [figures.legend_columns(figure, ["x" * count] * 9) for count in (1, 12, 28, 90)] == [5, 3, 1, 1]


def test_writing_replaces_and_removes(tmp_path):
    directory = tmp_path / "new" / "deep"
    assert reporting.write(directory, {"a.txt": "odd \udcff", "b.png": b"1"}) == ["a.txt", "b.png"]
    assert (directory / "a.txt").read_text() == "odd \\udcff"
    assert reporting.write(directory, {"a.txt": "2", "b.png": None}) == ["a.txt"]
    assert [path.name for path in directory.iterdir()] == ["a.txt"]
    (tmp_path / "file").write_text("")
    with pytest.raises(
        UserError, match=r"--report=.*file/x: the directory cannot be written to .* Choose another --re"
    ):
        reporting.directory_for(tmp_path / "file" / "x", "--report")


def test_a_checked_directory_is_not_made_yet(tmp_path):
    assert reporting.checked_directory(tmp_path / "new" / "deep") == tmp_path / "new" / "deep"
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old").mkdir()
    reporting.checked_directory(tmp_path / "old")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_the_frame_takes_any_title():
    assert "<title>&lt;b&gt;</title>" in page("<b>", Html(), "t2t_ext-test")
