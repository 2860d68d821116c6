"""Tests of shortlists: IBM Model 1 against its plain formula, the fixed candidates, and the files."""

import collections

import numpy as np
import pytest

from t2t_ext.data.datasets import shortlist
from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.data.datasets.shortlist import Shortlist
from t2t_ext.errors import UserError


class Encoder:
    """Implements the part of SubwordEncoder that a shortlist needs; id 12 is a byte, and 13 a control symbol."""

    control_ids = (3, 4, 13)

    def __init__(self, vocab_size, name):
        self.vocab_size, self.ids_sha256 = vocab_size, name

    def pieces(self, ids):
        return ["<0x41>" if index == 12 else f"{self.ids_sha256}{index}" for index in ids]


SOURCE, TARGET = Encoder(30, "s"), Encoder(40, "t")


@pytest.fixture
def pairs():
    rng = np.random.default_rng(5)
    sources = [[*rng.integers(14, 30, rng.integers(0, 6)), 1] for _ in range(50)]
    return sources, [[*(source[0] + rng.integers(0, 9, rng.integers(0, 6))), 1] for source in sources]


def model_1(sources, targets, iterations=4):
    """Returns t(f | e) after the EM iterations of Brown et al. (1993), computed sentence by sentence."""
    t = collections.defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts, totals = collections.defaultdict(float), collections.defaultdict(float)
        for source, target in zip(sources, targets, strict=True):
            for f in target[:-1]:
                whole = sum(t[e, f] for e in source)
                for e in source:
                    counts[e, f] += t[e, f] / whole
                    totals[e] += t[e, f] / whole
        t = {(e, f): count / totals[e] for (e, f), count in counts.items()}
    return t


def make(pairs, source=SOURCE, frequent=3, candidates=4, max_examples=1000):
    store = ExampleStore.from_sequences(*pairs)
    return Shortlist.make(
        store, source, TARGET, frequent=frequent, candidates=candidates, max_examples=max_examples
    )  # fmt: skip


@pytest.mark.parametrize("at_once", [4_000_000, 1])
def test_best_are_those_of_model_1(pairs, monkeypatch, at_once):
    monkeypatch.setattr(shortlist, "_PAIRS_AT_ONCE", at_once)
    found = make(pairs)
    t = model_1(*pairs)
    for source_id, row in enumerate(found.best):
        probabilities = sorted((p for (e, _), p in t.items() if e == source_id), reverse=True)[:4]
        row = row[row != 0]
        assert len(set(row)) == len(row)
        np.testing.assert_allclose([t[source_id, f] for f in row], probabilities, rtol=1e-9)
    assert found.best[20].any()
    assert found.best[1].any()  # EOS, which takes the place of the empty word


def test_always_are_specials_bytes_and_the_most_frequent(pairs):
    counts = np.bincount(np.concatenate(pairs[1]), minlength=40)
    frequent = sorted(range(40), key=lambda index: (-counts[index], index))[:3]
    assert make(pairs).always.tolist() == sorted({*range(11), 12, 13, *frequent})


def test_examples_are_evenly_spaced(pairs):
    few = tuple(side[::2] for side in pairs)
    expected = make(few, max_examples=25).best
    np.testing.assert_array_equal(make(pairs, max_examples=25).best, expected)
    assert (expected != make(pairs).best).any()


def test_in_a_joint_vocabulary_the_first_candidate_is_the_id_itself(pairs):
    found, other = make(pairs, source=TARGET), make(pairs, source=Encoder(40, "s"))
    for index, (row, candidates) in enumerate(zip(found.best, other.best, strict=True)):
        rest = [each for each in candidates if each not in (index, 0)]
        assert [each for each in row if each] == ([index] if index else []) + rest[:3]


def test_files(pairs, tmp_path):
    made = make(pairs)
    made.write(tmp_path / "one.npz")
    again = Shortlist.read(tmp_path / "one.npz", SOURCE, TARGET)
    np.testing.assert_array_equal(again.always, made.always)
    np.testing.assert_array_equal(again.best, made.best)
    make(pairs).write(tmp_path / "two.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    made.write_vmap(tmp_path / "vmap.txt", SOURCE, TARGET)
    lines = (tmp_path / "vmap.txt").read_text().splitlines()
    assert lines[0] == "\t" + " ".join(TARGET.pieces(made.always))
    rows = dict(line.split("\t") for line in lines[1:])
    assert rows["s20"].split(" ") == TARGET.pieces(made.best[20][made.best[20] != 0])
    assert "s12" not in rows


def test_errors(pairs, tmp_path):
    make(pairs).write(tmp_path / "list.npz")
    (tmp_path / "text.npz").write_text("not an archive")
    np.savez(tmp_path / "other.npz", always=[1])
    with pytest.raises(UserError, match=r"No such file.*analyze shortlist"):
        Shortlist.read(tmp_path / "none.npz", SOURCE, TARGET)
    for name in ("text", "other"):
        with pytest.raises(UserError, match="is not a shortlist"):
            Shortlist.read(tmp_path / f"{name}.npz", SOURCE, TARGET)
    with pytest.raises(UserError, match="for other subwords"):
        Shortlist.read(tmp_path / "list.npz", TARGET, TARGET)


def test_damage_is_a_message(pairs, tmp_path):
    """Whatever errors zlib, zip and NumPy raise, a damaged file is refused, or the values read are unchanged."""
    make(pairs).write(tmp_path / "list.npz")
    content = (tmp_path / "list.npz").read_bytes()
    refused = 0
    for place in range(0, len(content), 7):
        changed = content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :]
        (tmp_path / "changed.npz").write_bytes(changed)
        try:
            found = Shortlist.read(tmp_path / "changed.npz", SOURCE, TARGET)
            np.testing.assert_array_equal(found.best, make(pairs).best)
        except UserError:
            refused += 1
    assert refused > len(content) // 14
