"""Tests of the command t2t_ext-augment: the translations of a run become training data."""

import pathlib

import pytest

from t2t_ext import registry
from t2t_ext.bin import augment, datagen
from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.data.datasets.generated import GeneratedData

NAME = "translate_parallel_text"
PAIRS = 12


@pytest.fixture
def flags(tmp_path, toy_corpus, tiny_encoder, tiny_run):
    """Returns flags for t2t_ext-augment, for a small data set that is encoded with the tiny run's subwords."""
    tiny_encoder.save(tmp_path / "subwords.model")
    files = []
    for split, pairs in (("train", toy_corpus.train[:PAIRS]), ("dev", toy_corpus.dev[:3])):
        for number, side in enumerate(("source", "target")):
            pathlib.Path(tmp_path / f"{split}.{side}").write_text("".join(pair[number] + "\n" for pair in pairs))
            files.append(f"--{split}_{side}={tmp_path / f'{split}.{side}'}")
    made = [f"--problem={NAME}", f"--data_dir={tmp_path / 'D'}", "--source_language=en", "--target_language=de"]
    assert datagen.main([*made, *files, f"--subword_model={tmp_path / 'subwords.model'}", "--num_processes=1"]) == 0
    return [*made[:2], f"--output_data_dir={tmp_path / 'D2'}", f"--forward={tiny_run.path}", "--chunk_pairs=5"]


def test_distillation_is_what_the_run_translates(flags, tmp_path, tiny_run, capsys):
    assert augment.main([*flags, "--method=distillation"]) == 0
    assert f"--data_dir={tmp_path / 'D2'}" in capsys.readouterr().out
    original, made = (
        ExampleStore.load(GeneratedData.open(registry.problem(NAME), tmp_path / name), "train") for name in ("D", "D2")
    )
    sources = [original.example(number)[0].tolist() for number in range(PAIRS)]
    translated = tiny_run.translator.translate_ids(sources)
    replaced = 0
    for number, (best, *_) in enumerate(translated):
        source, target = (ids.tolist() for ids in made.example(number))
        assert source == sources[number]
        assert target in (list(best.ids), original.example(number)[1].tolist())
        replaced += target == list(best.ids)
    assert replaced > 0
    assert augment.main([*flags, "--method=distillation"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    backward = [flag.replace("--forward", "--backward") for flag in flags]
    for wrong, message in (
        (
            [*backward, "--method=diversification"],
            f"was trained on {NAME}, not on {NAME}_rev. Give a run of {NAME}_rev",
        ),
        ([*flags, "--method=distillation", "--decode_hparams=sampling_method=random"], "draws another translation"),
    ):
        assert augment.main(wrong) == 2
        assert message in capsys.readouterr().err
