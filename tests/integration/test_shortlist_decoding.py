"""End-to-end tests of shortlists: the search, the command that makes them, the decoder and SavedModels."""

import json

import numpy as np
import pytest

from t2t_ext.bin import analyze, decoder, exporter
from t2t_ext.data.datasets.shortlist import Shortlist
from t2t_ext.errors import UserError

LINES = ["the old cat sees the lamp .", "the city loves the small flower today .", "", "Ünïcödé ☃ x", "the red door ."]


@pytest.fixture(scope="module")
def files(tiny_encoder, tmp_path_factory):
    """Returns {name: (path, shortlist)}: "always" and "best" hold the whole vocabulary, "part" a part of it.

    "always" lists it in ``always``, "best" as the candidates of each source subword.
    """
    directory, size = tmp_path_factory.mktemp("shortlists"), tiny_encoder.vocab_size
    digests = (tiny_encoder.ids_sha256,) * 2
    rng = np.random.default_rng(0)
    every = np.arange(size, dtype=np.int32)
    none = np.zeros([size, 1], np.int32)
    made = {
        "always": Shortlist(every, none, digests),
        "best": Shortlist(every[:11], np.tile(every, [size, 1]), digests),
        "part": Shortlist(every[:267], rng.integers(267, size, [size, 3], dtype=np.int32), digests),
    }
    for name, shortlist in made.items():
        shortlist.write(directory / f"{name}.npz")
    return {name: (str(directory / f"{name}.npz"), shortlist) for name, shortlist in made.items()}


def same(found, expected):
    for left, right in zip(found, expected, strict=True):
        assert [each.ids for each in left] == [each.ids for each in right]
        for attribute in ("log_prob", "score"):
            np.testing.assert_allclose(
                [getattr(each, attribute) for each in left], [getattr(each, attribute) for each in right], atol=2e-4
            )


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        ({}, {}),
        pytest.param({"beam_size": 1}, {}, marks=pytest.mark.slow),
        pytest.param({"min_length": 6, "no_repeat_ngram_size": 2}, {}, marks=pytest.mark.slow),
        pytest.param({"no_repeat_ngram_size": 1, "no_repeat_ngram_unit": "words"}, {}, marks=pytest.mark.slow),
        ({"coverage_penalty": 0.3}, {"prefixes": ["die Stadt ", "", "", "x", "alte"]}),
        pytest.param({"diverse_groups": 2}, {}, marks=pytest.mark.slow),
        pytest.param(
            {"beam_size": 6},
            {"constraints": [["alte Katze"], [], [], ["Tür"], ["Tür", "rote"]]},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"target_direction": "r2l"}, {"constraints": [["alte Katze"], [], [], [], []]}, marks=pytest.mark.slow
        ),
    ],
)
def test_the_whole_vocabulary_is_the_search_without(make_translator, files, settings, given):
    settings = {"return_beams": True, "max_length_offset": 6, **settings}
    expected = make_translator(**settings).translate(LINES, **given)
    name = "always" if settings.get("diverse_groups") else "best"
    same(make_translator(shortlist=files[name][0], **settings).translate(LINES, **given), expected)


@pytest.mark.parametrize(
    "settings", [{}, {"constraints": [["Katze"]]}, pytest.param({"prefixes": ["Katze "]}, marks=pytest.mark.slow)]
)
def test_hypotheses_keep_to_their_candidates(make_translator, files, tiny_encoder, tiny_model, settings):
    path, shortlist = files["part"]
    ((hypothesis,),) = make_translator(shortlist=path).translate(LINES[:1], **settings)
    source = [*tiny_encoder.encode(LINES[0]), 1]
    more = tiny_encoder.encode("Katze") if settings else []
    candidates = sorted({*shortlist.always, *shortlist.best[source].ravel(), *more})
    assert set(hypothesis.ids) <= set(candidates)
    # The log-probability is the model's, normalized over the candidates only.
    logits = tiny_model(np.array([source], np.int32), np.array([hypothesis.ids], np.int32)).numpy()[0]
    logits = logits.astype(np.float64)
    chosen = logits[np.arange(len(hypothesis.ids)), list(hypothesis.ids)]
    log_probs = chosen - np.log(np.exp(logits[:, candidates]).sum(axis=1))
    assert hypothesis.log_prob == pytest.approx(log_probs.sum(), abs=1e-3)
    assert hypothesis.ids != make_translator().translate(LINES[:1], **settings)[0][0].ids


def test_a_translation_does_not_depend_on_its_batch(make_translator, files):
    translator = make_translator(shortlist=files["part"][0], return_beams=True)
    same([translator.translate([line])[0] for line in LINES], translator.translate(LINES))


@pytest.mark.slow
def test_ensembles_and_two_directions(tiny_model, tiny_encoder, files):
    from random_weights import random_arrays

    from t2t_ext import registry
    from t2t_ext.config.decode import DecodeHParams
    from t2t_ext.models.ensemble import Ensemble
    from t2t_ext.translation.translator import Translator

    def made(name, **changes):
        size = tiny_encoder.vocab_size
        hparams = registry.hparams(f"{name}_test").replace(**changes)
        model = registry.model(name)(hparams, source_vocab_size=size, target_vocab_size=size)
        model.build()
        model.assign(random_arrays(model, seed=8, scale=2.0))
        return model

    for model in (
        Ensemble([tiny_model, made("transformer", hidden_size=24, num_heads=3)], (1, 3)),
        made("synchronous_transformer", pseudo="none"),
        made("layer_coordination"),
        made("asynchronous_transformer"),
    ):
        expected, found = (
            Translator(model, tiny_encoder, tiny_encoder, DecodeHParams(max_length_offset=6, **settings))
            for settings in ({}, {"shortlist": files["best"][0]})
        )
        same(found.translate(LINES), expected.translate(LINES))


def test_what_excludes_a_shortlist(make_translator, files, tmp_path):
    with pytest.raises(UserError, match="leave one out"):
        make_translator(shortlist=files["best"][0], sampling_method="random")
    with pytest.raises(UserError, match="leave shortlist out"):
        make_translator(shortlist=files["best"][0], sb_decode="recompute")
    with pytest.raises(UserError, match="cannot be read"):
        make_translator(shortlist=str(tmp_path / "none.npz"))


def test_commands(tiny_run, few_signatures, tmp_path, capsys):
    """The command makes the file, the decoder uses it, and a SavedModel does not need it any more."""
    import tensorflow as tf

    made, vmap = tmp_path / "made.npz", tmp_path / "vmap.txt"
    run = f"--output_dir={tiny_run.path}"
    status = analyze.main(
        ["shortlist", run, "--frequent=5", "--candidates=2", f"--shortlist_file={made}", f"--vmap_file={vmap}"]
    )
    assert status == 0, capsys.readouterr().err
    assert vmap.read_text().startswith("\t<pad> </s>")
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in LINES))
    hparams = f"--decode_hparams=shortlist={made}"
    output = tmp_path / "out.txt"
    assert decoder.main([run, hparams, f"--decode_from_file={tmp_path / 'in.txt'}", f"--decode_to_file={output}"]) == 0
    lines = output.read_text().splitlines()
    assert lines != tiny_run.translator(LINES)
    with few_signatures():
        assert exporter.main([run, hparams, f"--export_dir={tmp_path / 'export'}"]) == 0
    made.unlink()
    (export,) = (tmp_path / "export").iterdir()
    assert json.loads((export / "export.json").read_text())["decode_hparams"]["shortlist"] == str(made)
    found = tf.saved_model.load(str(export)).signatures["serving_default"](inputs=tf.constant(LINES))
    assert [text.decode() for text in found["outputs"].numpy()] == lines
    assert analyze.main(["shortlist", run, str(tiny_run.path)]) == 2
    assert "unexpected argument" in capsys.readouterr().err
