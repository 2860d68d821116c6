"""t2t_ext: a model garden for neural machine translation on TensorFlow and Keras 3.

    from t2t_ext import Translator
    Translator.load("RUN")(["Ein Satz."])

The public names are imported on first use, so ``import t2t_ext`` does not import TensorFlow.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

from t2t_ext.io import chatter
from t2t_ext.version import __version__

if TYPE_CHECKING:
    from t2t_ext import registry
    from t2t_ext.config.decode import DecodeHParams
    from t2t_ext.config.hyperparameters import HParams, TransformerHParams
    from t2t_ext.config.training import TrainConfig
    from t2t_ext.data.generation.generate import generate
    from t2t_ext.errors import UserError
    from t2t_ext.problem import TranslationProblem
    from t2t_ext.serving.export import export
    from t2t_ext.training.loop import train
    from t2t_ext.translation.translator import Translator

# Keras chooses its backend once, when it is first imported, and a user's keras.json may name another one.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# TensorFlow's start-up messages are not for users, whichever module imports it first.
chatter.keep_imports_quiet()

_MODULES = {
    "DecodeHParams": "t2t_ext.config.decode",
    "HParams": "t2t_ext.config.hyperparameters",
    "TrainConfig": "t2t_ext.config.training",
    "TransformerHParams": "t2t_ext.config.hyperparameters",
    "TranslationProblem": "t2t_ext.problem",
    "Translator": "t2t_ext.translation.translator",
    "UserError": "t2t_ext.errors",
    "export": "t2t_ext.serving.export",
    "generate": "t2t_ext.data.generation.generate",
    "registry": "t2t_ext.registry",
    "train": "t2t_ext.training.loop",
}

__all__ = [
    "DecodeHParams",
    "HParams",
    "TrainConfig",
    "TransformerHParams",
    "TranslationProblem",
    "Translator",
    "UserError",
    "__version__",
    "export",
    "generate",
    "registry",
    "train",
]


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_MODULES[name])
    value = module if module.__name__ == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
