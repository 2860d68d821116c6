"""Tests of t2t_ext-query-server and its client with local servers of TF Serving's gRPC and REST protocols."""

import contextlib
import io
import socket
import sys

import pytest
import serving_fakes
from python_blocks import run_blocks

from t2t_ext.bin import query_server
from t2t_ext.errors import UserError
from t2t_ext.serving.client import make_client

LINES = ["the old cat sees the lamp .", "", "the city loves the small flower today .", "Ünïcödé ☃ x"]


@pytest.fixture(scope="module")
def servable(exported):
    return serving_fakes.Servable(exported)


@pytest.fixture(scope="module", params=["grpc", "rest"])
def server(servable, request):
    """Yields (address of a running server, whether it is a REST server)."""
    with getattr(serving_fakes, f"{request.param}_server")(servable) as address:
        yield address, request.param == "rest"


@pytest.fixture
def client(server):
    address, rest = server
    with make_client(address, "t2t_ext", rest=rest, timeout_secs=60) as client:
        yield client


@pytest.fixture
def query(server, capsys):
    """Returns t2t_ext-query-server as a function (flags...) -> (status, standard output, standard error)."""
    address, rest = server

    def run(*flags):
        status = query_server.main([f"--server={address}", *(["--rest"] if rest else []), "--timeout_secs=60", *flags])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_translate(client, tiny_translator):
    found = client.translate(LINES)
    assert [row[0].text for row in found] == tiny_translator(LINES)
    expected = [row[0].score for row in tiny_translator.translate(LINES)]
    assert [row[0].score for row in found] == pytest.approx(expected, abs=1e-4)
    assert client.translate([]) == []


def test_nbest(client, make_translator):
    expected = make_translator(return_beams=True).translate(LINES)
    for found, hypotheses in zip(client.nbest(LINES), expected, strict=True):
        assert [each.text for each in found] == [each.text for each in hypotheses]
        assert [each.length for each in found] == [each.length for each in hypotheses]
        assert [each.log_prob for each in found] == pytest.approx([each.log_prob for each in hypotheses], abs=1e-3)


def test_score(client, tiny_translator):
    pairs = [("the cat", "die Katze"), ("the", "")]
    found, expected = client.score(pairs), tiny_translator.score(pairs)
    assert [each.text for each in found] == [target for _, target in pairs]
    assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=1e-4)
    assert [each.length for each in found] == [each.length for each in expected]


def test_align(client, query, tiny_translator):
    pairs = [("the old cat", "die alte Katze"), ("", "die"), ("the", "")]
    assert client.align(pairs) == tiny_translator.align(pairs)
    assert client.align([]) == []
    status, out, err = query(f"--inputs_once={LINES[0]}", "--align", "--nbest")
    assert status == 0, err
    for line, row in zip(out.splitlines(), client.nbest(LINES[:1])[0], strict=True):
        assert line.split("\t")[2] == client.align([(LINES[0], row.text)])[0]


def test_version(server):
    address, rest = server
    with make_client(address, "t2t_ext", rest=rest, version=40, timeout_secs=60) as client:
        assert len(client.translate(["the cat"])) == 1
    with (
        make_client(address, "t2t_ext", rest=rest, version=41, timeout_secs=60) as client,
        pytest.raises(UserError, match="no model 't2t_ext' in version 41"),
    ):
        client.translate(["the cat"])


def test_refused(client):
    with pytest.raises(UserError, match=r"refused the request.*unheard_of"):
        client.predict("unheard_of", {"inputs": ["a"]})


def test_command_once(query, tiny_translator):
    status, out, err = query(f"--inputs_once={LINES[0]}")
    assert (status, err) == (0, "")
    assert out == tiny_translator(LINES[:1])[0] + "\n"
    status, out, _ = query(f"--inputs_once={LINES[0]}", "--nbest")
    assert status == 0
    assert len(out.splitlines()) == 4
    assert out.splitlines()[0].split("\t")[1] == tiny_translator(LINES[:1])[0]


def test_command_reads_standard_input(query, servable, tiny_translator, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(LINES).encode())))
    before = servable.requests
    status, out, err = query("--batch_size=3")
    assert (status, err) == (0, "")
    assert out.split("\n")[:-1] == tiny_translator(LINES)
    assert servable.requests - before == 3  # the first request asks whether text must be prepared


def test_command_on_a_terminal(query, tiny_translator, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    typed = iter([LINES[0], LINES[2], "q"])
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    status, out, _ = query()
    assert status == 0
    assert out.split("\n")[:-1] == tiny_translator([LINES[0], LINES[2]])


def test_unknown_model(query):
    status, out, err = query("--servable_name=other", "--inputs_once=x")
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert "no model 'other'" in err
    assert "--servable_name" in err


def test_timeout(query, servable, monkeypatch):
    monkeypatch.setattr(servable, "delay_secs", 0.8)
    status, _, err = query("--inputs_once=x", "--timeout_secs=0.2")
    assert status == 2
    assert "did not answer within 0.2 s" in err
    assert "--timeout_secs" in err


@pytest.mark.parametrize("rest", [False, True])
def test_nobody_there(capsys, rest):
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    flags = [f"--server={address}", "--inputs_once=x", f"--rest={str(rest).lower()}"]
    assert query_server.main(flags) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"No answer from a server at {address}" in err
    assert "8500" in err


def test_wrong_port(servable, capsys):
    with serving_fakes.grpc_server(servable) as address:
        assert query_server.main([f"--server={address}", "--rest", "--inputs_once=x", "--timeout_secs=5"]) == 2
        assert "8500" in capsys.readouterr().err
    with serving_fakes.rest_server(servable) as address:
        assert query_server.main([f"--server={address}", "--inputs_once=x", "--timeout_secs=5"]) == 2
        assert capsys.readouterr().err.startswith("error: ")


def test_the_python_of_the_docs(servable, capsys):
    with serving_fakes.grpc_server(servable) as address:
        run_blocks("docs/serving.md", replaced={"localhost:8500": address})
    assert capsys.readouterr().out
