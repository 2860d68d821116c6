"""Tests of Moses tokenization and subword-nmt codes through the real commands, from raw text to a served model."""

import json
import sys
import types

import pytest
from serving_fakes import Servable, grpc_server, rest_server
from test_export import HERE, loader_arguments, run_loader

from t2t_ext.bin import datagen, decoder, exporter, prepare, query_server, trainer
from t2t_ext.errors import UserError
from t2t_ext.evaluation import protocols
from t2t_ext.serving.served_text import ServedText

STEPS = "--text_steps=moses_tokenize,truecase"
SUBWORDS = ["--subwords=subword_nmt", "--num_merges=60"]
LINES = ["The old cat's lamp: red!", "", "  the  city ", "Is the \u2603 new? <yes> & no.", "x" * 40]


def sentences(pairs):
    """Returns source and target lines of the toy corpus as raw text: first letter capital, full stop attached."""
    return [[text[0].upper() + text[1:-2] + "." for text in column] for column in zip(*pairs, strict=True)]


@pytest.fixture(scope="module")
def corpus(toy_corpus, tmp_path_factory):
    directory = tmp_path_factory.mktemp("prepared")
    flags = ["--problem=translate_parallel_text", "--source_language=en", "--target_language=de"]
    for split, pairs in (("train", toy_corpus.train), ("dev", toy_corpus.dev)):
        for side, lines in zip(("source", "target"), sentences(pairs), strict=True):
            path = directory / f"{split}.{side}"
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            flags.append(f"--{split}_{side}={path}")
    return types.SimpleNamespace(directory=directory, flags=[*flags, f"--data_dir={directory / 'data'}"])


@pytest.fixture(scope="module")
def run(corpus):
    assert datagen.main([*corpus.flags, STEPS, *SUBWORDS, "--num_processes=1"]) == 0
    path = corpus.directory / "run"
    hparams = "batch_size=512,hidden_size=32,filter_size=64,num_hidden_layers=1,learning_rate_warmup_steps=20"
    flags = [f"--output_dir={path}", "--model=transformer", "--hparams_set=transformer_test", f"--hparams={hparams}"]
    limits = ["--train_steps=20", "--local_eval_frequency=20", "--decode_hparams=beam_size=2"]
    assert trainer.main([*corpus.flags, *flags, *limits]) == 0
    return path


@pytest.fixture(scope="module")
def translator(run):
    from t2t_ext.translation.translator import Translator

    return Translator.load(run, decode_hparams="beam_size=2,max_length_ratio=1,max_length_offset=4")


@pytest.fixture(scope="module")
def exported(run, corpus, few_signatures):
    search = "--decode_hparams=beam_size=2,max_length_ratio=1,max_length_offset=4"
    export_dir = corpus.directory / "export"
    with few_signatures():
        assert exporter.main([f"--output_dir={run}", f"--export_dir={export_dir}", search]) == 0
    return export_dir / "20"


def piped(monkeypatch, capsys, *flags, text):
    """Returns the output lines of t2t_ext-prepare for text lines on standard input."""
    import io

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("".join(f"{line}\n" for line in text).encode())))
    capsys.readouterr()
    assert prepare.main(list(flags)) == 0
    return capsys.readouterr().out.split("\n")[:-1]


def test_the_record_is_in_the_manifest_and_counts(corpus, run, capsys):
    manifest = json.loads((corpus.directory / "data" / "translate_parallel_text.manifest.json").read_text())
    assert manifest["settings"]["source_steps"] == "moses_tokenize,truecase"
    assert manifest["settings"]["subwords"] == "subword_nmt"
    assert manifest["vocab"]["joint"]
    source, target = (manifest["vocab"][side] for side in ("source", "target"))
    assert source["file"] != target["file"]  # the ids are equal, but the languages and so the steps differ
    assert [step["name"] for step in target["text"]["steps"]] == ["moses_tokenize", "truecase"]
    assert (source["text"]["language"], target["text"]["language"]) == ("en", "de")
    assert datagen.main([*corpus.flags, STEPS, *SUBWORDS]) == 0
    assert "nothing to do" in capsys.readouterr().out
    for flag, message in (
        ("--source_steps=moses_tokenize", "source_steps was moses_tokenize,truecase, now moses_tokenize"),
        ("--target_steps=none", "target_steps was moses_tokenize,truecase, now none"),
        ("--subwords=sentencepiece", "subwords was subword_nmt, now sentencepiece"),
        ("--num_merges=61", "num_merges was 60, now 61"),
        ("--vocab_size=8192", "vocab_size was 0, now 8192"),  # the problem's own size does not limit subword_nmt
    ):
        assert datagen.main([*corpus.flags, flag]) == 2
        assert message in capsys.readouterr().err


def test_turned_round_the_flags_are_too(corpus, run, capsys):
    flags = ["--problem=translate_parallel_text_rev", *corpus.flags[1:]]
    assert datagen.main([*flags, "--source_steps=nfc"]) == 2
    assert "source_steps was moses_tokenize,truecase, now nfc" in capsys.readouterr().err


def test_shards_hold_what_the_encoder_gives(corpus, run):
    import numpy as np

    from t2t_ext.runs.run_directory import RunDirectory

    source, _ = RunDirectory.open(run).text_encoders()
    lines = (corpus.directory / "dev.source").read_text(encoding="utf-8").split("\n")[:-1]
    expected = [i for ids in source.encode_batch(source.prepare(lines), add_eos=True) for i in ids]
    (shard,) = (corpus.directory / "data").glob("*-dev-*.npz")
    assert np.load(shard)["inputs"].tolist() == expected
    assert source.prepare(lines)[0].endswith(" .")


def test_decoder(run, translator, corpus, capsys, tmp_path):
    search = "--decode_hparams=beam_size=2,max_length_ratio=1,max_length_offset=4"
    files = [f"--decode_to_file={tmp_path / 'out'}", f"--nbest_file={tmp_path / 'nbest'}"]
    assert decoder.main([f"--output_dir={run}", "--split=dev", search, *files, "--scoring=multi_bleu,sacrebleu"]) == 0
    out = capsys.readouterr().out
    sources, targets = sentences_of(corpus)
    found = [hypotheses[0] for hypotheses in translator.translate(sources)]
    assert (tmp_path / "out").read_text(encoding="utf-8").split("\n")[:-1] == [each.text for each in found]
    first = json.loads((tmp_path / "nbest").read_text().split("\n")[0])["hypotheses"][0]
    assert (first["text"], first.get("prepared", first["text"])) == (found[0].text, found[0].prepared)
    prepared = [each.prepared for each in found]
    references = translator.target_encoder.prepare(targets)
    expected = protocols.score("multi_bleu", prepared, [references])
    expected += protocols.score("sacrebleu", [each.text for each in found], [targets], language="de")
    assert out.strip().split("\n") == [str(score) for score in expected]


def sentences_of(corpus):
    names = ("dev.source", "dev.target")
    return [(corpus.directory / name).read_text(encoding="utf-8").split("\n")[:-1] for name in names]


def test_dev_bleu_is_of_restored_text(run, translator, corpus):
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().split("\n") if line]
    (bleu,) = [line["bleu"] for line in metrics if "bleu" in line]
    from t2t_ext.translation.translator import Translator

    sources, targets = sentences_of(corpus)
    texts = Translator.load(run, decode_hparams="beam_size=2")(sources)
    assert protocols.score("sacrebleu", texts, [targets], language="de")[0].value == pytest.approx(bleu, abs=0.5)


def test_translations_and_guides(translator):
    found = translator.translate(LINES)
    encoder = translator.target_encoder
    for hypotheses in found:
        ids = hypotheses[0].ids
        assert hypotheses[0].prepared == encoder.decode(ids)
        assert hypotheses[0].text == encoder.restore([encoder.decode(ids)])[0]
    assert found[1][0].text == ""
    begun = translator.translate(LINES[:1], prefixes=["Die Katze liebt "])[0][0]
    assert begun.prepared.startswith("die Katze liebt ")
    assert begun.text.startswith("Die Katze liebt ")
    assert translator.unmet_prefix_line_numbers == ()
    # A client of a server prepares it likewise, with the whitespace that says that the last word is complete.
    text = ServedText(translator.source_encoder, translator.target_encoder)
    complete, open_word = text.prefixes_to_graph(["Die Katze liebt ", "Die"])
    assert (translator.target_encoder.join([complete.rstrip()]), complete[-1]) == (["die Katze liebt"], " ")
    assert open_word == "die"
    held = translator.translate(LINES[:1], constraints=[["Stadt."]])[0][0]
    assert "Stadt ." in held.prepared
    assert held.unmet_constraints == 0
    # A prefix with characters that have no id cannot be forced, and is reported as unmet.
    translator.translate(LINES[:1], prefixes=["Die Katze, die"])
    assert translator.unmet_prefix_line_numbers == (1,)


def test_scores_and_alignments_are_of_words(translator):
    hypotheses = translator.translate(LINES[:1])
    (links,) = translator.align_hypotheses(LINES[:1], hypotheses)
    pairs = [[int(number) for number in link.split("-")] for link in links[0].split()]
    words = translator.source_encoder.prepare(LINES[:1])[0].split()
    assert words == ["the", "old", "cat", "&apos;s", "lamp", ":", "red", "!"]
    assert [target for _, target in pairs] == list(range(len(hypotheses[0][0].prepared.split())))
    assert max(source for source, _ in pairs) < len(words)
    (scored,) = translator.score([(LINES[0], "Die Katze!")])
    assert scored.length == len(translator.target_encoder.encode("die Katze !")) + 1


def test_the_saved_model_and_the_pair_of_commands(exported, translator, monkeypatch, capsys):
    import tensorflow as tf

    from t2t_ext.serving.export import saved_model_ops

    tokens = piped(monkeypatch, capsys, f"--export_dir={exported.parent}", "--side=source", text=LINES)
    assert tokens == translator.source_encoder.segment(translator.source_encoder.prepare(LINES))
    model = tf.saved_model.load(str(exported))
    outputs = model.signatures["serving_default"](inputs=tf.constant(tokens))["outputs"].numpy()
    written = [text.decode() for text in outputs]
    restored = piped(monkeypatch, capsys, f"--export_dir={exported}", "--side=target", "--restore", text=written)
    assert restored == translator(LINES)
    assert all(hasattr(tf.raw_ops, name) for name in saved_model_ops(exported))
    record = json.loads((exported / "export.json").read_text())["text"]
    assert record["source"] == translator.source_encoder.record()
    words = piped(monkeypatch, capsys, f"--export_dir={exported}", "--words", text=LINES)
    assert words == translator.source_encoder.prepare(LINES)


@pytest.mark.slow  # test_export.py covers a model of plain lines
def test_loads_through_the_c_api(exported, translator):
    encoder = translator.source_encoder
    fixed = loader_arguments(exported)[:5]  # all but the lines
    lines = encoder.segment(encoder.prepare(LINES))
    written = run_loader([sys.executable, str(HERE / "c_api_loader.py"), *fixed, *lines])
    assert translator.target_encoder.restore(translator.target_encoder.join(written)) == translator(LINES)


def test_clients_need_no_telling(exported, translator, capsys):
    from t2t_ext.serving.client import make_client

    servable, texts = Servable(exported), translator(LINES)
    with grpc_server(servable) as address:
        with make_client(address, "t2t_ext") as client:
            assert [rows[0].text for rows in client.translate(LINES)] == texts
            assert [rows[0].text for rows in client.nbest(LINES)] == texts
            pairs = list(zip(LINES, texts, strict=True))
            assert client.align(pairs) == translator.align(pairs)
            expected = [row.log_prob for row in translator.score(pairs)]
            assert [row.log_prob for row in client.score(pairs)] == pytest.approx(expected, abs=1e-3)
            assert client.prepare("source", LINES[:1]) == translator.source_encoder.prepare(LINES[:1])
    with rest_server(servable) as address:
        capsys.readouterr()
        assert query_server.main([f"--server={address}", f"--inputs_once={LINES[0]}", "--rest"]) == 0
        assert capsys.readouterr().out == texts[0] + "\n"


@pytest.mark.parametrize(("server", "rest"), [(grpc_server, False), (rest_server, True)])
def test_a_server_that_is_busy_at_first_does_not_turn_the_preparation_off(exported, translator, server, rest):
    from t2t_ext.serving.client import make_client

    servable = Servable(exported)
    servable.busy = 1
    with server(servable) as address, make_client(address, "t2t_ext", rest=rest) as client:
        with pytest.raises(UserError, match="queue"):
            client.translate(LINES)
        assert [rows[0].text for rows in client.translate(LINES)] == translator(LINES)


def test_another_run_with_the_same_text(corpus, run, tmp_path):
    flags = [flag for flag in corpus.flags if not flag.startswith("--data_dir")]
    assert datagen.main([*flags, f"--data_dir={tmp_path}", f"--vocab_from={run}", "--num_processes=1"]) == 0
    manifest = json.loads((tmp_path / "translate_parallel_text.manifest.json").read_text())
    vocabularies = json.loads((run / "config.json").read_text())["vocabularies"]
    assert {side: manifest["vocab"][side]["sha256"] for side in ("source", "target")} == vocabularies


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--text_steps=moses_tokenise"], "Did you mean 'moses_tokenize'"),
        (["--source_steps=lowercase,moses_tokenize"], "moses_tokenize must come before lowercase"),
        (["--target_steps=jieba"], "jieba is for Chinese only"),
        (["--subwords=bpe"], "--subwords=bpe: there is no such kind"),
        (["--bpe_codes=nowhere"], "--bpe_codes=nowhere cannot be read"),
        (["--vocab_threshold=5"], "--vocab_threshold goes with --subwords=subword_nmt"),
        (["--vocab_from={run}", "--text_steps=none"], "--text_steps says how text is prepared, but a model is given"),
    ],
)
def test_datagen_errors(corpus, run, capsys, tmp_path, flags, message):
    given = [flag for flag in corpus.flags if not flag.startswith("--data_dir")]
    assert datagen.main([*given, f"--data_dir={tmp_path}", *(flag.format(run=run) for flag in flags)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "nothing says whose text it is"),
        (["--output_dir={run}", "--export_dir=x"], "both say"),
        (["--export_dir={run}"], "holds no exported model"),
        (["--subword_model=nowhere"], "cannot be read"),
        (["--output_dir={run}", "--restore", "--words"], "--words is a place to stop"),
    ],
)
def test_prepare_errors(run, capsys, flags, message):
    assert prepare.main([flag.format(run=run) for flag in flags]) == 2
    assert message in capsys.readouterr().err
