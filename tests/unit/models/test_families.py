"""Tests that hparams that a model does not take are refused before TensorFlow is imported."""

import re

import pytest

from t2t_ext import registry
from t2t_ext.errors import UserError
from t2t_ext.models import families


def check(model, hparams_set, overrides=""):
    families.check_hparams(model, registry.resolve_hparams(hparams_set, overrides), hparams_set)


def takes(model, hparams_set):
    return not families.misfit(registry.model_attributes(model), registry.hparams(hparams_set))


@pytest.mark.parametrize(
    ("model", "hparams_set", "told"),
    [
        ("synchronous_transformer", "transformer_tiny", "Sets for it: synchronous_transformer_tiny, "),
        ("layer_coordination", "transformer_base", "Sets for it: layer_coordination_base, "),
        ("dual_context_transformer", "transformer_base", "Sets for it: dual_context_base, "),
        ("asynchronous_transformer", "transformer_small", "Sets for it: asynchronous_transformer_small, "),
        ("dynamic_conv", "transformer_iwslt_small", "needs hparams of the family DynamicConvHParams, got Transf"),
        ("transformer", "asynchronous_transformer_tiny", "choose --model=asynchronous_transformer, or an hparams set"),
        (
            "composed_transformer",
            "asynchronous_transformer_base",
            "choose --model=asynchronous_transformer, or an hpar",
        ),
        ("cross_view_transformer", "transformer_tiny", "needs a view: source_view=gca,integration=soft in --hparams"),
    ],
)
def test_a_set_of_another_family_is_refused_with_sets_of_the_model(model, hparams_set, told):
    with pytest.raises(UserError) as caught:
        check(model, hparams_set)
    assert told in str(caught.value)
    more = r"(?: and (\d+) more \(--registry_help lists all\))?"
    listed = re.search(rf"Sets for it: ([\w, ]+?){more}\.$", str(caught.value))
    names = listed[1].split(", ")
    for name in names:
        check(model, name)
    assert len([name for name in registry.hparams_names() if takes(model, name)]) == len(names) + int(listed[2] or 0)


@pytest.mark.parametrize(
    ("hparams_set", "overrides", "told"),
    [
        (
            "dynamic_conv_small",
            "",
            "made for --model=dynamic_conv. --model=transformer takes it, too",
        ),
        ("dynamic_conv_small", "", "a Transformer with layers: dynamic_convolution; source views: last; directions: 1"),
        ("layer_coordination_small", "", "made for --model=layer_coordination. "),
        ("cross_view_transformer_base", "", "layers: self_attention; source views: cross_view; "),
        ("cross_view_transformer_base", "source_view=last,integration=hard", ""),
        ("synchronous_transformer_tiny", "", "layers: self_attention, synchronous; source views: last; directions: 2"),
        ("transformer_small_data", "", ""),
        ("transformer_small_data", "source_view=gca,integration=soft", ""),  # the view was asked for
    ],
)
def test_a_transformer_with_the_set_of_another_model_is_told(hparams_set, overrides, told):
    said = families.made_for_others("transformer", registry.resolve_hparams(hparams_set, overrides), hparams_set)
    assert told in said if told else not said


def test_a_model_that_is_named_after_what_it_has_is_not_told():
    for model, hparams_set in (("dynamic_conv", "dynamic_conv_small"), ("composed_transformer", "dynamic_conv_small")):
        assert not families.made_for_others(model, registry.hparams(hparams_set), hparams_set)


@pytest.mark.parametrize(
    ("model", "hparams_set", "overrides", "told"),
    [
        ("transformer", "layer_coordination_small", "use_sos=true", "use_sos is no hparam of --model=transformer"),
        ("transformer", "layer_coordination_small", "use_sos=true", "; choose --model=layer_coordination."),
        ("transformer", "context_gate_transformer_small", "context_gate=channel", "--model=context_gate_transformer."),
    ],
)
def test_what_only_other_models_read_is_refused(model, hparams_set, overrides, told):
    check(model, hparams_set)
    with pytest.raises(UserError) as caught:
        check(model, hparams_set, overrides)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("model", "hparams_set", "plain"),
    [
        ("cross_view_transformer", "cross_view_transformer_base", "transformer"),
        ("cross_view_dynamic_conv", "dynamic_conv_base", "dynamic_conv"),
    ],
)
def test_a_cross_view_model_needs_a_view(model, hparams_set, plain):
    """The error message of a cross-view model proposes only hparams that are then accepted."""
    with pytest.raises(UserError) as caught:
        check(model, hparams_set, "source_view=last,integration=hard")
    assert f"{model} needs a view: source_view=gca" in str(caught.value)
    assert f"--model={plain}." in str(caught.value)
    assert "integration=hard" not in str(caught.value)
    check(model, hparams_set, "source_view=gca,integration=soft")
    check(plain, hparams_set, "source_view=last,integration=hard")
    if "cross_view" in hparams_set:
        with pytest.raises(UserError, match=r"set source_view, such as gca; or, for a model without .*not cross_view_"):
            registry.resolve_hparams(hparams_set, "source_view=last")


@pytest.mark.parametrize("name", registry.model_names())
def test_what_is_read_from_the_source_is_what_the_class_has(name):
    model, read = registry.model(name), registry.model_attributes(name)
    assert (read["title"], read["hparams_class"]) == (model.__name__, model.hparams_class.__name__)
    assert read["target_sides"] == model.target_sides
    for attribute in ("slot", "filled_with", "advice", "takes_source_features"):
        assert read.get(attribute) == getattr(model, attribute, None)
