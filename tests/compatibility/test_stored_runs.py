"""Runs, data and SavedModels of an earlier version can be opened, resumed and served, with the same results.

`data/stored.tar.xz` contains them and the results of that version; `make_stored.py` makes this file. A change that
fails here breaks files on users' disks.
"""

import json
import pathlib
import shutil
import tarfile

import numpy as np
import pytest
import serving_fakes

STORED = pathlib.Path(__file__).parent / "data" / "stored.tar.xz"
with tarfile.open(STORED) as _packed:
    EXPECTED = json.load(_packed.extractfile("expected.json"))
# Runs that others are much like are slow tests.
SLOW = {"composed_l2r", "cross_view_transformer", "layer_coordination_two_stacks", "synchronous_gate"}
TOLERANCE = 1e-4  # of log-probabilities, because another processor sums in another order


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Gives the folder with the unpacked files; the paths in the runs are relative to it."""
    folder = tmp_path_factory.mktemp("stored")
    with tarfile.open(STORED) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later
        packed.extractall(folder)
    return folder


def stored_names(kind, slow):
    return [pytest.param(name, marks=pytest.mark.slow if name in slow else ()) for name in EXPECTED[kind]]


@pytest.mark.parametrize("name", stored_names("runs", SLOW))
def test_a_run_translates_and_scores_as_before(stored, name):
    from t2t_ext import Translator

    expected = EXPECTED["runs"][name]
    decode_hparams = EXPECTED["decode_hparams"]
    if "min_length" not in decode_hparams:
        decode_hparams += ",min_length=0"  # the default of that version
    translator = Translator.load(stored / "runs" / name, decode_hparams=decode_hparams)
    found = translator.translate(expected["lines"])
    for line, row, before in zip(expected["lines"], found, expected["hypotheses"], strict=True):
        assert [h.score for h in row] == pytest.approx([h["score"] for h in before], abs=TOLERANCE)
        for h, was in zip(row, before, strict=True):
            if list(h.ids) == was["ids"]:
                assert {"text": h.text, "finished": h.finished, "direction": h.direction}.items() <= was.items()
            else:
                _assert_tied(translator, line, h.ids, was["ids"])

    sides = {key: expected[key] for key in ("partners", "directions") if key in expected}
    scored = translator.score([tuple(pair) for pair in expected["pairs"]], **sides)
    for score, before in zip(scored, expected["scores"], strict=True):
        assert score.log_prob == pytest.approx(before["log_prob"], abs=10 * TOLERANCE)
        assert score.token_log_probs == pytest.approx(before["token_log_probs"], abs=TOLERANCE)


def _assert_tied(translator, line, ids, stored_ids):
    """Asserts that two translations have the same score; which one is found then depends on the order of sums."""
    ((one, other),) = translator.score_ids([line], [[list(ids), stored_ids]])
    assert one.log_prob == pytest.approx(other.log_prob, abs=TOLERANCE), (ids, stored_ids)


@pytest.mark.parametrize("name", stored_names("resumed", {"composed_three"}))
def test_a_run_is_resumed_on_data_of_before(stored, name, tmp_path, monkeypatch, capfd, small_pictures):
    """A resumed run has the earlier version's losses in the next steps: same batches, same optimizer state."""
    from t2t_ext.bin import trainer

    monkeypatch.chdir(stored)  # the paths of the problem's options are relative
    run = tmp_path / "run"
    shutil.copytree(stored / "runs" / name, run)
    before = EXPECTED["resumed"][name]
    steps = max(record["step"] for record in before)
    flags = [f"--output_dir={run}", f"--data_dir={stored / 'data'}", f"--train_steps={steps}"]
    assert trainer.main([*flags, "--log_step_count_steps=1"]) == 0, capfd.readouterr().err
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = [record for record in found if record["step"] >= before[0]["step"]]
    assert [(record["kind"], record["step"]) for record in found] == [(each["kind"], each["step"]) for each in before]
    assert [record["loss"] for record in found] == pytest.approx([each["loss"] for each in before], abs=TOLERANCE)


def test_the_decoder_translates_a_file(stored, tmp_path, monkeypatch, capsys):
    from t2t_ext.bin import decoder

    monkeypatch.chdir(stored)
    output, expected = tmp_path / "out.txt", EXPECTED["runs"]["transformer"]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in expected["lines"]), encoding="utf-8")
    flags = ["--output_dir=runs/transformer", f"--decode_hparams={EXPECTED['decode_hparams']}"]
    status = decoder.main([*flags, f"--decode_from_file={tmp_path / 'in.txt'}", f"--decode_to_file={output}"])
    assert status == 0, capsys.readouterr().err
    texts = ["\t".join(hypothesis["text"] for hypothesis in row) for row in expected["hypotheses"]]
    assert output.read_text("utf-8").splitlines() == texts


@pytest.mark.parametrize("name", EXPECTED["exports"])
def test_a_savedmodel_answers_as_before(stored, name):
    """A stored SavedModel gives the same results in plain TensorFlow, as a server loads it, and through the client."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 - its operations

    from t2t_ext.serving.client import make_client
    from t2t_ext.serving.served_text import ServedText

    (directory,) = (stored / "exports" / name).iterdir()
    servable, expected = serving_fakes.Servable(directory), EXPECTED["exports"][name]
    lines = next(iter(EXPECTED["runs"].values()))["lines"]
    for signature, before in expected.items():
        found = servable.predict("t2t_ext", None, signature, {"inputs": tf.constant(lines)})
        assert set(found) == set(before)
        for key, value in found.items():
            if value.dtype == tf.string:
                assert np.char.decode(value.numpy().astype(bytes), "utf-8").tolist() == before[key]
            else:
                np.testing.assert_allclose(value, before[key], atol=TOLERANCE, err_msg=key)

    assert ServedText.of_export(directory) is None, "its graph takes text as people write it"
    with serving_fakes.rest_server(servable) as address, make_client(address, "t2t_ext", rest=True) as client:
        found = client.nbest(lines)
    assert [[each.text for each in row] for row in found] == expected["nbest"]["outputs"]
    scores = [[each.score for each in row] for row in found]
    np.testing.assert_allclose(scores, expected["nbest"]["scores"], atol=TOLERANCE)
