"""Tests of probing tasks: what is read and dropped, and what is built from a corpus by SentEval's rules."""

import collections
import gzip
import hashlib
import os

import numpy as np
import pytest

from t2t_ext.analysis.probing import senteval, senteval_build, senteval_coordination, senteval_corpus
from t2t_ext.errors import UserError
from t2t_ext.io import inputs

GOOD = ["tr\tO\tthe cat sees", "tr\tI\tcat the sees", "tr\tO\ta dog", "va\tI\tdog a", "te\tO\tthe cat sees", "te\tI\tx"]
SETTINGS = senteval_build.BuildSettings(sizes=(40, 8, 10), words=4, first_rank=6, rarest=5, commonest=400)


def task_file(path, lines):
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


# === Reading ===


def test_a_task_is_read(tmp_path):
    path = tmp_path / "bigram_shift.txt.gz"
    path.write_bytes(gzip.compress("".join(line + "\n" for line in GOOD).encode()))
    task = senteval.read_task(path)
    assert (task.name, task.category, task.classes) == ("BShift", "syntactic", ("I", "O"))
    assert task.partitions["tr"].sentences == ("the cat sees", "cat the sees", "a dog")
    assert task.partitions["tr"].labels.tolist() == [1, 0, 1]
    assert task.majority == 0.5
    assert task.repeated == 1
    assert task.notes() == [f"{path}: 1 of 2 test sentences are training sentences, too"]
    other = senteval.read_task(task_file(tmp_path / "mine.txt", GOOD))
    assert (other.name, other.category) == ("mine", "other")


def test_a_pipe_is_read_once(tmp_path):
    """What is read a second time, for the digest, is what came through it."""
    content = "".join(line + "\n" for line in GOOD).encode()
    end, start = os.pipe()
    os.write(start, content)
    os.close(start)
    try:
        task = senteval.read_task(f"/dev/fd/{end}")
    finally:
        os.close(end)
        inputs.forget_pipes()
    assert task.sha256 == hashlib.sha256(content).hexdigest()


def test_lines_that_cannot_be_used_are_counted(tmp_path):
    bad = [
        "tr\tO",
        "xx\tO\ta b",
        "tr\tO\t  ",
        "tr\t\ta b",
        "te\tZ\ta b",
        "tr\tO\t" + "a " * 60,
        "tr\tO\tnote\tlast field",
    ]
    path = tmp_path / "task.txt"
    path.write_bytes("".join(line + "\n" for line in [*GOOD, *bad]).encode() + b"tr\tO\t\xff\n")
    task = senteval.read_task(path, max_characters=100)
    assert task.dropped == {
        "fewer than 3 fields": 1,
        "an unknown partition (there are tr, va, te)": 1,
        "no sentence": 1,
        "no class": 1,
        "a class that training does not have": 1,
        "more than 100 characters": 1,
        "not UTF-8": 1,
    }
    assert task.first["a class that training does not have"] == 11
    assert task.partitions["tr"].sentences[-1] == "last field"
    assert f"{path}: lines left out: 1, no class (first: line 10)" in task.notes()


def test_a_limit_takes_the_same_sentences_in_their_order(tmp_path):
    lines = [f"{name}\t{i % 2}\tsentence {i}" for name in ("tr", "va", "te") for i in range(50)]
    path = task_file(tmp_path / "t.txt", lines)
    task, again = (senteval.read_task(path, (20, 0, 5)) for _ in range(2))
    numbers = [int(sentence.split()[1]) for sentence in task.partitions["tr"].sentences]
    assert len(numbers) == 20
    assert numbers == sorted(numbers) != list(range(20))
    assert [number % 2 for number in numbers] == task.partitions["tr"].labels.tolist()
    assert [len(task.partitions[name]) for name in ("va", "te")] == [50, 5]
    assert senteval.digest_of(task) == senteval.digest_of(again) != senteval.digest_of(senteval.read_task(path))


def test_files_that_are_no_tasks(tmp_path):
    for lines, message in (
        (["tr\tO\ta", "va\tO\ta"], r"an empty partition \(tr 1, va 1, te 0\)"),
        (["tr\tO\ta", "va\tO\ta", "te\tO\ta"], "one class only"),
        (["a sentence"] * 3, "3 lines left out: fewer than 3 fields"),
    ):
        with pytest.raises(UserError, match=message):
            senteval.read_task(task_file(tmp_path / "t.txt", lines))
    with pytest.raises(UserError, match="There is no file"):
        senteval.read_task(tmp_path / "nowhere.txt")
    with pytest.raises(UserError, match="has none of the probing tasks"):
        senteval.task_files(tmp_path)
    for name in ("coordination_inversion.txt", "word_content.txt.gz"):
        (tmp_path / name).touch()
    assert [path.name for path in senteval.task_files(tmp_path)] == [
        "word_content.txt.gz",
        "coordination_inversion.txt",
    ]


# === Building ===


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    random = np.random.default_rng(1)
    nouns, verbs = [f"noun{i}" for i in range(8)], [f"verb{i}" for i in range(4)]
    lines = []
    for i in range(1500):
        words = ["The", nouns[random.integers(8)], verbs[random.integers(4)], "the", nouns[random.integers(8)]]
        words += [f"w{random.integers(400)}" for _ in range(random.integers(0, 23))]
        lines.append(" ".join([*words, "."]) if i % 10 else " ".join(['"', *words, '"']))
    lines += ["too short .", lines[0]]
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    return senteval_corpus.read_corpus(task_file(path, lines))


def sentences_of(rows):
    return [sentence for lines in rows.values() for _, sentence in lines]


def counts_of(rows):
    return {name: collections.Counter(label for label, _ in lines) for name, lines in rows.items()}


def test_the_corpus_has_each_sentence_once(corpus):
    assert corpus.left_out["not 5 to 28 tokens"] >= 1
    assert corpus.left_out["a sentence that was there before"] >= 1
    assert len(corpus.sentences) + sum(corpus.left_out.values()) == corpus.lines == 1502


@pytest.mark.parametrize("task", ["sentence_length", "word_content", "bigram_shift", "odd_man_out"])
def test_built_tasks_are_balanced_disjoint_and_readable(corpus, tmp_path, task):
    tags = {word: "NN" if word.startswith("noun") else "VBZ" for word in corpus.counts if word[:4] in ("noun", "verb")}
    settings = senteval_build.BuildSettings(
        sizes=SETTINGS.sizes, words=4, first_rank=20, tags=tags, rarest=5, commonest=2000
    )
    rows = senteval_build.build(task, corpus, settings)
    assert [len(rows[name]) for name in ("tr", "va", "te")] == [40, 8, 10]
    for counts in counts_of(rows).values():
        assert max(counts.values()) - min(counts.values()) <= 1
    assert len(set(sentences_of(rows))) == 58
    assert rows == senteval_build.build(task, corpus, settings)
    path = tmp_path / f"{task}.txt"
    senteval_corpus.write_rows(path, rows)
    read = senteval.read_task(path)
    assert not read.dropped
    assert not read.repeated
    assert read.partitions["te"].sentences == tuple(sentence for _, sentence in rows["te"])


def test_lengths_are_those_of_their_bins(corpus):
    rows = senteval_build.build("sentence_length", corpus, SETTINGS)
    for label, sentence in (pair for lines in rows.values() for pair in lines):
        least, most = senteval_build.LENGTH_BINS[int(label)]
        assert least <= len(sentence.split()) <= most


def test_target_words_are_those_of_their_ranks_and_stand_alone(corpus):
    counts = collections.Counter(token.lower() for sentence in corpus.sentences for token in sentence)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    words = [word for word in ranked[5:] if len(word) >= 4][:4]
    rows = senteval_build.build("word_content", corpus, SETTINGS)
    assert {label for lines in rows.values() for label, _ in lines} == set(words)
    for label, sentence in (pair for lines in rows.values() for pair in lines):
        assert [word for word in sentence.lower().split() if word in words] == [label]


def test_a_shift_changes_two_neighbors_behind_the_first(corpus):
    originals = {" ".join(sentence) for sentence in corpus.sentences}
    for label, sentence in (pair for lines in senteval_build.build("bigram_shift", corpus, SETTINGS).values()
                            for pair in lines):  # fmt: skip
        assert '"' not in sentence
        assert (sentence in originals) == (label == "O")
        tokens = sentence.split()
        assert (tokens[0], tokens[-1]) == ("The", ".")
        if label == "I":
            back = [[*tokens[:i], tokens[i + 1], tokens[i], *tokens[i + 2 :]] for i in range(1, len(tokens) - 2)]
            assert any(" ".join(each) in originals for each in back)


def test_odd_words_have_the_same_part_of_speech_and_a_partition_of_their_own(corpus):
    tags = {word: "NN" if word.startswith("noun") else "VBZ" for word in corpus.counts if word[:4] in ("noun", "verb")}
    settings = senteval_build.BuildSettings(sizes=(40, 8, 10), tags=tags, rarest=5, commonest=2000)
    originals = [sentence for sentence in corpus.sentences]
    by_rest = collections.defaultdict(set)
    for sentence in originals:
        for i, word in enumerate(sentence):
            if word in tags:
                by_rest[(*sentence[:i], tags[word], *sentence[i + 1 :])].add(word)
    homes = collections.defaultdict(set)
    for partition, lines in senteval_build.build("odd_man_out", corpus, settings).items():
        for label, sentence in lines:
            tokens = tuple(sentence.split())
            if label == "O":
                assert tokens in originals
                continue
            assert tokens not in originals
            found = [
                word
                for i, word in enumerate(tokens)
                if word in tags and by_rest.get((*tokens[:i], tags[word], *tokens[i + 1 :]))
            ]
            assert found
            if len(found) == 1:
                homes[found[0]].add(partition)
    assert homes
    assert all(len(partitions) == 1 for partitions in homes.values())


def test_a_corpus_that_is_too_small_says_what_it_is_enough_for(corpus):
    large = senteval_build.BuildSettings(sizes=(6000, 600, 600))
    with pytest.raises(UserError, match=r"class 0 \(5-8 tokens\): \d+ of 1,200.*It is enough for about --build_sizes="):
        senteval_build.build("sentence_length", corpus, large)
    with pytest.raises(UserError, match=r"has \d+ words, and from rank 2,001 on 0"):
        senteval_build.build("word_content", corpus, large)
    with pytest.raises(UserError, match=r"two tokens to change: 1,3\d\d of 7,200"):
        senteval_build.build("bigram_shift", corpus, large)
    with pytest.raises(UserError, match="cannot have all 4 classes"):
        senteval_build.build(
            "word_content", corpus, senteval_build.BuildSettings(sizes=(9, 3, 9), words=4, first_rank=6)
        )


def test_tasks_that_tokens_do_not_tell():
    with pytest.raises(UserError, match="tree_depth needs a parser"):
        senteval_build.check_tasks(["tree_depth"], True)
    with pytest.raises(UserError, match="Did you mean 'bigram_shift'"):
        senteval_build.check_tasks(["bigram_shfit"], True)
    with pytest.raises(UserError, match="give --pos_file"):
        senteval_build.check_tasks(["odd_man_out"], False)


def test_clauses_change_places(tmp_path):
    first = [f"He saw the red thing{i}" for i in range(30)]
    second = [f"Tom was at home{i}" for i in range(30)]
    joined = [f"{one} , and {other} ." for one, other in zip(first, second, strict=True)]  # five tokens, four tokens
    joined += [f"I was at{i} but the old man went home{i} ." for i in range(30)]  # three tokens, five tokens
    joined += [f"It is old{i} or she is new{i} ." for i in range(20)]
    joined += [
        "He ran and she saw who was there .",
        "I think Tom and Mary would go home .",
        "The cat and the dog ran home .",
        "He said so and she and I went .",
    ]
    joined += [f"We met Tom{i} and Tom ." for i in range(9)]
    corpus = senteval_corpus.read_corpus(task_file(tmp_path / "c.txt", joined))
    random = np.random.default_rng(1)
    rows = senteval_coordination.coordination_inversion(corpus, (40, 10, 10), None, random)
    assert counts_of(rows) == {name: {"O": size // 2, "I": size // 2} for name, size in
                               (("tr", 40), ("va", 10), ("te", 10))}  # fmt: skip
    sentences = set(sentences_of(rows))
    assert len(sentences) == 60
    kinds = collections.Counter()
    for name, lines in rows.items():
        for label, sentence in lines:
            assert (sentence in joined) == (label == "O")
            joint = next(word for word in (" , and ", " but ", " or ") if word in sentence)
            one, other = sentence.removesuffix(" .").split(joint)
            sizes = len(one.split()), len(other.split())
            kinds[name, label, (sizes[0] > sizes[1]) - (sizes[0] < sizes[1])] += 1
            assert one[0].isupper()
            assert f"{other}{joint.rstrip()}" not in sentences
            if label == "I" and "thing" in sentence:
                assert one.startswith("Tom was at home")
                assert other.startswith("he saw the red")
            if label == "I" and " but " in sentence:
                assert one.startswith("The old man")
                assert other.startswith("I was at")
    for name in ("tr", "va", "te"):
        assert all(kinds[name, "O", kind] == kinds[name, "I", kind] for kind in (-1, 0, 1))
    with pytest.raises(UserError, match=r"longer first clause 30, second 30, equal 20\): 40 of 60"):
        senteval_coordination.coordination_inversion(corpus, (100, 10, 10), None, random)


def test_parts_of_speech_are_words_and_tags(tmp_path):
    assert senteval_corpus.read_tags(task_file(tmp_path / "a", ["run\tVB", "cat\tNN", "run\tNN"])) == {
        "run": "VB",
        "cat": "NN",
    }
    with pytest.raises(UserError, match="line 2: expected WORD TAB TAG"):
        senteval_corpus.read_tags(task_file(tmp_path / "b", ["run\tVB", "cat"]))
