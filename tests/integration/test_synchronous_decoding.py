"""Tests of a model that generates in two directions, with the translator, the decoder and the export."""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from python_blocks import run_blocks

from t2t_ext.bin import decoder, translate_all
from t2t_ext.errors import UserError

LINES = [
    "the old cat sees the lamp .",
    "",
    "the city loves the small flower today .",
    "Ünïcödé ☃ x",
    "the",
    "the new door finds the old street often .",
]
STEP = 40
PHRASE = "Katze"


@pytest.fixture(scope="module")
def model(tiny_encoder):
    """Returns a synchronous Transformer over the tiny encoder's vocabulary, with random weights like ``tiny_model``."""
    from random_weights import random_arrays

    from t2t_ext import registry

    size = tiny_encoder.vocab_size
    hparams = registry.hparams("synchronous_transformer_test").override("sb_lambda=0.5")
    hparams = hparams.replace(shared_embedding_and_softmax_weights=False, pseudo="none")
    made = registry.model("synchronous_transformer")(hparams, source_vocab_size=size, target_vocab_size=size)
    made.build()
    arrays = random_arrays(made, seed=3, scale=2.0)
    bias = arrays["decoder/final_norm/bias"]
    arrays["softmax/embeddings"][267:] += 3.0 * bias / np.dot(bias, bias)
    arrays["softmax/embeddings"][1] *= 2.0
    made.assign(arrays)
    return made


@pytest.fixture(scope="module")
def make(model, tiny_encoder):
    """Returns a function (decode hparams as keywords) -> Translator of the model."""
    from t2t_ext.config.decode import DecodeHParams
    from t2t_ext.translation.translator import Translator

    return lambda **hparams: Translator(model, tiny_encoder, tiny_encoder, DecodeHParams(**hparams))


@pytest.fixture(scope="module")
def beams(make):
    return make(return_beams=True)


@pytest.fixture(scope="module")
def results(beams):
    return beams.translate(LINES)


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_run, model, tiny_encoder):
    """Returns the path of a run of the model on the tiny run's data, with one checkpoint."""
    from t2t_ext.runs import checkpoints, run_directory

    config = run_directory.RunDirectory.open(tiny_run.path).config
    config = run_directory.dataclasses.replace(
        config,
        model="synchronous_transformer",
        hparams_set="synchronous_transformer_test",
        hparams_class=run_directory.class_name(model.hparams),
        hparams=model.hparams.to_dict(),
    )
    path = tmp_path_factory.mktemp("synchronous") / "run"
    directory = run_directory.RunDirectory.create(path, config, tiny_encoder, tiny_encoder)
    arrays = {name: variable.numpy() for name, variable in model.named_variables().items()}
    checkpoints.save_checkpoint(directory.checkpoints_dir, STEP, arrays)
    return path


def test_text_of_both_directions_is_in_text_order(results, tiny_encoder):
    directions = set()
    for line, found in zip(LINES, results, strict=True):
        if not line:
            assert [(each.text, each.length) for each in found] == [("", 0)]
            continue
        assert len(found) == 4
        for each in found:
            words = each.ids[: each.length - each.finished]
            text = tiny_encoder.decode(words[::-1] if each.direction == "r2l" else words)
            assert each.text == text
            directions.add(each.direction)
        assert [each.score for each in found] == sorted([each.score for each in found], reverse=True)
    assert directions == {"l2r", "r2l"}


def test_a_line_does_not_depend_on_its_batch(beams, results):
    for line, found in zip(LINES, results, strict=True):
        (alone,) = beams.translate([line])
        assert [(each.ids, each.direction) for each in alone] == [(each.ids, each.direction) for each in found]
        np.testing.assert_allclose([e.log_prob for e in alone], [e.log_prob for e in found], atol=2e-3)


def test_sources_as_ids(beams, results, tiny_encoder):
    """Sources may be rows of ids with any padding; a row without tokens has an empty translation."""
    rows = [[*tiny_encoder.encode(line), 1] if line else [] for line in LINES]
    width = max(map(len, rows)) + 3
    ids = np.array([row + [0] * (width - len(row)) for row in rows], np.int32)
    found = {name: value.numpy() for name, value in beams.search_ids_batch(ids).items()}
    for row, expected in enumerate(results):
        places = range(len(expected))  # an empty source has one translation
        assert [found["outputs"][row][i].decode() for i in places] == [each.text for each in expected]
        directions = [("l2r", "r2l")[found["directions"][row][i]] for i in places]
        assert directions == [each.direction for each in expected] or not rows[row]
    assert beams.search_ids_batch(np.array([[5, 1]], np.int32))["lengths"].numpy()[0, 0] >= 1


@pytest.fixture(scope="module")
def scorer(make):
    return make()


def test_scores_need_both_sides(scorer, model):
    translator = scorer
    pairs = [(line, "die alte Katze") for line in LINES]
    partners = ["die Katze", "", "die alte Katze sieht", "x", "die alte Katze", "neue Tür"]
    for function in (translator.score, translator.align):
        with pytest.raises(UserError, match="depends on what the other direction generates"):
            function(pairs)
        with pytest.raises(UserError, match="5 partners for 6 translations"):
            function(pairs, partners=partners[:5])
        with pytest.raises(UserError, match=r"'up' .* l2r or r2l"):
            function(pairs, partners=partners, directions=["up"] * 6)
        with pytest.raises(UserError, match="give the partners, too"):
            function(pairs, directions=["l2r"] * 6)
    directions = ["l2r", "r2l"] * 3
    encoder = translator.target_encoder
    for scored, (source, target), partner, direction in zip(
        translator.score(pairs, partners=partners, directions=directions), pairs, partners, directions, strict=True
    ):
        inputs = np.array([[*translator.source_encoder.encode(source), 1]], np.int32)
        own, other = encoder.encode(target), encoder.encode(partner)
        left, right = (own, other[::-1]) if direction == "l2r" else (other, own[::-1])
        sides = np.zeros([1, 2, max(len(left), len(right)) + 1], np.int32)
        for side, ids in enumerate((left, right)):
            sides[0, side, : len(ids) + 1] = [*ids, 1]
        logits = model(inputs, sides).numpy()[0, int(direction == "r2l")]
        steps = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        chosen = [float(steps[t, token]) for t, token in enumerate([*(left, right)[direction == "r2l"], 1])]
        assert scored.log_prob == pytest.approx(sum(chosen), abs=2e-3)
        assert scored.length == len(own) + 1
        words = chosen[-2::-1] if direction == "r2l" else chosen[:-1]
        np.testing.assert_allclose(scored.token_log_probs, [*words, chosen[-1]], atol=1e-3)
    swapped = translator.score(pairs[:1], partners=partners[1:2])[0].log_prob
    assert swapped != pytest.approx(translator.score(pairs[:1], partners=partners[:1])[0].log_prob, abs=1e-3)


def test_scores_of_ids_are_those_of_the_whole_sequences(scorer, model):
    import tensorflow as tf

    both = np.array(
        [[[12, 13, 14, 1, 0, 0], [15, 12, 1, 0, 0, 0]], [[11, 1, 0, 0, 0, 0], [13, 11, 14, 12, 15, 1]]], np.int32
    )
    lines, right_to_left = LINES[:2], np.array([True, False])
    found = scorer.score_sides_ids_batch(tf.constant(lines), both, right_to_left)
    logits = np.concatenate(
        [model(scorer.source.encode(tf.constant([line])), both[i : i + 1]) for i, line in enumerate(lines)]
    )
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for i, side in enumerate([1, 0]):
        expected = [log_probs[i, side, t, token] for t, token in enumerate(both[i, side]) if token]
        assert found["lengths"][i] == len(expected)
        np.testing.assert_allclose(found["token_log_probs"][i, : len(expected)], expected, atol=1e-4)
        np.testing.assert_allclose(found["log_probs"][i], sum(expected), atol=1e-4)


def test_alignments_of_both_sides(scorer):
    pairs = [("the cat sees", "die Katze sieht")] * 2
    lines = scorer.align(pairs, partners=["die Katze sieht nie"] * 2, directions=["l2r", "r2l"])
    assert [[link.split("-")[1] for link in line.split()] for line in lines] == [["0", "1", "2"]] * 2
    with pytest.raises(UserError, match="the alignment of a translation depends"):
        scorer.check_alignment()
    scorer.check_alignment(with_partners=True)


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        ({"beam_size": 1}, "beam_size=1: .* half of the beam"),
        ({"beam_size": 3}, "Give an even number; beam_size=2 is one hypothesis a direction"),
        ({"sampling_method": "random"}, "sampling_method=random needs a model that generates in one direction"),
        ({"sb_decode": "recompute", "coverage_penalty": 0.1}, "leave one of them out"),
        ({"beam_size": 4, "diverse_groups": 4}, "not a multiple of 8"),
    ],
)
def test_what_two_directions_cannot(make, hparams, message):
    with pytest.raises(UserError, match=message):
        make(**hparams)(LINES)


def test_prefixes_are_refused(make):
    with pytest.raises(UserError, match="generates right to left as well"):
        make().translate(LINES, prefixes=[""] * len(LINES))


def test_one_direction_has_no_partners(tiny_translator, make_translator):
    with pytest.raises(UserError, match="generates in one direction"):
        tiny_translator.score([("the", "die")], partners=["die"])
    with pytest.raises(UserError, match=r"sb_pairing=best, sb_decode=recompute: .* generates in one direction"):
        make_translator(sb_pairing="best", sb_decode="recompute")(LINES)


def test_an_ensemble_of_both_kinds_is_refused(model, tiny_model):
    from t2t_ext.models.ensemble import Ensemble

    with pytest.raises(UserError, match="directions"):
        Ensemble([model, tiny_model])


# === Commands ===


def test_the_decoder_reports_who_won(run, tmp_path, capsys, results):
    (tmp_path / "in.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    arguments = [f"--output_dir={run}", f"--decode_from_file={tmp_path / 'in.txt'}"]
    output, nbest = tmp_path / "out.txt", tmp_path / "nbest.jsonl"
    assert decoder.main([*arguments, f"--decode_to_file={output}", f"--nbest_file={nbest}"]) == 0
    assert output.read_text(encoding="utf-8").split("\n")[:-1] == [row[0].text for row in results]
    best = [row[0] for row in results if row[0].length]
    count = sum(each.direction == "l2r" for each in best)
    shown = f"{100 * count / len(best):.1f}% left to right ({count}, "
    assert shown in capsys.readouterr().err
    for line, row in zip(nbest.read_text(encoding="utf-8").splitlines(), results, strict=True):
        directions = [each["direction"] for each in json.loads(line)["hypotheses"]]
        assert directions == [each.direction for each in row][: len(directions)]


def test_translating_all_checkpoints_reports_who_won(run, tmp_path, capsys):
    folder = tmp_path / "translations"
    flags = ["--decode_hparams=beam_size=2", "--wait_minutes=0", f"--translations_dir={folder}"]
    assert translate_all.main([f"--output_dir={run}", *flags]) == 0
    ((path,),) = [list(made.glob("*.directions.txt")) for made in folder.iterdir()]
    won = [direction for direction in path.read_text().splitlines() if direction]
    count = won.count("l2r")
    assert f"{100 * count / len(won):.1f}% left to right ({count}, " in capsys.readouterr().out


def test_the_decoder_scores_with_partners(run, tmp_path, capsys, scorer):
    rows = [("the cat", "die Katze", "Katze"), ("the", "die", "die alte")]
    path = tmp_path / "pairs.tsv"
    arguments = [f"--output_dir={run}", f"--score_file={path}", f"--decode_to_file={tmp_path / 'scores.tsv'}"]
    path.write_text("\n".join("\t".join(row) for row in rows) + "\tr2l\n", encoding="utf-8")
    assert decoder.main(arguments) == 0
    expected = scorer.score([row[:2] for row in rows], partners=[row[2] for row in rows], directions=["l2r", "r2l"])
    for line, score in zip((tmp_path / "scores.tsv").read_text().splitlines(), expected, strict=True):
        assert float(line.split("\t")[0]) == pytest.approx(score.log_prob, abs=1e-3)
    capsys.readouterr()
    for text, message in (
        ("the\tdie\n", "line 1: 2 tab-separated columns where 'source TAB target TAB partner' are 3"),
        ("the\tdie\tdie\tup\n", "'up' is no direction"),
    ):
        path.write_text(text)
        assert decoder.main(arguments) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("hparams", ["beam_size=3", "sampling_method=random"])
def test_mistakes_are_found_before_anything_is_loaded(run, tmp_path, capsys, hparams):
    (tmp_path / "in.txt").write_text("the\n")
    arguments = [f"--output_dir={run}", f"--decode_from_file={tmp_path / 'in.txt'}", f"--decode_hparams={hparams}"]
    assert decoder.main(arguments) == 2
    assert hparams in capsys.readouterr().err
    assert not list(tmp_path.glob("*.decodes"))


def test_shares():
    from t2t_ext.search.directions import direction_shares, shown_shares
    from t2t_ext.translation.translator import Hypothesis

    best = [Hypothesis("x", -1.0, length, -1.0, True, (), direction=direction) for direction, length in WON]
    shares = direction_shares(best)
    assert shares["l2r"] == {"count": 3, "share": 0.75, "mean_length": 4.0}
    assert shares["r2l"] == {"count": 1, "share": 0.25, "mean_length": 7.0}
    assert "75.0% left to right (3, 4.0 tokens on average), 25.0% right to left (1, 7.0" in shown_shares(shares)
    assert direction_shares([])["r2l"] == {"count": 0, "share": 0.0, "mean_length": 0.0}


WON = [("l2r", 2), ("r2l", 7), ("l2r", 4), ("l2r", 6), ("l2r", 0)]


@pytest.mark.slow  # the contract suite exports every model
def test_served_like_any_other_model(scorer, results, tmp_path):
    """The exported model translates when TensorFlow's C API loads it in a process without t2t_ext."""
    import tensorflow as tf

    from t2t_ext.serving.export import export, signature_tensors

    exported = export(scorer, tmp_path / "model", made_from={"model": "synchronous_transformer"})
    tensors = signature_tensors(exported)
    output, index = tensors["outputs"].split(":")
    folder = importlib.util.find_spec("tensorflow_text").submodule_search_locations[0]
    ops = pathlib.Path(folder) / "python" / "ops" / "_sentencepiece_tokenizer.so"
    loader = tmp_path / "loader.py"
    shutil.copy(pathlib.Path(__file__).with_name("c_api_loader.py"), loader)
    command = [sys.executable, str(loader), str(ops), str(exported), tensors["inputs"].split(":")[0], output, index]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*command, *LINES], capture_output=True, check=True, timeout=120, env=environment)
    assert done.stdout.decode().split("\n")[:-1] == [row[0].text for row in results]

    signatures = tf.saved_model.load(str(exported)).signatures
    assert {"translate_with_constraints", "nbest", "score"} <= set(signatures)
    assert not {"translate_with_prefix", "align", "sample"} & set(signatures)
    strings = [tf.constant(values) for values in (["the cat"], ["die Katze"], ["Katze"])]
    scored = signatures["score"](**dict(zip(("inputs", "targets", "partners"), strings, strict=True)))
    (expected,) = scorer.score([("the cat", "die Katze")], partners=["Katze"])
    np.testing.assert_allclose(scored["log_probs"], [expected.log_prob], atol=1e-3)

    constraints = tf.constant([PHRASE if line else "" for line in LINES])
    found = signatures["translate_with_constraints"](inputs=tf.constant(LINES), constraints=constraints)
    met = [PHRASE in text.decode() for text, line in zip(found["outputs"].numpy(), LINES, strict=True) if line]
    assert met == [not unmet for unmet, line in zip(found["unmet_constraints"].numpy(), LINES, strict=True) if line]
    assert any(met)


def test_the_python_of_the_docs(scorer, model):
    names = {"translator": scorer, "both_sides": np.array([[[20, 30, 1], [40, 1, 0]]], np.int32)}
    run_blocks("docs/decoding.md", blocks=slice(1), names=names)
    sizes = {"source_vocab_size": 20, "target_vocab_size": 20}
    made = run_blocks("docs/synchronous.md")["CrossView"](model.hparams, **sizes)
    encoded = SimpleNamespace(layers=["first", "second"])
    assert made.decoder.source_views.views(encoded) == encoded.layers


def test_min_length_forbids_empty_translations_in_both_directions(make, model, monkeypatch):
    import tensorflow as tf

    from t2t_ext.data.text.text_encoder import EOS_ID

    step = model.step

    def end(*args, **kwargs):
        logits, state = step(*args, **kwargs)
        return logits + tf.one_hot(EOS_ID, logits.shape[-1], on_value=1e3), state

    monkeypatch.setattr(model, "step", end)
    free, longer = (make(beam_size=4, min_length=least) for least in (0, 1))
    assert {len(found[0].ids) for found in free.translate(["the", "the old cat"])} == {1}
    assert free.empty_line_numbers == (1, 2)
    assert {len(each.ids) for found in longer.translate(["the", "the old cat"]) for each in found} == {2}
    assert longer.empty_line_numbers == ()
