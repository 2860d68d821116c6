"""Hyper-parameters of synchronous bidirectional decoding (Zhou et al. 2019)."""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.config.layer_ranges import layer_numbers
from t2t_ext.config.strict_params import hparam


@dataclasses.dataclass(frozen=True, kw_only=True)
class SynchronousHParams(TransformerHParams):
    """A Transformer whose decoder writes in both directions at once."""

    # Losses on pseudo references are not those on references, nor comparable with a Transformer's.
    early_stopping_metric: ClassVar[str] = "bleu"

    sb_fusion: str = hparam(
        "tanh",
        "How the attention to the other direction joins that to a position's own past: past + lambda * future (linear, "
        "equation 4), past + lambda * tanh or relu of future (equation 5), or gates that are learnt for both "
        "(equation 6).",
        choices=("linear", "tanh", "relu", "gate"),
    )
    sb_lambda: float = hparam(0.1, "lambda, the weight of the other direction; where it is trained, its start.")
    sb_lambda_trainable: str = hparam(
        "none",
        "Whether each layer learns its lambda: not (none), as one number (scalar), or one for each of its channels "
        "(vector).",
        choices=("none", "scalar", "vector"),
    )
    sb_gate: str = hparam(
        "head",
        "sb_fusion=gate: one matrix a layer that all its heads share (head: twice a head's width, squared), or one for "
        "all heads side by side (model).",
        choices=("head", "model"),
    )
    sb_layers: str = hparam(
        "all",
        "Decoder layers that attend to the other direction: all, or numbers and ranges from 1, such as 1-3 or 1,3-4 "
        "(in --hparams: 1+3-4).",
    )
    sb_future_dropout: float = hparam(
        0.0, "Dropout of the attention to the other direction, before its activation.", minimum=0, below=1
    )
    predict_tag: bool = hparam(
        False,
        "The direction's tag is predicted from a zero vector, as the authors' program does, instead of being the "
        "first input.",
    )
    pseudo: str = hparam(
        "two",
        "Targets of the two directions in training: gold beside the translations of a right-to-left and of a "
        "left-to-right model (two triples, section 3.4), all pairings (six, section 4.7), only the second of the two "
        "(one), or gold for both (none: each side's future is then what the other one has seen).",
        choices=("none", "one", "two", "six"),
    )
    sb_loss_on_pseudo: bool = hparam(True, "Whether translations that stand in for a target are trained on, too.")

    @property
    def synchronous_layers(self) -> frozenset[int]:
        """The decoder layers that attend to the other direction, counted from 0."""
        return layer_numbers(self.sb_layers, self.decoder_layers)

    @property
    def directions(self) -> int:
        """In how many directions the model writes at once; a family in which that can be one overrides it."""
        return 2

    def wrong(self) -> Iterator[str]:
        """Yields what is wrong with fields taken together."""
        yield from super().wrong()
        if self.directions == 2:
            yield from self._wrong_in_both_directions()

    def _wrong_in_both_directions(self) -> Iterator[str]:
        try:
            if not self.synchronous_layers:
                yield "sb_layers names no layer: without one this is a Transformer"
        except ValueError as error:
            yield f"sb_layers={self.sb_layers!r}: {error}"
        if self.dc_decoder_layers:
            yield (
                f"dc_decoder_layers={self.dc_decoder_layers!r}: a decoder of two directions attends to both of them in "
                "place of the dual contextual module's two attentions; leave it out (dc_encoder_layers goes with it), "
                "or train one direction (composed_transformer with synchronous=false, dual_context_transformer)"
            )
        if self.sb_fusion == "gate" and self.sb_lambda_trainable != "none":
            yield f"sb_lambda_trainable={self.sb_lambda_trainable}: sb_fusion=gate has no lambda that could be trained"
        if self.sb_fusion == "gate" and self.sb_lambda != type(self).sb_lambda:
            # The default is what is not given: only a changed value was meant to do something.
            yield (
                f"sb_lambda={self.sb_lambda:g}: sb_fusion=gate has no lambda, its gates weigh both attentions; leave "
                "sb_lambda out, or choose sb_fusion=linear, tanh or relu"
            )
        if self.sb_fusion != "gate" and self.sb_gate != "head":
            yield f"sb_gate={self.sb_gate} is for sb_fusion=gate: sb_fusion={self.sb_fusion} has no gate"
