"""Tests of probing: representations, the classifier compared with NumPy, the significance of accuracies, the report."""

import contextlib
import functools
import json
import math
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from random_weights import random_arrays

from t2t_ext import registry
from t2t_ext.analysis.probing import classifier as probing_classifier
from t2t_ext.analysis.probing import features as probing_features
from t2t_ext.analysis.probing import report as probing_report
from t2t_ext.analysis.probing import results as probing
from t2t_ext.analysis.probing import senteval
from t2t_ext.analysis.probing import statistics as probing_statistics
from t2t_ext.analysis.probing.classifier import ClassifierSettings, make_classifier
from t2t_ext.analysis.probing.probe import ProbingSettings
from t2t_ext.errors import UserError

IDS = [[20, 21, 22, 1], [23, 1], [24, 25, 26, 27, 28, 29, 30, 31, 32, 1], [1]]


@pytest.fixture(scope="module")
def model():
    hparams = registry.hparams("transformer_test")
    built = registry.model("transformer")(hparams, source_vocab_size=40, target_vocab_size=40)
    built.build()
    built.assign(random_arrays(built, seed=5, scale=2.0))
    return built


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("with_eos", [True, False])
def test_a_representation_is_the_mean_of_the_states_of_a_sentence_alone(model, layer, with_eos):
    found = probing_features.mean_states(model, IDS, layer, with_eos)
    assert found.dtype == np.float32
    for ids, representation in zip(IDS, found, strict=True):
        encoded = model.encode(np.array([ids], np.int32))
        states = (encoded.layers[0] if layer == 1 else encoded.final).numpy()[0]
        counted = states if with_eos or len(ids) == 1 else states[:-1]
        np.testing.assert_allclose(representation, counted.mean(axis=0), atol=2e-5)


def test_models_show_their_states_or_are_refused(model):
    class Own:
        def source_states(self, inputs):
            return [tf.cast(inputs, tf.float32)[:, :, tf.newaxis] * factor for factor in (1, 10)]

    probing_features.check_model(Own)
    probing_features.check_model(type(model))
    np.testing.assert_allclose(probing_features.mean_states(Own(), [[2, 3, 1], [5, 1]]), [[20], [30]])
    np.testing.assert_allclose(probing_features.mean_states(Own(), [[2, 3, 1], [5, 1]], layer=1), [[2], [3]])
    with pytest.raises(UserError, match="--layer=3: Own has 2 layers"):
        probing_features.mean_states(Own(), IDS, layer=3)
    with pytest.raises(UserError, match="dict shows no states of the source"):
        probing_features.check_model(dict)


def test_representations_on_the_disk(tmp_path):
    features = np.arange(12, dtype=np.float32).reshape(4, 3)
    path = probing_features.cache_path(tmp_path / "f", "task", {"layer": 1})
    assert path == probing_features.cache_path(tmp_path / "f", "task", {"layer": 1})
    assert path != probing_features.cache_path(tmp_path / "f", "task", {"layer": 2})
    assert probing_features.load(path, 4) is None
    probing_features.save(path, features)
    np.testing.assert_array_equal(probing_features.load(path, 4), features)
    assert probing_features.load(path, 5) is None
    path.write_bytes(path.read_bytes()[:-5])
    assert probing_features.load(path, 4) is None
    assert [each.name for each in path.parent.iterdir()] == [path.name]


# === Classifier ===


def toy(count, seed=0):
    x = np.random.default_rng(seed).standard_normal([count, 6]).astype(np.float32)
    return x, ((x[:, 0] * x[:, 1] > 0) + (x[:, 2] > 0)).astype(np.int32)


def numpy_update(weights, squares, x, y, settings):
    """Returns the loss before an RMSProp update, the new weights, and the averages of the squared gradients."""
    w1, b1, w2, b2 = weights
    inner = x @ w1 + b1
    hidden = np.maximum(inner, 0)
    logits = hidden @ w2 + b2
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    loss = -np.log(p[np.arange(len(y)), y]).mean() + settings.l2 * (w1**2).sum()
    p[np.arange(len(y)), y] -= 1
    p /= len(y)
    inward = (p @ w2.T) * (inner > 0)
    gradients = [x.T @ inward + 2 * settings.l2 * w1, inward.sum(axis=0), hidden.T @ p, p.sum(axis=0)]
    squares = [0.9 * s + 0.1 * g**2 for s, g in zip(squares, gradients, strict=True)]
    rates = [settings.learning_rate / np.sqrt(s + 1e-7) for s in squares]
    return loss, [w - r * g for w, r, g in zip(weights, rates, gradients, strict=True)], squares


def test_updates_are_those_of_numpy():
    settings, (x, y) = ClassifierSettings(hidden_size=5, learning_rate=0.01, l2=0.05), toy(20)
    model = make_classifier(6, 3, settings)
    weights, squares = [each.astype(np.float64) for each in model.get_weights()], [0.0] * 4
    losses = model.fit(x, y, batch_size=20, epochs=5, verbose=0).history["loss"]
    for found in losses:
        loss, weights, squares = numpy_update(weights, squares, x, y, settings)
        assert found == pytest.approx(loss, rel=1e-4)
    for found, expected in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-4)


def numpy_accuracy(train, valid, test, settings, seed):
    """Returns the test accuracy of a classifier that is trained and stopped as the paper describes."""
    rng, hidden = np.random.default_rng(seed), settings.hidden_size
    weights = []
    for rows, columns in ((6, hidden), (hidden, 3)):
        limit = math.sqrt(6 / (rows + columns))
        weights += [rng.uniform(-limit, limit, [rows, columns]), np.zeros(columns)]

    def accuracy(x, y):
        w1, b1, w2, b2 = weights
        return ((np.maximum(x @ w1 + b1, 0) @ w2 + b2).argmax(axis=1) == y).mean()

    squares, best, best_epoch, result = [0.0] * 4, -1.0, 0, 0.0
    for epoch in range(1, settings.epochs + 1):
        order = rng.permutation(len(train[0]))
        for start in range(0, len(order), settings.batch_size):
            chosen = order[start : start + settings.batch_size]
            _, weights, squares = numpy_update(weights, squares, train[0][chosen], train[1][chosen], settings)
        if accuracy(*valid) > best:
            best, best_epoch, result = accuracy(*valid), epoch, accuracy(*test)
        elif epoch - best_epoch >= settings.patience:
            break
    return result


def test_a_classifier_expects_that_its_functions_are_traced_anew(monkeypatch):
    """TensorFlow would warn of every fifth classifier in a process, as with ten tasks."""
    entered = []

    @contextlib.contextmanager
    def expected():
        entered.append(True)
        yield

    monkeypatch.setattr(probing_classifier, "retracing_expected", expected)
    x, y = toy(8)
    probing_classifier.train((x, x, x), (y, y), 3, ClassifierSettings(hidden_size=2, epochs=1), seed=1)
    assert entered == [True]


@pytest.mark.parametrize(
    ("size", "units"), [(0, "as many hidden units as the encoder is wide"), (24, "24 hidden units")]
)
def test_the_report_says_how_large_the_classifier_is(size, units):
    described = ProbingSettings(classifier=ClassifierSettings(hidden_size=size), layer=2).describe()
    assert f"layer 2 (EOS included); {units}, L2 0.0001, RMSProp 0.00025" in described


SETTINGS = ClassifierSettings(hidden_size=24, learning_rate=0.01, epochs=40, patience=4, batch_size=32)
PARTS = toy(600), toy(100, 1), toy(2000, 2)


@functools.cache
def trained(seed):
    sentences, classes = zip(*PARTS, strict=True)
    return probing_classifier.train(sentences, classes[:2], 3, SETTINGS, seed)


@pytest.mark.slow
def test_accuracies_are_those_of_numpy_within_noise():
    test_classes = PARTS[2][1]
    expected = [numpy_accuracy(*PARTS, SETTINGS, seed) for seed in range(12)]
    found = [(trained(seed).predicted == test_classes).mean() for seed in range(3)]
    noise = np.std(expected, ddof=1) * math.sqrt(1 / 12 + 1 / 3)
    assert abs(np.mean(found) - np.mean(expected)) < 4 * noise, (found, expected)


def test_the_order_of_the_sentences_is_another_one_in_every_epoch():
    x, y = np.zeros([8, 1], np.float32), np.arange(8, dtype=np.int32)
    orders = []
    for seed in (1, 1, 2):
        batches = probing_classifier.shuffled(x, y, 3, seed)
        orders.append([[int(label) for _, labels in batches for label in labels] for _ in range(3)])
    assert orders[0] == orders[1] != orders[2]
    assert all(sorted(order) == list(range(8)) for order in orders[0])
    assert len({tuple(order) for order in orders[0]}) == 3


def test_a_classifier_learns_and_stops_and_says_the_same_again():
    first, again, other = trained(1), trained.__wrapped__(1), trained(2)
    assert (first.predicted == PARTS[2][1]).mean() > 0.85
    assert first.validation == again.validation != other.validation
    np.testing.assert_array_equal(first.predicted, again.predicted)
    assert first.validation[first.best_epoch - 1] == max(first.validation)
    assert len(first.validation) in (40, first.best_epoch + 4)


def test_the_weights_are_those_of_the_best_epoch():
    (x, y), (valid, labels), settings = (
        toy(200),
        toy(60, 1),
        ClassifierSettings(learning_rate=0.3, epochs=6, patience=9),
    )
    found = probing_classifier.train((x, valid, valid), (y, labels), 3, settings, seed=3)
    assert (found.predicted == labels).mean() == pytest.approx(max(found.validation))
    assert len(found.validation) == 6


# === Statistics ===


def test_wilsons_interval():
    # Values of the formula from Newcombe (1998), table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
    for right, count, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0, 0.1611),
                                    (1, 29, 0.0061, 0.1718)):  # fmt: skip
        assert probing_statistics.wilson(right / count, count) == (
            pytest.approx(low, abs=1e-4),
            pytest.approx(high, abs=1e-4),
        )


def right(*counts):
    """Returns what two systems get right, from the counts of both, only the first, only the second, neither."""
    pairs = np.repeat([[1, 1], [1, 0], [0, 1], [0, 0]], counts, axis=0).astype(bool)
    return pairs[:, 0], pairs[:, 1]


def test_mcnemars_test_is_the_binomial_one():
    assert probing_statistics.mcnemar(*right(5, 1, 9, 4)) == pytest.approx(2 * (1 + 10) / 2**10)
    assert probing_statistics.mcnemar(*right(5, 4, 4, 0)) == 1
    assert probing_statistics.mcnemar(*right(5, 0, 0, 4)) == 1
    assert probing_statistics.mcnemar(*right(0, 4000, 4400, 0)) == pytest.approx(
        math.erfc((400 - 1) / math.sqrt(8400) / math.sqrt(2)), rel=0.01
    )


def test_the_paired_bootstrap_agrees_with_mcnemars_test():
    first, second = right(300, 40, 70, 90)
    p = probing_statistics.paired_bootstrap(first, second)
    assert p == probing_statistics.paired_bootstrap(first, second)
    assert p == pytest.approx(probing_statistics.mcnemar(first, second), abs=0.01)
    assert probing_statistics.paired_bootstrap(first, first) == 1
    assert probing_statistics.paired_test(first[None], second[None])[0] == probing_statistics.MCNEMAR
    assert probing_statistics.paired_test(np.stack([first, first]), second[None]) == (probing_statistics.BOOTSTRAP, p)


# === Report ===


def result(tmp_path, stem, rates, seeds=1):
    lines = [f"{name}\t{i % 2}\tsentence {name} {i}" for name in ("tr", "va", "te") for i in range(40)]
    path = tmp_path / f"{stem}.txt"
    path.write_text("".join(line + "\n" for line in lines))
    runs = {
        label: probing.Probed(np.tile(np.arange(40) < rate, (seeds, 1)), [[0.5, 0.6]] * seeds, [2] * seeds)
        for label, rate in rates.items()
    }
    return probing.TaskResult(senteval.read_task(path), runs)


def test_report(tmp_path):
    tasks = [
        result(tmp_path, "sentence_length", {"a": 20, "b": 30}),
        result(tmp_path, "word_content", {"a": 10, "b": 20}),
        result(tmp_path, "mine", {"a": 40, "b": 40}),
    ]
    runs = [probing.ProbedRun(label, pathlib.Path(label), "model.ckpt-00000001", "transformer") for label in "ab"]
    report = probing.ProbingReport(runs, tasks, {"layer": "top"}, "Measured so.")
    names = probing_report.write(tmp_path / "out", report, ["A <note>."])
    assert sorted(names) == sorted(path.name for path in (tmp_path / "out").iterdir())
    rows = [line.split("\t") for line in (tmp_path / "out" / "probing.tsv").read_text().splitlines()]
    assert {len(row) for row in rows} == {14}
    values = {(row[0], row[1], row[2]): dict(zip(rows[0], row, strict=True)) for row in rows[1:]}
    better = values["b", "sentence_length", "surface"]
    assert (better["accuracy"], better["majority"], better["difference"]) == ("0.75", "0.5", "0.25")
    assert float(better["p"]) == pytest.approx(2 / 2**10, rel=1e-4)
    assert better["test"] == "exact McNemar test"
    assert values["a", "mean", "surface"]["accuracy"] == "0.375"
    assert values["b", "mean", "other"]["accuracy"] == "1"
    content = json.loads((tmp_path / "out" / "probing.json").read_text())
    assert content["tasks"][0]["runs"]["a"]["accuracies_by_seed"] == [0.5]
    assert content["means"]["surface"] == {"a": 0.375, "b": 0.625}
    page = (tmp_path / "out" / "probing.html").read_text()
    assert "A &lt;note&gt;." in page
    assert page.count("<svg ") == 1
    assert tf.image.decode_png((tmp_path / "out" / "probing.png").read_bytes()).shape[2] == 4
    table = probing_report.build(report).text().splitlines()
    assert table[3].split() == ["task", "classes", "majority", "a", "95%", "b", "95%", "-", "a", "p"]
    assert table[4].split()[:4] == ["SentLen", "2", "50.00", "50.00"]
    assert table[4].split()[-2:] == ["+25.00", "0.002"]
    assert table[6].split() == ["mean,", "surface", "(2", "of", "2)", "37.50", "62.50", "+25.00"]


def test_report_of_several_seeds(tmp_path):
    tasks = [result(tmp_path, "sentence_length", {"a": 20, "b": 30}, seeds=3)]
    runs = [probing.ProbedRun(label, pathlib.Path(label), "model.ckpt-00000001", "transformer") for label in "ab"]
    report = probing.ProbingReport(runs, tasks, {}, "Measured so.")
    table = probing_report.build(report).text().splitlines()
    assert table[3].split()[5] == "sd"
    assert table[4].split()[5] == "0.00"
    assert tasks[0].compared("b")[1] == probing_statistics.BOOTSTRAP
    assert tasks[0].compared("a") is None
