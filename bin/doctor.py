"""``t2t_ext-doctor``: a report on a parallel text before training on it."""

import argparse
import contextlib
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

from t2t_ext.bin import _flag_groups
from t2t_ext.bin._flags import FlagParser, command
from t2t_ext.config.generation import GenerationConfig
from t2t_ext.data.corpora.download import private_folder
from t2t_ext.errors import UserError

_OF_SHARDS = ("num_shards", "bpe_dropout", "segmentations")  # settings that have no effect on a report
OWN_TEXT = "translate_parallel_text"
_EXAMPLES = """\
  t2t_ext-doctor --problem=translate_ende_cldr
  t2t_ext-doctor --train_source=train.de.gz --train_target=train.en.gz --dev_source=dev.de --dev_target=dev.en \\
      --source_language=de --target_language=en --cleaning="max_words=175,duplicates=true" --report=picture"""


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    parser = FlagParser(
        "t2t_ext-doctor",
        "Examines a problem's text: counts, lengths, unknown characters, scripts, repetitions, overlap of test and "
        "training text, and what every filter of --cleaning would drop. Changes nothing.",
        examples=_EXAMPLES,
    )
    _flag_groups.add_registry_flags(parser)
    _flag_groups.add_problem_flags(parser)
    _flag_groups.add_data_generation_flags(parser, without=_OF_SHARDS)
    report = "Also write report.json, report.html (which needs no other file) and pictures to this folder."
    parser.add({"What": {"report=DIR": report}})
    return parser


@command(build_parser)
def main(args: argparse.Namespace) -> None:
    """Examines the text of the problem that the flags name."""
    name = args.problem or (OWN_TEXT if args.train_source else "")
    if not name:
        raise UserError(
            "--problem=NAME, or --train_source=FILE --train_target=FILE, says what to examine; --registry_help lists "
            "all problems."
        )
    from t2t_ext import registry
    from t2t_ext.data.doctor.diagnosis import Doctor
    from t2t_ext.data.doctor.findings import faults
    from t2t_ext.data.doctor.report import build, write_report
    from t2t_ext.data.generation.preparation import check_given_steps, check_models_given
    from t2t_ext.data.generation.settings import cleaning_of
    from t2t_ext.data.generation.workers import Workers
    from t2t_ext.reporting.report import checked_directory

    asked_for = registry.problem(name, **_flag_groups.problem_options(args))
    problem = asked_for.base()
    report = checked_directory(args.report, "--report") if args.report else None
    settings = GenerationConfig(**_flag_groups.generation_settings(args))
    if settings.subword_model or settings.vocab_from:
        check_models_given(settings)
    if asked_for.was_reversed:
        check_given_steps(asked_for, settings)
        settings = settings.turned()  # settings of the base problem
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="t2t_ext-doctor-"))
        doctor = Doctor(
            problem=problem,
            tmp_dir=pathlib.Path(args.tmp_dir or private_folder()),
            scratch=pathlib.Path(scratch),
            workers=stack.enter_context(Workers(args.num_processes)),
            cleaning=cleaning_of(problem, settings.cleaning),
            settings=settings,
            encoders=_encoders(args, asked_for, settings),
        )
        diagnosis = doctor.examine()
    print(build(diagnosis).text().encode("utf-8", "backslashreplace").decode())
    for line in _pseudo_reference_lines(asked_for, args.data_dir):
        print(line)
    if report:
        written = write_report(diagnosis, report)
        print(f"\nwritten: {', '.join(map(str, written))}")
    found = list(faults(diagnosis))
    if found:
        raise UserError(f"The data of {problem.base_name} cannot be used: {'; '.join(found)}.")


def _pseudo_reference_lines(problem: Any, data_dir: str) -> Iterator[str]:
    """Yields lines about the pseudo references of ``NAME_synchronous``; none for other problems."""
    if not problem.with_pseudo_references:
        return
    from t2t_ext.data.datasets import pseudo_references
    from t2t_ext.data.datasets.generated import GeneratedData

    yield ""
    yield "Pseudo references"
    if not data_dir:
        yield "--data_dir=DIR says where they are."
        return
    try:
        pseudo = GeneratedData.open(problem, data_dir).pseudo
        yield from pseudo_references.table(pseudo.manifest) if pseudo else ()
    except UserError as error:
        yield str(error)  # the report on the corpus is printed anyway


def _encoders(args: argparse.Namespace, problem: Any, settings: GenerationConfig) -> tuple[Any, Any, str] | None:
    """Returns the subword models that are given, or those of existing data, and where they come from; None if none.

    Existing data that were made with other settings than those given now have none.
    """
    from t2t_ext.data.datasets.generated import GeneratedData
    from t2t_ext.data.datasets.manifest import manifest_path
    from t2t_ext.data.generation import vocabulary
    from t2t_ext.data.generation.settings import models_differ

    reused = vocabulary.reused_vocabulary(args.subword_model, args.vocab_from, problem)
    if reused:
        return reused.source, reused.target, args.subword_model or args.vocab_from
    if args.data_dir and manifest_path(args.data_dir, problem.base_name).exists():
        data = GeneratedData.open(problem.base(), args.data_dir)  # the doctor examines the base problem
        if models_differ(data.manifest, settings):
            return None
        return *data.text_encoders(), f"that of the data in {args.data_dir}"
    return None


if __name__ == "__main__":
    raise SystemExit(main())
