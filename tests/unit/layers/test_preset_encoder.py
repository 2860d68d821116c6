"""Tests of pretrained encoders: their tokenizers on the host and in the graph, and all decoders with them."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from preset_files import write_preset

from t2t_ext import registry
from t2t_ext.analysis.diagram.model import diagram_of
from t2t_ext.config.decode import DecodeHParams
from t2t_ext.data.text.graph_text_encoder import graph_encoder
from t2t_ext.data.text.preset_tokenizer import PresetTokenizer
from t2t_ext.data.text.special_ids import EOS_ID, FIRST_TEXT_ID
from t2t_ext.data.text.text_encoder import SubwordEncoder
from t2t_ext.data.text.text_steps import TextSteps
from t2t_ext.errors import UserError
from t2t_ext.translation.translator import Translator

ALBERT = {"num_groups": 1, "num_inner_repetitions": 1, "embedding_dim": 8}
LINES = ["the old cat sees the lamp .", "", "The city loves it, often!", "ünïcödé ☃ x"]
KINDS = ("bert", "distil_bert", "xlm_roberta", pytest.param("roberta", marks=pytest.mark.slow))
MODELS = {
    "transformer": ("transformer_test", "hidden_size=16"),
    "cross_view_transformer": ("cross_view_transformer_test", "source_view=gca,num_decoder_layers=2"),
    "dynamic_conv": ("dynamic_conv_test", ""),
    "synchronous_transformer": ("synchronous_transformer_test", ""),
    "asynchronous_transformer": ("asynchronous_transformer_test", "num_hidden_layers=1"),
}


@pytest.fixture(scope="module")
def make_preset(tmp_path_factory):
    """Returns a function kind -> (folder of a preset, its text encoder as read from its file)."""

    @functools.cache
    def make(kind):
        folder = write_preset(tmp_path_factory.mktemp("presets") / kind, kind)
        encoder = SubwordEncoder.make(TextSteps(), PresetTokenizer.from_preset(folder))
        return folder, SubwordEncoder(encoder.model_bytes)

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_tokenizes_as_the_host_does(make_preset, kind):
    _, encoder = make_preset(kind)
    expected = encoder.encode_batch(LINES, add_eos=True)
    graph = graph_encoder(encoder, "inputs")
    encode = tf.function(graph.encode, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    assert encode(tf.constant(LINES)).to_list() == expected
    assert all(FIRST_TEXT_ID <= index < encoder.vocab_size for row in expected for index in row[:-1])
    assert expected[1] == [EOS_ID]
    assert encoder.decode(expected[0]).replace(" ", "").lower() == LINES[0].replace(" ", "")
    assert encoder.pieces(expected[0])[-1] == "</s>"
    assert encoder.takes_raw_text


@pytest.mark.parametrize("model", MODELS)
def test_every_decoder_takes_it(make_preset, model):
    folder, encoder = make_preset("bert")
    name, overrides = MODELS[model]
    hparams = registry.hparams(name).override(f"encoder_preset={folder},{overrides}".rstrip(","))
    made = registry.model(model)(
        hparams, source_vocab_size=encoder.vocab_size, target_vocab_size=30,
        encoder_config=encoder.subwords.encoder_config,
    )  # fmt: skip
    made.build()
    assert len(set(made.named_variables())) == len(made.variables)
    made.assign(made.pretrained(), strict=False)
    rows = encoder.encode_batch(LINES, add_eos=True)
    inputs = np.zeros([len(rows), 20], np.int32)
    for row, ids in zip(inputs, rows, strict=True):
        row[: len(ids)] = ids
    targets = np.tile(np.array([[12, 13, 1, 0]], np.int32), [4, 1])
    targets = np.stack([targets, targets], 1) if made.target_sides == 2 else targets
    logits = made(inputs, targets).numpy()
    assert np.isfinite(logits).all()
    # Padding does not change the logits; a different token does.
    wider = np.pad(inputs, [[0, 0], [0, 8]])
    np.testing.assert_allclose(made(wider, targets).numpy(), logits, atol=2e-4)
    inputs[0, 0] += 1
    assert np.abs(made(inputs, targets).numpy()[0] - logits[0]).max() > 1e-4


@pytest.mark.parametrize(
    ("layers", "view_map", "told"),
    [
        (1, "2+1", ""),
        (6, "2+1", ""),
        (3, "3+1", r"PRESET has 2 layers: source_view_map='3\+1': 3 is outside of the 2 "),
    ],
)
def test_views_are_of_the_layers_of_the_preset(make_preset, layers, view_map, told):
    """However many layers the hparams set gives to an encoder."""
    folder, encoder = make_preset("bert")
    hparams = registry.hparams("transformer_test").replace(num_hidden_layers=layers, num_decoder_layers=2)
    hparams = hparams.override(f"encoder_preset={folder},source_view=gca,source_view_map={view_map},integration=soft")
    sizes = {"source_vocab_size": encoder.vocab_size, "target_vocab_size": 30}
    config = encoder.subwords.encoder_config
    if told:
        with pytest.raises(UserError, match=told.replace("PRESET", folder)):
            registry.model("transformer")(hparams, **sizes, encoder_config=config)
        return
    made = registry.model("transformer")(hparams, **sizes, encoder_config=config)
    assert made.decoder.source_views.viewed_layers == (1, 0)


def transformer_with(make_preset):
    """Returns a Transformer with the width and the weights of a BERT preset, the preset's folder and text encoder."""
    folder, encoder = make_preset("bert")
    hparams = registry.hparams("transformer_test").override(f"hidden_size=16,encoder_preset={folder}")
    made = registry.model("transformer")(
        hparams, source_vocab_size=encoder.vocab_size, target_vocab_size=30,
        encoder_config=encoder.subwords.encoder_config,
    )  # fmt: skip
    made.build()
    made.assign(made.pretrained(), strict=False)
    return made, folder, encoder


def test_a_source_beyond_its_positions_is_truncated(make_preset):
    """The encoder ignores positions beyond its limit, but its outputs keep all positions of the source.

    Code that reads attention weights counts them.
    """
    made, _, _ = transformer_with(make_preset)
    longest = made.encoder.longest
    assert longest == 47 == made.longest_source  # one of the 48 positions belongs to the start token
    ids = np.full([1, longest + 9], FIRST_TEXT_ID + 6, np.int32)
    ended = np.append(ids[:, : longest - 1], np.int32([[EOS_ID]]), axis=1)
    whole, short = made.encode(ids), made.encode(ended)
    assert whole.final.shape[1] == whole.mask.shape[-1] == ids.shape[1]
    np.testing.assert_array_equal(whole.mask[0, 0, 0], np.arange(ids.shape[1]) < longest)
    np.testing.assert_allclose(whole.final[:, :longest], short.final, atol=1e-5)
    assert not np.any(whole.final[:, longest:])
    targets = np.array([[12, 13, 1]], np.int32)
    np.testing.assert_allclose(made(ids, targets), made(ended, targets), atol=1e-5)


def test_lines_that_it_truncates_are_numbered(make_preset):
    folder, encoder = make_preset("bert")
    hparams = registry.hparams("transformer_test").override(f"encoder_preset={folder}")
    made = registry.model("transformer")(
        hparams, source_vocab_size=encoder.vocab_size, target_vocab_size=encoder.vocab_size,
        encoder_config=encoder.subwords.encoder_config,
    )  # fmt: skip
    translator = Translator(made, encoder, encoder, DecodeHParams(beam_size=1, max_length_ratio=0, max_length_offset=2))
    (one,) = encoder.encode_batch(["a"])
    assert translator.source_limit == 46
    assert len(one) == 1
    translator(["a " * 46, "a " * 47, "a"])
    assert translator.truncated_line_numbers == (2,)
    assert translator.source.read(["a " * 99]).rows[0] == [*one * 46, EOS_ID]


def test_it_is_the_backbone_of_keras_hub(make_preset):
    import keras_hub

    made, folder, encoder = transformer_with(make_preset)
    ids = np.array([encoder.encode_batch(LINES[:1], add_eos=True)[0]], np.int32)
    backbone = keras_hub.models.Backbone.from_preset(folder)
    own = np.array([[2, *(ids[0, :-1] - FIRST_TEXT_ID), 3]])  # [CLS] ... [SEP]
    expected = backbone({"token_ids": own, "padding_mask": np.ones_like(own), "segment_ids": np.zeros_like(own)})
    np.testing.assert_allclose(made.encode(ids).final, expected["sequence_output"][:, 1:], atol=1e-5)
    assert diagram_of(made, "with BERT").parameters == made.count_params()


def test_keras_freezes_what_has_no_learning_rate(make_preset):
    folder, encoder = make_preset("bert")
    hparams = registry.hparams("transformer_test").override(f"encoder_preset={folder},encoder_preset_frozen_layers=1")
    made = registry.model("transformer")(
        hparams, source_vocab_size=encoder.vocab_size, target_vocab_size=30,
        encoder_config=encoder.subwords.encoder_config,
    )  # fmt: skip
    made.build()
    frozen = {variable.path.split("/", 1)[1] for variable in made.variables if not variable.trainable}
    assert frozen == made.rates().keys()
    assert {name.split("/")[2] for name in frozen} > {"transformer_layer_0"}
    assert not any("transformer_layer_1" in name for name in frozen)


@pytest.mark.parametrize(
    ("name", "sizes", "told"),
    [
        ("GPT2Backbone", {}, "a GPT2Backbone, a language model whose layers .* see no later words"),
        (
            "AlbertBackbone",
            {"num_groups": 1, "num_inner_repetitions": 1, "embedding_dim": 8},
            "no stack of .* called once",
        ),
    ],
)
def test_language_models_and_layers_that_are_called_repeatedly_are_refused(name, sizes, told):
    import keras
    import keras_hub

    sizes |= {"vocabulary_size": 40, "num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}
    backbone = getattr(keras_hub.models, name)(**sizes, max_sequence_length=12)
    config = {"backbone": keras.saving.serialize_keras_object(backbone), "start": None, "end": None, "pad": 0}
    hparams = registry.hparams("transformer_test").override("encoder_preset=it")
    with pytest.raises(UserError, match=told):
        registry.model("transformer")(hparams, source_vocab_size=50, target_vocab_size=30, encoder_config=config)


def test_more_frozen_layers_than_there_are(make_preset):
    folder, encoder = make_preset("bert")
    hparams = registry.hparams("transformer_test").override(f"encoder_preset={folder},encoder_preset_frozen_layers=3")
    with pytest.raises(UserError, match=r"frozen_layers=3: .* has 2 layers; encoder_preset_rate=0 freezes them all"):
        registry.model("transformer")(
            hparams, source_vocab_size=encoder.vocab_size, target_vocab_size=30,
            encoder_config=encoder.subwords.encoder_config,
        )  # fmt: skip


def test_what_does_not_go_together_is_said(make_preset):
    folder, _ = make_preset("bert")
    with pytest.raises(UserError, match="embeds the source itself: leave simcut_alpha out, or take r_drop_alpha"):
        registry.hparams("transformer_test").override(f"encoder_preset={folder},simcut_alpha=3")
    hparams = registry.hparams("transformer_test").override(f"encoder_preset={folder}")
    with pytest.raises(UserError, match="Make them with t2t_ext-datagen --source_tokenizer="):
        registry.model("transformer")(hparams, source_vocab_size=30, target_vocab_size=30)
    with pytest.raises(UserError, match="KerasHub could not read the preset"):
        PresetTokenizer.from_preset(f"{folder}/nowhere")
