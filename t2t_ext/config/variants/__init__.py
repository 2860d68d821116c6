"""What papers add to every Transformer's hparams: one module each, found by its place.

A module of this folder declares its fields in a dataclass that inherits ``TransformerVariant``, and says there which
slots of a Transformer they fill. ``TransformerHParams`` has the fields of all of them and names none.
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

    A variant overrides the slot that it fills where its fields say so, and asks ``super()`` elsewhere. What fills a
    slot is the name of a layer, as ``registry.register_layer`` knows it.
    """

    # === What TransformerHParams has ===

    @property
    def encoder_layers(self) -> int:
        """Layers of the encoder."""
        raise NotImplementedError

    @property
    def decoder_layers(self) -> int:
        """Layers of the decoder."""
        raise NotImplementedError

    @property
    def layer_preprocess_sequence(self) -> str:
        """``n`` in pre-norm stacks."""
        raise NotImplementedError

    @property
    def encoder_preset(self) -> str:
        """The preset whose backbone is the encoder; empty for the Transformer's own encoder."""
        raise NotImplementedError

    # === Slots ===

    def mixer(self, stack: str, layer: int) -> str:
        """Returns what mixes the positions of one sequence in a layer.

        Args:
          stack: ``encoder`` or ``decoder``.
          layer: Counted from 0.
        """
        del stack, layer
        return "self_attention"

    @property
    def mixers(self) -> frozenset[str]:
        """What mixes the positions in any layer."""
        stacks = {"encoder": self.encoder_layers, "decoder": self.decoder_layers}
        return frozenset(self.mixer(stack, layer) for stack, depth in stacks.items() for layer in range(depth))

    def lacks(self, mixer: str, *stacks: str) -> bool:
        """Whether no layer of the stacks has a mixer; False where fields name layers that are not there."""
        depths = {"encoder": self.encoder_layers, "decoder": self.decoder_layers}
        try:
            return all(self.mixer(stack, layer) != mixer for stack in stacks for layer in range(depths[stack]))
        except ValueError:  # the variant that the fields are of says what is wrong with them
            return False

    @property
    def source_views(self) -> str:
        """What the decoder's layers see of the encoder."""
        return "last"

    @property
    def target_reading(self) -> str:
        """How targets are read and generated."""
        return "one_direction"

    @property
    def directions(self) -> int:
        """In how many directions a sentence is generated at once."""
        return 1

    @property
    def target_sides(self) -> int:
        """How many target sequences a training example has."""
        return self.directions

    @property
    def early_stopping_metric(self) -> str:
        """Which metric early stopping watches where no flag says so."""
        return "loss"

    def part(self, variant: type[V]) -> V:
        """Returns these hparams as those of one variant, for the type checker.

        Args:
          variant: The dataclass of a module of this folder.

        Raises:
          TypeError: The hparams have not its fields.
        """
        if not isinstance(self, variant):
            raise TypeError(f"{type(self).__name__} has not the fields of {variant.__name__}.")
        return self


def own_encoder(hparams: TransformerVariant) -> str:
    """The condition that the encoder is the Transformer's own, with layers and embeddings as the hparams say."""
    if not hparams.encoder_preset:
        return ""
    return f"has no effect: the encoder of encoder_preset={hparams.encoder_preset} is as it is; leave {{name}} out"


def found() -> tuple[type[TransformerVariant], ...]:
    """Returns the dataclasses of all modules of this folder, in the order of their names."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    return tuple(TransformerVariant.__subclasses__())
