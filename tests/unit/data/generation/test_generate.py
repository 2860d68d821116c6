"""Tests of data generation: what is written, what is dropped, and that incomplete data are never found."""

import collections
import errno
import itertools
import json
import os
import pathlib

import numpy as np
import pytest

from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.data.datasets.manifest import is_data_file
from t2t_ext.data.features.float_files import FloatSequences
from t2t_ext.data.features.types import TARGET, Floats, Ids, Text
from t2t_ext.data.generation import cleaning, raw_samples, shards, vocabulary, workspace
from t2t_ext.data.generation.generate import generate
from t2t_ext.data.text import text_steps
from t2t_ext.data.text.special_ids import UNK_ID
from t2t_ext.errors import UserError
from t2t_ext.io import progress
from t2t_ext.problem import Problem, TranslationProblem
from t2t_ext.problems import cldr_corpus

WORDS = ["red", "green", "old", "small", "new", "cat", "lamp", "door", "street", "city", "sees", "finds", "loves"]


def make_pairs(count, seed):
    rng = np.random.default_rng(seed)
    sentences = (" ".join(rng.choice(WORDS, rng.integers(3, 9))) for _ in range(count))
    return [(f"{i} {text}", f"{text[::-1]} {i}") for i, text in enumerate(sentences)]


class Toy(TranslationProblem):
    """Holds its pairs in memory; reading the split `fails_at` raises KeyboardInterrupt."""

    source_language, target_language = "xx", "yy"
    approx_vocab_size = 350
    splits = ("train", "dev")

    def __init__(self, train=None, dev=None, fails_at=None, known_count=True, **kwargs):
        super().__init__(name="toy", **kwargs)
        self.pairs = {"train": train or make_pairs(300, 0), "dev": dev or make_pairs(20, 1)}
        self.fails_at = fails_at
        self.known_count = known_count

    def count(self, split, tmp_dir):
        return len(self.pairs[split]) if self.known_count else None

    def samples(self, split, tmp_dir):
        if split == self.fails_at:
            raise KeyboardInterrupt
        for source, target in self.pairs[split]:
            yield {"inputs": source, "targets": target}


class OfFile(Toy):
    """Reads a file that an earlier generation wrote."""

    def source_files(self, split, tmp_dir):
        return [pathlib.Path(tmp_dir, "data", "toy-dev.inputs.txt")]


@pytest.fixture
def said():
    return []


@pytest.fixture
def make(tmp_path, said):
    def call(problem=None, data_dir=tmp_path / "data", **settings):
        settings = {"num_processes": 1, "progress": False, **settings}
        return generate(problem or Toy(), data_dir, tmp_path, say=said.append, **settings)

    return call


def contents(directory):
    return {path.name: path.read_bytes() for path in pathlib.Path(directory).glob("*")}


def read_pairs(data, split="train"):
    """Returns the decoded pairs of a split in stored order."""
    source, target = data.text_encoders()
    pairs = []
    for path in data.shard_paths(split):
        with np.load(path) as arrays:
            columns = []
            for name, encoder in (("inputs", source), ("targets", target)):
                ends = np.cumsum(arrays[f"{name}_lengths"])
                rows = np.split(arrays[name], ends[:-1])
                assert ends[-1] == len(arrays[name])
                assert all(row[-1] == 1 and 1 not in row[:-1] for row in rows)
                columns.append([encoder.decode(row) for row in rows])
            pairs.extend(zip(*columns, strict=True))
    return pairs


def test_everything_is_written_once_and_shuffled(make, tmp_path, said):
    problem = Toy()
    manifest = make(problem, num_shards=4)
    data = GeneratedData.open(problem, tmp_path / "data")
    assert len(data.shard_paths("train")) == 4
    pairs = read_pairs(data)
    assert pairs != problem.pairs["train"]
    assert sorted(pairs) == sorted(problem.pairs["train"])
    # a shuffled order ascends about as often as it descends
    order = [int(source.split()[0]) for source, _ in pairs]
    assert 120 < sum(a < b for a, b in itertools.pairwise(order)) < 180
    assert read_pairs(data, "dev") == problem.pairs["dev"]
    assert data.texts("dev") == ([s for s, _ in problem.pairs["dev"]], [[t for _, t in problem.pairs["dev"]]])
    assert data.splits == ["train", "dev"]
    assert manifest.splits["train"].samples == 300
    assert set(manifest.files) | {"toy.manifest.json"} == set(contents(tmp_path / "data"))
    assert not manifest.damaged_files(tmp_path / "data", checksums=True)
    assert any("300 samples in 4 shards" in line for line in said)


def test_file_names(make, tmp_path):
    make()
    make(Toy(), tmp_path / "separate", joint_vocab=False)
    common = {"toy-train-00000-of-00001.npz", "toy-dev-00000-of-00001.npz", "toy.manifest.json"}
    common |= {"toy-dev.inputs.txt", "toy-dev.targets.txt"}
    assert set(contents(tmp_path / "data")) == common | {"vocab.toy.350.model"}
    assert set(contents(tmp_path / "separate")) == common | {"vocab.toy.350.source.model", "vocab.toy.350.target.model"}
    assert all(is_data_file(name, "toy") for name in common - {"toy.manifest.json"})
    assert not is_data_file("toy_b-train-00000-of-00001.npz", "toy")
    source, target = GeneratedData.open(Toy(), tmp_path / "separate").text_encoders()
    assert source != target


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(raw_samples, "SAMPLES_PER_CHUNK", 37)


@pytest.mark.usefixtures("small_chunks")
def test_bytes_do_not_depend_on_processes_or_time(make, tmp_path):
    make(Toy(), tmp_path / "one", num_shards=3)
    make(Toy(known_count=False), tmp_path / "two", num_shards=3, num_processes=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("subwords", ["sentencepiece", "subword_nmt"])
def test_bpe_dropout_stores_every_training_pair_in_several_segmentations(make, tmp_path, said, subwords):
    problem = Toy(train=[*make_pairs(300, 0), *make_pairs(5, 0)])
    settings = {"subwords": subwords, "num_merges": 60} if subwords == "subword_nmt" else {}
    settings |= {"cleaning": "duplicates=true", "num_shards": 3}
    usual = make(problem, tmp_path / "usual", **settings)
    manifest = make(problem, tmp_path / "one", bpe_dropout=0.3, segmentations=3, **settings)
    assert any("300 of 305 samples in 3 shards, each in 3 segmentations" in line for line in said)
    make(problem, tmp_path / "two", bpe_dropout=0.3, segmentations=3, num_processes=2, **settings)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    data = GeneratedData.open(problem, tmp_path / "one")
    assert sorted(read_pairs(data)) == sorted(problem.pairs["train"][:300] * 3)
    assert read_pairs(data, "dev") == problem.pairs["dev"]
    assert manifest.splits["train"].samples == 900
    assert manifest.splits["train"].drops == usual.splits["train"].drops == {"duplicate": 5}
    assert manifest.splits["dev"] == usual.splits["dev"]
    assert manifest.vocab == usual.vocab
    more = {
        name: manifest.splits["train"].tokens[name] / usual.splits["train"].tokens[name]
        for name in ("inputs", "targets")
    }
    assert all(3 < ratio < 12 for ratio in more.values()), more
    segmentations = collections.defaultdict(set)
    source, _ = data.text_encoders()
    for path in data.shard_paths("train"):
        with np.load(path) as arrays:
            for row in np.split(arrays["inputs"], np.cumsum(arrays["inputs_lengths"])[:-1]):
                segmentations[source.decode(row)].add(tuple(row))
    assert np.mean([len(different) for different in segmentations.values()]) > 1.2


def test_unknown_tokens_are_counted_and_warned_of(make, tmp_path, said):
    problem = Toy(train=make_pairs(300, 0))
    usual = make(problem, tmp_path / "usual", subwords="subword_nmt", num_merges=60)
    assert usual.splits["train"].unknown == {}
    assert " unknown" not in "".join(said)
    assert '"unknown"' not in usual.to_json()
    said.clear()
    size = usual.vocab["source"]["size"] - 30
    cut = make(problem, tmp_path / "cut", subwords="subword_nmt", num_merges=60, vocab_size=size)
    data = GeneratedData.open(problem, tmp_path / "cut")
    for split in ("train", "dev"):
        ids = [np.load(path) for path in data.shard_paths(split)]
        counted = {name: sum(int((each[name] == UNK_ID).sum()) for each in ids) for name in ("inputs", "targets")}
        assert cut.splits[split].unknown == {name: count for name, count in counted.items() if count}
    train = cut.splits["train"]
    assert f"(longest {train.longest['inputs']}, {train.unknown['inputs']:,} unknown)" in "".join(said)
    assert any(f"warning: train: {train.unknown['inputs'] / train.tokens['inputs']:.1%}" in line for line in said)
    assert any(f"--vocab_size={size} leaves the rarest subwords out" in line for line in said)


@pytest.mark.parametrize(("identical", "warned"), [(160, True), (150, False)])
def test_most_pairs_with_the_same_text_on_both_sides_are_warned_of(make, tmp_path, said, identical, warned):
    pairs = [(text, text) if i < identical else (text, other) for i, (text, other) in enumerate(make_pairs(300, 0))]
    manifest = make(Toy(train=pairs))
    lines = [line for line in said if "same text on both sides" in line]
    assert [line.split(",")[0].strip() for line in lines] == ["warning: 160 pairs of train"] * warned
    assert manifest.splits["train"].identical == 160 * warned
    stored = json.loads((tmp_path / "data" / "toy.manifest.json").read_text())["splits"]
    assert ["identical" in split for split in stored.values()] == [warned, False]


@pytest.mark.parametrize(("same", "copies", "left"), [(1, 400, 0), (31, 2, 31)])
@pytest.mark.parametrize("settings", [{}, {"bpe_dropout": 0.1, "segmentations": 2}])
def test_pairs_with_the_same_text_on_both_sides_are_counted_without_duplicates(
    make, said, same, copies, left, settings
):
    pairs = [(text, text) for text, _ in make_pairs(same, 0)] * copies + make_pairs(30, 1)
    train = make(Toy(train=pairs), cleaning="duplicates=true", **settings).splits["train"]
    assert (train.drops["duplicate"], train.identical) == (same * (copies - 1), left)
    assert [f"{left} pairs of train" in line for line in said if "same text on both sides" in line] == [True] * bool(
        left
    )


def test_bpe_dropout_of_data_that_are_there_is_compared(make):
    make()
    with pytest.raises(UserError, match=r"bpe_dropout was 0\.0, now 0\.1"):
        make(bpe_dropout=0.1)
    with pytest.raises(UserError, match="--segmentations=4 are all the same without --bpe_dropout"):
        make(segmentations=4)
    manifest = make(bpe_dropout=0.1, overwrite=True)
    assert manifest.settings["segmentations"] == 4
    assert make() == manifest


@pytest.mark.usefixtures("small_chunks")
def test_shards_are_of_equal_size(make, tmp_path):
    make(num_shards=7)
    sizes = []
    for path in GeneratedData.open(Toy(), tmp_path / "data").shard_paths("train"):
        with np.load(path) as arrays:
            sizes.append(len(arrays["inputs_lengths"]))
    assert sum(sizes) == 300
    assert max(sizes) - min(sizes) <= 9  # each chunk can make a difference of at most one


@pytest.mark.usefixtures("small_chunks")
def test_every_split_is_read_once(make, tmp_path, monkeypatch):
    passes = collections.Counter()
    samples = Toy.samples

    def counted(self, split, tmp_dir):
        passes[split] += 1
        return samples(self, split, tmp_dir)

    monkeypatch.setattr(Toy, "samples", counted)
    make(cleaning="test_overlap=true")
    assert passes == {"train": 1, "dev": 1}
    make(Toy(), tmp_path / "reused", subword_model=str(tmp_path / "data" / "vocab.toy.350.model"))
    assert passes == {"train": 2, "dev": 2}
    assert not list((tmp_path / "data").glob(".*"))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("sample_size", [300, 100])
def test_text_steps_take_each_text_once(make, tmp_path, monkeypatch, sample_size):
    prepared = collections.Counter()
    prepare = text_steps.Lowercase.prepare

    def counted(self, text):
        prepared[text] += 1
        return prepare(self, text)

    monkeypatch.setattr(text_steps.Lowercase, "prepare", counted)
    pairs = [(source.title(), target.title()) for source, target in make_pairs(300, 0)]
    steps = {"source_steps": "nfkc,lowercase", "target_steps": "lowercase"}
    make(Toy(train=pairs), vocab_sample_size=sample_size, **steps)
    training = {text for pair in pairs for text in pair}
    assert {prepared[text] for text in training} == {1}
    assert sorted(read_pairs(GeneratedData.open(Toy(), tmp_path / "data"))) == sorted(
        (source.lower(), target.lower()) for source, target in pairs
    )


def test_no_shard_is_empty(make):
    assert len(make(Toy(train=make_pairs(30, 0)), num_shards=1000).splits["train"].shards) == 30


def test_seed(make, tmp_path):
    make(Toy(), tmp_path / "a", seed=1)
    make(Toy(), tmp_path / "b", seed=2)
    shard = "toy-train-00000-of-00001.npz"
    assert contents(tmp_path / "a")[shard] != contents(tmp_path / "b")[shard]


def test_drops_in_training_only(make, tmp_path):
    pairs = make_pairs(100, 0)
    bad = [("", "a"), ("a", " \t"), ("", ""), ("cat " * 40, "lamp " * 40), ("cat", "lamp " * 10)]
    manifest = make(Toy(train=bad[:3] + pairs + bad[3:], dev=bad + pairs[:3]), max_tokens=30, max_length_ratio=5.0)
    train, dev = manifest.splits["train"], manifest.splits["dev"]
    assert train.drops == {cleaning.EMPTY: 3, cleaning.TOO_LONG: 1, cleaning.LENGTH_RATIO: 1}
    assert (train.read, train.samples) == (105, 100)
    assert (dev.read, dev.samples, dev.drops) == (8, 8, {})
    data = GeneratedData.open(Toy(), tmp_path / "data")
    assert data.texts("dev")[0] == [source for source, _ in bad + pairs[:3]]
    assert read_pairs(data, "dev") == bad + pairs[:3]
    assert sorted(read_pairs(data)) == sorted(pairs)


def test_limits_can_be_switched_off(make):
    pairs = [*make_pairs(100, 0), ("cat", "lamp " * 300)]
    assert make(Toy(train=pairs), max_length_ratio=0.0).splits["train"].drops == {}
    assert make(Toy(train=pairs), overwrite=True).splits["train"].drops == {cleaning.LENGTH_RATIO: 1}


def test_a_second_call_does_nothing(make, tmp_path, said):
    first = make(num_shards=2)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "data").iterdir()}
    said.clear()
    # reading these problems would fail, which shows that the data are not generated again
    assert make(Toy(fails_at="train"), num_shards=2) == first
    assert make(Toy(fails_at="train", was_reversed=True)) == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "data").iterdir()} == times
    assert "nothing to do" in said[0]


@pytest.mark.parametrize(
    ("settings", "difference"),
    [
        ({"vocab_size": 400}, "vocab_size was 350, now 400"),
        ({"num_shards": 3}, "num_shards was 0, now 3"),
        ({"seed": 5}, "seed was 429459, now 5"),
        ({"joint_vocab": False}, "joint_vocab was True, now False"),
        ({"max_length_ratio": 2.0}, "max_length_ratio was 9.0, now 2.0"),
    ],
)
def test_other_settings_are_an_error_that_says_what_to_do(make, tmp_path, settings, difference):
    make()
    before = contents(tmp_path / "data")
    with pytest.raises(UserError, match=f"{difference}.*t2t_ext-datagen .*--overwrite .*runs .*not be resumed"):
        make(**settings)
    assert contents(tmp_path / "data") == before
    assert make(**settings, overwrite=True).settings == {
        **json.loads(before["toy.manifest.json"])["settings"],
        **settings,
    }


def test_merges_that_nobody_learns_are_refused(make, tmp_path):
    with pytest.raises(UserError, match="--num_merges=60 goes with --subwords=subword_nmt, not with sentencepiece"):
        make(num_merges=60)
    (tmp_path / "codes").write_text("#version: 0.2\ne d</w>\n")
    codes = {"bpe_codes": str(tmp_path / "codes")}
    with pytest.raises(UserError, match=r"--num_merges=60 says how many merges are learned, but --bpe_codes=.*codes"):
        make(num_merges=60, **codes)
    assert not (tmp_path / "data").exists()
    with_merges = Toy()
    with_merges.num_merges = 60  # the user did not choose the problem's own num_merges
    make(with_merges, tmp_path / "pieces")
    make(with_merges, tmp_path / "coded", **codes)


def test_codes_that_are_given_are_those_of_subword_nmt(make, tmp_path, said):
    (tmp_path / "codes").write_text("#version: 0.2\ne d</w>\n")
    codes = {"bpe_codes": str(tmp_path / "codes")}
    assert make(**codes).settings["subwords"] == "subword_nmt"
    make(subwords="subword_nmt", **codes)
    with pytest.raises(UserError, match="vocab_size was 0, now 350"):
        make(vocab_size=350, **codes)
    make(vocab_size=20, overwrite=True, **codes)
    assert "unknown tokens. --vocab_size=20 leaves the rarest subwords out" in said[-1]


def test_overwriting_leaves_no_old_file(make, tmp_path):
    make(num_shards=3)
    make(num_shards=2, joint_vocab=False, overwrite=True)
    manifest = GeneratedData.open(Toy(), tmp_path / "data").manifest
    assert set(contents(tmp_path / "data")) == {*manifest.files, "toy.manifest.json"}


@pytest.mark.parametrize("split", ["train", "dev"])
def test_interrupted_generation_leaves_nothing(make, tmp_path, split):
    with pytest.raises(KeyboardInterrupt):
        make(Toy(fails_at=split))
    assert not (tmp_path / "data").exists()
    make()
    before = contents(tmp_path / "data")
    with pytest.raises(KeyboardInterrupt):
        make(Toy(fails_at=split), overwrite=True)
    assert contents(tmp_path / "data") == before


def test_a_full_disk_is_explained(make, tmp_path, monkeypatch):
    def full(arrays):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shards, "npz_bytes", full)
    with pytest.raises(UserError, match=r"The disk of --data_dir=.* is full"):
        make()
    assert contents(tmp_path / "data") == {}


def test_what_a_killed_process_left_is_not_read_and_is_cleaned_up(make, tmp_path, said):
    make(num_shards=2)
    expected = contents(tmp_path / "data")
    data = tmp_path / "data"
    # killed while renaming: no manifest, a shard of another count; killed while writing: the hidden directory
    (data / "toy.manifest.json").unlink()
    (data / "toy-train-00000-of-00002.npz").rename(data / "toy-train-00000-of-00009.npz")
    (data / "mine.txt").write_text("not ours")
    (data / ".toy.generating" / "train.chunks").mkdir(parents=True)
    with pytest.raises(UserError, match=r"no data of toy .*t2t_ext-datagen --problem=toy"):
        GeneratedData.open(Toy(), data)
    make(num_shards=2)
    assert contents(data) == {**expected, "mine.txt": b"not ours"}
    assert any("interrupted generation" in line for line in said)


def test_a_renaming_that_fails_leaves_no_manifest(make, tmp_path, monkeypatch):
    make()
    replace = os.replace

    def failing(source, target):
        if str(target).endswith("00001.npz"):
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(workspace.os, "replace", failing)
    with pytest.raises(KeyboardInterrupt):
        make(overwrite=True, seed=3)
    with pytest.raises(UserError, match="no data of toy"):
        GeneratedData.open(Toy(), tmp_path / "data")


def test_missing_and_damaged_files(make, tmp_path):
    make()
    shard = tmp_path / "data" / "toy-train-00000-of-00001.npz"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    assert GeneratedData.open(Toy(), tmp_path / "data").manifest.damaged_files(shard.parent, checksums=True) == [
        shard.name
    ]
    shard.unlink()
    for call in (lambda: GeneratedData.open(Toy(), tmp_path / "data"), make):
        with pytest.raises(UserError, match=rf"{shard.name}.*--overwrite"):
            call()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "damaged"),
        ('{"format_version": 1}', "damaged"),
        ('{"format_version": 99}', "format 99"),
        ("[]", "damaged"),
    ],
)
def test_unreadable_manifests(make, tmp_path, content, message):
    make()
    (tmp_path / "data" / "toy.manifest.json").write_text(content)
    with pytest.raises(UserError, match=rf"{message}.*--overwrite"):
        GeneratedData.open(Toy(), tmp_path / "data")
    make(overwrite=True)
    GeneratedData.open(Toy(), tmp_path / "data")


def test_reversed_problems_share_the_files(make, tmp_path):
    make(Toy(was_reversed=True), joint_vocab=False)
    forth = GeneratedData.open(Toy(), tmp_path / "data")
    back = GeneratedData.open(Toy(was_reversed=True), tmp_path / "data")
    assert (forth.source_language, forth.target_language) == ("xx", "yy")
    assert (back.source_language, back.target_language) == ("yy", "xx")
    assert back.text_encoders() == forth.text_encoders()[::-1]
    sources, (targets,) = forth.texts("dev")
    assert back.texts("dev") == (targets, [sources])
    assert sources == [source for source, _ in Toy().pairs["dev"]]
    assert back.digest() == forth.digest()


def test_unknown_splits_and_texts(make, tmp_path):
    make()
    data = GeneratedData.open(Toy(), tmp_path / "data")
    with pytest.raises(UserError, match=r"no test split; it has: train, dev"):
        data.shard_paths("test")
    with pytest.raises(UserError, match=r"train split of toy has no text files; take one of: dev"):
        data.texts("train")


@pytest.mark.parametrize("splits", ["train", ("dev",)])
def test_splits_without_training_data(make, monkeypatch, splits):
    monkeypatch.setattr(Toy, "splits", splits)
    with pytest.raises(UserError, match=r"splits of Toy is .*; it must be a list with \"train\""):
        make()


def test_reused_subword_models(make, said, tmp_path):
    make(Toy(), tmp_path / "first", joint_vocab=False)
    source, target = GeneratedData.open(Toy(), tmp_path / "first").text_encoders()
    run = tmp_path / "run"
    run.mkdir()
    source.save(run / "vocab.source.model")
    target.save(run / "vocab.target.model")
    other = Toy(train=make_pairs(200, 9))
    make(other, tmp_path / "from_run", vocab_from=str(run))
    assert any(f"reused from {run}/vocab.source.model, {run}/vocab.target.model" in line for line in said)
    assert GeneratedData.open(other, tmp_path / "from_run").text_encoders() == (source, target)
    # a run of NAME_rev has its subword models on the other sides
    turned = Toy(was_reversed=True)
    make(turned, tmp_path / "turned", vocab_from=str(run))
    assert GeneratedData.open(turned, tmp_path / "turned").text_encoders() == (source, target)
    manifest = make(other, tmp_path / "from_file", subword_model=str(run / "vocab.source.model"))
    assert manifest.vocab["joint"]
    assert manifest.vocab["source"]["sha256"] == source.sha256
    with pytest.raises(UserError, match="another target subword model"):
        make(other, tmp_path / "from_run", subword_model=str(run / "vocab.source.model"))


def test_wrong_subword_models(make, tmp_path):
    with pytest.raises(UserError, match="not a run directory"):
        make(vocab_from=str(tmp_path))
    with pytest.raises(UserError, match="one of them"):
        make(vocab_from="a", subword_model="b")
    with pytest.raises(UserError, match=r"none\.model cannot be read"):
        make(subword_model=str(tmp_path / "none.model"))
    make()
    model = str(tmp_path / "data" / "vocab.toy.350.model")
    with pytest.raises(UserError, match=r"--separate_vocab.*leave them out"):
        make(Toy(), tmp_path / "x", subword_model=model, vocab_size=400)
    with pytest.raises(UserError, match="--vocab_sample_size"):
        make(Toy(), tmp_path / "x", subword_model=model, vocab_sample_size=400)
    assert not (tmp_path / "x").exists()


def test_a_corpus_too_small_for_the_vocabulary_is_noted(make, said):
    manifest = make(vocab_size=30000)
    size = manifest.vocab["source"]["size"]
    assert 300 < size < 30000
    assert (
        said[0] == f"Note: the corpus is too small for 30,000 subwords; the joint model has all {size:,} that it gives."
    )


def test_the_vocabulary_sees_a_seeded_sample_of_train_only(make, tmp_path):
    training = make(Toy(), tmp_path / "a", vocab_sample_size=50).vocab["training"]
    assert (training["samples_read"], training["samples_used"]) == (300, 50)
    models = [make(Toy(dev=make_pairs(9, n)), tmp_path / f"b{n}").vocab["source"]["sha256"] for n in range(2)]
    assert models[0] == models[1]


def test_uniform_sample():
    counts = collections.Counter()
    for seed in range(2000):
        read, chosen = vocabulary.uniform_sample(iter(range(20)), 5, seed)
        assert read == 20
        assert len(set(chosen)) == 5
        counts.update(chosen)
    # each item is expected 500 times with a standard deviation of 19
    assert all(400 < counts[item] < 600 for item in range(20))
    assert vocabulary.uniform_sample(range(3), 5, 0) == (3, [0, 1, 2])
    assert vocabulary.uniform_sample(range(1000), 7, 3) == vocabulary.uniform_sample(range(1000), 7, 3)


def test_a_failure_leaves_a_folder_that_was_there(make, tmp_path):
    (tmp_path / "data").mkdir()
    with pytest.raises(KeyboardInterrupt):
        make(Toy(fails_at="train"))
    assert (tmp_path / "data").is_dir()


def test_a_file_is_no_data_directory(make, tmp_path):
    (tmp_path / "file").touch()
    for data_dir in (tmp_path / "file", tmp_path / "file" / "data"):
        for use in (lambda path: make(Toy(), path), lambda path: GeneratedData.open(Toy(), path)):
            with pytest.raises(UserError, match="is not a directory"):
                use(data_dir)


def test_the_seed_is_called_by_its_flag(make):
    with pytest.raises(UserError, match="--random_seed=-1"):
        make(seed=-1)


@pytest.mark.parametrize("settings", [{"vocab_size": 0}, {"max_length_ratio": -1.0}, {"num_shards": -1}])
def test_settings_out_of_range(make, settings):
    with pytest.raises(UserError, match=f"--{next(iter(settings))}="):
        make(**settings)


def test_empty_splits(make, tmp_path):
    problem = Toy()
    problem.pairs["dev"] = []
    with pytest.raises(UserError, match="dev split of toy is empty"):
        make(problem)
    with pytest.raises(
        UserError, match=r"train split of toy has no usable sample \(length ratio: 3\).*--max_length_ratio=0"
    ):
        make(Toy(train=[("cat lamp", "cat " * 99)] * 3))
    assert contents(tmp_path / "data") == {}


def test_a_line_feed_in_a_dev_text_is_refused(make):
    with pytest.raises(UserError, match="line feed"):
        make(Toy(dev=[("a\nb", "c")]))


class ManyFeatures(Problem):
    """Has two references, an image and ids, but no translation direction."""

    splits = ("train", "dev")
    approx_vocab_size = 320

    def __init__(self, references=2):
        super().__init__()
        self.references = references

    def features(self):
        return {
            "inputs": Text(),
            "targets": Text(side=TARGET, multiple=True),
            "tags": Ids(size=70000),
            "image": Floats(depth=2),
        }

    def samples(self, split, tmp_dir):
        for i in range(30):
            references = [f"t{i}", f"u{i}"][: self.references if i else 2]
            yield {
                "inputs": f"s{i} 1",
                "targets": references,
                "tags": range(69999, 69999 - i, -1),
                "image": np.full([i, 2], i / 2),
            }


def test_features_of_every_type(make, tmp_path):
    problem = ManyFeatures()
    make(problem)
    data = GeneratedData.open(problem, tmp_path / "data")
    assert data.texts("dev") == (
        [f"s{i} 1" for i in range(30)],
        [[f"t{i}" for i in range(30)], [f"u{i}" for i in range(30)]],
    )
    with np.load(data.shard_paths("train")[0]) as arrays:
        assert arrays["inputs"].dtype == np.uint16
        assert arrays["tags"].dtype == np.int32
        assert sorted(arrays["tags_lengths"]) == list(range(30))
        described = data.manifest.splits["train"].floats["image"]
        kept = FloatSequences.open(tmp_path / "data", described, "again")
        assert kept.dtype == np.float32
        assert kept.lengths.sum() == data.manifest.splits["train"].tokens["image"] == sum(range(30))
        encoder = data.text_encoders()[0]
        sources = np.split(arrays["inputs"], np.cumsum(arrays["inputs_lengths"])[:-1])
        assert np.all(arrays["image_lengths"] == 1)
        images = [kept[int(number)] for number in arrays["image"]]
        for ids, image in zip(sources, images, strict=True):
            i = int(encoder.decode(ids).split()[0][1:])
            assert len(image) == i
            assert np.all(image == i / 2)


def test_every_sample_needs_the_same_number_of_references(make, monkeypatch):
    monkeypatch.setattr(vocabulary, "train_vocabulary", None)  # it is found before all the work on train
    with pytest.raises(UserError, match="different numbers of targets: sample 2 has 1, those before it 2"):
        make(ManyFeatures(references=1))
    with pytest.raises(UserError, match=r"feature inputs in the dev split of toy holds a line feed \(sample 2\)"):
        make(Toy(dev=[("a", "b"), ("a\nb", "c")]))


def test_progress_lines_without_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    with progress.progress("Encoding train", 10, "pairs") as advance:
        advance(4)
    assert capsys.readouterr().err.startswith("Encoding train: 4 of 10 pairs, ")
    with progress.progress("Reading", None, "pairs", enabled=False) as advance:
        advance(4)
    assert not capsys.readouterr().err


def test_progress_bar_on_a_terminal(monkeypatch, capsys):
    import sys

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress.progress("Encoding train", 10, "pairs") as advance:
        advance(10)
    assert "10 of 10 pairs" in capsys.readouterr().err


def test_data_are_not_made_of_what_they_replace(make, tmp_path):
    make()
    before = contents(tmp_path / "data")
    with pytest.raises(UserError, match=r"toy-dev\.inputs\.txt is read and would be written over"):
        make(OfFile(), overwrite=True)
    assert contents(tmp_path / "data") == before
    make(OfFile(), tmp_path / "other")


def test_a_problem_by_its_name(tmp_path, monkeypatch):
    pairs = [cldr_corpus.Pair(f"Zeile {number}", f"line {number}", "", ()) for number in range(200)]
    monkeypatch.setattr(cldr_corpus, "corpus", lambda *_: {"train": pairs, "dev": pairs[:9], "test": pairs[:9]})
    with pytest.raises(UserError, match="translate_ende_cldr"):
        generate("translate_ende_cldx", tmp_path / "data", tmp_path)
    manifest = generate("translate_ende_cldr", tmp_path / "data", tmp_path, vocab_size=300, progress=False, say=str)
    assert manifest.problem == "translate_ende_cldr"
