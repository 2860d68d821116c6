"""Tests of problems: names, directions, and the check of every sample against the declared features."""

import re

import numpy as np
import pytest

from t2t_ext.data.corpora.readers import PairFiles
from t2t_ext.data.features.types import Floats, Ids, Text
from t2t_ext.errors import UserError
from t2t_ext.problem import ParallelFilesProblem, Problem, Text2TextProblem, TranslationProblem


class TranslateEndeToy(TranslationProblem):
    source_language, target_language = "en", "de"

    def samples(self, split, tmp_dir):
        yield {"inputs": f"{split} cat", "targets": f"{split} Katze"}


class Declared(Problem):
    def __init__(self, features, samples):
        super().__init__()
        self._features, self._samples = features, samples

    def features(self):
        return self._features

    def samples(self, split, tmp_dir):
        yield from self._samples


def check(features, *samples):
    return list(Declared(features, samples).checked_samples("dev", "."))


def test_samples_that_are_not_given():
    class Forgotten(TranslationProblem):
        def samples(self, split, tmp_dir):
            pass

    with pytest.raises(UserError, match=r"samples\(\) of the class .*Forgotten gives nothing for the dev split"):
        list(Forgotten().checked_samples("dev", "."))


def test_names_and_languages():
    problem = TranslateEndeToy()
    assert (problem.name, problem.base_name) == ("translate_ende_toy",) * 2
    assert (problem.source_language, problem.target_language) == ("en", "de")
    assert TranslateEndeToy(name="other").name == "other"
    given = TranslateEndeToy(source_language="fr")
    assert (given.source_language, given.target_language) == ("fr", "de")


def test_reversed():
    problem = TranslateEndeToy(was_reversed=True)
    assert (problem.name, problem.base_name) == ("translate_ende_toy_rev", "translate_ende_toy")
    assert (problem.source_language, problem.target_language) == ("de", "en")
    base = problem.base()
    assert (base.name, base.source_language, base.was_reversed) == ("translate_ende_toy", "en", False)
    assert base.base() is base
    with pytest.raises(UserError, match="cannot be reversed"):
        Text2TextProblem(was_reversed=True)


def test_samples_that_match_their_declaration():
    features = {"inputs": Text(), "refs": Text(multiple=True), "ids": Ids(size=5), "image": Floats(depth=3)}
    sample = {"inputs": "a", "refs": ["b", "c"], "ids": [0, 4], "image": np.zeros([7, 3])}
    assert check(features, sample, sample) == [sample, sample]


@pytest.mark.parametrize(
    ("feature", "value", "message"),
    [
        (Text(), b"bytes", r"feature 'x': expected a str, got bytes b'bytes'"),
        (Text(), None, r"expected a str, got NoneType"),
        (Text(), "\ud800", r"half of a character \(U\+D800 to U\+DFFF\) in str '\\ud800'"),
        (Text(multiple=True), ["a", "x\udc80"], r"half of a character"),
        (Text(multiple=True), "a", r"expected a non-empty list of str, got str 'a'"),
        (Text(multiple=True), [], r"expected a non-empty list of str"),
        (Ids(size=5), [1, 5], r"expected ids from 0 to 4, got 1 to 5"),
        (Ids(size=5), [0.5], r"expected a flat sequence of int"),
        (Floats(depth=3), np.zeros([2, 4]), r"expected floats of shape \[any, 3\], got float64 of shape \[2, 4\]"),
    ],
)
def test_samples_that_do_not(feature, value, message):
    with pytest.raises(UserError, match=message) as caught:
        check({"x": feature}, {"x": value})
    assert "Sample 1 of declared's dev split" in str(caught.value)


def test_methods_that_are_missing():
    class Bare(Problem):
        pass

    for call, signature in (
        (lambda: Bare().features(), "features(self)"),
        (
            lambda: next(iter(TranslationProblem(name="x").checked_samples("train", "."))),
            "samples(self, split, tmp_dir)",
        ),
        (lambda: ParallelFilesProblem().source_files("dev", "."), "pair_files(self, split, tmp_dir)"),
    ):
        with pytest.raises(UserError, match=re.escape(f"does not define {signature}")):
            call()


def test_wrong_names_of_features():
    with pytest.raises(UserError, match=r"Sample 2 .* expected the features inputs, targets, got inputs, target"):
        check(Text2TextProblem().features(), {"inputs": "", "targets": ""}, {"inputs": "", "target": ""})
    with pytest.raises(UserError, match="expected a dict"):
        check(Text2TextProblem().features(), ("a", "b"))


class FromFiles(ParallelFilesProblem):
    splits = ("train",)

    def pair_files(self, split, tmp_dir):
        return [PairFiles(tmp_dir / f"{part}.en", tmp_dir / f"{part}.de") for part in ("a", "b")]


def test_problems_made_from_files(tmp_path):
    problem = FromFiles()
    for name in ("a.en", "a.de", "b.en"):
        (tmp_path / name).write_text(f"{name} 1\n{name} 2\n")
    with pytest.raises(UserError, match=rf"No such file: {tmp_path}/b\.de\. from_files is made from these"):
        problem.prepare(tmp_path)
    (tmp_path / "b.de").write_text("b.de 1\nb.de 2")
    problem.prepare(tmp_path)
    assert problem.count("train", tmp_path) == 4
    assert list(problem.samples("train", tmp_path))[2:] == [
        {"inputs": f"b.en {i}", "targets": f"b.de {i}"} for i in (1, 2)
    ]
