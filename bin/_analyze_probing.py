"""t2t_ext-analyze probing: what encoder states reveal about a sentence (Conneau et al. 2018; Ampomah et al. 2021)."""

import argparse
import pathlib
import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from t2t_ext.analysis.runs import AnalyzedRun, labeled, open_runs
from t2t_ext.bin._analyze_probing_build import BUILD_FLAGS, build_tasks
from t2t_ext.bin._analyzed_runs import add_analyzed_run_flags, given_runs, out_dir_flag, output_directory
from t2t_ext.bin._flag_groups import thread_flags
from t2t_ext.bin._flags import Flag, FlagParser, FlagTable, start_tensorflow
from t2t_ext.bin._run_text import run_texts
from t2t_ext.errors import UserError
from t2t_ext.io import log, outputs
from t2t_ext.io.progress import running_total

_NAME = "t2t_ext-analyze probing"
_EXAMPLES = """\
  t2t_ext-analyze probing --output_dir=BASELINE --output_dir=ENC_DC --probing_dir=senteval/probing
  t2t_ext-analyze probing --output_dir=RUN --tasks=bigram_shift.txt,my_task.txt.gz --seeds=5 --layer=3
  t2t_ext-analyze probing --output_dir=RUN --probing_dir=DIR --max_train_sentences=10000 --epochs=20
  t2t_ext-analyze probing --build_from=corpus.tok.en --build_sizes=20000,2000,2000 --out_dir=DIR
"""
_FLAGS: FlagTable = {
    "Tasks": {
        "probing_dir=DIR": "Folder of SentEval's files, such as sentence_length.txt.",
        "tasks=FILE[,FILE]": "Task files, with lines PARTITION TAB CLASS TAB SENTENCE.",
        "max_train_sentences": Flag("Maximum number of training sentences, drawn once for all; 0 = all.", 0, minimum=0),
        "max_valid_sentences": Flag(
            "Maximum number of validation sentences, drawn once for all; 0 = all.", 0, minimum=0
        ),
        "max_test_sentences": Flag("Maximum number of test sentences, drawn once for all; 0 = all.", 0, minimum=0),
        "max_characters": Flag("Leave out sentences with more characters than this.", 1000, minimum=1),
    },
    "Representation: the mean of the states of an encoder layer": {
        "layer=top|N": Flag("Encoder layer, counted from 1, or top for the last one.", "top"),
        "eos": Flag("Whether to include the end-of-sentence symbol in the mean.", True),
        "detokenize": "Join tokens as Moses' detokenizer does, for runs trained on untokenized text.",
        "cache_features": Flag("Keep representations in RUN/analysis/probing/features for later calls.", True),
    },
    "Classifier": {
        "hidden_size": Flag("Number of hidden units; 0 = the encoder's width.", 0, minimum=0, maximum=65_536),
        "learning_rate": Flag("Learning rate of RMSProp.", 2.5e-4, maximum=1000),
        "l2": Flag("L2 regularization of the hidden layer's weights.", 1e-4, maximum=1000),
        "batch_size": Flag("Number of sentences per update.", 64, minimum=1, maximum=100_000),
        "epochs": Flag("Maximum number of epochs.", 100, minimum=1),
        "patience": Flag("Stop after this many epochs without a better validation accuracy.", 10, minimum=1),
        "random_seed": Flag(
            "Seed for initial weights and the order of sentences, and for building tasks.", 1, minimum=0, maximum=2**62
        ),
        "seeds": Flag(
            "Number of classifiers per task; their seeds count up from --random_seed.", 1, minimum=1, maximum=1000
        ),
    },
}


def build_parser() -> FlagParser:
    """Returns the flags of the analysis."""
    description = (
        "Trains small classifiers on the states of frozen encoders: SentEval's ten probing tasks, or files like them."
    )
    parser = FlagParser(_NAME, description, examples=_EXAMPLES)
    add_analyzed_run_flags(parser, "the directories")
    parser.add(_FLAGS, BUILD_FLAGS, out_dir_flag("probing"), thread_flags())
    return parser


def run(flags: argparse.Namespace) -> None:
    """Carries out the analysis, or builds tasks."""
    _check_what_is_asked(flags)
    if flags.build_from:
        build_tasks(flags)
        return
    # Finds all user errors before models are loaded.
    _check_classifier(flags)
    paths = _task_paths(flags)
    runs = _open_text_runs(flags)
    layer = _check_layer(flags, runs)
    tasks = _read_tasks(flags, paths)
    notes: list[str] = []

    def note(words: str) -> None:
        notes.append(words)
        log.warning(words)

    for task in tasks:
        for words in task.notes():
            note(words)
    texts = [run_texts(each.directory, flags) for each in runs]
    out_dir = output_directory(flags, runs[0].directory.path, "probing")
    start_tensorflow(flags.inter_op_parallelism_threads, flags.intra_op_parallelism_threads)
    from t2t_ext.analysis.probing import report as probing_report
    from t2t_ext.analysis.probing.probe import ProbedText, probe

    report = probe(
        runs,
        [ProbedText(text.tagged, text.source_language() if flags.detokenize else "") for text in texts],
        tasks,
        _probing_settings(flags, layer),
        content=_settings_of_report(flags),
        note=note,
        progress=running_total,
    )
    names = probing_report.write(out_dir, report, notes)
    outputs.show(probing_report.build(report).text())
    log.info(f"{', '.join(names[1:])} and the page {out_dir / names[0]}")


def _check_what_is_asked(flags: argparse.Namespace) -> None:
    """Raises a UserError if flags for building tasks are mixed with flags for probing."""
    if flags.build_from and (flags.output_dir or flags.more_runs or flags.tasks or flags.probing_dir):
        raise UserError("--build_from makes tasks and probes no run: leave --output_dir, --tasks, --probing_dir out.")
    built_with = {spec.partition("=")[0] for group in BUILD_FLAGS.values() for spec in group} - {"build_from"}
    given = sorted(built_with & flags.given)
    if given and not flags.build_from:
        raise UserError(f"--{given[0]} goes with --build_from=FILE.")


# === What is probed ===


def _open_text_runs(flags: argparse.Namespace) -> list[AnalyzedRun]:
    """Returns the runs with their labels; raises a UserError if one does not translate text."""
    runs = open_runs(given_runs(flags), _NAME, flags.checkpoint_path, log.warning)
    for each in runs:
        each.directory.require_text(_NAME)
    return labeled(runs, flags.labels)


def _check_classifier(flags: argparse.Namespace) -> None:
    for name in ("learning_rate", "l2"):
        value = getattr(flags, name)
        if not 0 <= value < float("inf") or (name == "learning_rate" and not value):
            raise UserError(f"--{name}={value:g} must be a positive number{' or 0' if name == 'l2' else ''}.")


def _task_paths(flags: argparse.Namespace) -> list[pathlib.Path]:
    from t2t_ext.analysis.probing.senteval import stem_of, task_files

    if bool(flags.tasks) == bool(flags.probing_dir):
        problem = "exclude each other" if flags.tasks else "are both missing: there is nothing to probe with"
        raise UserError(
            f"--tasks and --probing_dir {problem}; give files, or the folder of SentEval's probing tasks "
            "(https://github.com/facebookresearch/SentEval, data/probing)."
        )
    if flags.probing_dir:
        return task_files(flags.probing_dir)
    whole = pathlib.Path(flags.tasks).exists()
    names = [flags.tasks] if whole else [part.strip() for part in flags.tasks.split(",") if part.strip()]
    paths = list(map(pathlib.Path, names))
    stems = [stem_of(path) for path in paths]
    twice = [stem for stem in stems if stems.count(stem) > 1]
    if twice:
        raise UserError(f"--tasks: two files are called {twice[0]}; give each task once, under a name of its own.")
    return paths


def _read_tasks(flags: argparse.Namespace, paths: Sequence[pathlib.Path]) -> list[Any]:
    from t2t_ext.analysis.probing.senteval import TASKS, read_task

    limits = (flags.max_train_sentences, flags.max_valid_sentences, flags.max_test_sentences)
    tasks = [read_task(path, limits, flags.max_characters) for path in paths]
    order = list(TASKS)
    return sorted(tasks, key=lambda task: order.index(task.stem) if task.stem in order else len(order))


def _check_layer(flags: argparse.Namespace, runs: Sequence[AnalyzedRun]) -> int:
    """Returns the layer, counted from 1, or 0 for the top layer."""
    if flags.layer == "top":
        return 0
    if not re.fullmatch(r"\d{1,9}", flags.layer) or not int(flags.layer):
        raise UserError(f"--layer={flags.layer}: write top, or the number of an encoder layer, from 1.")
    for each in runs:
        hparams = each.directory.hparams()
        # A pretrained encoder's depth is known only when the model is loaded; it is checked then.
        count = None if getattr(hparams, "encoder_preset", "") else getattr(hparams, "encoder_layers", None)
        if count and int(flags.layer) > count:
            raise UserError(f"--layer={flags.layer}: the encoder of {each.directory.path} has {count} layers.")
    return int(flags.layer)


# === Settings: these functions import TensorFlow ===


def _probing_settings(flags: argparse.Namespace, layer: int) -> Any:
    """Returns the settings of ``probe`` for the layer that ``_check_layer`` has returned."""
    from t2t_ext.analysis.probing.classifier import ClassifierSettings
    from t2t_ext.analysis.probing.probe import ProbingSettings

    return ProbingSettings(
        classifier=ClassifierSettings(**{each.name: getattr(flags, each.name) for each in fields(ClassifierSettings)}),
        layer=layer,
        eos=flags.eos,
        detokenize=flags.detokenize,
        cache_features=flags.cache_features,
        source_tag=flags.source_tag,
        seeds=range(flags.random_seed, flags.random_seed + flags.seeds),
    )


def _settings_of_report(flags: argparse.Namespace) -> dict[str, Any]:
    """Returns the flags that the report records, name -> value."""
    from t2t_ext.analysis.probing.classifier import ClassifierSettings

    kept = ("layer", "eos", "detokenize", "random_seed", "seeds", *(each.name for each in fields(ClassifierSettings)))
    limits = ("max_train_sentences", "max_valid_sentences", "max_test_sentences", "max_characters")
    return {name: getattr(flags, name) for name in (*kept, *limits)}
