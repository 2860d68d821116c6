"""Tests of the hparams of cross-view decoding: the encoder layers that are seen, and refused combinations."""

import pytest

from t2t_ext import registry
from t2t_ext.errors import UserError


def base(overrides):
    hparams = registry.hparams("transformer_base")
    return hparams.override(overrides) if overrides else hparams


@pytest.mark.parametrize(
    ("overrides", "layers"),
    [
        ("", [6, 6, 6, 6, 6, 6]),
        ("source_view=gca", [6, 5, 4, 3, 2, 1]),
        ("source_view=gpa", [1, 2, 3, 4, 5, 6]),
        ("source_view=fga", [1, 1, 1, 1, 1, 1]),
        ("source_view=gca,num_decoder_layers=3", [6, 4, 1]),
        ("source_view=gpa,num_decoder_layers=3", [1, 4, 6]),
        ("source_view=gca,num_decoder_layers=2", [6, 1]),
        ("source_view=gpa,num_encoder_layers=2", [1, 1, 1, 2, 2, 2]),
        ("source_view=gca,num_encoder_layers=12,num_decoder_layers=1,integration=soft", [12]),
        ("source_view=gpa,num_encoder_layers=12,num_decoder_layers=1,integration=soft", [1]),
        ("source_view=gca,source_view_map=6 + 6+4+3+ 2+1", [6, 6, 4, 3, 2, 1]),
        ("source_view=gpa,source_view_map=3+1+2+6+6+6", [3, 1, 2, 6, 6, 6]),
        ("source_view=fma", []),
        ("source_view=ama,integration=soft", []),
    ],
)
def test_which_layers_are_viewed(overrides, layers):
    assert [layer + 1 for layer in base(overrides).viewed_layers] == layers


@pytest.mark.parametrize(
    ("overrides", "layers"),
    [
        ("", {6}),
        ("source_view=gca,num_decoder_layers=3", {6, 4, 1}),
        ("source_view=fga", {1}),
        ("source_view=fga,integration=soft", {1, 6}),
        ("source_view=fma", {1, 2, 3, 4, 5, 6}),
    ],
)
def test_which_layers_are_seen(overrides, layers):
    assert {layer + 1 for layer in base(overrides).seen_layers} == layers


POST_NORM = "layer_preprocess_sequence=none,layer_postprocess_sequence=dan"


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ("source_view=gcaa", "is one of last, gca"),
        (
            "integration=soft",
            "set source_view, such as gca; or, for a model without cross-view decoding",
        ),
        ("source_view=gca,fma=scalar", "fma=scalar is for source_view=fma, not gca"),
        ("source_view=gca,ama_query=decoder", "ama_query=decoder is for source_view=ama, not gca"),
        ("source_view=fma,ama_share_layers=true", "ama_share_layers=true is for source_view=ama, not fma"),
        ("source_view=gca,integration=soft,integration_attention=separate", "is for integration=soft_two_attention"),
        ("source_view_map=6+5+4+3+2+1", "is for source_view=gca and gpa, not last"),
        ("source_view=ama,source_view_map=6+5+4+3+2+1", "is for source_view=gca and gpa, not ama"),
        ("source_view=gca,source_view_map=6+5+4", "names 3 encoder layers, but there are 6 decoder layers"),
        ("source_view=gca,source_view_map=7+5+4+3+2+1", "7 is outside of the 6 encoder layers"),
        ("source_view=gca,source_view_map=6+5+4+3+2+0", "0 is outside of the 6 encoder layers"),
        ("source_view=gca,source_view_map=6+5+4+3+2+x", "write numbers of encoder layers"),
        ("source_view=gca,source_view_map=6-1", "write numbers of encoder layers"),
        ("source_view=gca,source_view_map=1+2+3+4+5+6", "goes upwards, which is source_view=gpa"),
        ("source_view=gpa,source_view_map=6+5+4+3+2+1", "goes downwards, which is source_view=gca"),
        ("source_view=gca,source_view_map=6+6+6+6+6+6", "every decoder layer sees the last layer"),
        ("source_view=gca,source_view_map=5+5+4+3+2+1", "sees more than encoder layer 5 of 6"),
        ("source_view=gpa,num_decoder_layers=1", "sees more than encoder layer 1 of 6"),
        ("source_view=ama,num_encoder_layers=1", "needs several encoder layers"),
        ("source_view_norm=shared", "has no effect with source_view=last"),
        (f"source_view=gca,source_view_norm=shared,{POST_NORM}", "is for pre-norm stacks"),
    ],
)
def test_values_that_do_not_go_together(overrides, told):
    with pytest.raises(UserError, match="hparams: ") as error:
        base(overrides)
    assert told in str(error.value)


def test_all_that_is_wrong_is_told_at_once():
    with pytest.raises(UserError) as error:
        base("source_view=gca,fma=scalar,ama_share_layers=true,source_view_map=1")
    for told in ("fma=scalar", "ama_share_layers", "names 1 encoder layers"):
        assert told in str(error.value)


@pytest.mark.parametrize("name", ["cross_view_transformer", "cross_view_dynamic_conv"])
def test_a_cross_view_model_has_views(name):
    """A cross-view model refuses hparams without views; otherwise it would silently train a plain Transformer."""
    hparams = registry.hparams(f"{name}_test").replace(source_view="last", integration="hard")
    with pytest.raises(UserError, match="source_view=gca,integration=soft"):
        registry.model(name)(hparams, source_vocab_size=20, target_vocab_size=20)


def test_sets_begin_with_gca_and_soft():
    names = [name for name in registry.hparams_names() if name.startswith("cross_view_")]
    assert len(names) == 7
    for name in names:
        hparams = registry.hparams(name)
        assert (hparams.source_view, hparams.integration) == ("gca", "soft"), name
        pre_norm = name == "cross_view_dynamic_conv_test"
        assert (hparams.layer_preprocess_sequence == "n") == pre_norm, name
