"""Tests of the log: absl's flags, the messages on the terminal, and the messages in the log file."""

import pytest

from t2t_ext.bin._flags import FlagParser
from t2t_ext.errors import UserError
from t2t_ext.io import log


@pytest.fixture
def parse():
    parser = FlagParser("t2t_ext-bleu", "Scores.")
    yield lambda *args: parser.parse_args(args)
    parser.parse_args([])


def say_all():
    log.info("message")
    log.warning("doubt")
    log.error("mistake")


@pytest.mark.parametrize(
    ("flags", "shown"),
    [
        ([], "message\nwarning: doubt\nerror: mistake\n"),
        (["--verbosity=0"], "message\nwarning: doubt\nerror: mistake\n"),
        (["--verbosity", "-1"], "warning: doubt\nerror: mistake\n"),
        (["-v=-2"], "error: mistake\n"),
        (["--logtostderr"], "message\nwarning: doubt\nerror: mistake\n"),
    ],
)
def test_verbosity(parse, flags, shown, capsys):
    parse(*flags)
    say_all()
    assert capsys.readouterr() == ("", shown)


def test_a_file_has_everything_with_level_and_place(parse, tmp_path, capsys):
    parse(f"--log_dir={tmp_path / 'logs'}", "--stderrthreshold=error")
    say_all()
    assert capsys.readouterr().err == "error: mistake\n"
    (file,) = (tmp_path / "logs").iterdir()
    assert file.name.startswith("t2t_ext-bleu.")
    lines = file.read_text().splitlines()
    assert [line[0] for line in lines] == ["I", "W", "E"]
    assert all("test_log.py:" in line for line in lines)
    assert lines[0].endswith("] message")
    parse()  # the next command in this process does not log to the file
    log.info("later")
    assert "later" not in file.read_text()


def test_only_standard_error(parse, tmp_path, capsys):
    parse(f"--log_dir={tmp_path / 'logs'}", "--logtostderr")
    say_all()
    assert capsys.readouterr().err.startswith("message\n")
    assert not (tmp_path / "logs").exists()


def test_a_directory_that_cannot_be(parse, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"--log_dir=.*file: File exists. Give a directory"):
        parse(f"--log_dir={tmp_path / 'file'}")


def test_flags_from_a_file(tmp_path):
    parser = FlagParser("t2t_ext-bleu", "Scores.")
    parser.add_argument("--reference")
    parser.add_argument("--translation")
    file = tmp_path / "flags"
    file.write_text("# those of every day\n--reference=r.txt\n\n--translation=t.txt\n")
    args = parser.parse_args([f"--flagfile={file}", "--translation=other.txt"])
    assert (args.reference, args.translation) == ("r.txt", "other.txt")
    assert args.given == {"reference", "translation"}
    with pytest.raises(UserError, match=r"--flagfile: .*missing"):
        parser.parse_args([f"--flagfile={tmp_path / 'missing'}"])
    file.write_text("--referense=r.txt\n")
    with pytest.raises(UserError, match=r"unknown flag --referense\. Did you mean 'reference'"):
        parser.parse_args([f"--flagfile={file}"])
