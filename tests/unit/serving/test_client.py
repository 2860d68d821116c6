"""Tests of the client's wire format with TF Serving's own message classes; the client loads no TensorFlow."""

import contextlib
import json
import subprocess
import sys
import tracemalloc
import types
import urllib.error

import numpy as np
import pytest

from t2t_ext.bin import query_server
from t2t_ext.errors import UserError
from t2t_ext.serving import client, protocol


@pytest.fixture(scope="module")
def predict_pb2():
    return pytest.importorskip("tensorflow_serving.apis.predict_pb2")


def test_request_is_tf_servings(predict_pb2):
    import tensorflow as tf

    data = protocol.predict_request("name", "nbest", {"inputs": ["a", "", "ü☃"], "targets": []}, version=7)
    request = predict_pb2.PredictRequest.FromString(data)
    assert request.model_spec.name == "name"
    assert request.model_spec.signature_name == "nbest"
    assert request.model_spec.version.value == 7
    assert tf.make_ndarray(request.inputs["inputs"]).tolist() == [b"a", b"", "ü☃".encode()]
    assert tf.make_ndarray(request.inputs["targets"]).shape == (0,)
    data = protocol.predict_request("name", "nbest", {"inputs": ["a"]})
    assert not predict_pb2.PredictRequest.FromString(data).model_spec.HasField("version")


@pytest.mark.parametrize(
    "array",
    [
        np.array([["a", "ü"], ["", "d"]], object),
        np.array([1.5, -2.25, 3.0], np.float32),
        np.full([2, 3], 0.5, np.float32),
        np.arange(6, dtype=np.int32).reshape(3, 2),
        np.array([[True, False]]),
        np.array(["one"], object),
        np.zeros([0], np.float32),
    ],
)
def test_response_is_tf_servings(predict_pb2, array):
    import tensorflow as tf

    as_fields = tf.make_tensor_proto(array)
    values = [as_fields]
    if array.dtype != object:
        # Servers send numbers as bytes (tensor_content).
        content = type(as_fields)(dtype=as_fields.dtype, tensor_shape=as_fields.tensor_shape)
        content.tensor_content = array.tobytes()
        values.append(content)
    for value in values:
        response = predict_pb2.PredictResponse(outputs={"x": value, "y": tf.make_tensor_proto(["z"])})
        found = protocol.parse_predict_response(response.SerializeToString())
        assert found == {"x": array.tolist(), "y": ["z"]}


def test_repeated_last_value(predict_pb2):
    response = predict_pb2.PredictResponse()
    tensor = response.outputs["x"]
    tensor.dtype = protocol.DT_FLOAT
    tensor.tensor_shape.dim.add(size=3)
    tensor.float_val.append(0.25)
    assert protocol.parse_predict_response(response.SerializeToString()) == {"x": [0.25] * 3}


def test_rest_url():
    make = client.make_client
    assert make("host:8501", "a/b", rest=True)._url() == "http://host:8501/v1/models/a%2Fb:predict"
    versioned = make("https://host/prefix/", "m", version=3)
    assert versioned._url() == "https://host/prefix/v1/models/m/versions/3:predict"
    assert isinstance(make("host:8500", "m"), client.GrpcClient)


def test_rest_sends_texts_as_they_are(monkeypatch):
    """REST requests keep a final NUL, and short texts next to a long one take little memory."""
    texts = ["a\0", "", "\U0001f600" * 1_000_000, *["b"] * 1000]
    sent = []

    def answer(self, request):
        sent.append(json.loads(request.data))
        return b'{"outputs": {}}'

    monkeypatch.setattr(client.RestClient, "_within_time", answer)
    tracemalloc.start()
    client.RestClient("localhost:1", "m").predict("serving_default", {"inputs": texts})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sent == [{"signature_name": "serving_default", "inputs": {"inputs": texts}}]
    assert peak < 200e6


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (None, r"has no model 'm' \(Not found\)\. .*as --servable_name\.$"),
        (7, r"has no model 'm' in version 7 .*as --servable_name, and one of its versions.*--servable_version\.$"),
    ],
)
def test_what_to_give_if_the_server_has_no_such_model_or_version(monkeypatch, version, message):
    def refuse(self, request):
        raise urllib.error.HTTPError(request.full_url, 404, "Not found", {}, None)

    monkeypatch.setattr(client.RestClient, "_within_time", refuse)
    with pytest.raises(UserError, match=message):
        client.RestClient("localhost:1", "m", version=version).predict("serving_default", {"inputs": ["a"]})


@pytest.mark.parametrize("server", ["", "localhost", "localhost:port", "8500:", ":8500"])
def test_bad_address(server, capsys):
    with pytest.raises(UserError, match="is no address"):
        client.make_client(server, "m")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--server"),
        (["--server=a:1", "--timeout_secs=0"], "must be positive"),
        (["--server=a:1", "--problem=x"], "--problem is no flag of t2t_ext-query-server"),
        (["--server=a:1", "--data_dir=x"], "--data_dir is no flag"),
    ],
)
def test_command_errors(flags, message, capsys):
    assert query_server.main(flags) == 2
    assert message in capsys.readouterr().err


def test_half_a_surrogate_pair_is_sent_as_a_question_mark():
    """Half a surrogate pair, as Python makes from a non-UTF-8 byte of an argument, is sent as a question mark."""
    assert b"caf?" in protocol.predict_request("m", "s", {"inputs": ["caf\udce9"]})


def test_needs_no_tensorflow():
    code = (
        "import sys; from t2t_ext.bin import query_server, bleu; from t2t_ext.serving import client; "
        "client.make_client('localhost:1', 'm', rest=True); client.make_client('localhost:1', 'm'); "
        "from t2t_ext.serving import protocol; protocol.predict_request('m', 's', {'inputs': ['a']}); "
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("ask", ["translate", "nbest"])
def test_one_string_is_no_list_of_characters(ask):
    with (
        client.make_client("localhost:1", "m", rest=True) as server,
        pytest.raises(UserError, match=r"write \[text\] instead of text"),
    ):
        getattr(server, ask)("Guten Morgen.")


def test_places_without_a_translation_are_left_out(monkeypatch):
    """If the rules leave fewer than K translations, the answer has the others; the first place is always there."""
    with client.make_client("localhost:1", "m", rest=True) as server:
        answer = [[["a", "", ""], ["", "", ""]], [[-1.0, -5e8, -5e8], [-5e8] * 3], [[-2.0, -1e9, -1e9], [-1e9] * 3]]
        answer.append([[2, 0, 0], [0, 0, 0]])
        monkeypatch.setattr(server, "_sources_to_graph", list)
        monkeypatch.setattr(server, "_from_graph", list)
        monkeypatch.setattr(server, "_outputs", lambda *_: answer)
        found = server.nbest(["x", "y"])
    assert found == [[client.Translation("a", -1.0, -2.0, 2)], [client.Translation("", -5e8, -1e9, 0)]]


def test_an_empty_line_is_translated_once(monkeypatch, capfd):
    """An empty --inputs_once is one line to translate; the command does not read standard input.

    In a shell loop, standard input belongs to the loop.
    """
    monkeypatch.setattr(query_server, "make_client", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(query_server, "_answer", lambda client, *rest: print(rest))
    monkeypatch.setattr(sys, "stdin", None)
    assert query_server.main(["--server=localhost:1", "--inputs_once="]) == 0
    assert capfd.readouterr().out == "([''], False, False)\n"


def test_standard_input_is_answered_as_it_comes(monkeypatch, capfd):
    """The command reads only the batch that it translates, since standard input may be endless."""
    read = []

    def lines():
        for number in range(5):
            read.append(number)
            yield f"{number}\n".encode()

    class Echo(contextlib.nullcontext):
        def translate(self, sources):
            assert len(read) == int(sources[-1]) + 1
            return [[client.Translation(source, 0.0)] for source in sources]

    monkeypatch.setattr(query_server, "make_client", lambda *_, **__: Echo())
    monkeypatch.setattr(Echo, "__enter__", lambda self: self)
    stdin = types.SimpleNamespace(buffer=lines(), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stdin)
    assert query_server.main(["--server=localhost:1", "--batch_size=2"]) == 0
    assert capfd.readouterr().out == "0\n1\n2\n3\n4\n"
