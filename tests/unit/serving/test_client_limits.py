"""Tests that a client survives endless, slow, huge, deep and nonsensical answers, and shows them safely."""

import contextlib
import json
import socket
import threading
import time

import pytest

from t2t_ext.data.corpora import text_lines
from t2t_ext.errors import UserError
from t2t_ext.io.outputs import visible
from t2t_ext.reporting.table import Table, columns, harmless
from t2t_ext.serving import client, protocol


@contextlib.contextmanager
def server(*parts, pause=0.0):
    """Runs a server that answers one connection with bytes, part by part with pauses, and yields its address."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                for part in parts:
                    connection.sendall(part)
                    time.sleep(pause)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.close()
        thread.join(5)


def head(length, status=b"200 OK"):
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, length)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def ask(address, lines=("a",), timeout_secs=5.0):
    with client.make_client(address, "m", rest=True, timeout_secs=timeout_secs) as found:
        found._asked_for_text = True  # the model takes raw text
        return found.translate(list(lines))


@pytest.mark.parametrize("where", ["head", "body"])
def test_a_dripping_server_is_not_waited_for(where):
    parts = [b"HTTP/1.1 200 OK\r\nX: "] if where == "head" else [head(1000)]
    with server(*parts, *[b"x"] * 12, pause=0.1) as address:
        started = time.monotonic()
        with pytest.raises(UserError, match=r"did not answer within 0\.3 s"):
            ask(address, timeout_secs=0.3)
        assert time.monotonic() - started < 2


def test_sizes_have_limits(monkeypatch):
    monkeypatch.setattr(client, "MOST_ANSWER_BYTES", 10_000)
    with server(head(100_000) + b" " * 100_000) as address, pytest.raises(UserError, match="answer has more than"):
        ask(address)
    monkeypatch.setattr(client, "MOST_REQUEST_BYTES", 10_000)
    with pytest.raises(UserError, match=r"request has more than .*Send fewer or shorter lines"):
        ask("127.0.0.1:1", ["x" * 20_000])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("[" * 100_000, "REST port"),
        ("\ud800", "REST port"),
        ("[]", "REST port"),
        ({"outputs": 3}, "holds no outputs"),
        ({"outputs": ["b"]}, "answers outputs, not scores"),
        ({"outputs": {"outputs": ["b"], "scores": ["x"]}}, r"scores\[0\]"),
        ({"outputs": {"outputs": "b", "scores": [1.0]}}, "no answer of t2t_ext-exporter's models: outputs"),
        ({"outputs": {"outputs": ["b", "c"], "scores": [1.0]}}, "1 lines with 2 outputs, 1 scores"),
        ({"outputs": {"outputs": [], "scores": []}}, "1 lines with 0 outputs"),
        ({"outputs": {"\x1b[2J": []}}, r"answers \\x1b\[2J, not outputs, scores"),
    ],
)
def test_answers_that_are_none(body, expected):
    data = (body if isinstance(body, str) else json.dumps(body)).encode("utf-8", "surrogatepass")
    with server(head(len(data)) + data) as address, pytest.raises(UserError, match=expected):
        ask(address)


def test_errors_of_a_server_do_not_command_the_terminal():
    data = json.dumps({"error": "\x1b]0;mine\x07 \x9b2J\nno"}).encode()
    with server(head(len(data), b"400 Bad") + data) as address:
        with pytest.raises(UserError, match=r"refused the request: \\x1b\]0;mine\\x07 \\x9b2J no$"):
            ask(address)


def test_translations_do_not_command_the_terminal(monkeypatch, capfdbinary):
    text_lines.write("-", ["\x1b[2Ja\tb"])
    assert capfdbinary.readouterr().out == b"\x1b[2Ja\tb\n"  # output that is not a terminal stays unchanged
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    text_lines.write("-", ["\x1b[2Ja\tb"])
    assert capfdbinary.readouterr().out == b"\\x1b[2Ja\tb\n"
    assert visible("ä\x00\x7f\u0085🙂") == r"ä\x00\x7f\x85🙂"


def tensor_of(*sizes, values=(1.0,)):
    response = protocol._CLASSES["PredictResponse"]()
    entry = response.outputs.add(key="x")
    entry.value.dtype = protocol.DT_FLOAT
    entry.value.float_val.extend(values)
    for size in sizes:
        entry.value.tensor_shape.dim.add(size=size)
    return response.SerializeToString()


@pytest.mark.parametrize(
    "data",
    [
        tensor_of(1 << 40), tensor_of(-1), tensor_of(*[1] * 5000), tensor_of(1 << 62, 1 << 62), tensor_of(2, values=()),
        tensor_of(1, values=(1.0, 2.0)), b"\xff" * 20,
    ],
)  # fmt: skip
def test_tensors_of_no_size(data):
    with pytest.raises(protocol.BAD_RESPONSE):
        protocol.parse_predict_response(data)


def test_grpc_has_limits(monkeypatch):
    grpc = pytest.importorskip("grpc")
    from concurrent import futures

    monkeypatch.setattr(client, "MOST_ANSWER_BYTES", 10_000)
    answers = iter([b"\xff" * 20, bytes(20_000)])
    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: next(answers))
    running = grpc.server(futures.ThreadPoolExecutor(1))
    service, method = protocol.PREDICT_METHOD.strip("/").split("/")
    running.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])
    port = running.add_insecure_port("127.0.0.1:0")
    running.start()
    with client.make_client(f"127.0.0.1:{port}", "m") as found:
        found._asked_for_text = True
        for expected in ("the answer is none of TF Serving's", "answer has more than"):
            with pytest.raises(UserError, match=expected):
                found.translate(["a"])
    running.stop(None).wait()


def test_cells_are_no_formulas():
    cells = ["=1+1", "+1", "-0.5", "-1e-3", "@SUM(A1)", "-", "a=b", "-cmd|x", "+.5%", "=", "\r=1"]
    assert [harmless(cell) for cell in cells] == [
        "'=1+1", "+1", "-0.5", "-1e-3", "'@SUM(A1)", "-", "a=b", "'-cmd|x", "+.5%", "=", "'\r=1",
    ]  # fmt: skip
    assert Table(columns("name", "x"), [["=HYPERLINK()", -0.25]]).tsv() == "name\tx\n'=HYPERLINK()\t-0.25\n"
