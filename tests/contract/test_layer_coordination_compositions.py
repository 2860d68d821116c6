"""Layer-wise coordination keeps the contract with one change, with dual contextual modules, and in both directions."""

import pytest
from composition_checks import built, check_every_weight, check_steps, check_what_is_seen

POST_NORM = {"layer_preprocess_sequence": "none", "layer_postprocess_sequence": "dan"}
ONE_WAY, BOTH_WAYS = "layer_coordination", "synchronous_layer_coordination"
SETTINGS = {
    # The ablations of table 3, one at a time.
    "no_sharing": (ONE_WAY, {"lwc_share_weights": False}),
    "no_mixed_attention": (ONE_WAY, {"lwc_mixed_attention": False}),
    "no_side_embedding": (ONE_WAY, {"lwc_side_embedding": False}),
    "no_positions": (ONE_WAY, {"pos": "none"}),
    "dual_context": (ONE_WAY, {"dc_encoder_layers": "all", "dc_kernel_size": 3, **POST_NORM}),
    "dual_context_no_mixed_attention": (
        ONE_WAY,
        {
            "dc_encoder_layers": "2",
            "dc_kernel_size": 4,
            "dc_even_kernel": "left",
            "lwc_mixed_attention": False,
            "projection_bias": True,
            "attention_key_channels": 8,
            "attention_value_channels": 24,
        },
    ),
    "dual_context_no_sharing": (
        ONE_WAY,
        {"lwc_share_weights": False, "dc_encoder_layers": "2", "dc_decoder_layers": "all", "dc_kernel_size": 1},
    ),
    "both_ways_no_mixed_attention": (BOTH_WAYS, {"lwc_mixed_attention": False, "sb_lambda": 0.8, **POST_NORM}),
    "both_ways_gate_tag_predicted": (BOTH_WAYS, {"sb_fusion": "gate", "predict_tag": True, "sb_layers": "2"}),
    "both_ways_no_sharing_dual_source": (
        BOTH_WAYS,
        {"lwc_share_weights": False, "dc_encoder_layers": "1", "sb_lambda_trainable": "scalar", "sb_lambda": 0.8},
    ),
}


@pytest.fixture(scope="module", params=SETTINGS)
def composed(request):
    """Gives a model with random weights."""
    from t2t_ext import registry

    name, changes = SETTINGS[request.param]
    return built(registry.model(name), registry.hparams(f"{name}_test").replace(**changes))


def test_step_by_step_equals_all_at_once(composed):
    check_steps(composed)


def test_no_future_and_no_padding(composed):
    check_what_is_seen(composed)


def test_every_weight_has_a_gradient(composed):
    check_every_weight(composed)


def test_the_neighborhoods_of_both_sides():
    """With f = 4 the source's window has one more position on the right, the target's window ends at the position.

    No window contains positions of the other side.
    """
    import numpy as np
    import tensorflow as tf

    from t2t_ext import registry
    from t2t_ext.layers.mixed_attention import SideBySide

    hparams = registry.hparams("layer_coordination_test").replace(dc_encoder_layers="all", dc_kernel_size=4)
    module = built(registry.model("layer_coordination"), hparams).coordinated[0].attention
    inputs, targets = tf.fill([1, 6], 7), tf.fill([1, 5], 7)
    sides = SideBySide.of(inputs, targets, mixed=True)
    rows = np.random.default_rng(1).standard_normal([11, 16]).astype(np.float32)

    def local_keys(rows):
        (_, source, _), (_, target, _) = module.project_rows(rows, sides)
        return np.concatenate([source[0, :2], target[0, :2]], axis=1)  # the first half of the heads

    before = local_keys(rows)
    seen = np.zeros([11, 11], bool)  # [row, column]: the row sees the column
    for column in range(11):
        changed = rows.copy()
        changed[column] += 1.0
        seen[:, column] = np.abs(local_keys(changed) - before).max(axis=(0, 2)) > 1e-4
    for row in range(11):
        first, last = (max(row - 1, 0), min(row + 2, 5)) if row < 6 else (max(row - 3, 6), row)
        assert np.flatnonzero(seen[row]).tolist() == list(range(first, last + 1)), row


@pytest.mark.parametrize("blind", [None, "local", "global"])
def test_attention_dropout_is_of_both_attentions_and_both_sides(blind):
    """Attention dropout changes every row of both sides, even if only one of the two attentions has an effect."""
    import numpy as np
    import tensorflow as tf

    from t2t_ext import registry
    from t2t_ext.layers.dropout import seed_scope
    from t2t_ext.layers.mixed_attention import SideBySide

    hparams = registry.hparams("layer_coordination_test").replace(dc_encoder_layers="all", attention_dropout=0.5)
    module = built(registry.model("layer_coordination"), hparams).coordinated[0].attention
    kernel = module.aggregation.kernel.numpy()
    if blind:
        kernel[slice(None, 16) if blind == "local" else slice(16, None)] = 0
        module.aggregation.kernel.assign(kernel)
    sides = SideBySide.of(tf.fill([1, 6], 7), tf.fill([1, 5], 7), mixed=True)
    rows = np.random.default_rng(1).standard_normal([11, 16]).astype(np.float32)
    still, _ = module.mix_rows(rows, sides, with_source=True)
    with seed_scope(np.array([4, 5], np.int32)):
        trained, _ = module.mix_rows(rows, sides, with_source=True, training=True)
    assert np.abs(trained - still).max(axis=1).min() > 1e-3
