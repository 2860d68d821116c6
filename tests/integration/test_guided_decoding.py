"""End-to-end tests of constraints and diverse groups: Translator, decoder command and SavedModel."""

import json

import pytest

from t2t_ext.bin import decoder
from t2t_ext.errors import UserError

LINES = ["the old cat sees the lamp .", "the city loves the small flower today .", "", "the red door ."]
PHRASES = [["Katze", "alte Lampe"], [], ["Tür"], ["rote Tür", "rote Tür"]]


@pytest.fixture(scope="module")
def decode(tiny_run, tmp_path_factory):
    """Returns the decoder on LINES as a function (flags...) -> status; the caller reads the printed output."""
    source = tmp_path_factory.mktemp("guided") / "in.txt"
    source.write_text("".join(f"{line}\n" for line in LINES))

    def run(*flags):
        output = source.parent / "out.txt"
        files = [f"--decode_from_file={source}", f"--decode_to_file={output}"]
        return decoder.main([f"--output_dir={tiny_run.path}", *files, *flags])

    run.directory = source.parent
    return run


@pytest.fixture(scope="module")
def translated(tiny_translator):
    return tiny_translator.translate(LINES, constraints=PHRASES), tiny_translator.unmet_constraint_line_numbers


def pieces(encoder, text):
    return tuple(encoder.encode(text))


def holds(ids, phrase):
    return sum(ids[i : i + len(phrase)] == phrase for i in range(len(ids)))


def test_translations_hold_the_phrases(translated, tiny_encoder):
    results, unmet = translated
    for (hypothesis, *_), phrases in zip(results, PHRASES, strict=True):
        if hypothesis.length:
            for phrase in phrases:
                assert holds(hypothesis.ids, pieces(tiny_encoder, phrase)) >= phrases.count(phrase)
                assert phrase in hypothesis.text
    assert [row[0].unmet_constraints for row in results] == [0, 0, 1, 0]
    assert unmet == (3,)


def test_lines_without_phrases_are_as_ever(translated, tiny_translator):
    results, _ = translated
    expected = tiny_translator.translate(LINES)
    assert expected[1][0].unmet_constraints is None
    assert results[1][0].ids == expected[1][0].ids
    assert results[1][0].log_prob == pytest.approx(expected[1][0].log_prob, abs=1e-3)
    assert results[0][0].ids != expected[0][0].ids
    # The same holds in one batch with constrained lines.
    import tensorflow as tf

    found = tiny_translator.search_batch(tf.constant(LINES), constraints=tf.constant(["Katze", "", "", "Tür"]))
    assert found["outputs"].numpy()[1, 0].decode() == expected[1][0].text
    assert found["scores"].numpy()[1, 0] == pytest.approx(expected[1][0].score, abs=1e-4)


def test_a_model_that_writes_right_to_left(make_translator, tiny_encoder):
    translator = make_translator(beam_size=2, target_direction="r2l")
    ((hypothesis,),) = translator.translate(LINES[:1], constraints=[["alte Katze", "Lampe"]])
    assert "alte Katze" in hypothesis.text
    assert "Lampe" in hypothesis.text
    assert holds(hypothesis.ids, pieces(tiny_encoder, "alte Katze")[::-1]) == 1
    assert hypothesis.unmet_constraints == 0


def test_phrases_and_prefixes_together(tiny_translator):
    ((hypothesis,),) = tiny_translator.translate(LINES[:1], prefixes=["die Stadt "], constraints=[["alte Katze"]])
    assert hypothesis.text.startswith("die Stadt")
    assert "alte Katze" in hypothesis.text


def test_constraints_file(decode, translated, capsys):
    phrases = decode.directory / "phrases.tsv"
    phrases.write_text("".join("\t".join(row) + "\n" for row in PHRASES))
    nbest = decode.directory / "nbest.jsonl"
    assert decode(f"--constraints_file={phrases}", f"--nbest_file={nbest}") == 0
    results, _ = translated
    output = (decode.directory / "out.txt").read_text().split("\n")[:-1]
    assert output == [row[0].text for row in results]
    assert "not all phrases are in the translation, up to the length limit: 1 line (3)" in capsys.readouterr().err
    rows = [json.loads(line)["hypotheses"] for line in nbest.read_text().splitlines()]
    assert [row[0]["unmet_constraints"] for row in rows] == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("phrases", "flags", "message"),
    [
        ("Katze\n", (), "4 in "),
        ("\n" * 4, ("--decode_hparams=diverse_groups=2",), "diverse_groups=2"),
        ("\n" * 4, ("--decode_hparams=sampling_method=random",), "sampling_method=random"),
    ],
)
def test_mistakes_with_the_file(decode, capsys, phrases, flags, message):
    path = decode.directory / "wrong.tsv"
    path.write_text(phrases)
    assert decode(f"--constraints_file={path}", *flags) != 0
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ([["a"]], "1 lists"),
        (["a", "b"], "one string"),
        ("ab", "One string"),
        ([["a\tb"], []], "tab"),
        ([[], None], "The constraints of line 2 are None; give a list"),
        ([[], ["a", None]], r"Number 2 of the constraints of line 2 is None, which is no text \(str\)"),
    ],
)
def test_mistakes_in_python(tiny_translator, constraints, message):
    with pytest.raises(UserError, match=message):
        tiny_translator.translate(LINES[:2], constraints=constraints)


def test_the_saved_model(exported, translated):
    import tensorflow as tf

    signature = tf.saved_model.load(str(exported)).signatures["translate_with_constraints"]
    found = signature(inputs=tf.constant(LINES), constraints=tf.constant(["\t".join(row) for row in PHRASES]))
    results, _ = translated
    assert [text.decode() for text in found["outputs"].numpy()] == [row[0].text for row in results]
    assert found["unmet_constraints"].numpy().tolist() == [0, 0, 1, 0]
    assert found["scores"].numpy() == pytest.approx([row[0].score for row in results], abs=1e-3)


def test_diverse_groups(make_translator, tiny_translator):
    """Diverse groups use more different words than the usual beam, and the same log-probabilities."""
    diverse = make_translator(beam_size=4, diverse_groups=4, diverse_strength=3.0, return_beams=True)
    usual = make_translator(beam_size=4, return_beams=True)

    def words(translator):
        rows = translator.translate(LINES)
        assert len(rows[0]) == 4
        return sum(len({word for each in row for word in each.text.split()}) for row in rows), rows

    many, rows = words(diverse)
    few, _ = words(usual)
    assert many > few
    for line, row in zip(LINES, rows, strict=True):
        scores = [each.score for each in row]
        assert scores == sorted(scores, reverse=True)
        if line:
            ((scored,),) = usual.score_ids([line], [[row[0].ids]])
            assert scored.log_prob == pytest.approx(row[0].log_prob, abs=1e-3)


def test_groups_that_do_not_share_the_beam():
    from t2t_ext.config.decode import DecodeHParams, resolve_decode_hparams
    from t2t_ext.search.directions import check_directions

    with pytest.raises(UserError, match="beam_size=4 is not a multiple of diverse_groups=3"):
        resolve_decode_hparams("diverse_groups=3")
    with pytest.raises(UserError, match="no effect without diverse_groups"):
        resolve_decode_hparams("diverse_strength=2.0")
    with pytest.raises(UserError, match="generates in 2 directions"):
        check_directions(DecodeHParams(diverse_groups=4), directions=2)
