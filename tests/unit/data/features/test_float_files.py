"""Tests of float vectors stored beside the shards: written once, read in place, and padded into batches."""

import numpy as np
import pytest
from caption_files import SIZE, write_coco

from t2t_ext.data.features import float_files
from t2t_ext.data.features.float_files import FloatSequences, FloatWriter
from t2t_ext.data.features.types import Floats, Lazy, UnusableValue
from t2t_ext.errors import UserError


def writer_of(directory, storage="float32", *, share=True, depth=3):
    return FloatWriter(directory, "toy", "train", "inputs", Floats(depth=depth, storage=storage), share=share)


def random(length, seed, depth=3):
    return np.random.default_rng(seed).standard_normal([length, depth]).astype(np.float32)


def test_what_is_written_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(float_files, "MOST_BYTES_PER_FILE", 7 * 3 * 4)  # room for seven vectors
    writer, arrays = writer_of(tmp_path), [random(length, seed) for seed, length in enumerate((2, 4, 1, 9, 3, 0, 4))]
    assert [writer.add(array) for array in arrays] == list(range(7))
    described = writer.close()
    assert (described["sequences"], described["vectors"], described["longest"]) == (7, 23, 9)
    assert described["files"] == [f"toy-train.inputs-{number:05d}.npy" for number in range(3)]
    sequences = FloatSequences.open(tmp_path, described, "again")
    assert len(sequences) == 7
    for found, array in zip(sequences, arrays, strict=True):
        np.testing.assert_array_equal(found, array)
    assert isinstance(sequences[1], np.memmap), "nothing is read before it is looked at"
    batch = sequences.padded(np.array([4, -1, 0], np.int32), 5)
    assert batch.shape == (3, 5, 3)
    np.testing.assert_array_equal(batch[0, :3], arrays[4])
    assert not batch[0, 3:].any()
    assert not batch[1].any()
    np.testing.assert_array_equal(sequences[-1], arrays[-1])
    with pytest.raises(IndexError):
        sequences[7]


def test_equal_values_are_kept_once(tmp_path):
    reads = []

    def read():
        reads.append(1)
        return random(2, 0)

    writer = writer_of(tmp_path)
    assert [writer.add(Lazy("a", read)), writer.add(Lazy("a", read)), writer.add(Lazy("b", read))] == [0, 0, 1]
    assert len(reads) == 2
    assert [writer.add(random(2, 5)), writer.add(random(2, 6)), writer.add(random(2, 5))] == [2, 3, 2]
    assert writer.names == ["a", "b", "2", "3"]
    apart = writer_of(tmp_path, share=False)
    assert [apart.add(Lazy("a", read)), apart.add(Lazy("a", read))] == [0, 1]


def test_half_the_space(tmp_path):
    writer = writer_of(tmp_path, "float16")
    writer.add(random(4, 1))
    sequences = FloatSequences.open(tmp_path, writer.close(), "again")
    assert sequences.dtype == np.float16
    np.testing.assert_array_equal(sequences[0], random(4, 1).astype(np.float16))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros([2, 4], np.float32), r"expected floats of shape \[any, 3\]"),
        (np.full([1, 3], np.nan, np.float32), "not finite"),
        (np.full([1, 3], 1e6, np.float32), "1e\\+06 is too large for float16"),
    ],
)
def test_what_cannot_be_kept(tmp_path, value, message):
    writer = writer_of(tmp_path, "float16")
    with pytest.raises(UnusableValue, match=message):
        writer.add(value)
    assert writer.add(random(1, 0)) == 0


def test_damaged_files(tmp_path):
    writer = writer_of(tmp_path)
    writer.add(random(5, 1))
    described = writer.close()
    path = tmp_path / described["files"][0]
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    with pytest.raises(UserError, match=r"inputs-00000.npy is damaged: .* Make it again: datagen"):
        FloatSequences.open(tmp_path, described, "datagen")
    path.unlink()
    with pytest.raises(UserError, match="Make it again"):
        FloatSequences.open(tmp_path, described, "datagen")
    path.write_bytes(whole)
    np.save(tmp_path / described["lengths"], np.array([4], np.int32))
    with pytest.raises(UserError, match="5 vectors, their lengths add up to 4"):
        FloatSequences.open(tmp_path, described, "datagen")


@pytest.fixture(scope="module")
def captions(tmp_path_factory):
    """Returns the entries and the generated data of a tiny COCO."""
    from t2t_ext import registry
    from t2t_ext.data.datasets.generated import GeneratedData
    from t2t_ext.data.generation.generate import generate

    directory = tmp_path_factory.mktemp("coco")
    entries = write_coco(directory / "raw")
    problem = registry.problem("caption_coco", feature_size=SIZE, storage="float32")
    generate(problem, directory / "data", directory / "raw", vocab_size=320, num_processes=1, progress=False)
    return entries, GeneratedData.open(problem, directory / "data")


def test_batches_hold_the_features_of_their_captions(captions):
    """Every row of an epoch has the features of the image that its caption describes."""
    from t2t_ext import registry
    from t2t_ext.data.datasets.example_store import ExampleStore
    from t2t_ext.data.datasets.pipeline import TrainPipeline, eval_batches

    entries, data = captions
    store = ExampleStore.load(data, "train")
    encoder = data.text_encoders()[1]
    assert store.source_feature_size == SIZE
    assert (store.num_examples, len(store.source_features)) == (50, 10)
    expected = sorted((text, image.tobytes()) for _, image, texts in entries[:10] for text in texts)
    hparams = registry.hparams("transformer_test").replace(batch_size=96)
    pipeline = TrainPipeline(store, hparams, seed=3)
    found = []
    for batch in pipeline.dataset(0).take(pipeline.batches_per_epoch).as_numpy_iterator():
        assert batch["inputs"].dtype == np.float32
        assert batch["inputs"].shape[2] == SIZE
        for features, ids in zip(batch["inputs"], batch["targets"], strict=True):
            real = features[np.any(features != 0, axis=1)]
            if ids.any():
                found.append((encoder.decode(ids[ids > 1].tolist()), real.tobytes()))
            else:
                assert not len(real), "a row of filling"
    assert sorted(found) == expected
    evaluated = list(eval_batches(store, hparams, 96).as_numpy_iterator())
    assert sum((batch["index"] >= 0).sum() for batch in evaluated) == 50
    np.testing.assert_array_equal(store.example(7)[0], store.source_features[int(store.inputs[7])])


def test_a_resumed_run_reads_the_same(captions):
    from t2t_ext import registry
    from t2t_ext.data.datasets.example_store import ExampleStore
    from t2t_ext.data.datasets.pipeline import TrainPipeline

    hparams = registry.hparams("transformer_test").replace(batch_size=64)
    pipeline = TrainPipeline(ExampleStore.load(captions[1], "train"), hparams, seed=3)
    whole = list(pipeline.dataset(0).take(6).as_numpy_iterator())
    for ours, theirs in zip(pipeline.dataset(3).take(3).as_numpy_iterator(), whole[3:], strict=True):
        for name, values in ours.items():
            np.testing.assert_array_equal(values, theirs[name])


def test_texts_have_names_and_all_references(captions):
    entries, data = captions
    sources, references = data.texts("dev")
    assert [str(source) for source in sources] == [str(image) for image, _, _ in entries[10:13]]
    for source, (_, features, texts), found in zip(sources, entries[10:13], zip(*references, strict=True), strict=True):
        np.testing.assert_array_equal(source.rows, features)
        assert list(found) == texts
    assert data.source_feature_size == SIZE
    source, target = data.text_encoders()
    assert source is target


def test_the_manifest_of_text_says_nothing_of_floats():
    from t2t_ext.data.datasets.manifest import SplitSummary

    text = SplitSummary(read=1, samples=1, tokens={}, longest={}, shards=[])
    assert text.floats == {}
