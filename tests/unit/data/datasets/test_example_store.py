"""Tests of the example store: shards are read as they were written, and a damaged shard is named."""

import pathlib
import types

import numpy as np
import pytest

from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.errors import UserError
from t2t_ext.io import files


class FakeData:
    """Implements the part of GeneratedData that loading needs, on shards that it writes itself."""

    pseudo = None

    def __init__(self, folder, shards, was_reversed=False, dtype=np.uint16):
        self.was_reversed = was_reversed
        self.paths = []
        for number, pairs in enumerate(shards):
            path = pathlib.Path(folder) / f"x-train-{number:05d}-of-{len(shards):05d}.npz"
            arrays = {}
            for side, name in enumerate(("inputs", "targets")):
                sequences = [pair[side] for pair in pairs]
                arrays[name] = np.array([i for ids in sequences for i in ids], dtype)
                arrays[f"{name}_lengths"] = np.array([len(ids) for ids in sequences], np.int32)
            np.savez_compressed(path, **arrays)
            self.paths.append(path)
        digests = {path.name: {"sha256": files.sha256_of_file(path)} for path in self.paths}
        self.manifest = types.SimpleNamespace(files=digests, command=lambda folder: "t2t_ext-datagen --problem=x")

    def shard_paths(self, split):
        assert split == "train"
        return self.paths

    def source_features(self, split):
        return None


SHARDS = [[([5, 6, 1], [7, 1])], [], [([8, 1], [9, 10, 11, 1]), ([1], [12, 1])]]


def pairs_of(store):
    return [tuple(side.tolist() for side in store.example(i)) for i in range(store.num_examples)]


def test_pairs_come_back_in_order(tmp_path):
    store = ExampleStore.load(FakeData(tmp_path, SHARDS), "train")
    assert pairs_of(store) == [pair for shard in SHARDS for pair in shard]
    assert (store.inputs.dtype, store.targets.dtype) == (np.uint16, np.uint16)
    assert store.input_lengths.tolist() == [3, 2, 1]
    assert store.target_lengths.tolist() == [2, 4, 2]


def test_reversed_problem_swaps_the_sides(tmp_path):
    store = ExampleStore.load(FakeData(tmp_path, SHARDS, was_reversed=True), "train")
    assert pairs_of(store)[0] == ([7, 1], [5, 6, 1])


def test_large_vocabularies_are_32_bit(tmp_path):
    store = ExampleStore.load(FakeData(tmp_path, [[([100_000, 1], [70_000, 1])]], dtype=np.int32), "train")
    assert store.inputs.dtype == np.int32
    assert pairs_of(store) == [([100_000, 1], [70_000, 1])]


def test_no_shards_and_no_pairs(tmp_path):
    assert ExampleStore.load(FakeData(tmp_path, []), "train").num_examples == 0
    assert ExampleStore.load(FakeData(tmp_path, [[], []]), "train").num_examples == 0


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("damage", ["cut", "remove", "empty", "zeros"])
def test_damaged_shard_is_named_with_the_command(tmp_path, damage, verify):
    data = FakeData(tmp_path, SHARDS)
    path = data.paths[2]
    content = path.read_bytes()
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes({"cut": content[:-40], "empty": b"", "zeros": bytes(len(content))}[damage])
    with pytest.raises(UserError, match=r"x-train-00002-of-00003\.npz is damaged.*t2t_ext-datagen --problem=x"):
        ExampleStore.load(data, "train", verify=verify)


def test_one_flipped_bit_is_noticed(tmp_path):
    data = FakeData(tmp_path, SHARDS)
    content = bytearray(data.paths[0].read_bytes())
    content[10] ^= 1  # a time stamp, so the archive can still be read
    data.paths[0].write_bytes(content)
    assert ExampleStore.load(data, "train", verify=False).num_examples == 3
    with pytest.raises(UserError, match="its SHA-256 is not the manifest's"):
        ExampleStore.load(data, "train")


def test_lengths_that_do_not_add_up_are_noticed(tmp_path):
    data = FakeData(tmp_path, SHARDS)
    with np.load(data.paths[2]) as shard:
        arrays = dict(shard)
    np.savez_compressed(data.paths[2], **{**arrays, "targets_lengths": np.array([4, 3], np.int32)})
    with pytest.raises(UserError, match="add up to 7"):
        ExampleStore.load(data, "train", verify=False)


def test_from_sequences():
    store = ExampleStore.from_sequences([[5, 1], [1]], [[70_000, 1], [6, 7, 1]])
    assert pairs_of(store) == [([5, 1], [70_000, 1]), ([1], [6, 7, 1])]
    assert (store.inputs.dtype, store.targets.dtype) == (np.uint16, np.int32)
