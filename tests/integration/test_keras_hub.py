"""Tests of a run as a KerasHub task: KerasHub itself loads the exporter's preset folder, generates and fits."""

import types

import numpy as np
import pytest

from t2t_ext.bin import exporter

LINES = ["the old cat sees the lamp .", "", "the city loves the small flower today .", "Ünïcödé ☃ x", "     ", "\u00a0"]


@pytest.fixture(scope="module")
def preset(tiny_run, tmp_path_factory):
    """Returns the preset folder that t2t_ext-exporter writes for the tiny run."""
    folder = tmp_path_factory.mktemp("keras_hub") / "preset"
    flags = [f"--output_dir={tiny_run.path}", f"--export_dir={folder}", "--decode_hparams=beam_size=3,alpha=0.8"]
    assert exporter.main([*flags, "--format=keras_hub"]) == 0
    return folder


@pytest.fixture(scope="module")
def task(preset):
    import keras_hub

    import t2t_ext.keras_hub  # noqa: F401 -- registers the classes with KerasHub

    return keras_hub.models.Seq2SeqLM.from_preset(str(preset))


def test_it_says_what_the_decoder_says(task, tiny_run):
    from t2t_ext.translation.translator import Translator

    expected = Translator.load(tiny_run.path, decode_hparams="beam_size=3,alpha=0.8")(LINES)
    assert task.generate(LINES) == expected
    assert task.generate(LINES[0]) == expected[0]
    assert task.generate([]) == []


def test_sources_are_truncated_as_by_the_decoder(tiny_run, tmp_path):
    import keras_hub

    from t2t_ext.keras_hub import write_preset
    from t2t_ext.translation.translator import Translator

    search = "beam_size=1,max_input_length=3,max_length_offset=30"
    translator = Translator.load(tiny_run.path, decode_hparams=search)
    write_preset(translator, "transformer", tmp_path / "preset")
    short = keras_hub.models.Seq2SeqLM.from_preset(str(tmp_path / "preset"))
    lengths = short.preprocessor.encoder_sequence_length, short.preprocessor.decoder_sequence_length
    assert lengths == (4, 35)  # source: 3 + EOS; target: int(1.5 * 3) + 30 + start token
    expected = translator(LINES)
    assert translator.truncated_lines
    assert short.generate(LINES) == expected
    short.preprocessor.encoder_sequence_length = 64
    assert short.generate(LINES) == expected


def test_a_sampler_of_keras_hub(task, make_translator):
    task.preprocessor.encoder_sequence_length = task.preprocessor.decoder_sequence_length = 16
    task.compile(sampler="greedy")
    greedy = make_translator(beam_size=1, max_length_ratio=0.0, max_length_offset=15)
    assert task.generate(LINES[:1]) == greedy(LINES[:1])
    begun = task.generate({"encoder_text": LINES[:1], "decoder_text": ["die"]})
    assert begun[0].startswith("die")


@pytest.mark.slow  # fits a model layer by layer, without a graph
def test_fit_and_the_preset_again(task, preset, tmp_path):
    import keras
    import keras_hub

    task.preprocessor.encoder_sequence_length = task.preprocessor.decoder_sequence_length = 12
    keras.utils.set_random_seed(1)  # dropout
    task.compile(optimizer="adam", run_eagerly=True)
    pairs = {"encoder_text": [LINES[0], LINES[2]], "decoder_text": ["die alte Katze", "die Stadt"]}
    losses = task.fit(pairs, batch_size=2, epochs=6, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    task.save_to_preset(str(tmp_path / "tuned"))
    again = keras_hub.models.Seq2SeqLM.from_preset(str(tmp_path / "tuned"))
    for mine, other in zip(task.backbone.weights, again.backbone.weights, strict=True):
        np.testing.assert_array_equal(mine.numpy(), other.numpy())
    assert sorted(path.name for path in preset.iterdir()) == sorted(
        path.name for path in (tmp_path / "tuned").iterdir()
    )


def test_a_run_of_low_precision_can_be_trained_further(tiny_run):
    import keras

    from t2t_ext.errors import UserError
    from t2t_ext.keras_hub import task_of
    from t2t_ext.translation.translator import Translator

    search = "beam_size=1,precision=mixed_bfloat16"
    fast = Translator.load(tiny_run.path, decode_hparams=search)
    translator = Translator.load(tiny_run.path, decode_hparams=search, for_training=True)
    task = task_of(translator, "transformer")
    assert {weight.dtype for weight in task.backbone.weights} == {"float32"}
    assert task.backbone.seq2seq.compute_dtype == "bfloat16"
    assert task.generate(LINES) == translator(LINES)
    low = task_of(fast, "transformer")
    low.compile(optimizer=keras.optimizers.Adam(1e-5))
    with pytest.raises(UserError, match="The weights are bfloat16"):
        low.fit({"encoder_text": LINES[:1], "decoder_text": ["die Katze"]}, batch_size=1, verbose=0)


def test_what_is_in_the_way_is_said(preset, tiny_run, tmp_path, capsys, without_package):
    (tmp_path / "notes.txt").write_text("mine")
    run = [f"--output_dir={tiny_run.path}", "--format=keras_hub"]
    for flags, message in (
        ([f"--export_dir={tmp_path}", "--overwrite"], "holds something else than a preset"),
        ([f"--export_dir={preset}"], "exists already. Give --overwrite"),
        (["--decode_hparams=shortlist=x.npz"], "a preset folder holds no shortlist"),
        (["--export_version=3"], "--export_version has no effect on a preset folder: leave it out"),
    ):
        assert exporter.main([*run, *flags]) == 2
        assert message in capsys.readouterr().err
    without_package("keras_hub")
    assert exporter.main([*run, f"--export_dir={tmp_path / 'new'}"]) == 2
    assert "pip install 't2t_ext[keras-hub]'" in capsys.readouterr().err


def test_what_a_task_cannot_be(make_translator):
    from t2t_ext.errors import UserError
    from t2t_ext.keras_hub import task_of

    with pytest.raises(UserError, match="this has a direction from right to left: leave --format=keras_hub out"):
        task_of(make_translator("r2l"), "transformer")


def test_a_users_hparams_may_have_no_hidden_size():
    import keras

    from t2t_ext import keras_hub

    shifted = keras_hub._Shifted(types.SimpleNamespace(softmax_weights=lambda: (np.zeros([20, 6]), None)))
    assert shifted.compute_output_spec({"decoder_token_ids": keras.Input((None,), dtype="int32")}).shape[-1] == 6
