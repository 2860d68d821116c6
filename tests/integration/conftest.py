"""A run directory around the tiny model, with data, for the commands that use a trained run."""

import dataclasses
import pathlib

import pytest

TINY_RUN_STEP = 40


@pytest.fixture(scope="session", autouse=True)
def _small_pictures(small_pictures):
    """Every run that is trained in this process draws small ones."""


@dataclasses.dataclass(frozen=True)
class TinyRun:
    """Where things are, and the translator that the commands must agree with."""

    path: pathlib.Path
    data_dir: pathlib.Path
    translator: object


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory, toy_corpus, tiny_encoder, tiny_model, tiny_translator):
    """The tiny model as a run of `translate_parallel_text` on the toy corpus with one checkpoint."""
    from t2t_ext import registry
    from t2t_ext.data.datasets.generated import GeneratedData
    from t2t_ext.data.generation import generate
    from t2t_ext.runs import checkpoints, run_directory

    directory = tmp_path_factory.mktemp("tiny_run")
    tiny_encoder.save(directory / "subwords.model")
    options = toy_corpus.options() | {"source_language": "en", "target_language": "de"}
    problem = registry.problem("translate_parallel_text", **options)
    generate.generate(
        problem, directory / "data", directory, subword_model=str(directory / "subwords.model"),
        num_processes=1, progress=False, say=lambda text: None,
    )  # fmt: skip
    hparams = tiny_model.hparams
    config = run_directory.RunConfig(
        problem=problem.name,
        problem_options=options,
        model="transformer",
        hparams_set="transformer_test",
        hparams_class=run_directory.class_name(hparams),
        hparams=hparams.to_dict(),
        data_dir=str(directory / "data"),
        data_digest=GeneratedData.open(problem, directory / "data").digest(),
        random_seed=1,
    )
    run = run_directory.RunDirectory.create(directory / "run", config, tiny_encoder, tiny_encoder)
    arrays = {name: variable.numpy() for name, variable in tiny_model.named_variables().items()}
    checkpoints.save_checkpoint(run.checkpoints_dir, TINY_RUN_STEP, arrays)
    return TinyRun(run.path, directory / "data", tiny_translator)


@pytest.fixture(scope="session")
def exported(tiny_run, tmp_path_factory):
    """The version directory that t2t_ext-exporter writes for the tiny run."""
    from t2t_ext.bin import exporter

    export_dir = tmp_path_factory.mktemp("export") / "model"
    assert exporter.main([f"--output_dir={tiny_run.path}", f"--export_dir={export_dir}"]) == 0
    (version,) = export_dir.iterdir()
    return version


@pytest.fixture
def analyze_command(capsys):
    """t2t_ext-analyze as a function (flags...) -> (status, standard output, standard error)."""

    from t2t_ext.bin import analyze

    def run(*flags):
        status = analyze.main(list(map(str, flags)))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run
