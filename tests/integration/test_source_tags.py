"""Tests of a run on tagged corpora: the decoder prepends the tags to the source lines."""

import json
import shutil

import pytest

from t2t_ext.bin import decoder, translate_all


@pytest.fixture
def translate(tiny_run, tmp_path, capsys):
    """Returns a function (lines..., flags) -> (status, sources with tags, translations, standard error).

    It decodes with a copy of the tiny run whose config says that it was trained on corpora tagged <all> and <one>.
    """
    run = tmp_path / "run"
    shutil.copytree(tiny_run.path, run)
    config = json.loads((run / "config.json").read_text())
    options = config["problem_options"]
    options |= {side: f"{options[side]},{options[side]}" for side in ("train_source", "train_target")}
    options |= {"train_tags": "<all>,<one>", "default_tag": "<all>"}
    (run / "config.json").write_text(json.dumps(config))

    def call(*lines, flags=()):
        (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines))
        files = [f"--{name}_file={tmp_path / name}" for name in ("nbest", "decode_to")]
        status = decoder.main([f"--output_dir={run}", f"--decode_from_file={tmp_path / 'in.txt'}", *files, *flags])
        error = capsys.readouterr().err
        if status:
            return status, [], [], error
        sources = [json.loads(row)["source"] for row in (tmp_path / "nbest").read_text().splitlines()]
        return status, sources, (tmp_path / "decode_to").read_text().splitlines(), error

    return call


def test_lines_are_translated_with_their_tag_the_default_one_or_the_one_asked_for(translate, tiny_run):
    line = "the old cat sees the door ."
    _, sources, translations, _ = translate(line, f"<all> {line}", f"<one> {line}", "")
    assert sources == [f"<all> {line}", f"<all> {line}", f"<one> {line}", ""]
    assert translations[0] == translations[1] == tiny_run.translator.translate([f"<all> {line}"])[0][0].text
    _, sources, _, _ = translate(line, f"<all> {line}", flags=["--source_tag=<one>"])
    assert sources == [f"<one> {line}"] * 2


def test_every_checkpoint_translates_lines_with_the_default_tag(translate, tmp_path):
    line = "the old cat sees the door ."
    run, reference = tmp_path / "run", tmp_path / "reference"
    reference.write_text("die alte Katze sieht die T\u00fcr .\n")
    _, _, [expected], _ = translate(line, flags=["--decode_hparams=beam_size=2"])
    flags = [f"--decode_from_file={tmp_path / 'in.txt'}", f"--decode_reference={reference}", "--last_only"]
    assert translate_all.main([f"--output_dir={run}", "--decode_hparams=beam_size=2", *flags]) == 0
    [found] = (run / "translations").glob("in.txt.*/*.txt")
    assert found.read_text() == f"{expected}\n"
    assert translate(f"<one> {line}", flags=["--decode_hparams=beam_size=2"])[2] != [expected]


def test_a_tag_that_the_run_does_not_know(translate):
    status, _, _, error = translate("the cat", flags=["--source_tag=<al>"])
    assert (status, "trained without this tag" in error, "Did you mean '<all>'" in error) == (2, True, True)
