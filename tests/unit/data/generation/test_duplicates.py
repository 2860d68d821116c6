"""Tests of duplicates on disk: the result equals a plain loop over the corpus, for all sizes and process counts."""

import itertools

import numpy as np
import pytest

from t2t_ext.data.corpora.readers import ReadReport
from t2t_ext.data.corpora.weighting import WeightedSample
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.data.generation import duplicates, raw_samples, shards, split_writer
from t2t_ext.data.generation.cleaning import Cleaning, clean_pairs
from t2t_ext.data.generation.generate import generate
from t2t_ext.errors import UserError
from t2t_ext.problem import TranslationProblem

WORDS = ["red", "green", "old", "small", "new", "cat", "lamp", "door"]


def repetitive_pairs(count, seed):
    """Returns pairs, many of which repeat an earlier pair, or one side of it, over a long distance."""
    rng = np.random.default_rng(seed)
    sides = [" ".join(rng.choice(WORDS, 1 + number % 5)) + f" {number}" for number in range(count // 4)]
    columns = rng.integers(0, len(sides), (2, count))
    columns[:, count // 3 : count // 2] = columns[:, : count // 2 - count // 3]  # repeat whole pairs as well
    return [(sides[a], sides[b][::-1]) for a, b in zip(*columns, strict=True)]


class Repetitive(TranslationProblem):
    """Holds a corpus in memory; `weights` maps the number of a pair to how often the pair occurs."""

    source_language, target_language = "xx", "yy"
    approx_vocab_size = 330
    splits = ("train", "dev", "mt03")

    def __init__(self, pairs, dev=(("dev one", "eno ved"),), weights=lambda number: 1):
        super().__init__(name="repetitive")
        self.pairs, self.dev, self.weights = pairs, list(dev), weights

    def samples(self, split, tmp_dir):
        for number, (source, target) in enumerate(self.pairs if split == "train" else self.dev):
            sample = WeightedSample(inputs=source, targets=target)
            sample.times = self.weights(number)
            yield sample


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Returns a function (problem, name, **settings) -> (manifest, train pairs); files and partitions are small."""
    monkeypatch.setattr(raw_samples, "SAMPLES_PER_CHUNK", 23)
    monkeypatch.setattr(duplicates, "CHUNKS_PER_FILE", 3)
    monkeypatch.setattr(duplicates, "ROWS_PER_PARTITION", 40)
    monkeypatch.setattr(shards, "BYTES_PER_GROUP", 5000)

    def call(problem, name="data", **settings):
        directory = tmp_path / name
        settings = {"num_processes": 1, "num_shards": 3, "progress": False, "say": lambda line: None} | settings
        manifest = generate(problem, directory, tmp_path, **settings)
        data = GeneratedData.open(problem, directory)
        encoders = dict(zip(("inputs", "targets"), data.text_encoders(), strict=True))
        pairs = []
        for path in data.shard_paths("train"):
            with np.load(path) as arrays:
                ends = {name: np.cumsum(arrays[f"{name}_lengths"]) for name in encoders}
                rows = {name: np.split(arrays[name], ends[name][:-1]) for name in encoders}
            pairs += zip(*([encoders[n].decode(row) for row in rows[n]] for n in encoders), strict=True)
        return manifest, pairs

    return call


def first_occurrences(pairs, kind):
    """Returns the pairs whose key has not occurred before, computed in a plain loop."""
    keys = {"pair": [0, 1], "source": [0], "target": [1]}
    seen = {sides: set() for sides in ([("source",), ("target",)] if kind == "either" else [(kind,)])}
    kept = []
    for pair in pairs:
        fresh = True
        for names, known in seen.items():
            key = tuple(pair[side] for side in keys[names[0]])
            fresh &= key not in known
            known.add(key)
        kept += [pair] if fresh else []
    return kept


@pytest.mark.parametrize("kind", ["pair", "source", "target", "either"])
def test_the_first_occurrence_stays(make, kind):
    pairs = repetitive_pairs(600, 1)
    expected = first_occurrences(pairs, kind)
    assert 50 < len(expected) < 550
    manifest, written = make(Repetitive(pairs), cleaning=f"duplicates={kind}")
    assert sorted(written) == sorted(expected)
    train = manifest.splits["train"]
    assert (train.read, train.samples, train.drops) == (600, len(expected), {"duplicate": 600 - len(expected)})
    assert train.tokens["inputs"] > train.samples
    # A stream gives the same result; problems that clean before they split use it.
    report = ReadReport()
    assert list(clean_pairs(pairs, Cleaning.from_settings({"duplicates": kind}), report=report)) == expected
    assert report.drops == train.drops


def test_the_first_repetition_is_named(make):
    pairs = [*((f"a {n}", f"b {n}") for n in range(90)), ("a 70", "b 70"), ("a 4", "b 4")]
    manifest, _ = make(Repetitive(pairs), cleaning="duplicates=true")
    assert manifest.splits["train"].first == {"duplicate": "pair 91 repeats pair 71"}


def test_repetitions_that_the_problem_left_out_count_as_well(make):
    class Counting(Repetitive):
        def samples(self, split, tmp_dir):
            if split == "train":
                self.reading.drop_item("duplicate", "line 3", "it repeats line 1")
            yield from super().samples(split, tmp_dir)

    manifest, _ = make(Counting([("a 1", "b 1"), ("a 2", "b 2"), ("a 1", "b 1")] * 30), cleaning="duplicates=true")
    train = manifest.splits["train"]
    assert (train.read, train.samples, train.drops) == (91, 2, {"duplicate": 89})
    assert train.first == {"duplicate": "line 3"}


def test_neither_processes_nor_sizes_matter(make, tmp_path, monkeypatch):
    problem = Repetitive(repetitive_pairs(300, 2))
    make(problem, "one", cleaning="duplicates=true")
    make(problem, "two", cleaning="duplicates=true", num_processes=2)
    monkeypatch.setattr(duplicates, "CHUNKS_PER_FILE", 64)
    monkeypatch.setattr(duplicates, "ROWS_PER_PARTITION", 1000)
    monkeypatch.setattr(shards, "BYTES_PER_GROUP", 1 << 20)
    make(problem, "large", cleaning="duplicates=true")
    contents = [
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two", "large")
    ]
    assert contents[0] == contents[1] == contents[2]


def test_pairs_occur_as_often_as_their_weight_says_after_duplicates_are_gone(make):
    pairs = [(f"a {n}", f"b {n}") for n in range(50)] + [("a 7", "b 7")] * 3
    manifest, written = make(Repetitive(pairs, weights=lambda number: 1 + number % 3), cleaning="duplicates=true")
    expected = list(itertools.chain.from_iterable([pair] * (1 + n % 3) for n, pair in enumerate(pairs[:50])))
    assert sorted(written) == sorted(expected)
    assert manifest.splits["train"].samples == len(expected)
    assert manifest.splits["train"].drops == {"duplicate": 3}


def test_what_stands_in_an_evaluation_set_is_dropped(make):
    held_out = [("The Cat, sees!", "eht tac"), ("a lamp", "pmal a")]
    pairs = [(f"a {n}", f"b {n}") for n in range(60)] + [("the cat sees", "x"), ("y", "PMAL A."), ("a lamp", "pmal a")]
    problem = Repetitive(pairs, dev=held_out)
    for kind, dropped in (("true", 3), ("either", 3), ("source", 2), ("target", 2), ("pair", 1)):
        manifest, written = make(problem, kind, cleaning=f"test_overlap={kind}")
        assert manifest.splits["train"].drops == {"test_overlap": dropped}
        assert sorted(written)[: len(pairs) - dropped] == sorted(written)
        assert set(written) <= set(pairs)
    assert manifest.splits["dev"].samples == manifest.splits["mt03"].samples == 2


def test_keys_that_share_a_half_are_different(tmp_path):
    """Keys are compared by all 128 bits, also when they agree in their high or low half."""
    from t2t_ext.data.generation import shards

    (tmp_path / "sorted").mkdir()
    arrays = {
        "high": np.array([5, 5, 5, 2**64 - 1, 2**64 - 1], np.uint64),
        "low": np.array([1, 2, 1, 9, 9], np.uint64),
        "positions": np.array([0, 1, 2, 4, 3]),
        "times": np.ones(5, np.int32),
    }
    shards.write_arrays(tmp_path / "sorted" / "000000", arrays)
    found = []
    for part in range(3):
        path = tmp_path / f"repeated{part}"
        duplicates._judge(duplicates._Partition(part, 3, tmp_path / "sorted", 1, path))
        found += shards.open_arrays(path)["positions"].tolist()
    assert found == [2, 4]


def test_the_subword_model_is_trained_on_clean_pairs(make):
    pairs = [(f"a {n}", f"b {n}") for n in range(200)] + [("Ã¤ " * 9, f"x {n}") for n in range(100)]
    manifest, _ = make(Repetitive(pairs), cleaning="encoding=true")
    training = manifest.vocab["training"]
    assert (training["samples_read"], training["samples_used"]) == (300, 200)
    # a pair counts for the first of its reasons
    with pytest.raises(UserError, match=r"no usable sample \(an empty side: 3, damaged characters \(encoding\): 200\)"):
        make(Repetitive([("", "x")] * 3 + [("Ã¤", "x")] * 200), "none", cleaning="encoding=true,min_words=2")


def test_no_shard_is_larger_than_training_can_read_at_once(make, monkeypatch):
    monkeypatch.setattr(split_writer, "MOST_BYTES_PER_SHARD", 3000)
    pairs = repetitive_pairs(300, 3)
    manifest, written = make(Repetitive(pairs), num_shards=1)
    assert 5 < len(manifest.splits["train"].shards) <= 23  # each chunk has 23 pairs, and no shard may be empty
    assert sorted(written) == sorted(pairs)
    # weights repeat pairs
    few = make(Repetitive(pairs), "few", num_shards=1)[0].splits["train"].shards
    many = make(Repetitive(pairs, weights=lambda number: 4), "many", num_shards=1)[0].splits["train"].shards
    assert len(few) < len(many) <= 4 * 23
