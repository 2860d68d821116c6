"""Metrics of the development set that can choose a run's best checkpoint and end it. Imports no TensorFlow."""

from collections.abc import Mapping
from typing import Any

from t2t_ext.config.training import TrainingSettings
from t2t_ext.errors import UserError, suggest
from t2t_ext.evaluation import protocols

# Metrics that a run logs -> whether smaller is better.
EVAL_METRICS = {
    **{"loss": True, "reference_loss": True, "nll": True, "perplexity": True, "accuracy": False, "bleu": False},
    **protocols.dev_labels(),
}
WITHOUT_TRANSLATIONS = ("loss", "reference_loss", "nll", "perplexity", "accuracy")
_BEST, _EARLY_STOPPING = "best_checkpoint_metric", "eval_early_stopping_metric"


def defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings whose default depends on the given ones: without translations, the loss chooses the best."""
    without = given.get("eval_bleu_sentences", 0) < 0 and _BEST not in given
    return {_BEST: "loss"} if without else {}


def check(settings: TrainingSettings) -> None:
    """Checks that the metrics that choose the best checkpoint and stop the run exist and will be computed.

    Raises:
      UserError: A metric does not exist, or needs a missing package or translations that are switched off.
    """
    watched = _watched(settings)
    for name in (_BEST, _EARLY_STOPPING):
        metric = getattr(settings, name)
        if metric not in EVAL_METRICS:
            raise UserError(
                f"--{name}={metric}: there is no such metric. Metrics of the dev set are "
                f"{', '.join(EVAL_METRICS)}.{suggest(metric, EVAL_METRICS)}"
            )
        if metric not in WITHOUT_TRANSLATIONS and settings.eval_bleu_sentences < 0 and name in watched:
            raise UserError(
                f"--{name}={metric} needs translations, which --eval_bleu_sentences=-1 switches off; use "
                f"--{name}=loss with it."
            )
        if metric in protocols.dev_labels():
            protocols.protocol(protocols.with_label(metric))  # raises if it cannot be used here


def scored_by(settings: TrainingSettings, scoring: str) -> tuple[str, ...]:
    """Returns the protocols that score the translations of the development set.

    The first one's main score is a BLEU; the others are what the problem (``scoring``) and the watched metrics need.
    """
    labels = [label for label in _watched(settings).values() if label in protocols.dev_labels()]
    needed = [protocols.with_label(label, scoring) for label in labels]
    bleu = scoring if protocols.protocol(scoring).is_bleu else protocols.DEFAULT
    return tuple(dict.fromkeys((bleu, scoring, *needed)))


def _watched(settings: TrainingSettings) -> dict[str, str]:
    """Returns the settings in use that name a metric: setting -> metric."""
    names = (_BEST, _EARLY_STOPPING) if settings.eval_early_stopping_steps > 0 else (_BEST,)
    return {name: getattr(settings, name) for name in names}
