"""Tests of prefixes, sampling, minimum length, n-grams and coverage in the translator, the decoder and the export."""

import re

import numpy as np
import pytest

from t2t_ext.bin import decoder
from t2t_ext.config.decode import DecodeHParams, resolve_decode_hparams
from t2t_ext.errors import UserError
from t2t_ext.translation import searcher

LINES = [
    "the old cat sees the lamp .",
    "",
    "the city loves the small flower today .",
    "Ünïcödé ☃ x",
    "the",
    "the new door finds the old street often .",
]
PREFIXES = ["die alte", "die", "", "Ü ", "die Blume ", "x" * 60]


def checked_log_probs(translator, lines, results):
    """Checks that the hypotheses' log-probabilities are those that the model assigns to their ids."""
    for line, hypotheses in zip(lines, results, strict=True):
        for hypothesis in hypotheses:
            if hypothesis.length:
                ((scored,),) = translator.score_ids([line], [[hypothesis.ids]])
                assert hypothesis.log_prob == pytest.approx(scored.log_prob, abs=2e-3)


def test_minimum_length_and_ngrams(make_translator):
    translator = make_translator(num_hypotheses=4, min_length=6, min_length_ratio=0.5, no_repeat_ngram_size=2)
    results = translator.translate(LINES)
    for line, found in zip(LINES, results, strict=True):
        source = len(translator.source_encoder.encode(line))
        for hypothesis in found:
            if line:
                assert hypothesis.length >= max(6, int(0.5 * source)) + hypothesis.finished
            pairs = list(zip(hypothesis.ids, hypothesis.ids[1:], strict=False))
            assert len(set(pairs)) == len(pairs)
    checked_log_probs(translator, LINES, results)


def test_coverage_is_of_the_last_layers_attention(make_translator, tiny_model):
    beta = 0.7
    translator = make_translator(num_hypotheses=2, coverage_penalty=beta)
    results = translator.translate(LINES)
    checked_log_probs(translator, LINES, results)
    changed = 0
    for line, found in zip(LINES, results, strict=True):
        for hypothesis in found if line else []:
            source = np.array([[*translator.source_encoder.encode(line), 1]], np.int32)
            weights = tiny_model.attention_weights(source, np.array([hypothesis.ids], np.int32))
            last = sorted(name for name in weights if re.fullmatch(r"decoder/layer_\d+/source_attention", name))[-1]
            covered = weights[last].numpy()[0].mean(axis=0).sum(axis=0)[:-1]
            bonus = beta * np.log(np.clip(covered, 1e-6, 1)).sum()
            penalty = ((5 + hypothesis.length) / 6) ** 0.6
            assert hypothesis.score == pytest.approx(hypothesis.log_prob / penalty + bonus, abs=5e-3)
            changed += bonus < -0.1
    assert changed


def test_prefixes(make_translator):
    translator = make_translator(num_hypotheses=4)
    results = translator.translate(LINES, prefixes=PREFIXES)
    checked_log_probs(translator, LINES, results)
    pieces = translator.target_encoder.pieces
    for line, prefix, found in zip(LINES, PREFIXES, results, strict=True):
        if not line:
            assert found[0].text == ""
            continue
        ids = tuple(translator.target_encoder.encode(prefix.rstrip()))
        for hypothesis in found:
            assert hypothesis.ids[: len(ids)] == ids[: hypothesis.length]
            assert hypothesis.text.startswith(prefix.rstrip()) or prefix == PREFIXES[-1]
            if prefix.endswith(" "):
                assert hypothesis.ids[len(ids)] == 1 or pieces([hypothesis.ids[len(ids)]])[0].startswith("▁")
    # The last prefix exceeds the length limit: it is truncated and reported as unmet.
    assert translator.unmet_prefix_line_numbers == (6,)
    assert not results[5][0].finished
    free = translator.translate(LINES[2:3])
    assert [h.ids for h in results[2]] == [h.ids for h in free[0]]
    assert translator.unmet_prefix_line_numbers == ()


def test_any_whitespace_at_the_end_of_a_prefix_completes_its_word(make_translator):
    spaces, translator = [" ", "\u3000", "\u00a0", "\v", "\u2003 "], make_translator()
    found = translator.translate(LINES[:1] * len(spaces), prefixes=[f"die{space}" for space in spaces])
    assert translator.unmet_prefix_line_numbers == ()
    assert {best.text.startswith("die ") for best, *_ in found} == {True}
    assert len({best.text for best, *_ in found}) == 1


def test_prefixes_that_cannot_be(make_translator):
    with pytest.raises(UserError, match="2 prefixes for 1 lines"):
        make_translator().translate(["x"], prefixes=["a", "b"])
    with pytest.raises(UserError, match="right to left"):
        make_translator(target_direction="r2l").translate(["x"], prefixes=["a"])


def test_samples_belong_to_their_line_and_seed(make_translator):
    settings = {"sampling_method": "random", "num_hypotheses": 3, "sampling_keep_top_k": 40, "batch_size": 4}
    translator = make_translator(**settings)
    results = translator.translate(LINES)
    checked_log_probs(translator, LINES, results)
    backwards = translator.translate(LINES[::-1])[::-1]
    assert [[h.text for h in found] for found in backwards] == [[h.text for h in found] for found in results]
    assert len({h.text for h in results[0]}) > 1


def test_decoder_forces_prefixes(tiny_run, tmp_path, capsys):
    def run(*flags):
        status = decoder.main([f"--output_dir={tiny_run.path}", *flags])
        return status, capsys.readouterr()

    source, prefixes, output = tmp_path / "in.txt", tmp_path / "prefixes.txt", tmp_path / "out.txt"
    source.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    prefixes.write_text("\n".join(PREFIXES) + "\n", encoding="utf-8")
    flags = [f"--decode_from_file={source}", f"--decode_to_file={output}", f"--prefix_file={prefixes}"]
    status, captured = run(*flags)
    assert status == 0, captured.err
    expected = tiny_run.translator.translate(LINES, prefixes=PREFIXES)
    assert output.read_text(encoding="utf-8").split("\n")[:-1] == [found[0].text for found in expected]
    assert "only a part of the prefix: 1 line (6)" in captured.err

    prefixes.write_bytes(b"\n".join([b"die T\xfcr", b"die ", b"", b"", b"", b""]) + b"\r\n")
    status, captured = run(*flags)
    assert f"{prefixes}: not UTF-8: 1 line (1)" in captured.err
    assert f"{prefixes}: the CR of CR LF was dropped at the end of 1 line(s)" in captured.err

    prefixes.write_text("die\n", encoding="utf-8")
    status, captured = run(*flags)
    assert status == 2
    assert "6 in" in captured.err
    assert f"1 in {prefixes}" in captured.err
    status, captured = run("--decode_interactive", f"--prefix_file={prefixes}")
    assert status == 2
    assert "--prefix_file goes with" in captured.err
    status, captured = run(*flags, f"--nbest_file={output}")
    assert status == 2
    assert "two outputs" in captured.err
    status, captured = run("--decode_from_file=-", "--prefix_file=-")
    assert status == 2
    assert "cannot both be standard input" in captured.err


def test_decoder_samples(tiny_run, tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("\n".join(LINES[:3]) + "\n", encoding="utf-8")
    hparams = "sampling_method=random,num_hypotheses=2,sampling_temp=0.5,sampling_seed=7"
    assert (
        decoder.main([f"--output_dir={tiny_run.path}", f"--decode_from_file={source}", f"--decode_hparams={hparams}"])
        == 0
    )
    (output,) = tmp_path.glob("in.txt.*.sample7.temp0.5.num_hypotheses2.decodes")
    assert [line.count(b"\t") for line in output.read_bytes().split(b"\n")[:-1]] == [1, 0, 1]


@pytest.mark.parametrize("number", [5, 6])
def test_many_samples_of_a_line_are_drawn_in_several_rows(make_translator, monkeypatch, number):
    """The samples do not depend on the rows; with three in a row, five samples take two rows of three places."""
    lines, prefixes = [LINES[0], "", LINES[0], LINES[2]], ["", "x", "die ", ""]
    results = []
    for most in (number, 3):
        monkeypatch.setattr(searcher, "_MOST_SAMPLES_OF_A_ROW", most)
        translator = make_translator(sampling_method="random", num_hypotheses=number, sampling_temp=2.0)
        rows = translator.translate(lines, prefixes=prefixes)
        results.append([[sample.text for sample in row] for row in rows])
        assert [len(row) for row in rows] == [number, 1, number, number]
        assert not rows[1][0].text
    assert results[0] == results[1]
    assert len(set(results[0][0])) > 1
    assert all(text.startswith("die ") for text in results[0][2])


def test_signatures(exported, tiny_run, make_translator, monkeypatch):
    import tensorflow as tf

    from t2t_ext.serving.export import ServedTranslator

    signatures = tf.saved_model.load(str(exported)).signatures
    found = signatures["translate_with_prefix"](inputs=tf.constant(LINES), prefixes=tf.constant(PREFIXES))
    expected = tiny_run.translator.translate(LINES, prefixes=PREFIXES)
    assert [text.decode() for text in found["outputs"].numpy()] == [row[0].text for row in expected]
    assert "sample" not in signatures
    assert not make_translator(target_direction="r2l").can_force_prefix

    translator = make_translator(sampling_method="random", num_hypotheses=2)
    monkeypatch.setattr(type(translator), "can_align", False)  # saves tracing the alignment
    served = ServedTranslator(translator)
    lines = tf.constant([LINES[0]] * 20)
    samples = served.sample(lines, tf.range(20, dtype=tf.int64))["outputs"].numpy()
    assert len(set(samples)) > 5
    assert list(served.sample(lines[:3], tf.constant([4, 2, 2], tf.int64))["outputs"].numpy()) == [*samples[[4, 2, 2]]]


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        ("sampling_temp=0.5", "no effect without sampling_method=random"),
        ("sampling_keep_top_p=0", "more than 0"),
        ("sampling_method=random,sampling_keep_top_k=0", "leaves no token"),
        ("sampling_method=random,return_beams=true", "use num_hypotheses"),
        ("num_hypotheses=3,return_beams=true", "returns all beam_size=4, contradict each other: leave one out"),
        ("sampling_method=random,coverage_penalty=0.2", "leave it out"),
        ("num_hypotheses=5", "more than beam_size=4"),
        ("min_length=-1", "at least 0"),
        ("min_length=99999999999", "at most 100,000"),
        ("min_length_ratio=1e10", "at most 1,000"),
        ("max_length_ratio=1e10", "at most 1,000"),
        ("max_length_offset=2147483647", "at most 100,000"),
        ("extra_length=2147483647", "at most 100,000"),
        ("extra_length=50", "--decode_hparams: extra_length=50 is for length_limit=extra, not ratio"),
        ("length_limit=extra,max_length_offset=9", "max_length_offset=9 is for length_limit=ratio, not extra"),
        ("no_repeat_ngram_size=1000000", "at most 100"),
        ("coverage_penalty=1e8", "at most 30"),
        ("sampling_method=random,sampling_temp=1e9", "at most 1,000,000"),
    ],
)
def test_wrong_settings(hparams, message):
    with pytest.raises(UserError, match=re.escape(message)):
        resolve_decode_hparams(hparams)


def test_what_nothing_reads_is_no_reason_not_to_resume():
    assert resolve_decode_hparams("extra_length=50", stored=True).extra_length == 50


def test_two_directions_are_not_sampled():
    with pytest.raises(UserError, match="generates in one direction"):
        searcher.search_config(DecodeHParams(sampling_method="random"), 1, 2, (0,))


def test_a_model_that_hides_its_attention(tiny_model):
    from t2t_ext.models.seq2seq import Seq2Seq

    with pytest.raises(UserError, match="coverage_penalty"):
        Seq2Seq.step_with_attention(tiny_model, None, None, None, None, None)
