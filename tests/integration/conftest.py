"""Fixtures for the tests of the commands: a run directory of the tiny model with its data, and an export of it."""

import contextlib
import dataclasses
import pathlib

import pytest

TINY_RUN_STEP = 40


@pytest.fixture(scope="session", autouse=True)
def _small_pictures(small_pictures):
    """Makes every run that is trained in this process draw small pictures."""


@dataclasses.dataclass(frozen=True)
class TinyRun:
    """The paths of the run and its data, and the translator whose output the commands must reproduce."""

    path: pathlib.Path
    data_dir: pathlib.Path
    translator: object


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory, toy_corpus, tiny_encoder, tiny_model, tiny_translator):
    """Returns a run of `translate_parallel_text` on the toy corpus, with the tiny model as its only checkpoint."""
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
def exported(tiny_run, shared):
    """Returns the version directory that t2t_ext-exporter writes for the tiny run; tests must not change it."""
    from t2t_ext.bin import exporter

    def make(directory):
        assert exporter.main([f"--output_dir={tiny_run.path}", f"--export_dir={directory / 'model'}"]) == 0

    (version,) = (shared("exported", make) / "model").iterdir()
    return version


@pytest.fixture(scope="session")
def few_signatures():
    """Returns a context manager under which exports omit the two slow graphs, for prefixes and for constraints.

    Tracing these two takes as long as tracing all the others.
    """
    from t2t_ext.translation.translator import Translator

    @contextlib.contextmanager
    def left_out():
        with pytest.MonkeyPatch.context() as patch:
            for name in ("can_force_prefix", "can_constrain"):
                patch.setattr(Translator, name, False)
            yield

    return left_out


@pytest.fixture
def analyze_command(capsys):
    """Returns t2t_ext-analyze as a function (flags...) -> (status, standard output, standard error)."""

    from t2t_ext.bin import analyze

    def run(*flags):
        status = analyze.main(list(map(str, flags)))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run
