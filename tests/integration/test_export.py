"""Tests of the exported SavedModel: it gives the Translator's outputs, contains no Python, and loads from C."""

import importlib.util
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import types

import numpy as np
import pytest

from t2t_ext.bin import exporter
from t2t_ext.errors import UserError
from t2t_ext.io import files

HERE = pathlib.Path(__file__).parent
LINES = ["the old cat sees the lamp .", "", "the city loves the small flower today .", "Ünïcödé ☃ x", "the " * 30]


@pytest.fixture(scope="module")
def signatures(exported):
    from t2t_ext.serving.export import load

    model = load(exported.parent)
    yield model.signatures
    del model


def test_files(exported, tiny_run):
    import tensorflow as tf

    assert exported.name == "40"
    description = json.loads((exported / "export.json").read_text())
    assert description["step"] == 40
    assert description["problem"] == "translate_parallel_text"
    assert description["decode_hparams"]["beam_size"] == 4
    assert tf.saved_model.contains_saved_model(str(exported))


def test_a_damaged_file_is_named(exported, tmp_path):
    from t2t_ext.serving import export

    copy = tmp_path / "40"
    shutil.copytree(exported, copy)
    names = sorted(json.loads((copy / "export.json").read_text())["files"])
    assert names == sorted(
        path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file() and path.name != "export.json"
    )
    for name in names:
        good = (copy / name).read_bytes()
        middle = len(good) // 2
        for damaged in (good[:middle], good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :]):
            (copy / name).write_bytes(damaged)
            with pytest.raises(UserError, match=f"is damaged: {name} "):
                export.load(copy)
        (copy / name).write_bytes(good)
    # Without the recorded checksums, as in exports of earlier versions.
    (copy / "export.json").unlink()
    for name in ("saved_model.pb", "variables/variables.index"):
        good = (copy / name).read_bytes()
        (copy / name).write_bytes(good[: len(good) // 2])
        with pytest.raises(UserError, match=r"damaged|cannot be loaded"):
            export.load(copy)
        (copy / name).write_bytes(good)


def test_a_folder_may_be_named_like_a_pattern(tmp_path, monkeypatch):
    import tensorflow as tf

    from t2t_ext.serving import export

    class Marker(tf.Module):
        """Replaces ``ServedTranslator``, whose graph takes long to trace."""

        def __init__(self, translator):
            super().__init__()
            self.mark = tf.Variable("!")
            self.serving_default = export._signature(
                lambda inputs: {"outputs": inputs + self.mark}, tf.TensorSpec([None], tf.string, name="inputs")
            )

    monkeypatch.setattr(export, "ServedTranslator", Marker)
    raw = types.SimpleNamespace(takes_raw_text=True)
    source = types.SimpleNamespace(trial_batches=lambda lines: [tf.constant(lines)])
    export.export(types.SimpleNamespace(source=source, source_encoder=raw, target_encoder=raw), tmp_path / "EX[1]")
    found = export.load(tmp_path / "EX[1]").signatures["serving_default"](inputs=tf.constant(["a"]))
    assert found["outputs"].numpy().tolist() == [b"a!"]


def test_text_as_people_write_it_needs_no_encoders(signatures, exported, capsys):
    from t2t_ext.bin import prepare

    assert "text_encoders" not in signatures
    assert [path.name for path in (exported / "assets.extra").iterdir()] == ["tf_serving_warmup_requests"]
    assert "text" not in json.loads((exported / "export.json").read_text())
    assert prepare.main([f"--export_dir={exported}"]) == 2
    assert "takes text as people write it" in capsys.readouterr().err


def test_outputs_are_the_translators(signatures, tiny_run, make_translator):
    import tensorflow as tf

    found = signatures["serving_default"](inputs=tf.constant(LINES))
    assert [text.decode() for text in found["outputs"].numpy()] == tiny_run.translator(LINES)
    beams = make_translator(return_beams=True).translate(LINES)
    np.testing.assert_allclose(found["scores"], [row[0].score for row in beams], atol=1e-4)
    assert found["scores"].dtype == tf.float32

    nbest = {name: value.numpy() for name, value in signatures["nbest"](inputs=tf.constant(LINES)).items()}
    there = nbest["log_probs"] > -1e8  # in the other places there is no translation
    assert there.sum(axis=1).tolist() == list(map(len, beams))
    hypotheses = [h for row in beams for h in row]
    assert [text.decode() for text in nbest["outputs"][there]] == [h.text for h in hypotheses]
    for name, attribute in (("scores", "score"), ("log_probs", "log_prob"), ("lengths", "length")):
        np.testing.assert_allclose(nbest[name][there], [getattr(h, attribute) for h in hypotheses], atol=1e-3)


def test_scores_are_the_translators(signatures, tiny_run):
    import tensorflow as tf

    targets = ["die alte Katze", "die Lampe .", "", "x", "die " * 20]
    found = signatures["score"](inputs=tf.constant(LINES), targets=tf.constant(targets))
    expected = tiny_run.translator.score(list(zip(LINES, targets, strict=True)))
    for name, attribute in (("scores", "score"), ("log_probs", "log_prob"), ("lengths", "length")):
        np.testing.assert_allclose(found[name], [getattr(row, attribute) for row in expected], atol=1e-3)


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("score", "targets"),
        ("align", "targets"),
        ("translate_with_prefix", "prefixes"),
        ("translate_with_constraints", "constraints"),
    ],
)
@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)])
def test_inputs_of_one_request_are_as_many(signatures, signature, name, first, second):
    import tensorflow as tf

    given = {"inputs": tf.constant(LINES[:first]), name: tf.constant(["die"] * second)}
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{name} and inputs must be as many"):
        signatures[signature](**given)


def test_settings_that_change_nothing_are_named(tiny_run, tmp_path, capsys):
    flags = [f"--output_dir={tiny_run.path}", f"--export_dir={tmp_path}", "--decode_hparams=return_beams=true"]
    assert exporter.main([*flags, "--export_version=-1"]) == 2
    assert exporter.main([*flags, "--checkpoint_path=7"]) == 2
    assert "return_beams of --decode_hparams change nothing in an export" in capsys.readouterr().err


def test_a_line_does_not_depend_on_its_batch(signatures):
    import tensorflow as tf

    together = signatures["serving_default"](inputs=tf.constant(LINES))["outputs"].numpy()
    alone = [signatures["serving_default"](inputs=tf.constant([line]))["outputs"].numpy()[0] for line in LINES]
    assert list(together) == alone
    assert signatures["serving_default"](inputs=tf.constant([], tf.string))["outputs"].shape == (0,)


def test_only_ops_that_servers_know(exported):
    import tensorflow as tf

    from t2t_ext.serving.export import saved_model_ops

    ops = saved_model_ops(exported)
    assert not {"PyFunc", "PyFuncStateless", "EagerPyFunc"} & set(ops)
    foreign = {name for name in ops if not hasattr(tf.raw_ops, name)}
    assert foreign == {"SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceDetokenizeOp"}
    assert {"While", "StatelessWhile"} & set(ops), "the functions' bodies were not walked"


def fake_translator(function, tiny_encoder):
    """Returns a translator whose "model" is the given function of string tensors."""
    import tensorflow as tf

    from t2t_ext.translation.translator import Translator

    class Fake(Translator):
        can_force_prefix = can_constrain = can_align = False

        def search_batch(self, inputs, *, num_hypotheses):
            outputs = tf.ensure_shape(function(inputs), [None])[:, tf.newaxis]
            scores = tf.zeros(tf.shape(outputs))
            names = ("scores", "log_probs", "lengths", "finished")
            return {"outputs": outputs, **dict.fromkeys(names, scores)}

        def score_batch(self, inputs, targets):
            scores = tf.zeros(tf.shape(inputs))
            return {"scores": scores, "log_probs": scores, "lengths": tf.cast(scores, tf.int32)}

    hparams = types.SimpleNamespace(target_direction="l2r")
    model = types.SimpleNamespace(
        named_variables=dict, source_feature_size=0, directions=1, longest_source=0, built=True, hparams=hparams
    )
    model.source_vocab_size = model.target_vocab_size = tiny_encoder.vocab_size
    return Fake(model, tiny_encoder, tiny_encoder)


@pytest.mark.parametrize("path", ["RUN", pathlib.Path("RUN")])
def test_a_path_is_no_translator(path, tmp_path):
    from t2t_ext import export

    with pytest.raises(UserError, match=r"needs a Translator, not a path: export\(Translator\.load\('RUN'\), "):
        export(path, tmp_path / "E")
    assert not (tmp_path / "E").exists()


def test_python_in_the_graph_is_refused(tmp_path, tiny_encoder):
    import tensorflow as tf

    from t2t_ext.serving.export import export

    translator = fake_translator(lambda inputs: tf.numpy_function(lambda x: x, [inputs], tf.string), tiny_encoder)
    with pytest.raises(ValueError, match="PyFunc"):
        export(translator, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_each_variable_is_saved_once(exported, tiny_run):
    from t2t_ext.serving.export import saved_model_ops

    assert saved_model_ops(exported)["VarHandleOp"] == len(tiny_run.translator.model.named_variables())


def test_warmup_requests(exported, signatures):
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    path = exported / "assets.extra" / "tf_serving_warmup_requests"
    logs = [
        prediction_log_pb2.PredictionLog.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(path))
    ]
    requests = [log.predict_log.request for log in logs]
    assert [len(request.inputs["inputs"].string_val) for request in requests] == [1, 4]
    for request in requests:
        inputs = {name: tf.constant(tf.make_ndarray(value)) for name, value in request.inputs.items()}
        assert "outputs" in signatures[request.model_spec.signature_name](**inputs)


def text_ops():
    folder = importlib.util.find_spec("tensorflow_text").submodule_search_locations[0]
    return pathlib.Path(folder) / "python" / "ops" / "_sentencepiece_tokenizer.so"


def loader_arguments(exported):
    """Returns the arguments of the loaders outside Python: files, tensor names of serving_default, and LINES."""
    from t2t_ext.serving.export import signature_tensors

    tensors = signature_tensors(exported)
    output, index = tensors["outputs"].split(":")
    return [str(text_ops()), str(exported), tensors["inputs"].split(":")[0], output, index, *LINES]


def run_loader(command):
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(command, capture_output=True, check=False, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().split("\n")[:-1]


@pytest.mark.slow  # test_synchronous_decoding.py covers the C API with ctypes
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler; the ctypes loader is tested instead")
def test_loads_through_the_c_api_from_c(exported, tiny_run, tmp_path):
    folder = importlib.util.find_spec("tensorflow").submodule_search_locations[0]
    program = tmp_path / "load_saved_model"
    command = ["gcc", "-Wall", "-Werror", "-o", str(program), str(HERE / "load_saved_model.c"), f"-I{folder}/include"]
    command += [f"-L{folder}", "-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2", f"-Wl,-rpath,{folder}"]
    subprocess.run(command, check=True, timeout=120)
    assert run_loader([str(program), *loader_arguments(exported)]) == tiny_run.translator(LINES)


@pytest.mark.slow
def test_loads_through_the_c_api_from_ctypes(exported, tiny_run):
    command = [sys.executable, str(HERE / "c_api_loader.py"), *loader_arguments(exported)]
    assert run_loader(command) == tiny_run.translator(LINES)


def test_versions(tmp_path, tiny_encoder):
    import tensorflow as tf

    from t2t_ext.serving.export import export

    def translate(path, line):
        model = tf.saved_model.load(str(path))
        return model.signatures["serving_default"](inputs=tf.constant([line]))["outputs"].numpy()[0]

    upper, lower = (fake_translator(function, tiny_encoder) for function in (tf.strings.upper, tf.strings.lower))
    first = export(upper, tmp_path, made_from={"step": 7})
    assert first == tmp_path / "1"
    assert json.loads((first / "export.json").read_text())["step"] == 7
    with pytest.raises(UserError, match="--overwrite"):
        export(lower, tmp_path)
    second = export(lower, tmp_path, version=2)
    assert (translate(first, "aB"), translate(second, "aB")) == (b"AB", b"ab")
    with subprocess.Popen(["true"]) as killed:
        killed.wait()
    (tmp_path / f".1.tmp-{socket.gethostname()[:40]}_{killed.pid}_{files._process_table()}0000").mkdir()
    export(lower, tmp_path, overwrite=True)
    assert translate(first, "aB") == b"ab"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]


def test_a_failed_export_leaves_what_was_there(tmp_path, tiny_encoder, monkeypatch):
    import tensorflow as tf

    from t2t_ext.serving import export

    export.export(fake_translator(tf.strings.upper, tiny_encoder), tmp_path)
    before = (tmp_path / "1" / "saved_model.pb").read_bytes()

    def fail(*arguments):
        raise RuntimeError("no")

    monkeypatch.setattr(export, "_write_warmup_requests", fail)
    for version in (1, 2):
        with pytest.raises(RuntimeError, match="no"):
            export.export(fake_translator(tf.strings.lower, tiny_encoder), tmp_path, version=version, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    assert (tmp_path / "1" / "saved_model.pb").read_bytes() == before


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--export_dir={exports}"], "--overwrite"),
        (["--export_dir={exports}", "--export_version=0"], "at least 1"),
        (["--output_dir={exports}"], "not a run"),
        (["--checkpoint_path=7"], "7"),
        (["--decode_hparams=alpha=x"], "alpha"),
        (["--as_text"], "--as_text is no flag"),
    ],
)
def test_command_errors(exported, tiny_run, capsys, flags, message):
    given = [flag.format(exports=exported.parent) for flag in flags]
    assert exporter.main([f"--output_dir={tiny_run.path}", *given]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message in error
    assert [path.name for path in exported.parent.iterdir()] == ["40"]


def test_destination_errors(tmp_path):
    from t2t_ext.serving.served_text import check_destination

    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file"):
        check_destination(tmp_path / "file", 1)
    with pytest.raises(UserError, match="positive integer"):
        check_destination(tmp_path, 0)
    (tmp_path / "3").mkdir()
    with pytest.raises(UserError, match="exists already"):
        check_destination(tmp_path, 3)
    assert check_destination(tmp_path, 3, overwrite=True) == tmp_path / "3"
    (tmp_path / "3" / "notes.txt").touch()
    with pytest.raises(UserError, match="3 holds something else than an exported model: give another --export_version"):
        check_destination(tmp_path, 3, overwrite=True)
    (tmp_path / "3" / "saved_model.pb").touch()
    assert check_destination(tmp_path, 3, overwrite=True) == tmp_path / "3"


def test_the_newest_version_is_the_highest_that_holds_a_model(tmp_path):
    from t2t_ext.serving.served_text import version_directory

    for version in (2, 10):
        (tmp_path / str(version)).mkdir()
        (tmp_path / str(version) / "saved_model.pb").touch()
    (tmp_path / "45").mkdir()
    (tmp_path / "\u00b2").mkdir()
    (tmp_path / "100").touch()
    assert version_directory(tmp_path) == tmp_path / "10"
    with pytest.raises(UserError, match="holds no exported model"):
        version_directory(tmp_path / "45")
