"""Probes the encoders of several runs: computes representations, trains classifiers, collects results."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from t2t_ext import registry
from t2t_ext.analysis.probing import features as probing_features
from t2t_ext.analysis.probing.classifier import ClassifierSettings, train
from t2t_ext.analysis.probing.results import Probed, ProbedRun, ProbingReport, TaskResult
from t2t_ext.analysis.probing.senteval import PARTITIONS, TEST, TRAIN, VALID, ProbingTask, digest_of
from t2t_ext.analysis.runs import AnalyzedRun
from t2t_ext.data.text.moses_steps import MosesTokenizeNoEscape
from t2t_ext.io.progress import Progress
from t2t_ext.translation.translator import Translator

_CACHE_DIR = ("analysis", "probing", "features")
_STRANGE_SUBWORDS = 6  # subwords per word, above which words are practically spelled letter by letter


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbingSettings:
    """Settings of probing.

    Attributes:
      classifier: Training settings of the classifiers.
      layer: Number of the encoder's layer, from 1; 0: the top one.
      eos: Whether the mean includes the end-of-sentence symbol.
      detokenize: Whether tokens are joined as Moses' detokenizer does.
      cache_features: Whether representations are stored in the run's directory.
      source_tag: The tag that every sentence begins with.
      seeds: The seeds; for each of them, one classifier per task is trained.
    """

    classifier: ClassifierSettings
    layer: int = 0
    eos: bool = True
    detokenize: bool = False
    cache_features: bool = True
    source_tag: str = ""
    seeds: Sequence[int] = (1,)

    def describe(self) -> str:
        """Returns a sentence that describes the measurement."""
        which, own = "top layer" if not self.layer else f"layer {self.layer}", self.classifier
        units = f"{own.hidden_size} hidden units" if own.hidden_size else "as many hidden units as the encoder is wide"
        return (
            f"Accuracy in percent of a two-layer classifier on the mean of the states of the frozen encoder's {which} "
            f"(EOS {'included' if self.eos else 'left out'}{', detokenized text' if self.detokenize else ''}); "
            f"{units}, L2 {own.l2:g}, RMSProp {own.learning_rate:g}, batches of "
            f"{own.batch_size}, at most {own.epochs} epochs, patience {own.patience}."
        )


@dataclasses.dataclass(frozen=True)
class ProbedText:
    """How a run's sentences are prepared: ``tagged`` adds the run's tag, if any; ``language`` may be ""."""

    tagged: Callable[[list[str]], list[str]]
    language: str


def probe(
    runs: Sequence[AnalyzedRun],
    texts: Sequence[ProbedText],
    tasks: Sequence[ProbingTask],
    settings: ProbingSettings,
    *,
    content: dict[str, Any],
    note: Callable[[str], None],
    progress: Progress,
) -> ProbingReport:
    """Encodes the sentences of all tasks and trains classifiers on them, run after run; returns the results.

    ``texts`` describe how the sentences are prepared for each run. ``content`` are the settings in machine-readable
    form. ``note`` is called with notes for the reader.

    Raises:
      UserError: A model has no states to probe, or not the chosen layer.
    """
    for run in runs:
        probing_features.check_model(registry.model(run.directory.config.model))
    found: dict[str, dict[str, Probed]] = {task.stem: {} for task in tasks}
    about = []
    for run, text in zip(runs, texts, strict=True):
        prober = _Prober(run, text, settings, note, progress)
        for task in tasks:
            found[task.stem][run.label] = prober.classified(task)
        config = run.directory.config
        about.append(
            ProbedRun(run.label, run.directory.path, run.checkpoint.name, f"{config.model}, {config.hparams_set}")
        )
    results = [TaskResult(task, found[task.stem]) for task in tasks]
    return ProbingReport(about, results, content, settings.describe())


@dataclasses.dataclass
class _Prober:
    """Probes a run; its representations are read from disk or computed."""

    run: AnalyzedRun
    text: ProbedText
    settings: ProbingSettings
    note: Callable[[str], None]
    progress: Progress

    @functools.cached_property
    def translator(self) -> Translator:
        """The run's model and encoders, loaded when they are first needed."""
        return Translator.load(self.run.directory.path, self.run.checkpoint, "precision=float32")

    def features(self, task: ProbingTask) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the representations of the training, validation and test sentences, float32 [N, D] each."""
        key = {
            "weights": probing_features.weights_digest(self.run.checkpoint),
            "vocabulary": self.run.directory.config.vocabularies["source"],
            **{name: getattr(self.settings, name) for name in ("layer", "eos", "detokenize", "source_tag")},
            "sentences": digest_of(task),
        }
        path = probing_features.cache_path(self.run.directory.path.joinpath(*_CACHE_DIR), task.stem, key)
        lengths = [len(task.partitions[name]) for name in PARTITIONS]
        features = probing_features.load(path, sum(lengths)) if self.settings.cache_features else None
        if features is None:
            features = self._encoded(task)
            if self.settings.cache_features:
                probing_features.save(path, features)
        first, second = lengths[0], lengths[0] + lengths[1]
        return features[:first], features[first:second], features[second:]

    def _encoded(self, task: ProbingTask) -> np.ndarray:
        sentences = [sentence for name in PARTITIONS for sentence in task.partitions[name].sentences]
        encoder = self.translator.source_encoder
        if self.settings.detokenize:
            step = MosesTokenizeNoEscape((self.text.language or "en").partition("-")[0])
            sentences = [step.restore(sentence) for sentence in sentences]
        ids = encoder.encode_batch(encoder.prepare(self.text.tagged(sentences)), add_eos=True)
        a_word = sum(map(len, ids)) / max(1, sum(len(sentence.split()) for sentence in sentences))
        if a_word > _STRANGE_SUBWORDS:
            self.note(
                f"{self.run.label}, {task.name}: {a_word:.1f} subwords a word: the run's vocabulary is hardly for "
                "these sentences, which takes long and says little"
            )
        with self.progress(f"{self.run.label}, {task.name}: encoding", len(ids), "sentences") as update:
            model, settings = self.translator.model, self.settings
            return probing_features.mean_states(model, ids, settings.layer, settings.eos, update)

    def classified(self, task: ProbingTask) -> Probed:
        """Trains a classifier for each seed and returns the results."""
        features, settings, name = self.features(task), self.settings, f"{self.run.label}, {task.name}"
        labels = task.partitions[TRAIN].labels, task.partitions[VALID].labels
        trained = []
        for seed in settings.seeds:
            which = f"{name}, seed {seed}" if len(settings.seeds) > 1 else name
            with self.progress(f"{which}: training", settings.classifier.epochs, "epochs") as update:
                trained.append(train(features, labels, len(task.classes), settings.classifier, seed, update))
        constant = sum(len(np.unique(each.predicted)) == 1 for each in trained)
        if constant:
            self.note(
                f"{name}: {constant} of {len(trained)} classifiers say the same class of all test sentences: they have "
                "learned nothing from the representations, or these hardly differ"
            )
        right = np.stack([each.predicted == task.partitions[TEST].labels for each in trained])
        return Probed(right, [each.validation for each in trained], [each.best_epoch for each in trained])
