"""The fields that papers add to the hparams of every Transformer, in one module per paper.

Each module of this folder declares its fields in a dataclass that inherits ``TransformerVariant`` and says which slots
of a Transformer they fill. ``TransformerHParams`` finds the modules by itself and has the fields of all of them.
"""

import dataclasses
import importlib
import pkgutil
from typing import TypeVar

from t2t_ext.config.strict_params import StrictParams

V = TypeVar("V", bound="TransformerVariant")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerVariant(StrictParams):
    """The slots of a Transformer, as Vaswani et al. (2017) fill them.

    A variant overrides a slot if its fields say so, and otherwise returns the value of ``super()``. A slot holds the
    name of a layer, as given to ``registry.register_layer``.
    """

    # === Implemented by TransformerHParams ===

    @property
    def encoder_layers(self) -> int:
        """The number of encoder layers."""
        raise NotImplementedError

    @property
    def decoder_layers(self) -> int:
        """The number of decoder layers."""
        raise NotImplementedError

    @property
    def layer_preprocess_sequence(self) -> str:
        """``n`` if the stacks are pre-norm."""
        raise NotImplementedError

    @property
    def encoder_preset(self) -> str:
        """The preset whose backbone is the encoder; empty for the Transformer's own encoder."""
        raise NotImplementedError

    # === Slots ===

    def mixer(self, stack: str, layer: int) -> str:
        """Returns the name of the layer that mixes the positions of one sequence, such as self-attention.

        Args:
          stack: ``encoder`` or ``decoder``.
          layer: Number of the layer in the stack, counted from 0.
        """
        del stack, layer
        return "self_attention"

    @property
    def mixers(self) -> frozenset[str]:
        """The names of the mixers of all layers."""
        stacks = {"encoder": self.encoder_layers, "decoder": self.decoder_layers}
        return frozenset(self.mixer(stack, layer) for stack, depth in stacks.items() for layer in range(depth))

    def lacks(self, mixer: str, *stacks: str) -> bool:
        """Returns whether no layer of the stacks has this mixer; False if fields name layers that do not exist."""
        depths = {"encoder": self.encoder_layers, "decoder": self.decoder_layers}
        try:
            return all(self.mixer(stack, layer) != mixer for stack in stacks for layer in range(depths[stack]))
        except ValueError:  # the variant that owns the fields reports the mistake
            return False

    @property
    def source_views(self) -> str:
        """The name of the view that the decoder's layers have of the encoder."""
        return "last"

    @property
    def target_reading(self) -> str:
        """The name of the way in which targets are read and generated."""
        return "one_direction"

    @property
    def directions(self) -> int:
        """The number of directions in which a sentence is generated at once."""
        return 1

    @property
    def target_sides(self) -> int:
        """The number of target sequences of a training example."""
        return self.directions

    @property
    def early_stopping_metric(self) -> str:
        """The metric that early stopping watches if no flag names one."""
        return "loss"

    def part(self, variant: type[V]) -> V:
        """Returns these hparams, typed as one of the variants that they inherit.

        Args:
          variant: The dataclass of a module in this folder.

        Raises:
          TypeError: The hparams do not have its fields.
        """
        if not isinstance(self, variant):
            raise TypeError(f"{type(self).__name__} has not the fields of {variant.__name__}.")
        return self


def own_encoder(hparams: TransformerVariant) -> str:
    """Requires that the encoder is the Transformer's own, not a pretrained one; returns "" or what is wrong."""
    if not hparams.encoder_preset:
        return ""
    return f"has no effect: the encoder of encoder_preset={hparams.encoder_preset} is as it is; leave {{name}} out"


def found() -> tuple[type[TransformerVariant], ...]:
    """Returns the dataclasses of all modules in this folder, ordered by module name."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    return tuple(TransformerVariant.__subclasses__())
