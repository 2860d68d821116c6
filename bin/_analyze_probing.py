"""t2t_ext-analyze probing: what an encoder's states know of a sentence (Conneau et al. 2018; Ampomah et al. 2021)."""

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from t2t_ext.bin import _text_lines
from t2t_ext.bin._analyze_probing_build import BUILD_FLAGS, add_build_flags, build_tasks
from t2t_ext.bin._analyzed_runs import (
    AnalyzedRun,
    add_analyzed_run_flags,
    add_out_dir_flag,
    labelled,
    open_runs,
    output_directory,
)
from t2t_ext.bin._flag_groups import add_thread_flags
from t2t_ext.bin._flags import FlagParser, add_flag, at_least, start_tensorflow
from t2t_ext.bin._run_text import RunText, shown_progress
from t2t_ext.errors import UserError

_NAME = "t2t_ext-analyze probing"
_CACHE_DIR = ("analysis", "probing", "features")
_STRANGE_SUBWORDS = 6  # a word, on average: words are spelt letter by letter
_EXAMPLES = """\
  t2t_ext-analyze probing --output_dir=BASELINE --output_dir=ENC_DC --probing_dir=senteval/probing
  t2t_ext-analyze probing --output_dir=RUN --tasks=bigram_shift.txt,my_task.txt.gz --seeds=5 --layer=3
  t2t_ext-analyze probing --output_dir=RUN --probing_dir=DIR --max_train_sentences=10000 --epochs=20
  t2t_ext-analyze probing --build_from=corpus.tok.en --build_sizes=20000,2000,2000 --out_dir=DIR
"""


def build_parser() -> FlagParser:
    """Returns the flags of the analysis."""
    parser = FlagParser(
        _NAME,
        "Trains small classifiers on the states of frozen encoders: SentEval's ten probing tasks, or files like them.",
        examples=_EXAMPLES,
    )
    add_analyzed_run_flags(parser, "as their directories")
    group = parser.group("Tasks")
    add_flag(group, "probing_dir", "", "Folder of SentEval's files, such as sentence_length.txt.", metavar="DIR")
    add_flag(group, "tasks", "", "Files of tasks: PARTITION TAB CLASS TAB SENTENCE lines.", metavar="FILE[,FILE]")
    for name, words in (("train", "training"), ("valid", "validation"), ("test", "test")):
        add_flag(
            group, f"max_{name}_sentences", 0, f"The most {words} sentences, drawn once for all; 0 = all.",
            kind=at_least(0), metavar="N",
        )  # fmt: skip
    add_flag(group, "max_characters", 1000, "Longer sentences are left out.", kind=at_least(1), metavar="N")
    group = parser.group("Representation: the mean of the states of an encoder layer")
    add_flag(group, "layer", "top", "Which layer, from 1.", metavar="top|N")
    add_flag(group, "eos", True, "Whether the mean is over the end-of-sentence symbol, too.")
    add_flag(
        group, "detokenize", False,
        "Join the tokens as Moses' detokenizer does, for runs that learnt from running text.",
    )  # fmt: skip
    add_flag(group, "cache_features", True, "Keep representations in RUN/analysis/probing/features for later calls.")
    group = parser.group("Classifier")
    add_flag(
        group, "hidden_size", 0, "Hidden units; 0 = as many as the encoder's width.", kind=at_least(0), metavar="N"
    )
    add_flag(group, "learning_rate", 2.5e-4, "Of RMSProp.", metavar="X")
    add_flag(group, "l2", 1e-4, "L2 regularisation of the hidden layer's weights.", metavar="X")
    add_flag(group, "batch_size", 64, "Sentences of an update.", kind=at_least(1), metavar="N")
    add_flag(group, "epochs", 100, "The most.", kind=at_least(1), metavar="N")
    add_flag(
        group, "patience", 10, "Stop after so many epochs without a better validation accuracy.", kind=at_least(1),
        metavar="N",
    )  # fmt: skip
    add_flag(group, "random_seed", 1, "Of weights and order; of what is built.", kind=at_least(0), metavar="N")
    add_flag(
        group, "seeds", 1, "Classifiers of each task, of seeds from --random_seed on.", kind=at_least(1), metavar="N"
    )
    add_build_flags(parser)
    add_out_dir_flag(parser, "probing")
    add_thread_flags(parser)
    return parser


def run(argv: Sequence[str]) -> None:
    """Carries out the analysis, or builds tasks.

    Raises:
      UserError: A flag is wrong, a file cannot be used, or a model has no states to probe.
    """
    flags = build_parser().parse_args(argv)
    if flags.build_from:
        if flags.output_dir or flags.more_runs or flags.tasks or flags.probing_dir:
            raise UserError(
                "--build_from makes tasks and probes no run: leave --output_dir, --tasks, --probing_dir out."
            )
        build_tasks(flags)
        return
    given = [f"--{name}" for name in BUILD_FLAGS if name in flags.given]
    if given:
        raise UserError(f"{given[0]} goes with --build_from=FILE.")
    # Everything that the user can have got wrong is found before models are loaded.
    _check_classifier(flags)
    paths = _task_paths(flags)
    runs = labelled(open_runs(flags, _NAME), flags.labels)
    layer = _check_layer(flags, runs)
    tasks = _read_tasks(flags, paths)
    notes = [note for task in tasks for note in task.notes()]
    for note in notes:
        _text_lines.warn(note)
    texts = [RunText(each.directory, flags) for each in runs]
    start_tensorflow(flags.inter_op_parallelism_threads, flags.intra_op_parallelism_threads)
    from t2t_ext import registry
    from t2t_ext.analysis.probing import report as probing_report
    from t2t_ext.analysis.probing.features import check_model

    for each in runs:
        check_model(registry.model(each.directory.config.model))
    said = len(notes)
    report = _probe(flags, runs, texts, tasks, layer, notes)
    for note in notes[said:]:
        _text_lines.warn(note)
    out_dir = output_directory(flags, runs[0].directory.path, "probing")
    names = probing_report.write(out_dir, report, notes)
    print(probing_report.build(report).text(), flush=True)
    print(f"{', '.join(names[1:])} and the page {out_dir / names[0]}", file=sys.stderr)


# === What is probed ===


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
    """Returns the layer, from 1, or 0 for the top one."""
    if flags.layer == "top":
        return 0
    if not flags.layer.isdecimal() or not int(flags.layer):
        raise UserError(f"--layer={flags.layer}: write top, or the number of an encoder layer, from 1.")
    for each in runs:
        count = getattr(each.directory.hparams(), "encoder_layers", None)  # of other models, known when they are loaded
        if count and int(flags.layer) > count:
            raise UserError(f"--layer={flags.layer}: the encoder of {each.directory.path} has {count} layers.")
    return int(flags.layer)


# === Probing ===


def _probe(
    flags: argparse.Namespace,
    runs: Sequence[AnalyzedRun],
    texts: Sequence[RunText],
    tasks: Sequence[Any],
    layer: int,
    notes: list[str],
) -> Any:
    """Encodes and classifies, run after run; what a reader should know is added to the notes."""
    from t2t_ext.analysis.probing.classifier import ClassifierSettings
    from t2t_ext.analysis.probing.results import ProbedRun, ProbingReport, TaskResult

    names = [field.name for field in dataclasses.fields(ClassifierSettings)]
    settings = ClassifierSettings(**{name: getattr(flags, name) for name in names})
    found: dict[str, dict[str, Any]] = {task.stem: {} for task in tasks}
    about = []
    for each, text in zip(runs, texts, strict=True):
        features = _Features(flags, each, text, layer)
        for task in tasks:
            found[task.stem][each.label] = _classified(flags, each.label, task, features.of(task), settings, notes)
        config = each.directory.config
        model = f"{config.model}, {config.hparams_set}"
        about.append(ProbedRun(each.label, each.directory.path, each.checkpoint.name, model))
    which = "top layer" if not layer else f"layer {layer}"
    measured = (
        f"Accuracy in percent of a two-layer classifier on the mean of the states of the frozen encoder's {which} "
        f"(EOS {'included' if flags.eos else 'left out'}{', detokenized text' if flags.detokenize else ''}); "
        f"{settings.hidden_size or 'D'} hidden units, L2 {settings.l2:g}, RMSProp {settings.learning_rate:g}, batches "
        f"of {settings.batch_size}, at most {settings.epochs} epochs, patience {settings.patience}."
    )
    kept = {name: getattr(flags, name) for name in ("layer", "eos", "detokenize", "random_seed", "seeds")}
    limits = ("max_train_sentences", "max_valid_sentences", "max_test_sentences", "max_characters")
    content = {**kept, **dataclasses.asdict(settings), **{name: getattr(flags, name) for name in limits}}
    return ProbingReport(about, [TaskResult(task, found[task.stem]) for task in tasks], content, measured)


class _Features:
    """A run's representations, from the disk or computed; the model is loaded when it is needed first."""

    def __init__(self, flags: argparse.Namespace, run: AnalyzedRun, text: RunText, layer: int) -> None:
        from t2t_ext.analysis.probing.features import weights_digest

        self._flags, self._run, self._text, self._layer = flags, run, text, layer
        self._translator: Any = None
        self._settings = {
            "weights": weights_digest(run.checkpoint),
            "vocabulary": run.directory.config.vocabularies["source"],
            "layer": layer,
            "eos": flags.eos,
            "detokenize": flags.detokenize,
            "source_tag": flags.source_tag,
        }

    def of(self, task: Any) -> tuple[Any, Any, Any]:
        """Returns the representations of the training, validation and test sentences, float32 [N, D] each."""
        from t2t_ext.analysis.probing import features as probing_features
        from t2t_ext.analysis.probing.senteval import PARTITIONS, digest_of

        lengths = [len(task.partitions[name]) for name in PARTITIONS]
        directory = self._run.directory.path.joinpath(*_CACHE_DIR)
        path = probing_features.cache_path(directory, task.stem, {**self._settings, "sentences": digest_of(task)})
        features = probing_features.load(path, sum(lengths)) if self._flags.cache_features else None
        if features is None:
            sentences = [sentence for name in PARTITIONS for sentence in task.partitions[name].sentences]
            features = self._encoded(task, sentences)
            if self._flags.cache_features:
                probing_features.save(path, features)
        first, second = lengths[0], lengths[0] + lengths[1]
        return features[:first], features[first:second], features[second:]

    def _encoded(self, task: Any, sentences: list[str]) -> Any:
        from t2t_ext.analysis.probing.features import mean_states
        from t2t_ext.translation.translator import Translator

        if self._translator is None:
            self._translator = Translator.load(self._run.directory.path, self._run.checkpoint, "precision=float32")
        encoder = self._translator.source_encoder
        if self._flags.detokenize:
            sentences = self._joined(sentences)
        ids = encoder.encode_batch(encoder.prepare(self._text.tagged(sentences)), add_eos=True)
        a_word = sum(map(len, ids)) / max(1, sum(len(sentence.split()) for sentence in sentences))
        if a_word > _STRANGE_SUBWORDS:
            _text_lines.warn(
                f"{self._run.label}, {task.name}: {a_word:.1f} subwords a word: the run's vocabulary is hardly for "
                "these sentences, which takes long and says little"
            )
        with shown_progress(f"{self._run.label}, {task.name}: encoding", len(ids), "sentences") as update:
            return mean_states(self._translator.model, ids, self._layer, self._flags.eos, update)

    def _joined(self, sentences: list[str]) -> list[str]:
        from t2t_ext.data.text.moses_steps import MosesTokenizeNoEscape

        language = getattr(self._text.problem(), "source_language", "") or "en"
        step = MosesTokenizeNoEscape(language.partition("-")[0])
        return [step.restore(sentence) for sentence in sentences]


def _classified(
    flags: argparse.Namespace,
    label: str,
    task: Any,
    features: tuple[Any, Any, Any],
    settings: Any,
    notes: list[str],
) -> Any:
    """Trains a classifier for each seed."""
    import numpy as np

    from t2t_ext.analysis.probing.classifier import train
    from t2t_ext.analysis.probing.results import Probed
    from t2t_ext.analysis.probing.senteval import TEST, TRAIN, VALID

    labels = task.partitions[TRAIN].labels, task.partitions[VALID].labels
    trained = []
    for seed in range(flags.random_seed, flags.random_seed + flags.seeds):
        name = f"{label}, {task.name}" + (f", seed {seed}" if flags.seeds > 1 else "")
        with shown_progress(f"{name}: training", settings.epochs, "epochs") as update:
            trained.append(train(features, labels, len(task.classes), settings, seed, update))
    constant = sum(len(np.unique(each.predicted)) == 1 for each in trained)
    if constant:
        notes.append(
            f"{label}, {task.name}: {constant} of {len(trained)} classifiers say the same class of all test sentences: "
            "they have learnt nothing from the representations, or these hardly differ"
        )
    right = np.stack([each.predicted == task.partitions[TEST].labels for each in trained])
    return Probed(right, [each.validation for each in trained], [each.best_epoch for each in trained])
