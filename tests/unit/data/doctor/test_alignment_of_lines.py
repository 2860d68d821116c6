"""Tests that the doctor finds exactly those blocks in which one side is shifted against the other by some lines."""

import random

import pytest

from t2t_ext.data.doctor.alignment import joined, shifted_blocks

COUNT, FIRST, LAST = 2000, 600, 1000


def corpus(seed=1, names=False):
    """Returns sources and targets of loosely correlated lengths; with `names`, of one length with shared numbers."""
    rng = random.Random(seed)
    pairs = []
    for _ in range(COUNT):
        words = rng.randint(3, 40)
        other = max(1, round(words * rng.uniform(0.8, 1.25)))
        number = str(rng.randint(1000, 9999))
        if names:
            words = other = 10
        pairs.append((f"{number} " * names + "wort " * words, "word " * other + number * names))
    return [list(side) for side in zip(*pairs, strict=True)]


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("offset", [1, -2])
def test_a_shifted_block_is_found_with_its_lines(names, offset):
    sources, targets = corpus(names=names)
    block = targets[FIRST:LAST]
    targets[FIRST:LAST] = block[-offset:] + block[:-offset]  # the translation of line i is now at line i + offset
    (found,) = joined(shifted_blocks(0, sources, targets))
    assert found.offset == offset
    assert abs(found.first - FIRST) <= 50
    assert abs(found.last - LAST) <= 50


@pytest.mark.parametrize("names", [False, True])
def test_aligned_text_has_none(names):
    for seed in range(5):
        assert list(joined(shifted_blocks(0, *corpus(seed, names)))) == []


def test_texts_of_one_length_and_few_pairs_say_nothing():
    assert shifted_blocks(0, ["a"] * 100, ["b"] * 100) == []
    assert shifted_blocks(0, ["a"] * 3, ["b"] * 3) == []


def test_blocks_of_several_chunks_are_one():
    sources, targets = corpus()
    targets = targets[-1:] + targets[:-1]
    parts = [shifted_blocks(at, sources[at : at + 500], targets[at : at + 500]) for at in range(0, COUNT, 500)]
    (found,) = joined(block for part in parts for block in part)
    assert (found.first, found.last, found.offset) == (0, COUNT - 1, 1)


def test_what_stands_out_is_said_and_where_nothing_does():
    from t2t_ext.data.corpora.readers import ReadReport
    from t2t_ext.data.doctor.alignment import Block
    from t2t_ext.data.doctor.diagnosis import Diagnosis, Reading, SplitDiagnosis
    from t2t_ext.data.doctor.examination import Examination
    from t2t_ext.data.doctor.findings import faults, findings
    from t2t_ext.data.doctor.report import build
    from t2t_ext.data.generation.cleaning import Cleaning

    train = Examination(pairs=2000, left=2000)
    splits = {"train": SplitDiagnosis(train, ReadReport())}
    diagnosis = Diagnosis("p", ("", ""), {}, splits, "model", (10, 10), Cleaning(), False, Cleaning())
    assert list(findings(diagnosis)) == []
    assert "Nothing stands out" in build(diagnosis).text()
    train.shifted = [Block(600, 649, 1), Block(625, 674, 1)]
    train.alone.update(encoding=1, empty=2, numbers=3)
    train.filled.update(encoding=1, numbers=3)
    train.worst["numbers"] = [(0.0, 0, "a 1 ||| b 2")]
    shifted, empty, damaged = findings(diagnosis)
    assert shifted.startswith("train, pair 601 to pair 675 (3.75%), look misaligned: ")
    assert "read 1 line(s) further down" in shifted
    assert "damaged characters" in damaged
    assert "an empty side" in empty
    text = build(diagnosis).text()
    assert "Nothing stands out" not in text
    assert "different numbers: a 1 ||| b 2" in text
    assert "damaged characters (encoding)  encoding=" in text
    train.shifted = []
    train.filled["identical"] = train.alone["identical"] = 1001
    assert "identical" in next(findings(diagnosis))
    dev = Reading(strict=True)
    dev.drop("wrong_columns", "d.tsv", 3, "1 column")
    splits["dev"] = SplitDiagnosis(Examination(), dev)
    assert next(faults(diagnosis)) == "dev: 1 unusable line(s), wrong number of columns (first: d.tsv:3)"


def test_every_finding_is_said_the_most_important_first(tmp_path):
    from t2t_ext import registry
    from t2t_ext.config.generation import GenerationConfig
    from t2t_ext.data.doctor.diagnosis import Doctor
    from t2t_ext.data.doctor.findings import findings
    from t2t_ext.data.generation.cleaning import Cleaning
    from t2t_ext.data.generation.workers import Workers

    paths = {side: tmp_path / side for side in ("a", "b", "c", "d")}
    texts = {side: [f"{side} {i} and what else is said" for i in range(400)] for side in "ab"}
    texts["a"][10] = "word " * 200
    for line in (20, 30, 40):
        texts["b"][line] = ""
    sides = {side: [f"{line}\n".encode() for line in column] for side, column in texts.items()}
    sides["a"][50] = b"\xff\n"
    for line in range(60, 80):
        sides["b"][line] = sides["b"][line].replace(b"\n", b"\r\n")
    sides |= {"c": [b"one\n", b"\n"], "d": [b"eins\n", b"zwei\n"]}
    for side, path in paths.items():
        path.write_bytes(b"".join(sides[side]))
    names = zip(("train_source", "train_target", "dev_source", "dev_target"), paths.values(), strict=True)
    problem = registry.problem("translate_parallel_text", **{name: str(path) for name, path in names})
    doctor = Doctor(
        problem=problem, tmp_dir=tmp_path, scratch=tmp_path / "scratch", workers=Workers(1), cleaning=Cleaning(),
        settings=GenerationConfig(vocab_size=330), progress=False,
    )  # fmt: skip
    doctor.scratch.mkdir()
    assert list(findings(doctor.examine())) == [
        "3 (0.75%) of the training pairs: an empty side (always dropped)",
        f"train: 1 line(s) left out: invalid UTF-8 (first: {paths['a']}:51)",
        "1 (0.25%) of the training pairs: length ratio (always dropped)",
        "dev: 1 pair(s) with an empty side, which are never dropped from it",
        f"train: 20 line(s) changed: a carriage return before the line feed removed (first: {paths['b']}:61)",
    ]


def test_much_that_is_dropped_is_warned_of():
    from t2t_ext.data.datasets import manifest

    def remedy(floats=None, **drops):
        numbers = {"read": 600, "samples": 99, "notes": {}, "first": {}, "tokens": {}, "longest": {}, "unknown": {}}
        return manifest._remedy(manifest.SplitSummary(**numbers, drops=drops, shards=[], floats=floats or {}))

    assert "iconv -f" in remedy(invalid_utf8=500, empty=1)
    assert "t2t_ext-doctor" in remedy(invalid_utf8=1, length_ratio=500)
    assert remedy(length_ratio=500, floats={"inputs": {}}) == ""  # the doctor examines only text


def test_a_ratio_that_leaves_nothing_is_a_fault(tmp_path):
    from t2t_ext import registry
    from t2t_ext.config.generation import GenerationConfig
    from t2t_ext.data.doctor.diagnosis import Doctor
    from t2t_ext.data.doctor.findings import faults
    from t2t_ext.data.generation.cleaning import Cleaning
    from t2t_ext.data.generation.workers import Workers

    (tmp_path / "a").write_text("one word and more\n" * 9 + "\n")
    (tmp_path / "b").write_text("ein Wort und mehr\n" * 10)
    problem = registry.problem(
        "translate_parallel_text", train_source=str(tmp_path / "a"), train_target=str(tmp_path / "b"), dev_lines="1"
    )
    doctor = Doctor(
        problem=problem, tmp_dir=tmp_path, scratch=tmp_path / "scratch", workers=Workers(1), cleaning=Cleaning(),
        settings=GenerationConfig(vocab_size=330, max_length_ratio=0.5), progress=False,
    )  # fmt: skip
    doctor.scratch.mkdir()
    (fault,) = faults(doctor.examine())
    assert "more subwords on one side than max_length_ratio allows" in fault
