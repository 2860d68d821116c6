"""Training: ``train(TrainConfig(...))`` trains a model or resumes a run; the other modules are its parts."""

from typing import Any

from t2t_ext.config.training import TrainConfig, TrainingSettings

__all__ = ["TrainConfig", "TrainResult", "TrainingSettings", "train"]


def __getattr__(name: str) -> Any:
    # The loop imports TensorFlow; the configuration does not need it.
    if name in ("TrainResult", "train"):
        from t2t_ext.training import loop

        return getattr(loop, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
