"""Tests of the recipes for the comparison at convergence: a row changes only what its paper changes."""

import pytest

from t2t_ext import registry
from t2t_ext.bin import experiment
from t2t_ext.experiments.plan import assignments

BOOK = experiment.recipe_book()
ROWS = [name for name in BOOK.names() if name.startswith("comparison_")]
# The settings that define the papers' models, and the targets that they read.
OF_THE_PAPERS = {
    "source_view", "integration", "dc_encoder_layers", "dc_decoder_layers", "dc_kernel_size", "synchronous",
    "sb_fusion", "sb_lambda", "pseudo", "target_direction",
}  # fmt: skip
NOT_READ = {"learning_rate"}  # except by the schedule `legacy`
# Rows that also differ in size, or leave something out.
MORE = {
    "comparison_layer_coordination": {"num_hidden_layers": 7},
    "comparison_layer_coordination_5": {"num_hidden_layers": 5},
    "comparison_layer_coordination_9": {"num_hidden_layers": 9},
    "comparison_layer_coordination_without_weight_sharing": {"num_hidden_layers": 4},
    "comparison_layer_coordination_without_weight_sharing_input": {"num_hidden_layers": 4},
    "comparison_layer_coordination_without_weight_sharing_alignment": {"num_hidden_layers": 4},
    "comparison_layer_coordination_without_alignment": {"num_hidden_layers": 7},
    "comparison_layer_coordination_without_mixed_attention": {"num_hidden_layers": 7},
    "comparison_layer_coordination_without_side_embedding": {"num_hidden_layers": 7},
    "comparison_layer_coordination_without_positions": {"num_hidden_layers": 7, "pos": "none"},
    "comparison_transformer_enc_dc_size": {"filter_size": 768},
    "comparison_cross_view_two_attentions": {"integration_attention": "separate"},
    "comparison_transformer_both_pseudo_larger_batch": {"batch_size": 2 * 1850},
}
# Rows that continue with or without views train for the same number of updates.
AS_LONG = {"train_steps": 8000, "eval_early_stopping_steps": 0}
UNTIL_THEY_END = {"comparison_synchronous_warm", "comparison_context_gate_warm"}
CONTINUED = {name for name in ROWS if BOOK.recipe(name).warm_start} - UNTIL_THEY_END


def settings(recipe):
    return registry.resolve_hparams(recipe.hparams_set, assignments(recipe.hparams)).to_dict()


BASE = settings(BOOK.recipe("comparison_transformer"))


@pytest.mark.parametrize("name", ROWS)
def test_a_row_changes_only_what_its_paper_changes(name):
    recipe, base = BOOK.recipe(name), BOOK.recipe("comparison_transformer")
    same = ("problem", "problem_options", "datagen", "scoring", "checkpoint", "average", "decode", "splits")
    assert [getattr(recipe, field) for field in same] == [getattr(base, field) for field in same]
    # The loss of all other rows is computed on references anyway.
    watched = {"eval_early_stopping_metric": "reference_loss"} if recipe.pseudo_references else {}
    assert recipe.train == {**base.train, **watched, **(AS_LONG if name in CONTINUED else {})}
    if not recipe.rerank:
        found = {key: value for key, value in settings(recipe).items() if key in BASE and BASE[key] != value}
        changed = set(found) - OF_THE_PAPERS - NOT_READ - {"class"}
        assert {key: found[key] for key in changed} == MORE.get(name, {})


def test_the_base_is_the_set_for_small_data():
    small = registry.hparams("transformer_small_data").to_dict()
    differ = {key for key, value in BASE.items() if small[key] != value}
    assert differ == {"layer_prepostprocess_dropout", "precision", "batch_size"}
