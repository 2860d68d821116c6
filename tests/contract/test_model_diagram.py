"""The diagram of a model names its parts, for every registered model and for a user's own model."""

from xml.etree import ElementTree

import pytest
from contract_cases import CASES, VOCAB, Case, model_of

SVG = "{http://www.w3.org/2000/svg}"
# Model -> texts that its text diagram must contain, in the model's first setting of the contract suite.
EXPECTED = {
    "asynchronous_transformer": ["backward decoder, target, right to left (Zhang et al. 2018)",
                                 "attention to the backward states (Zhang et al. 2018)  added"],
    "composed_transformer": ["dual contextual module, f = 2 (Ampomah et al. 2021)", "D = 16, 2 x 2 heads of 8",
                             "cross-attention, LN_i(e_2 + R_i) (Liu et al. 2020)",
                             "synchronous bidirectional attention, tanh, lambda = 0.8 (Zhou et al. 2019)",
                             "decoder, left to right and right to left at once", "encoder layer     2   1"],
    "context_gate_transformer": ["context gate, z of each head (Tu et al. 2017)  <- the sum of both attentions"],
    "cross_view_dynamic_conv": ["two cross-attentions", "every decoder layer <- encoder layers 1-2"],
    "cross_view_transformer": ["encoder layer     3   1", "and encoder layer 3"],
    "dual_context_transformer": ["<- self-attention", "layers 1-2, x2"],
    "dynamic_conv": ["dynamic convolution, 3 taps (Wu et al. 2019)  <- self-attention", "7 taps"],
    "layer_coordination": ["one stack of source and target (He et al. 2018)", "mixed attention"],
    "synchronous_transformer": ["lambda = 0.8, trained vector", "begins with the direction's tag"],
    "transformer": ["self-attention", "D = 16, 2 heads of 8", "16 -> 8 -> 16",
                    "every decoder layer <- encoder layer 2"],
}  # fmt: skip


def diagram(model, title="model"):
    from t2t_ext.analysis.diagram.model import diagram_of

    return diagram_of(model, title)


def test_every_parameter_counts_once(case):
    """The diagram counts every parameter once, so no part of the model is missing, and every part is in a stack."""
    found = diagram(model_of(case))
    total = sum(part.parameters for stack in found.stacks for part in (*stack.before, *stack.after))
    groups = [group for stack in found.stacks for group in stack.groups]
    total += sum(group.count * part.parameters for group in groups for part in group.parts)
    total += found.reading.part.parameters if found.reading else 0
    assert total == found.parameters == model_of(case).count_params()
    assert found.others == ()


@pytest.mark.parametrize("name", EXPECTED)
def test_text(name):
    from t2t_ext.analysis.diagram.text import diagram_text

    setting = next(case.setting for case in CASES if case.model == name)
    text = diagram_text(diagram(model_of(Case(name, setting)), name))
    for words in EXPECTED[name]:
        assert " ".join(words.split()) in " ".join(text.split()), text
    assert text.startswith(f"{name}, D = 16, ")


@pytest.mark.parametrize(
    ("source", "says", "read"), [("output", "e_i", "1 2 3"), ("input", "e_(i-1), layer 1", "- 1 2")]
)
def test_which_layer_of_the_source_a_stack_of_the_targets_own_reads(source, says, read):
    """The diagram shows which source layer a separate target stack reads.

    If it reads the source layers' inputs, the first target layer reads no layer, and the last source layer is missing.
    """
    from t2t_ext import registry
    from t2t_ext.analysis.diagram.svg import diagram_svg
    from t2t_ext.analysis.diagram.text import diagram_text

    hparams = registry.hparams("layer_coordination_test")
    hparams = hparams.replace(num_hidden_layers=3, lwc_share_weights=False, lwc_source=source)
    model = registry.model("layer_coordination")(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    model.build()
    found = diagram(model)
    words = " ".join(diagram_text(found).split())
    assert f"decoder layer i attends to {says}" in words
    assert f"encoder layer {read}" in words
    drawn = ElementTree.fromstring(diagram_svg(found))
    assert len([line for line in drawn.iter(f"{SVG}line") if line.get("class") == "read"]) == len(
        read.strip("- ").split()
    )


@pytest.mark.parametrize(
    ("shared", "says"),
    [
        (True, "one stack of source and target, which reads layer 3 of the source everywhere"),
        (False, "every decoder layer <- encoder layer 3"),
    ],
)
def test_reading_the_last_layer_of_the_source_is_said(shared, says):
    from t2t_ext import registry
    from t2t_ext.analysis.diagram.text import diagram_text

    hparams = registry.hparams("layer_coordination_test")
    hparams = hparams.replace(num_hidden_layers=3, lwc_share_weights=shared, lwc_source="last")
    model = registry.model("layer_coordination")(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    model.build()
    assert says in " ".join(diagram_text(diagram(model)).split())


def test_a_transformer_has_nothing_that_is_marked():
    for setting in ("pre_norm", "post_norm"):
        found = diagram(model_of(Case("transformer", setting)))
        assert found.papers == ("Vaswani et al. 2017",)
        assert not any(part.mark for part in found.parts)


def test_svg_is_valid_and_nothing_lies_outside_or_across(case):
    """The SVG is valid, its boxes are inside the picture and do not overlap, and its texts are inside the picture."""
    from t2t_ext.analysis.diagram.svg import diagram_svg

    root = ElementTree.fromstring(diagram_svg(diagram(model_of(case), "<a> & 'b'")))
    width, height = float(root.get("width")), float(root.get("height"))
    assert root.find(f"{SVG}title").text.startswith("<a> & 'b': D = 16")
    texts = list(root.iter(f"{SVG}text"))
    for text in texts:
        assert 0 < float(text.get("x")) < width
        assert 0 < float(text.get("y")) < height
    boxes = [
        [float(box.get(name)) for name in ("x", "y", "width", "height")]
        for box in root.iter(f"{SVG}rect")
        if box.get("class", "").startswith("p") and box.get("class") != "page"
    ]
    for number, (x, y, w, h) in enumerate(boxes):
        assert 0 <= x <= x + w <= width
        assert 0 <= y <= y + h <= height
        for u, v, a, b in boxes[:number]:
            assert x + w <= u or u + a <= x or y + h <= v or v + b <= y, "two boxes overlap"
    found = diagram(model_of(case))
    sums = sum(
        len(stack.lanes) * part.residual for stack in found.stacks for group in stack.groups for part in group.parts
    )
    assert len(list(root.iter(f"{SVG}circle"))) == sums > 0
    papers = found.papers
    assert all(any(text.text.startswith(paper) for text in texts) for paper in papers), "the legend"


def test_parts_of_ones_own_are_named():
    """The diagram names a user's own parts by their class and, if there is one, by the nearest known class."""
    from t2t_ext import registry
    from t2t_ext.analysis.diagram.svg import diagram_svg
    from t2t_ext.analysis.diagram.text import diagram_text
    from t2t_ext.layers.attention import SelfAttention
    from t2t_ext.layers.base import Layer, LayerNormalization
    from t2t_ext.layers.source_views import LastView
    from t2t_ext.models.transformer import Transformer

    class HalvedAttention(SelfAttention):
        pass

    class Mean(Layer):
        pass

    class ViewOfEachLayer(LastView):
        pass

    class Mine(Transformer):
        def make_encoder_mixer(self, layer):
            kind = HalvedAttention if layer == 0 else Mean
            args = {"name": "self_attention", "dtype": self.dtype_policy}
            return kind(self.hparams, **args) if layer == 0 else kind(**args)

        def make_source_views(self):
            return ViewOfEachLayer(self.hparams.decoder_layers, name="source_views", dtype=self.dtype_policy)

        def build(self, input_shape=None):
            super().build(input_shape)
            self.more = LayerNormalization(1e-6, name="more")
            self.more.build((None, 16))

    model = Mine(registry.hparams("transformer_test"), source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    model.build()
    found = diagram(model)
    text = diagram_text(found)
    assert "self-attention, HalvedAttention" in text
    assert "mixer, a Mean (not of t2t_ext)" in text
    assert "views of the source, a ViewOfEachLayer (not of t2t_ext)  <- e_2" in text
    assert [(part.name, part.parameters) for part in found.others] == [("more", 32)]
    assert "encoder layer  " not in text, "which layers such a view reads only its own code knows"
    ElementTree.fromstring(diagram_svg(found))
