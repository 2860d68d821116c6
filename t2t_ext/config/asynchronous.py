"""Hyper-parameters of asynchronous bidirectional decoding (Zhang et al. 2018)."""

import dataclasses
from collections.abc import Iterator

from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.config.strict_params import hparam


@dataclasses.dataclass(frozen=True, kw_only=True)
class AsynchronousHParams(TransformerHParams):
    """A Transformer with a second decoder, which generates right to left first."""

    pseudo: str = hparam(
        "one",
        "Training targets of the forward and the backward decoder: the reference and the translation of a "
        "right-to-left model (one), further pairings of both with the translation of a left-to-right model (two, six; "
        "see synchronous_transformer), or the reference for both (none: the forward decoder then sees its own future).",
        choices=("none", "one", "two", "six"),
    )
    forward_loss_weight: float = hparam(
        0.5,
        "Weight of the forward decoder's loss in the sum of both; the backward decoder's is 1 minus this.",
        minimum=0,
        exclusive=True,
        below=1,
    )
    backward_beam_size: int = hparam(
        1,
        "Number of hypotheses in the backward decoder's own search, which precedes the forward one; 1 = greedy.",
        minimum=1,
        maximum=1000,
    )
    backward_length_ratio: float = hparam(
        1.5,
        "The backward decoder generates at most this x source length + backward_length_offset tokens.",
        unit="tokens per source token",
        minimum=0,
        maximum=1000,
    )
    backward_length_offset: int = hparam(20, "See backward_length_ratio.", unit="tokens", minimum=1, maximum=100_000)

    @property
    def target_sides(self) -> int:
        """Number of target sequences in a training example: one for each decoder."""
        return 2

    @property
    def early_stopping_metric(self) -> str:
        """BLEU: unlike a Transformer's, the loss also covers pseudo references and the backward decoder."""
        return "bleu"

    def validate(self) -> Iterator[str]:
        """Yields contradictions between fields."""
        yield from super().validate()
        if self.directions > 1:
            yield (
                "synchronous=true: the asynchronous Transformer has a decoder for each direction, one after the other; "
                "leave it out, or take --model=synchronous_transformer"
            )
