"""Tests of the hparams of dual contextual modules: the layers that have them, and refused combinations."""

import pytest

from t2t_ext import registry
from t2t_ext.errors import UserError


def base(overrides):
    hparams = registry.hparams("transformer_base")
    return hparams.override(overrides) if overrides else hparams


@pytest.mark.parametrize(
    ("overrides", "encoder", "decoder"),
    [
        ("", [], []),
        ("dc_encoder_layers=all", [1, 2, 3, 4, 5, 6], []),
        ("dc_encoder_layers=1-6,dc_decoder_layers=all,num_decoder_layers=2", [1, 2, 3, 4, 5, 6], [1, 2]),
        ("dc_encoder_layers=1-1", [1], []),
        ("dc_encoder_layers=1+3-4", [1, 3, 4], []),
        ("dc_decoder_layers= 2 + 5 - 6", [], [2, 5, 6]),
    ],
)
def test_which_layers_have_modules(overrides, encoder, decoder):
    hparams = base(overrides)
    assert sorted(layer + 1 for layer in hparams.dual_encoder_layers) == encoder
    assert sorted(layer + 1 for layer in hparams.dual_decoder_layers) == decoder


def test_a_list_in_a_set_may_have_commas():
    with pytest.raises(UserError, match="may not contain a comma: dc_encoder_layers=1\\+3-4\\)"):
        base("dc_encoder_layers=1,3-4")
    with pytest.raises(UserError, match="'024' is not an assignment name=value \\(a value may not contain a comma\\)"):
        base("batch_size=1,024")
    hparams = base("").replace(dc_encoder_layers="1,3-4")
    assert hparams.dual_encoder_layers == {0, 2, 3}
    assert hparams == base("dc_encoder_layers=1+3-4").replace(dc_encoder_layers="1,3-4")


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ("dc_encoder_layers=7", "dc_encoder_layers='7': 7 is outside of the 6 layers, which count from 1 to 6"),
        ("dc_encoder_layers=0", "0 is outside of the 6 layers"),
        ("dc_encoder_layers=1-7", "1-7 is outside of the 6 layers"),
        ("dc_decoder_layers=1-3,num_decoder_layers=2", "dc_decoder_layers='1-3': 1-3 is outside of the 2 layers"),
        ("dc_decoder_layers=6-4", "dc_decoder_layers='6-4': the range 6-4 goes backwards: write 4-6"),
        ("dc_encoder_layers=every", "'every' is no layer: write all, 1-6, or 1,3-4 (in --hparams: 1+3-4)"),
        ("dc_encoder_layers=1++3", "'' is no layer"),
        ("dc_encoder_layers=all+1", "'all' is no layer"),
        ("dc_encoder_layers=1+1", "dc_encoder_layers='1+1': layer 1 is named twice: write every layer once"),
        ("dc_decoder_layers=1-3+2-4", "layer 2 is named twice"),
        ("dc_kernel_size=3", "dc_kernel_size=3 has no effect: no layer has a dual contextual module"),
        ("dc_even_kernel=left", "dc_even_kernel=left has no effect: no layer has a dual contextual module"),
        (
            "dc_encoder_layers=all,dc_even_kernel=left,dc_kernel_size=3",
            "for encoder layers with an even dc_kernel_size",
        ),
        ("dc_decoder_layers=all,dc_even_kernel=left", "and the decoder's ends at the position itself"),
        ("dc_encoder_layers=all,dc_even_kernel=middle", "is one of right, left"),
        ("dc_encoder_layers=all,dc_kernel_size=0", "dc_kernel_size"),
        ("dc_encoder_layers=all,dc_kernel_size=65", "64"),
        ("dc_encoder_layer=all", "Did you mean 'dc_encoder_layers'"),
        ("dc_kernelsize=3", "Did you mean 'dc_kernel_size'"),
        ("dual_context_layers=all", "dual_context_layers"),
    ],
)
def test_values_that_do_not_go_together(overrides, told):
    with pytest.raises(UserError, match="hparams: ") as error:
        base(overrides)
    assert told in str(error.value)


def test_the_side_of_an_even_kernel_matters_where_a_target_layer_reads_the_source():
    stacks = "lwc_share_weights=false,dc_decoder_layers=1,dc_even_kernel=left"
    assert registry.hparams("layer_coordination_test").override(stacks).dc_even_kernel == "left"
    with pytest.raises(UserError, match="is for encoder layers with an even"):
        registry.hparams("layer_coordination_test").override(f"{stacks},dc_kernel_size=3")


def test_all_that_is_wrong_is_told_at_once():
    with pytest.raises(UserError) as error:
        base("dc_encoder_layers=9,dc_decoder_layers=x")
    for told in ("dc_encoder_layers='9'", "dc_decoder_layers='x'"):
        assert told in str(error.value)


def test_a_dual_context_model_has_modules():
    """A dual-context model refuses hparams without modules; otherwise it would silently train a plain Transformer."""
    hparams = registry.hparams("transformer_test")
    with pytest.raises(UserError, match="dc_encoder_layers=all") as error:
        registry.model("dual_context_transformer")(hparams, source_vocab_size=20, target_vocab_size=20)
    assert "--model=transformer" in str(error.value)


STACKS = {"": ("all", ""), "_dec": ("", "all"), "_full": ("all", "all")}


@pytest.mark.parametrize("size", ["base", "iwslt"])
def test_sets_are_the_papers_baselines_with_modules(size):
    baseline = registry.hparams(f"transformer_{size}_ampomah2021")
    for ending, (encoder, decoder) in STACKS.items():
        hparams = registry.hparams(f"dual_context_{size}{ending}")
        assert (hparams.dc_encoder_layers, hparams.dc_decoder_layers) == (encoder, decoder)
        assert hparams.dc_kernel_size == 2
        assert hparams.replace(dc_encoder_layers="", dc_decoder_layers="") == baseline


def test_sets_explain_where_values_come_from():
    names = [name for name in registry.hparams_names() if name.startswith("dual_context_")]
    assert len(names) == 7
    for name in names:
        rows = {row.name: row for row in registry.hparams(name).explain()}
        stacks = {rows[field].origin for field in ("dc_encoder_layers", "dc_decoder_layers") if rows[field].value}
        assert stacks == {f"set {name}"}
        assert rows["dc_kernel_size"].origin == "default"
        assert "1+3-4" in rows["dc_encoder_layers"].help


# === Together with convolutions ===


def test_layers_of_a_convolutional_model_that_are_named_have_modules():
    hparams = registry.hparams("dynamic_conv_test").replace(
        num_hidden_layers=3,
        dc_encoder_layers="2",
        dc_decoder_layers="1,3",
        dc_kernel_size=3,
        encoder_kernel_sizes="5,7,9",
    )
    model = registry.model("dynamic_conv")(hparams, source_vocab_size=20, target_vocab_size=20)
    kinds = [[layer.mixer.name for layer in stack.layers] for stack in (model.encoder, model.decoder)]
    assert kinds == [["convolution", "dual_context", "convolution"], ["dual_context", "convolution", "dual_context"]]
    # Kernel sizes go by layer number, so the size of the second layer is not used.
    assert [layer.mixer.taps for layer in model.encoder.layers] == [5, 3, 9]
    with_attention = hparams.replace(conv_stacks="encoder")
    model = registry.model("dynamic_conv")(with_attention, source_vocab_size=20, target_vocab_size=20)
    assert [layer.mixer.name for layer in model.decoder.layers] == ["dual_context", "self_attention", "dual_context"]


def test_a_convolutional_model_without_a_convolution_is_refused():
    hparams = registry.hparams("dynamic_conv_test")
    with pytest.raises(
        UserError, match=r"no layer has a convolution: others .dc_encoder_layers, dc_decoder_layers. are"
    ):
        hparams.replace(num_hidden_layers=2, dc_encoder_layers="all", dc_decoder_layers="1-2")
    with pytest.raises(UserError, match="--model=transformer"):
        hparams.replace(conv_stacks="encoder", dc_encoder_layers="all")
    hparams.replace(dc_encoder_layers="all")  # the decoder still has convolutions
    with pytest.raises(UserError, match="9 is outside of the") as caught:
        hparams.replace(dc_encoder_layers="9")
    assert "no layer has a convolution" not in str(caught.value)


def test_none_switches_modules_off():
    from t2t_ext import registry

    full = registry.hparams("dual_context_base_full")
    assert full.override("dc_encoder_layers=none").dual_encoder_layers == frozenset()
    assert full.override("dc_decoder_layers=none") == registry.hparams("dual_context_base")
