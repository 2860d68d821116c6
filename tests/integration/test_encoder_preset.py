"""Tests of a pretrained encoder, from its preset to a served model: data, training, resuming, decoding, export."""

import shutil

import numpy as np
import pytest
from preset_files import write_preset

from t2t_ext.bin import datagen, decoder, exporter, trainer

HPARAMS = "hidden_size=24,num_decoder_layers=1,batch_size=256,encoder_preset_frozen_layers=1,encoder_preset_rate=0.5"


@pytest.fixture(scope="module")
def place(toy_corpus, tmp_path_factory):
    """Returns a directory with the preset, the data and a run of four steps; the last two ran without the preset."""
    folder = tmp_path_factory.mktemp("encoder_preset")
    preset = write_preset(folder / "preset")
    corpus = [f"--{name}={value}" for name, value in toy_corpus.options().items()]
    data = ["--problem=translate_parallel_text", *corpus, f"--data_dir={folder / 'data'}"]
    made = [*data, f"--source_tokenizer={preset}", "--vocab_size=320", "--num_processes=1", f"--tmp_dir={folder}"]
    assert datagen.main(made) == 0
    run = [f"--output_dir={folder / 'run'}", "--model=transformer", "--hparams_set=transformer_test", *data]
    run += [f"--hparams={HPARAMS},encoder_preset={preset}", "--eval_bleu_sentences=0", "--keep_checkpoint_max=5"]
    assert trainer.main([*run, "--train_steps=2"]) == 0
    shutil.move(preset, folder / "away")
    assert trainer.main([*run, "--train_steps=4"]) == 0
    return folder


@pytest.mark.slow  # the unit tests of preset encoders cover its parts
def test_it_begins_with_the_weights_of_the_preset_and_learns_above_what_is_frozen(place):
    import keras_hub

    from t2t_ext.runs import checkpoints

    begun = keras_hub.models.Backbone.from_preset(str(place / "away"))
    begun = {f"encoder/backbone/{variable.path}": variable.numpy() for variable in begun.variables}
    found = checkpoints.load_arrays(checkpoints.latest(place / "run"))
    assert {name for name in begun if not any(part in name for part in ("pooled", "seed_generator"))} <= set(found)
    for name in set(begun) & set(found):
        same = np.array_equal(begun[name], found[name])
        assert same or "transformer_layer_1" in name, f"{name} is frozen"
        assert not same or "transformer_layer_1" not in name or "kernel" not in name, f"{name} learns"
        assert np.abs(begun[name] - found[name]).max() < 0.2


@pytest.mark.slow
def test_it_decodes_and_is_served(place, toy_corpus, few_signatures, tmp_path):
    import tensorflow as tf

    lines = [source for source, _ in toy_corpus.dev[:3]] + ["", "Ünïcödé ☃"]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    run = f"--output_dir={place / 'run'}"
    search = "--decode_hparams=beam_size=2,max_length_ratio=0,max_length_offset=6"
    files = [f"--decode_from_file={tmp_path / 'in.txt'}", f"--decode_to_file={tmp_path / 'out.txt'}"]
    assert decoder.main([run, search, *files]) == 0
    expected = (tmp_path / "out.txt").read_text(encoding="utf-8").split("\n")[:-1]
    with few_signatures():
        assert exporter.main([run, search, f"--export_dir={tmp_path / 'export'}"]) == 0
    served = tf.saved_model.load(str(tmp_path / "export" / "4")).signatures["serving_default"]
    assert [text.decode() for text in served(inputs=tf.constant(lines))["outputs"].numpy()] == expected
