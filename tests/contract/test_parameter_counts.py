"""Models with the registered hparams sets have as many parameters as their equations say."""

import dataclasses

import pytest

# Counted by hand for a joint vocabulary of 32,768 (embeddings shared with the softmax) from Vaswani et al. (2017),
# section 3. transformer_base: an encoder layer has 4 x 512^2 (attention without biases) + 2 x 512 x 2048 + 2048 + 512
# (feed-forward) + 2 x 2 x 512 (norms) = 3,150,336; a decoder layer has 8 x 512^2 + the same + 3 x 2 x 512 = 4,199,936;
# six of each, two final norms of 1,024, the embeddings and 32 target spaces:
BY_HAND = {
    "transformer_base": 6 * 3_150_336 + 6 * 4_199_936 + 2_048 + 32_768 * 512 + 32 * 512,
    "transformer_base_v1": 6 * 3_150_336 + 6 * 4_199_936 + 32_768 * 512 + 32 * 512,  # post-norm: no final norms
    "transformer_big": 6 * 12_592_128 + 6 * 16_788_480 + 4_096 + 32_768 * 1024 + 32 * 1024,
}
JOINT = 32_768


def formula(hparams, source_vocab, target_vocab, joint):
    """Returns the number of trainable parameters of a Transformer by formula."""
    d, f = hparams.hidden_size, hparams.filter_size
    keys = hparams.attention_key_channels or d
    values = hparams.attention_value_channels or d
    biases = 1 if hparams.projection_bias else 0
    attention = d * (keys + keys + values) + values * d + biases * (keys + keys + values + d)
    gated = hparams.ffn_activation in ("glu", "geglu", "swiglu")
    feed_forward = (2 if gated else 1) * (d * f + f) + f * d + d
    norm = 2 * d
    stacks = hparams.encoder_layers * (attention + feed_forward + 2 * norm)
    stacks += hparams.decoder_layers * (2 * attention + feed_forward + 3 * norm)
    if hparams.layer_preprocess_sequence == "n":
        stacks += 2 * norm
    # Ampomah et al. (2021): what a module has in addition to self-attention, with keys and values of width d.
    modules = len(hparams.dual_encoder_layers) + len(hparams.dual_decoder_layers)
    stacks += modules * ((2 * hparams.dc_kernel_size + 4) * d * d + (5 + 2 * biases) * d)
    if hparams.shared_embedding_and_softmax_weights:
        tables = target_vocab + (0 if joint else source_vocab)
    else:
        tables = 2 * target_vocab + (0 if hparams.shared_embedding else source_vocab)
    spaces = 32 if hparams.use_target_space_embedding else 0
    return stacks + (tables + spaces) * d


def counted(hparams, source_vocab, target_vocab, joint, model="transformer"):
    """Returns the model's own count; a stateless scope declares the variables without filling them."""
    import keras

    from t2t_ext import registry

    with pytest.MonkeyPatch.context() as patch, keras.StatelessScope(initialize_variables=False):
        # Keras would fill them at the end of its next scope.
        patch.setattr("keras.src.backend.common.variables.register_uninitialized_variable", lambda variable: None)
        built = registry.model(model)(
            hparams, source_vocab_size=source_vocab, target_vocab_size=target_vocab, joint_vocabulary=joint
        )
        built.build()
        return sum(row.parameters for row in built.describe())


def transformer_sets():
    """Returns the names of the registered hparams sets of the plain Transformer."""
    from t2t_ext import registry
    from t2t_ext.config.hyperparameters import TransformerHParams

    sets = {name: registry.hparams(name) for name in registry.hparams_names()}
    return [name for name, one in sets.items() if type(one) is TransformerHParams and one.source_view == "last"]


@pytest.mark.parametrize("name", BY_HAND)
def test_counts_by_hand(name):
    from t2t_ext import registry

    hparams = registry.hparams(name)
    assert formula(hparams, JOINT, JOINT, True) == BY_HAND[name]
    assert counted(hparams, JOINT, JOINT, True) == BY_HAND[name]


def test_every_registered_set():
    from t2t_ext import registry
    from t2t_ext.config.hyperparameters import HParams

    names = transformer_sets()
    assert {"transformer_base", "transformer_iwslt_4layer"} <= set(names)
    # Sets that differ only in training have the same variables, so one model is declared for all of them.
    of_training = {field.name for field in dataclasses.fields(HParams)}
    of_training |= {"layer_prepostprocess_dropout", "attention_dropout", "relu_dropout"}
    seen = set()
    for name in names:
        hparams = registry.hparams(name)
        shape = tuple((field, value) for field, value in hparams.to_dict().items() if field not in of_training)
        if shape not in seen:
            assert counted(hparams, 1000, 1000, True) == formula(hparams, 1000, 1000, True), name
        seen.add(shape)


@pytest.mark.parametrize(
    ("name", "vocabulary", "published"),
    [
        ("transformer_iwslt_small", 31_345, "19.07M"),  # He et al. 2018, table 3: equal to their model
        ("transformer_big_zhou2019", 30_720, "207.8M"),  # Zhou et al. 2019, table 6
        ("transformer_base_ampomah2021", 33_400, "61.2M"),  # Ampomah et al. 2021, table 1
    ],
)
def test_published_counts(name, vocabulary, published):
    from t2t_ext import registry

    count = counted(registry.hparams(name), vocabulary, vocabulary, True) / 1e6
    digits = len(published.rpartition(".")[2]) - 1
    assert f"{count:.{digits}f}M" == published


@pytest.mark.parametrize(
    ("overrides", "source_vocab", "target_vocab", "joint"),
    [
        ("", 50, 70, False),
        ("", 50, 50, False),
        ("shared_embedding_and_softmax_weights=false", 50, 50, True),
        ("shared_embedding_and_softmax_weights=false", 50, 70, False),
        ("shared_embedding=true,shared_embedding_and_softmax_weights=false", 50, 50, True),
        ("projection_bias=true,ffn_activation=geglu", 50, 50, True),
        ("attention_key_channels=8,attention_value_channels=24,num_decoder_layers=1", 50, 50, True),
        ("layer_preprocess_sequence=none,layer_postprocess_sequence=dan", 50, 50, True),
    ],
)
def test_other_settings(overrides, source_vocab, target_vocab, joint):
    from t2t_ext import registry

    hparams = registry.hparams("transformer_test")
    hparams = hparams.override(overrides) if overrides else hparams
    assert counted(hparams, source_vocab, target_vocab, joint) == formula(hparams, source_vocab, target_vocab, joint)


# === Synchronous bidirectional decoding ===

SYNCHRONOUS = "synchronous_transformer"


def synchronous(name, **changes):
    from t2t_ext import registry

    return registry.hparams(f"{SYNCHRONOUS}_{name}").replace(**changes)


@pytest.mark.parametrize("fusion", ["linear", "tanh", "relu"])
@pytest.mark.parametrize("name", ["tiny", "tiny_original"])
def test_no_parameter_more_than_a_transformer(name, fusion):
    hparams = synchronous(name, sb_fusion=fusion)
    assert counted(hparams, 1000, 1000, True, SYNCHRONOUS) == formula(hparams, 1000, 1000, True)


# Per layer with SBAtt: (2 * 32)^2 for a head of width 32, (2 * 128)^2 for the whole width of 128; 1 or 128 lambdas.
@pytest.mark.parametrize(
    ("changes", "growth"),
    [
        ({"sb_fusion": "gate"}, 3 * 64**2),
        ({"sb_fusion": "gate", "sb_layers": "2-3"}, 2 * 64**2),
        ({"sb_fusion": "gate", "sb_gate": "model"}, 3 * 256**2),
        ({"sb_fusion": "gate", "attention_value_channels": 64}, 3 * 32**2),
        ({"sb_lambda_trainable": "scalar"}, 3),
        ({"sb_lambda_trainable": "vector", "sb_layers": "3"}, 128),
    ],
)
def test_growth_of_gates_and_trained_lambdas(changes, growth):
    hparams = synchronous("tiny", num_encoder_layers=1, num_decoder_layers=3, **changes)
    assert counted(hparams, 1000, 1000, True, SYNCHRONOUS) == formula(hparams, 1000, 1000, True) + growth


SEPARATE = {"shared_embedding_and_softmax_weights": False}


@pytest.mark.parametrize(
    ("name", "changes", "joint", "millions"),
    [
        # Zhou et al. 2019, table 6: 207.8M, with one matrix of 30,720 rows for both vocabularies and the softmax.
        ("big_original", {}, True, "207.85"),  # with 32 target spaces of 1,024 parameters, of which one is used
        ("big_printed", {}, True, "207.81"),  # like transformer_big_zhou2019
        ("big_printed", {}, False, "239.27"),
        ("big", {}, True, "207.75"),  # pre-norm: two final norms more than post-norm
        ("big", {"layer_preprocess_sequence": "none", "layer_postprocess_sequence": "dan"}, True, "207.74"),
        ("big", {}, False, "239.20"),
        ("big", SEPARATE, False, "270.66"),
    ],
)
def test_published_counts_of_synchronous_decoding(name, changes, joint, millions):
    hparams = synchronous(name, **changes)
    count = formula(hparams, 30_720, 30_720, joint)
    assert f"{count / 1e6:.2f}" == millions
    if not changes and joint:
        assert counted(hparams, 30_720, 30_720, joint, SYNCHRONOUS) == count


def test_the_names_are_a_transformers():
    """Variables have the Transformer's names and shapes, so that a run can start from a trained Transformer."""
    from t2t_ext import registry

    for name in ("test", "tiny_original"):
        names = []
        for kind in (SYNCHRONOUS, "transformer"):
            model = registry.model(kind)(synchronous(name), source_vocab_size=50, target_vocab_size=50)
            model.build()
            names.append({path: tuple(variable.shape) for path, variable in model.named_variables().items()})
        assert names[0] == names[1]


# === Asynchronous bidirectional decoding ===


@pytest.mark.parametrize(
    ("name", "changes", "millions"),
    [
        # Zhou et al. 2019, table 6: 333.8M. The Transformer's 207.8M, six more decoder layers and six more attentions.
        ("big", {"projection_bias": True}, "333.8"),
        ("big", {}, "333.7"),
        ("tiny", {"num_encoder_layers": 1, "num_decoder_layers": 3}, None),
        ("tiny", {"layer_preprocess_sequence": "none", "layer_postprocess_sequence": "dan"}, None),
    ],
)
def test_asynchronous_counts(name, changes, millions):
    from t2t_ext import registry

    hparams = registry.hparams(f"asynchronous_transformer_{name}").replace(**changes)
    d, layers = hparams.hidden_size, hparams.decoder_layers
    biases = d if hparams.projection_bias else 0
    attention, norm = 4 * (d * d + biases), 2 * d
    feed_forward = 2 * d * hparams.filter_size + hparams.filter_size + d
    backward_decoder = layers * (2 * attention + feed_forward + 3 * norm)
    backward_decoder += norm if hparams.layer_preprocess_sequence == "n" else 0
    expected = formula(hparams, 30_720, 30_720, True) + backward_decoder + layers * (attention + norm)
    assert counted(hparams, 30_720, 30_720, True, "asynchronous_transformer") == expected
    assert millions is None or f"{expected / 1e6:.1f}" == millions
