"""Dual contextual modules, views of the source and synchronous decoding in one Transformer, by its hparams alone.

The three replace different parts: the mixer of encoder layers (Ampomah et al. 2021, ``dc_encoder_layers``), what
decoder layers attend to (Liu et al. 2020, ``source_view``), and the mixer of decoder layers, with the shape of targets
(Zhou et al. 2019, ``synchronous``). The first two are parts of every Transformer; the third is a mixin
(``models/synchronous.py``), and makes a class of its own: with ``synchronous=true``, ``ComposedTransformer(...)`` is an
instance of a subclass whose ``directions`` and ``target_sides`` are 2.

With all three off, it is the Transformer. All names of variables are the Transformer's.
"""

import functools
from typing import Any, Self

from t2t_ext.config.composed import ComposedHParams
from t2t_ext.config.hyperparameters import HParams
from t2t_ext.models.synchronous import SynchronousDecoding
from t2t_ext.models.transformer import Transformer
from t2t_ext.registry import register_model
from t2t_ext.search.directions import directions_of


@register_model("composed_transformer")
class ComposedTransformer(Transformer):
    """The Transformer with any of dual context, views of the source and decoding in both directions."""

    hparams_class = ComposedHParams

    def __new__(cls, hparams: HParams, **kwargs: Any) -> Self:
        """Makes an instance of the class that the hparams ask for."""
        return super().__new__(cls.variant(hparams), hparams, **kwargs)

    @classmethod
    def variant(cls, hparams: HParams) -> type[Self]:
        """Returns this class, or where the hparams ask for both directions, its subclass that writes in both."""
        if directions_of(hparams) == cls.directions or issubclass(cls, SynchronousDecoding):
            return cls
        return _in_both_directions(cls)


@functools.cache
def _in_both_directions(model_class: type[ComposedTransformer]) -> type[ComposedTransformer]:
    """Returns the subclass of a model that decodes synchronously, always the same one."""
    members = {
        "__module__": model_class.__module__,
        "__doc__": f"{model_class.__name__} whose decoder writes in both directions (Zhou et al. 2019).",
        "hparams_class": model_class.hparams_class,
    }
    return type(f"Synchronous{model_class.__name__}", (SynchronousDecoding, model_class), members)
