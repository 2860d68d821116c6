"""Tests of Multi30k and of downloads: verified, resumed, and explained if they fail; the server is local."""

import gzip
import hashlib
import http.server
import importlib
import threading

import pytest

from t2t_ext import registry
from t2t_ext.data.corpora import download
from t2t_ext.errors import UserError

CONTENT = bytes(range(256)) * 2000


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`, cuts the first answer off after `cut_at` bytes, and records the ranges that are requested."""

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.cut_at, self.status, self.ranges = files, None, None, []
        self.url = f"http://127.0.0.1:{self.server_port}/"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.ranges.append(self.headers.get("Range"))
        content = self.server.files.get(self.path[1:])
        if self.server.status or content is None:
            self.send_error(self.server.status or 404)
            return
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        if start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut_at, self.server.cut_at = self.server.cut_at, None
        self.wfile.write(content[start:cut_at])

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "SECONDS_BEFORE_RETRY", 0.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server({"x.gz": CONTENT}) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def fetch(server, path, content=CONTENT):
    return download.fetch(f"{server.url}x.gz", path, sha256(content), show_progress=False)


def test_a_file_is_downloaded_once(server, tmp_path):
    path = tmp_path / "new" / "x.gz"
    assert fetch(server, path) == path
    assert path.read_bytes() == CONTENT
    fetch(server, path)
    assert server.ranges == [None]
    assert [entry.name for entry in path.parent.iterdir()] == ["x.gz"]


def test_a_broken_download_goes_on_where_it_stopped(server, tmp_path):
    server.cut_at = 100_000
    fetch(server, tmp_path / "x.gz")
    assert (tmp_path / "x.gz").read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=100000-"]


@pytest.mark.parametrize("there", [1000, len(CONTENT)])
def test_an_interrupted_command_goes_on_where_it_stopped(server, tmp_path, there):
    (tmp_path / "x.gz.part").write_bytes(CONTENT[:there])
    fetch(server, tmp_path / "x.gz")
    assert (tmp_path / "x.gz").read_bytes() == CONTENT
    assert server.ranges == [f"bytes={there}-"]


def test_a_failed_download_says_how_to_put_the_file_there(server, tmp_path):
    server.files.clear()
    with pytest.raises(
        UserError, match=rf"x\.gz could not be downloaded from {server.url}x\.gz .*put it there as {tmp_path}"
    ):
        fetch(server, tmp_path / "x.gz")
    assert server.ranges == [None]  # a 404 is final, so there was only one attempt
    server.status = 503
    with pytest.raises(UserError, match="could not be downloaded"):
        fetch(server, tmp_path / "x.gz")
    assert len(server.ranges) == 1 + download.ATTEMPTS
    assert not (tmp_path / "x.gz").exists()


def test_no_network(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "SECONDS_BEFORE_RETRY", 0.0)
    with pytest.raises(UserError, match=r"Get http://127\.0\.0\.1:9/x in another way"):
        download.fetch("http://127.0.0.1:9/x", tmp_path / "x", sha256(b""), show_progress=False)


def test_checksums(server, tmp_path):
    with pytest.raises(UserError, match="is not the file that is expected"):
        fetch(server, tmp_path / "x.gz", b"something else")
    assert not list(tmp_path.iterdir())
    (tmp_path / "x.gz").write_bytes(b"mine")
    with pytest.raises(UserError, match=rf"x\.gz is not the file that is expected: its SHA-256 is {sha256(b'mine')}"):
        fetch(server, tmp_path / "x.gz")
    assert (tmp_path / "x.gz").read_bytes() == b"mine"


@pytest.fixture
def multi30k(monkeypatch):
    """Returns the module, with the checksums of tiny files, and these files by name."""
    module = importlib.import_module("t2t_ext.problems.multi30k")
    files = {name: gzip.compress(f"{name} ä\n".encode(), mtime=0) for name in module.SHA256}
    monkeypatch.setattr(module, "SHA256", {name: sha256(content) for name, content in files.items()})
    return module, files


@pytest.mark.parametrize(("name", "source", "target"), [("deen", "de", "en"), ("enfr", "en", "fr")])
@pytest.mark.parametrize("suffix", ["", "_rev"])
def test_splits_of_files_put_there_by_hand(multi30k, tmp_path, name, source, target, suffix):
    for file, content in multi30k[1].items():
        (tmp_path / file).write_bytes(content)
    problem = registry.problem(f"translate_{name}_multi30k{suffix}")
    problem.prepare(tmp_path)
    for split, stem in (("train", "train"), ("dev", "val"), ("test", "test_2016_flickr")):
        sample = {"inputs": f"{stem}.{source}.gz ä", "targets": f"{stem}.{target}.gz ä"}
        assert list(problem.checked_samples(split, tmp_path)) == [sample]
        assert problem.count(split, tmp_path) == 1
    assert (problem.source_language == source) == (not suffix)


def test_missing_files_are_downloaded(multi30k, server, tmp_path, monkeypatch):
    module, files = multi30k
    server.files.update(files)
    monkeypatch.setattr(module, "URL", server.url)
    registry.problem("translate_deen_multi30k").prepare(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {name for name in files if ".fr." not in name}


def test_it_takes_no_options():
    with pytest.raises(UserError, match="does not take train_source"):
        registry.problem("translate_deen_multi30k", train_source="x")


def test_every_file_has_a_checksum():
    module = importlib.import_module("t2t_ext.problems.multi30k")
    names = {f"{stem}.{tag}.gz" for stem in module.FILE_STEMS.values() for tag in ("de", "en", "fr")}
    assert set(module.SHA256) == names
    assert all(len(digest) == 64 for digest in module.SHA256.values())
