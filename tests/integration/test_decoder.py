"""Tests of the command t2t_ext-decoder: one output line per input line, scores, and a message for every mistake."""

import dataclasses
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from t2t_ext.bin import decoder
from t2t_ext.data.corpora import text_lines
from t2t_ext.data.text.text_encoder import EOS_ID
from t2t_ext.errors import UserError
from t2t_ext.evaluation import protocols

LINES = [
    "the old cat sees the lamp .",
    "",
    "the city loves the small flower today .",
    "Ünïcödé \u2028 \u0085 ☃ x",
    "the",
]


@pytest.fixture
def decode(tiny_run, tmp_path, capsys):
    """Returns the decoder on the tiny run as a function (flags...) -> (status, standard output, standard error)."""

    def run(*flags):
        status = decoder.main([f"--output_dir={tiny_run.path}", *flags])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def write(path, lines):
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def read(path):
    return path.read_bytes().decode().split("\n")[:-1]


def test_file_to_file_keeps_lines_and_order(decode, tiny_run, tmp_path):
    source, output = write(tmp_path / "in.txt", LINES * 5), tmp_path / "out.txt"
    status, out, err = decode(f"--decode_from_file={source}", f"--decode_to_file={output}")
    assert status == 0, err
    assert read(output) == tiny_run.translator(LINES) * 5
    assert read(output)[1] == ""
    assert "25 lines" in err
    assert out == ""
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_windows_change_nothing(decode, tiny_run, monkeypatch, tmp_path):
    """Lines translated in windows give the same files as lines translated together, and no window reads ahead."""
    raw = "".join(f"{line}\n" for line in LINES * 2).encode() + b"the \xff cat\n" + b"the old cat sees " * 20
    (tmp_path / "in.txt").write_bytes(raw)
    outputs = [tmp_path / name for name in ("out.txt", "out.align", "out.jsonl")]
    flags = [f"--decode_from_file={tmp_path / 'in.txt'}", "--decode_hparams=beam_size=2,max_input_length=60"]
    names = ("decode_to_file", "alignment_file", "nbest_file")
    flags += [f"--{name}={path}" for name, path in zip(names, outputs, strict=True)]

    def decoded():
        status, _, err = decode(*flags)
        assert status == 0, err
        assert "Translated 12 lines" in err
        assert "not UTF-8: 1 line (11)" in err
        assert "truncated to max_input_length=60 subwords: 1 line (12)" in err
        records = list(map(json.loads, read(outputs[2])))
        # Log-probabilities are compared approximately: matrix products with other numbers of rows round differently.
        scores = [each.pop(name) for row in records for each in row["hypotheses"] for name in ("log_prob", "score")]
        return [path.read_bytes() for path in outputs[:2]], records, scores

    *together, scores = decoded()
    numbers, read_lines, most = [], 0, 0
    stream, translate = text_lines.stream, tiny_run.translator.__class__.translate

    def noted(path):
        nonlocal read_lines
        for line in stream(path):
            read_lines += 1
            yield line

    def counted(self, lines, *args, **kwargs):
        nonlocal most, read_lines
        numbers.append(len(lines))
        most, read_lines = max(most, read_lines), 0
        return translate(self, lines, *args, **kwargs)

    monkeypatch.setattr(text_lines, "WINDOW_LINES", 5)
    monkeypatch.setattr(text_lines, "stream", noted)
    monkeypatch.setattr(tiny_run.translator.__class__, "translate", counted)
    *windows, scores_of_windows = decoded()
    assert (numbers, most) == ([5, 5, 2], 5)
    assert windows == together
    assert scores_of_windows == pytest.approx(scores, rel=1e-4)
    assert [record["line"] for record in together[1]] == list(range(1, 13))


def test_empty_translations_are_counted_and_said(decode, tiny_run, monkeypatch, tmp_path):
    real = tiny_run.translator.__class__._search_all

    def search(self, *args, **options):
        first, *others = real(self, *args, **options)
        return [[dataclasses.replace(first[0], text="", prepared="", ids=(EOS_ID,))], *others]

    monkeypatch.setattr(text_lines, "WINDOW_LINES", 3)
    monkeypatch.setattr(tiny_run.translator.__class__, "_search_all", search)
    source, output = write(tmp_path / "in.txt", LINES), tmp_path / "out.txt"
    status, _, err = decode(f"--decode_from_file={source}", f"--decode_to_file={output}")
    assert status == 0, err
    assert (
        "the translation is empty: it ended at once (min_length=1 in --decode_hparams forbids it): 2 lines (1, 4)"
        in err
    )
    assert [not line for line in read(output)] == [True, True, False, True, False]


@pytest.mark.slow  # test_windows_change_nothing covers the rest of a line
def test_prefixes_and_scores_go_with_their_windows(decode, monkeypatch, tmp_path):
    source = write(tmp_path / "in.txt", LINES)
    prefixes = write(tmp_path / "prefixes.txt", ["", "", "die \u2603", "", "die"])
    flags = [f"--decode_from_file={source}", f"--prefix_file={prefixes}", f"--decode_to_file={tmp_path / 'out.txt'}"]
    flags.append(f"--decode_reference={write(tmp_path / 'ref.txt', LINES)}")
    together = decode(*flags)
    translations = (tmp_path / "out.txt").read_bytes()
    monkeypatch.setattr(text_lines, "WINDOW_LINES", 2)
    windows = decode(*flags)
    assert windows[:2] == together[:2]
    assert (tmp_path / "out.txt").read_bytes() == translations
    warnings = [[line for line in err.splitlines() if line.startswith("warning")] for _, _, err in (together, windows)]
    assert warnings[0] == warnings[1]


def test_an_error_on_the_way_leaves_nothing(decode, monkeypatch, tmp_path):
    source, output = write(tmp_path / "in.txt", LINES), write(tmp_path / "out.txt", ["before"])

    def broken(path):
        yield from LINES[:3]
        assert len(list(tmp_path.glob(".*.tmp-*"))) == 2
        raise UserError("damaged on the way")

    monkeypatch.setattr(text_lines, "WINDOW_LINES", 2)
    monkeypatch.setattr(text_lines, "stream", broken)
    files = [f"--decode_to_file={output}", f"--nbest_file={tmp_path / 'nbest.jsonl'}"]
    status, _, err = decode(f"--decode_from_file={source}", *files)
    assert (status, err.splitlines()[-1]) == (2, "error: damaged on the way")
    assert read(output) == ["before"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.txt"]


def test_default_output_name(decode, tiny_run, tmp_path):
    source = write(tmp_path / "in.txt", LINES[:1])
    assert decode(f"--decode_from_file={source}", "--decode_hparams=beam_size=2,alpha=0.5")[0] == 0
    name = "in.txt.transformer.transformer_test.translate_parallel_text.beam2.alpha0.5.decodes"
    assert len(read(tmp_path / name)) == 1
    flags = ["--decode_hparams=beam_size=2,alpha=0.5,no_repeat_ngram_size=3,batch_size=4", "--checkpoint_path=latest"]
    assert decode(f"--decode_from_file={source}", *flags)[0] == 0
    other = name.removesuffix("decodes") + "no_repeat_ngram_size3.latest.decodes"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", name, other]
    long = "beam_size=2,alpha=0.5,no_repeat_ngram_size=3,no_repeat_ngram_unit=words,no_repeat_ngram_ignore=. </t>"
    flags = [f"--output_dir={tiny_run.path}", f"--decode_hparams={long}", "--checkpoint_path=latest"]
    given = decoder.build_parser().parse_args([f"--decode_from_file={source}", *flags])
    of_long = pathlib.Path(decoder._Run(given).default_output(str(source))).name
    assert of_long.startswith(name.removesuffix("decodes"))
    assert of_long not in (name, other)
    assert len(of_long) < 120


def test_default_output_names_tell_apart_what_changes_translations(tiny_run, tmp_path):
    """The default output name depends on every option that changes translations, but is unchanged without them.

    Prefix and constraint files count by their content.
    """
    source, guide = write(tmp_path / "in.txt", LINES[:1]), write(tmp_path / "guide.txt", ["die Katze "])
    runs = [tiny_run.path, *(shutil.copytree(tiny_run.path, tmp_path / name) for name in ("a", "b"))]

    def name(*flags, members=1):
        chosen = ",".join(map(str, runs[:members]))
        given = decoder.build_parser().parse_args([f"--output_dir={chosen}", f"--decode_from_file={source}", *flags])
        return decoder._Run(given).default_output(str(source)).partition(".beam4.alpha0.6.")[2]

    assert name() == "decodes"
    assert name("--checkpoint_path=latest,latest") == "ensemble2.latest,latest.decodes"
    found = [
        name(f"--prefix_file={guide}"),
        name(f"--constraints_file={guide}"),
        name(f"--prefix_file={guide}", "--source_tag=<one>"),
        name("--source_tag=<one>"),
        name(members=2),
        name("--ensemble_weights=1,2", members=2),
    ]
    runs[1] = runs[2]
    found.append(name(members=2))
    assert name(f"--prefix_file={guide}") == found[0]
    write(guide, ["das Haus "])
    found.append(name(f"--prefix_file={guide}"))
    assert len(set(found)) == len(found)
    assert all(re.fullmatch(r"(ensemble2\.)?[0-9a-f]{8}\.decodes", each) for each in found)


def test_decode_hparams_as_a_dict(tiny_run):
    from t2t_ext.translation.translator import Translator

    one = Translator.load(tiny_run.path, decode_hparams={"beam_size": 2, "alpha": 0.5})
    assert (one.decode_hparams.beam_size, one.decode_hparams.alpha) == (2, 0.5)
    with pytest.raises(UserError, match="decode_hparams: extra_length=50"):
        Translator.load(tiny_run.path, decode_hparams={"extra_length": 50})


def test_the_runs_own_files_are_no_output(decode, tiny_run, tmp_path):
    source = write(tmp_path / "in.txt", LINES[:1])
    for name in ("config.json", "vocab.source.model", "metrics.jsonl", "checkpoints/x"):
        status, _, err = decode(f"--decode_from_file={source}", f"--decode_to_file={tiny_run.path / name}")
        assert status == 2
        assert f"{name} is a file of the run {tiny_run.path} itself: give the output another name" in err


def test_settings_that_change_no_score_are_named(decode, tmp_path):
    pairs = write(tmp_path / "pairs.tsv", ["the cat\tdie Katze"])
    status, _, err = decode(f"--score_file={pairs}", "--decode_hparams=beam_size=9,alpha=0.5")
    assert status == 0
    assert "--score_file searches for nothing: beam_size of --decode_hparams change no score" in err


def test_bad_bytes_and_long_lines(decode, tiny_run, tmp_path):
    raw = b"the \xff cat\r\n" + b"the old cat sees " * 200 + b"\n\xfe\nthe lamp"
    (tmp_path / "in.txt").write_bytes(raw)
    output = tmp_path / "out.txt"
    flags = ["--decode_hparams=max_input_length=20,beam_size=4", f"--decode_to_file={output}"]
    status, _, err = decode(f"--decode_from_file={tmp_path / 'in.txt'}", *flags)
    assert status == 0
    assert len(read(output)) == 4
    assert read(output)[0] == tiny_run.translator(["the \ufffd cat"])[0]
    assert "not UTF-8: 2 lines (1, 3)" in err
    assert "truncated to max_input_length=20 subwords: 1 line (2)" in err
    assert "CR LF" in err


def test_references(decode, tiny_run, tmp_path):
    source = write(tmp_path / "in.txt", LINES)
    reference = write(tmp_path / "ref.txt", [f"{line} and more" for line in tiny_run.translator(LINES)])
    other = write(tmp_path / "other.txt", LINES)
    output = tmp_path / "out.txt"
    files = [f"--decode_from_file={source}", f"--decode_to_file={output}"]
    status, out, err = decode(*files, f"--decode_reference={reference},{other}", "--tokenize=char")
    assert status == 0, err
    expected = protocols.score(protocols.bleu_with("char"), tiny_run.translator(LINES), [read(reference), LINES])[0]
    assert out.strip() == str(expected)
    assert "tok:char" in out
    assert "nrefs:var" in out  # an empty line does not count if there is another reference


def test_split(decode, tiny_run, toy_corpus, tmp_path):
    status, out, err = decode("--split=dev", f"--decode_to_file={tmp_path / 'dev.txt'}")
    assert status == 0, err
    sources, targets = (list(column) for column in zip(*toy_corpus.dev, strict=True))
    hypotheses = tiny_run.translator(sources)
    assert read(tmp_path / "dev.txt") == hypotheses
    bleu, chrf, ter = out.strip().split("\n")
    assert bleu == str(protocols.score("detok", hypotheses, [targets])[0])
    assert chrf == str(protocols.score("chrf", hypotheses, [targets])[0])
    assert ter.startswith("TER = ")


def test_nbest(decode, tiny_run, make_translator, tmp_path):
    source, output, nbest = write(tmp_path / "in.txt", LINES), tmp_path / "out.txt", tmp_path / "nbest.jsonl"
    files = [f"--decode_from_file={source}", f"--decode_to_file={output}", f"--nbest_file={nbest}"]
    status, _, err = decode(*files, "--decode_hparams=return_beams=true,write_beam_scores=true")
    assert status == 0, err
    expected = make_translator(return_beams=True).translate(LINES)
    for line, row, hypotheses in zip(read(output), map(json.loads, read(nbest)), expected, strict=True):
        if not hypotheses[0].length:
            assert line == ""
            continue
        columns = line.split("\t")
        assert columns[0::2] == [hypothesis.text for hypothesis in hypotheses]
        assert [float(score) for score in columns[1::2]] == pytest.approx([h.score for h in hypotheses], abs=1e-3)
        for found, hypothesis in zip(row["hypotheses"], hypotheses, strict=True):
            assert found["text"] == hypothesis.text
            assert found["length"] == hypothesis.length
            assert found["log_prob"] == pytest.approx(hypothesis.log_prob, abs=1e-3)
            assert found["score"] == pytest.approx(hypothesis.score, abs=1e-3)
    # Without return_beams, an n-best file does not change the text output.
    assert decode(*files)[0] == 0
    assert read(output) == tiny_run.translator(LINES)
    assert [len(json.loads(line)["hypotheses"]) for line in read(nbest)] == [4 if line else 1 for line in LINES]


def test_nbest_of_one_where_one_is_asked_for(decode, tmp_path):
    source, nbest = write(tmp_path / "in.txt", LINES[:1]), tmp_path / "nbest.jsonl"
    flags = [f"--decode_from_file={source}", f"--nbest_file={nbest}", f"--decode_to_file={tmp_path / 'out.txt'}"]
    assert decode(*flags, "--decode_hparams=beam_size=3,num_hypotheses=1")[0] == 0
    assert [len(json.loads(line)["hypotheses"]) for line in read(nbest)] == [1]


def test_score_file(decode, tiny_run, tmp_path, monkeypatch):
    pairs = [("the cat", "die Katze"), ("the lamp sees", ""), ("", "die"), ("the old door", "die alte Tür .")]
    source = write(tmp_path / "pairs.tsv", ["\t".join(pair) for pair in pairs])
    status, out, err = decode(f"--score_file={source}")
    assert status == 0, err
    for line, expected in zip(out.splitlines(), tiny_run.translator.score(pairs), strict=True):
        log_prob, length, score = line.split("\t")
        assert float(log_prob) == pytest.approx(expected.log_prob, abs=1e-4)
        assert int(length) == expected.length
        assert float(score) == pytest.approx(expected.score, abs=1e-4)
    # Pairs that come in windows, through a pipe and with alignments get the same scores as pairs together.
    monkeypatch.setattr(text_lines, "WINDOW_LINES", 3)
    monkeypatch.setattr(sys, "stdin", Pipe(source.read_bytes()))
    outputs = [f"--decode_to_file={tmp_path / 'scores.tsv'}", f"--alignment_file={tmp_path / 'pairs.align'}"]
    assert decode("--score_file=-", *outputs)[0] == 0
    for line, expected in zip(read(tmp_path / "scores.tsv"), out.splitlines(), strict=True):
        assert list(map(float, line.split("\t"))) == pytest.approx(list(map(float, expected.split("\t"))), abs=1e-4)
    assert read(tmp_path / "pairs.align") == tiny_run.translator.align(pairs)


class Pipe(io.TextIOWrapper):
    """Standard input that is not a terminal."""

    def __init__(self, data):
        super().__init__(io.BytesIO(data), encoding="utf-8")


def test_standard_input_and_output(decode, tiny_run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Pipe("\n".join(LINES).encode()))
    status, out, err = decode("--decode_from_file=-")
    assert status == 0, err
    assert out.split("\n")[:-1] == tiny_run.translator(LINES)


def test_interactive_is_the_same_as_a_file(decode, tiny_run, make_translator, monkeypatch):
    lines = "\n".join([*LINES, "q", "never read"]).encode()
    monkeypatch.setattr(sys, "stdin", Pipe(lines))
    status, out, err = decode("--decode_interactive")
    assert status == 0, err
    assert out.split("\n")[:-1] == tiny_run.translator(LINES)
    monkeypatch.setattr(sys, "stdin", Pipe(LINES[0].encode()))
    status, out, _ = decode("--decode_interactive", "--decode_hparams=return_beams=true")
    (hypotheses,) = make_translator(return_beams=True).translate(LINES[:1])
    assert [line.split("\t")[1] for line in out.splitlines()] == [hypothesis.text for hypothesis in hypotheses]


def test_empty_file(decode, tmp_path):
    source = write(tmp_path / "in.txt", [])
    assert decode(f"--decode_from_file={source}", f"--decode_to_file={tmp_path / 'out.txt'}")[0] == 0
    assert (tmp_path / "out.txt").read_bytes() == b""


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "nothing to do"),
        (["--decode_from_file={in}", "--split=dev"], "exclude each other"),
        (["--decode_from_file={dir}/nothing.txt"], "nothing.txt"),
        (["--decode_from_file={in}", "--decode_reference={pairs}"], "5 in {in}, 1 in {pairs}"),
        (["--decode_from_file=-", "--decode_reference=-,{in}"], "cannot both be standard input"),
        (["--decode_from_file={in}", "--decode_reference={in},"], "no file name before or after a comma"),
        (["--decode_interactive", "--source_tag=<x>"], "trained without this tag"),
        (["--decode_from_file={in}", "--decode_to_file={dir}/no/out.txt"], "no directory {dir}/no"),
        (["--decode_from_file={in}", "--decode_to_file={dir}"], "it is a directory"),
        (["--decode_from_file={in}", "--decode_hparams=beam=4"], "Did you mean 'beam_size'"),
        (["--decode_from_file={in}", "--checkpoint_path=77"], "77"),
        (["--decode_from_file={in}", "--checkpoint_path=averaged"], "averaged"),
        (["--decode_from_file={in}", "--output_dir={dir}"], "not a run"),
        (["--decode_from_file={in}", "--decode_shards=2"], "--decode_shards is no flag"),
        (["--decode_from_file={in}", "--tokenize=13b"], "Did you mean '13a'"),
        (["--decode_from_file=/dev/null"], "/dev/null is no file that the output could be named after"),
        (["--decode_from_file={in}", "--tokenize=13a"], "--tokenize is of scores, which need references"),
        (["--score_file={pairs}", "--n_bootstrap=100"], "--n_bootstrap is of scores, which need references"),
        (["--split=train"], "train"),
        (["--split=dev", "--data_dir={dir}"], "t2t_ext-datagen"),
        (["--split=dev", "--decode_reference={in}"], "--decode_reference goes with --decode_from_file"),
        (["--decode_from_file=-", "--nbest_file=-"], "- is given for two outputs"),
        (["--score_file={pairs}"], "{pairs}, line 1: 1 tab-separated"),
        (["--score_file={pairs}", "--nbest_file={dir}/x"], "--nbest_file goes with"),
    ],
)  # fmt: skip
def test_errors(decode, tmp_path, flags, message):
    names = {
        "dir": tmp_path,
        "in": write(tmp_path / "in.txt", LINES),
        "pairs": write(tmp_path / "pairs.tsv", ["no tab in it"]),
    }
    before = sorted(tmp_path.iterdir())
    status, out, err = decode(*(flag.format(**names) for flag in flags))
    assert status == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message.format(**names) in err
    assert out == ""
    assert sorted(tmp_path.iterdir()) == before


def test_an_output_never_breaks_its_line():
    assert text_lines.one_line("a\nb\tc") == "a b\tc"
    assert text_lines.one_line("a\nb\tc", tabs=False) == "a b c"


def test_help_needs_no_tensorflow():
    code = "import sys; from t2t_ext.bin import decoder, exporter; decoder.build_parser(); exporter.build_parser(); "
    code += "sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_in_a_process_of_its_own(tiny_run, tmp_path):
    source, output = write(tmp_path / "in.txt", LINES), tmp_path / "out.txt"
    command = [sys.executable, "-m", "t2t_ext.bin.decoder", f"--output_dir={tiny_run.path}"]
    command += [f"--decode_from_file={source}", f"--decode_to_file={output}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert read(output) == tiny_run.translator(LINES)
    assert re.fullmatch(r"Translated 5 lines in .* -> .*out.txt", done.stderr.splitlines()[-1])
