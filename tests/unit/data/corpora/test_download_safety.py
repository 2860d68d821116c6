"""Tests that downloads refuse insecure redirects, endless files, links in place of files, and others' folders."""

import concurrent.futures
import io
import os
import stat
import tempfile
import time
import urllib.error
import urllib.request

import pytest

from t2t_ext.data.corpora import download
from t2t_ext.errors import UserError
from t2t_ext.problems import iwslt


@pytest.mark.parametrize(
    ("first", "second", "allowed"),
    [
        ("https://a.org/x", "https://b.org/x", True),
        ("http://a.org/x", "https://a.org/x", True),
        ("http://a.org/x", "http://a.org/y", True),
        ("https://a.org/x", "http://a.org/x", False),
        ("https://a.org/x", "HTTP://a.org/x", False),
        ("http://a.org/x", "ftp://a.org/x", False),
        ("https://a.org/x", "file:///etc/passwd", False),
    ],
)
def test_redirects(first, second, allowed):
    redirects, request = download._Redirects(), urllib.request.Request(first)
    if allowed:
        assert redirects.redirect_request(request, None, 302, "Found", {}, second).full_url == second
    else:
        with pytest.raises(UserError, match=f"{first} leads to {second}"):
            redirects.redirect_request(request, None, 302, "Found", {}, second)


class Response(io.BytesIO):
    status, url = 200, "https://a.org/x"

    def __init__(self, content, **headers):
        super().__init__(content)
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.fixture
def answer(monkeypatch):
    """Returns a function that sets the response to every request."""

    def give(response):
        opener = type("Opener", (), {"open": lambda self, request, timeout: response})
        monkeypatch.setattr(urllib.request, "build_opener", lambda *handlers: opener())

    return give


@pytest.mark.parametrize(
    "stated", [{}, {"Content_Length": "1000000"}, {"Content_Length": "-1"}, {"Content_Length": "x"}]
)
def test_files_without_end_are_not_kept(tmp_path, monkeypatch, answer, stated):
    monkeypatch.setattr(download, "MOST_BYTES", 1000)
    answer(Response(bytes(10_000), **stated))
    with pytest.raises(UserError, match=r"gives more than 1\.0 kB for x"):
        download.fetch("https://a.org/x", tmp_path / "x", show_progress=False)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe"])
def test_nothing_is_written_through_a_name_that_is_taken(tmp_path, answer, kind):
    (tmp_path / "mine").write_bytes(b"mine")
    part = tmp_path / "raw" / "x.part"
    part.parent.mkdir()
    {"link": lambda: part.symlink_to("../mine"), "hard link": lambda: os.link(tmp_path / "mine", part),
     "pipe": lambda: os.mkfifo(part)}[kind]()  # fmt: skip
    answer(Response(b"theirs"))
    with pytest.raises(UserError, match=r"x\.part (cannot be written|is no file of its own).*--tmp_dir"):
        download.fetch("https://a.org/x", tmp_path / "raw" / "x", show_progress=False)
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_a_file_of_unknown_checksum_is_warned_of(tmp_path, answer, capfd):
    answer(Response(b"content"))
    download.fetch("https://a.org/x", tmp_path / "x", show_progress=False)
    assert "of which no SHA-256 is published" in capfd.readouterr().err
    download.fetch("https://a.org/x", tmp_path / "x", show_progress=False)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("whole", "expected"), [(4, b"file"), (9, b"something"), (None, b"something")])
def test_a_part_that_is_longer_than_the_file_is_of_another_file(tmp_path, monkeypatch, whole, expected):
    """The server answers 416 (no more bytes), with or without the length of the file."""

    def opened(self, request, timeout):
        if not request.headers:
            return Response(b"file")
        assert request.headers == {"Range": "bytes=9-"}
        headers = {} if whole is None else {"Content-Range": f"bytes */{whole}"}
        raise urllib.error.HTTPError(request.full_url, 416, "Range Not Satisfiable", headers, None)

    monkeypatch.setattr(urllib.request, "build_opener", lambda *handlers: type("Opener", (), {"open": opened})())
    (tmp_path / "x.part").write_bytes(b"something")
    assert download.fetch("https://a.org/x", tmp_path / "x", show_progress=False).read_bytes() == expected


@pytest.fixture
def server(monkeypatch):
    """Returns a function that serves content with headers, and returns the list of the headers of all requests."""

    def serve(content, knows_if_range=True, **headers):
        requests = []

        def opened(self, request, timeout):
            requests.append(request.headers)
            begin = int(request.headers.get("Range", "bytes=0-")[6:-1])
            is_same = request.headers.get("If-range") in (None, headers.get("ETag"), headers.get("Last_Modified"))
            if begin and (is_same or not knows_if_range):
                response = Response(content[begin:], **headers)
                response.status = 206
                return response
            return Response(content, **headers)

        monkeypatch.setattr(urllib.request, "build_opener", lambda *handlers: type("Opener", (), {"open": opened})())
        monkeypatch.setattr(download, "SECONDS_BEFORE_RETRY", 0.0)
        return requests

    return serve


def interrupted(path, server, **headers):
    """Begins a download of ``path``, whose server announces more bytes than it sends."""
    server(b"first", Content_Length="9", **headers)
    with pytest.raises(UserError, match="could not be downloaded"):
        download.fetch("https://a.org/x", path, show_progress=False)
    assert path.with_name("x.part").read_bytes().startswith(b"first")


@pytest.mark.parametrize("knows_if_range", [True, False])
@pytest.mark.parametrize("name", ["ETag", "Last_Modified"])
def test_a_download_goes_on_only_where_the_file_is_the_same(tmp_path, server, monkeypatch, name, knows_if_range):
    monkeypatch.setattr(download, "ATTEMPTS", 1)
    interrupted(tmp_path / "x", server, **{name: '"one"'})
    requests = server(b"first and last", knows_if_range, **{name: '"one"'})
    download.fetch("https://a.org/x", tmp_path / "x", show_progress=False)
    assert requests == [{"Range": "bytes=5-", "If-range": '"one"'}]
    assert (tmp_path / "x").read_bytes() == b"first and last"
    assert sorted(os.listdir(tmp_path)) == ["x", "x.sha256"]
    os.unlink(tmp_path / "x")
    os.unlink(tmp_path / "x.sha256")

    interrupted(tmp_path / "x", server, **{name: '"one"'})
    server(b"another and longer file", knows_if_range, **{name: '"two"'})
    monkeypatch.setattr(download, "ATTEMPTS", 2)
    download.fetch("https://a.org/x", tmp_path / "x", show_progress=False)
    assert (tmp_path / "x").read_bytes() == b"another and longer file"


@pytest.mark.parametrize("headers", [{}, {"ETag": 'W/"one"'}, {"ETag": '"one"\u00e9'}])
def test_a_download_without_a_version_goes_on_as_it_can(tmp_path, server, monkeypatch, headers):
    monkeypatch.setattr(download, "ATTEMPTS", 1)
    interrupted(tmp_path / "x", server, **headers)
    requests = server(b"first and last", **headers)
    download.fetch("https://a.org/x", tmp_path / "x", show_progress=False)
    assert requests == [{"Range": "bytes=5-"}]
    assert (tmp_path / "x").read_bytes() == b"first and last"


def test_of_several_that_want_a_file_one_downloads_it(tmp_path, monkeypatch):
    begun = []

    def slow(url, part, show_progress):
        begun.append(part)
        with open(part, "ab") as file:
            for byte in b"content":
                file.write(bytes([byte]))
                file.flush()
                time.sleep(0.02)

    monkeypatch.setattr(download, "_download", slow)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        fetched = [pool.submit(download.fetch, "https://a.org/x", tmp_path / "raw" / "x") for _ in range(3)]
        assert [each.result().read_bytes() for each in fetched] == [b"content"] * 3
    assert len(begun) == 1
    assert sorted(os.listdir(tmp_path / "raw")) == ["x", "x.sha256"]


def test_what_is_downloaded_again_must_be_what_came_first(tmp_path, answer):
    path = tmp_path / "x"
    for content in (b"content", b"content"):  # downloaded, removed, and downloaded again
        answer(Response(content))
        download.fetch("https://a.org/x", path, show_progress=False)
        path.unlink()
    answer(Response(b"something else"))
    with pytest.raises(UserError, match=r"x is not the file that is expected.*is meant, remove .*x\.sha256.*put it"):
        download.fetch("https://a.org/x", path, show_progress=False)
    assert not path.exists()
    download.record_of(path).unlink()
    answer(Response(b"something else"))
    assert download.fetch("https://a.org/x", path, show_progress=False).read_bytes() == b"something else"


def test_the_default_folder_is_the_users_own(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = download.private_folder()
    assert stat.S_IMODE(os.stat(made).st_mode) == 0o700
    assert download.private_folder() == made
    os.chmod(made, 0o777)
    with pytest.raises(UserError, match=r"is not yours alone.*--tmp_dir"):
        download.private_folder()
    os.rmdir(made)
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", made)
    with pytest.raises(UserError, match="is not yours alone"):
        download.private_folder()
    (tmp_path / "t2t_datagen").mkdir(mode=0o755)  # a folder of raw files from before
    assert download.private_folder() == str(tmp_path / "t2t_datagen")


def test_published_checksums_are_of_the_files_that_are_downloaded():
    assert {url.removeprefix(iwslt.STANFORD_URL) for url in iwslt.STANFORD_SHA256} == {
        f"{stem}.{language}" for stem in ("train", "tst2012", "tst2013") for language in ("en", "vi")
    }
    assert all(len(value) == 64 for value in iwslt.STANFORD_SHA256.values())
