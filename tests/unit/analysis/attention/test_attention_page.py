"""Tests of the attention page without TensorFlow: one grid of heads per layer, one scale, a tooltip per weight."""

import dataclasses
import json
import re

import numpy as np
import pytest

from t2t_ext.analysis.attention import report
from t2t_ext.analysis.attention.heat_map import heat_map
from t2t_ext.analysis.attention.maps import AttentionMap, Looked
from t2t_ext.errors import UserError

EVIL = "<b>&'\"Donaudampfschiff"
SOURCE, INPUTS, PREDICTED = ("das", EVIL), ("<start>", "the", "house"), ("the", "house", "</s>")


def attention(kind, layer, heads=3):
    """Returns a map whose largest weight is 0.8 for the cross-attention of the first layer, and 0.5 for any other."""
    columns = SOURCE if kind == "source" else INPUTS
    weights = np.tril(np.full([heads, 3, len(columns)], 0.25 if layer else 0.5, "float32"))
    weights[:, 0, 0] = 0.8 if kind == "source" and not layer else 0.5
    name = f"decoder/layer_{layer}/{kind}_attention"
    return AttentionMap(name, "decoder", layer, kind, name.rpartition("/")[2], "", weights, INPUTS, PREDICTED, columns)


def looked(number):
    maps = tuple(attention(kind, layer) for layer in range(2) for kind in ("source", "self"))
    return Looked(f"das {number} {EVIL}", {"l2r": "the house"}, False, "", ("take care",), maps)


@pytest.fixture
def page_of(tmp_path, monkeypatch):
    scales = []
    monkeypatch.setattr(
        "t2t_ext.analysis.attention.pictures.head_picture", lambda *given: scales.append(given[2]) or b""
    )

    def page(sentences, **choice):
        names = report.write(tmp_path, sentences, report.Choice(**choice), [("run", "RUN"), ("model", "m")])
        assert names[:2] == ["attention.html", "attention.json"]
        assert json.loads((tmp_path / "attention.json").read_text())["files"] == names[2:]
        assert scales == pytest.approx([0.8] * len(names[2:]))
        return (tmp_path / "attention.html").read_text()

    return page


def test_heads_stand_in_a_grid_below_the_heading_of_their_layer(page_of):
    text = page_of([looked(1)], heads="all")
    headings = [re.sub(r" \(.*", "", each) for each in re.findall(r"<h2>(.*?)</h2>", text)]
    assert headings == [
        f"{kind}, decoder layer {n}" for kind in ("Cross-attention", "Decoder self-attention") for n in (1, 2)
    ]
    assert re.findall(r'href="#(.*?)"', text) == re.findall(r'<section id="(.*?)"', text)
    grids = text.split('<div class="grid"')[1:]
    assert [re.findall(r"<figcaption>(head \d)", grid) for grid in grids] == [["head 1", "head 2", "head 3"]] * 4
    assert all(re.match(r' style="--map: \d+px">', grid) for grid in grids)
    assert text.count('<p class="scale">') == 1
    assert "<i></i>0.80<i " in text
    assert text.count("<svg ") == text.count('class="scroll" tabindex="0"><svg ') == 12
    for absent in ("<img", "<script", "http", "<b>"):
        assert absent not in text


def test_means_of_a_kind_stand_in_one_grid_and_sentences_have_sections(page_of):
    text = page_of([looked(1), looked(2)])
    assert [each[:11] for each in re.findall(r"<h2>(.*?)</h2>", text)] == ["Sentence 1:", "Sentence 2:"]
    assert [each[:12] for each in re.findall(r"<h3>(.*?)</h3>", text)] == ["Cross-attent", "Decoder self"] * 2
    assert text.count('<div class="grid"') == 4
    assert re.findall(r'href="#(.*?)"', text) == ["part1", "part1-1", "part1-2", "part2", "part2-1", "part2-2"]


def test_every_weight_has_a_tooltip_and_a_share_of_the_color():
    svg, width = heat_map(attention("source", 0), 0, 0.8, "described")
    titles = re.findall(r'fill-opacity="([\d.]+)"><title>(.*?)</title>', svg)
    assert titles[0] == ("1.00", "&lt;start&gt; (→ the): das 0.800")
    assert titles[2] == ("0.62", "the (→ house): das 0.500")
    assert len(titles) == 6
    assert f'width="{width}"' in svg
    assert 'aria-label="described"' in svg
    # A long label is truncated, and its tooltip shows the whole of it.
    assert "…pfschiff<title>&lt;b&gt;&amp;&#x27;&quot;Donaudampfschiff</title>" in svg
    own, _ = heat_map(attention("self", 0), None, 0.8, "described")
    assert own.count('class="unseen"') == 3  # inputs after the current position
    assert own.count("fill-opacity") == 6


def test_layers_of_stacks_of_different_depth():
    """A layer that only the deeper stack has is shown of that one."""
    own = dataclasses.replace(
        attention("self", 5), name="encoder/layer_5/self_attention", stack="encoder", kind="encoder"
    )
    maps = [*looked(1).maps, own]
    chosen = report.Choice(kinds=("encoder", "source"), layers="1,6").of(maps)
    assert [(each.stack, each.layer) for each, _ in chosen] == [("decoder", 0), ("encoder", 5)]
    with pytest.raises(UserError, match="--layers=6: these layers have none of: source"):
        report.Choice(kinds=("source",), layers="6").of(maps)
    with pytest.raises(UserError, match="7 is outside of the 6 layers"):
        report.Choice(layers="7").of(maps)
