"""Counts the multiplications in a model's matrix products from the model's sizes.

A product [n, k] x [k, m] has n k m multiplications, and as many additions. Everything else (norms, softmax, dropout,
gates) is left out: at these widths it is below one percent of the arithmetic, whatever its share of the time.

Legend: d hidden size, f feed-forward width, S source tokens, T target tokens.
"""

import dataclasses
from typing import Any

_GATED = ("glu", "geglu", "swiglu")
_SYNCHRONOUS, _ASYNCHRONOUS = "synchronous_transformer", "asynchronous_transformer"


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Counts multiplications of parts of a model; the sizes come from its hparams.

    Attributes:
      hparams: The model's hparams.
      model: Its registered name.
    """

    hparams: Any
    model: str

    @property
    def coordinated(self) -> bool:
        """Whether source and target share one stack, where a target layer attends to the same layer's input."""
        return self.model == "layer_coordination"

    @property
    def convolves(self) -> bool:
        """Whether convolutions take the place of self-attention."""
        return hasattr(self.hparams, "conv_type")

    @property
    def channels(self) -> int:
        """Number of channels of keys and values together."""
        hparams = self.hparams
        return (hparams.attention_key_channels or hparams.hidden_size) + (
            hparams.attention_value_channels or hparams.hidden_size
        )

    def queries(self, positions: float) -> float:
        """Returns the multiplications for the query projection at this number of positions."""
        return positions * self.hparams.hidden_size * (self.hparams.attention_key_channels or self.hparams.hidden_size)

    @property
    def feed_forward(self) -> float:
        """Multiplications per position in a feed-forward sublayer."""
        hparams = self.hparams
        return (3 if hparams.ffn_activation in _GATED else 2) * hparams.hidden_size * hparams.filter_size

    def rows(self, positions: float) -> float:
        """Returns the multiplications for projecting queries and output, or keys and values, at these positions."""
        return positions * self.hparams.hidden_size * self.channels

    def looks(self, queries: float, memory: float) -> float:
        """Returns the multiplications for attention logits and weighted sums of queries over memory positions."""
        return queries * memory * self.channels

    def attention(self, queries: float, memory: float, looks: int = 1) -> float:
        """Returns the multiplications for the projections of queries and memory, and for ``looks`` attentions to it."""
        return self.rows(queries) + self.rows(memory) + looks * self.looks(queries, memory)

    def is_dual(self, layer: int, *, decoder: bool) -> bool:
        """Returns whether a layer, counted from 0, has a dual contextual module."""
        return layer in (self.hparams.dual_decoder_layers if decoder else self.hparams.dual_encoder_layers)

    def dual(self, positions: float, memory: float, taps: int) -> float:
        """Returns the multiplications of a dual contextual module: neighborhood, two attentions, aggregation."""
        d = self.hparams.hidden_size
        local = positions * taps * d * 2 * d
        return local + 4 * self.rows(positions) + 2 * self.looks(positions, memory)

    def mixer(self, layer: int, positions: float, *, decoder: bool) -> float:
        """Returns the multiplications of the sublayer that mixes a stack's positions in a layer, counted from 0."""
        if self.is_dual(layer, decoder=decoder):
            return self.dual(positions, positions, self.hparams.dc_kernel_size)
        if not self.convolves:
            return self.attention(positions, positions)
        return positions * self.convolution(layer, decoder=decoder)

    def convolution(self, layer: int, *, decoder: bool) -> float:
        """Returns the multiplications per position of a convolution: both projections, its kernel, and the taps.

        Raises:
          ValueError: The stack has no convolutions.
        """
        hparams, d = self.hparams, self.hparams.hidden_size
        here = hparams.conv_stacks in ("both", "decoder" if decoder else "encoder")
        if not here:
            raise ValueError(f"conv_stacks={hparams.conv_stacks} is not counted")
        sizes = hparams.decoder_kernels if decoder else hparams.encoder_kernels
        taps = sizes[layer]
        kernel = d * hparams.convolution_heads * taps if hparams.conv_type == "dynamic" else 0
        return (3 if hparams.conv_glu else 2) * d * d + kernel + d * taps

    def views(self, source: float) -> float:
        """Returns the multiplications for the views of the source in all decoder layers, beyond attention.

        Raises:
          ValueError: These views are not counted.
        """
        hparams, d = self.hparams, self.hparams.hidden_size
        encoder, decoder = hparams.encoder_layers, hparams.decoder_layers
        second = hparams.source_view != "last" and hparams.integration == "soft_two_attention"
        if second or (hparams.source_view == "ama" and hparams.ama_query == "decoder"):
            raise ValueError("two cross-attentions, and ama_query=decoder, are not counted")
        if hparams.source_view == "fma":
            weights = encoder * d * d if hparams.fma == "full" else encoder * d
        elif hparams.source_view == "ama":
            weights = 2 * encoder * d
        else:
            weights = 0
        return decoder * source * weights

    def gates(self, positions: float) -> float:
        """Returns the multiplications of the context gates of a decoder layer."""
        if self.model != "context_gate_transformer":
            return 0.0
        hparams = self.hparams
        width = hparams.num_heads if hparams.context_gate == "head" else hparams.hidden_size
        return positions * 2 * hparams.hidden_size * width


def training(hparams: Any, vocab_size: int, source: int, target: int, model: str) -> dict[str, float]:
    """Returns the multiplications of the forward pass for one sentence; gradients take twice as many in every part.

    Args:
      hparams: The hparams with the sizes.
      vocab_size: Size of the target vocabulary.
      source: S.
      target: T, of each target.
      model: Its registered name. The synchronous model decodes two targets and attends to both; the asynchronous one
        has two decoders.

    Returns:
      Part -> millions: encoder (in a model of one stack: its work on the source), decoder, softmax.
    """
    sizes = Sizes(hparams, model)
    sides = 2 if model in (_SYNCHRONOUS, _ASYNCHRONOUS) else 1
    encoder = _source(sizes, source, at_once=True)
    if sizes.coordinated:
        decoder = hparams.num_hidden_layers * _coordinated_layer(sizes, source, target)
    else:
        decoder = sizes.views(source)
        for layer in range(hparams.decoder_layers):
            own = sizes.attention(target, target, looks=2) if model == _SYNCHRONOUS else None
            own = sizes.mixer(layer, target, decoder=True) if own is None else own
            side = own + sizes.attention(target, source) + target * sizes.feed_forward + sizes.gates(target)
            decoder += sides * side
            if model == _SYNCHRONOUS:
                decoder -= sizes.rows(source)  # both sides attend to one projection of the source
            elif model == _ASYNCHRONOUS:
                decoder += sizes.attention(target, target)
    softmax = sides * target * hparams.hidden_size * vocab_size
    return {name: count / 1e6 for name, count in (("encoder", encoder), ("decoder", decoder), ("softmax", softmax))}


def decoding(hparams: Any, vocab_size: int, source: int, steps: int, beam_size: int, model: str) -> dict[str, float]:
    """Returns the multiplications of the search for one sentence, for a model that generates one target.

    The hypotheses' states are side by side, and each hypothesis attends to the columns of all of them, with the others'
    masked. So at step t a hypothesis of a beam of K attends to K t columns; a convolution reads at most K k of them.

    Returns:
      Part -> millions: source (once), steps (layers of all steps), softmax (of all steps).
    """
    sizes = Sizes(hparams, model)
    once = _source(sizes, source, at_once=False)
    if not sizes.coordinated:
        once += sizes.views(source) + hparams.decoder_layers * sizes.rows(source)
    layers = 0.0
    for step in range(1, steps + 1):
        columns = beam_size * step
        if sizes.coordinated:
            # Queries, keys, values and output; without mixed attention, queries and output once more.
            own = sizes.attention(1, 1) - sizes.looks(1, 1) + sizes.looks(1, columns + source) + sizes.feed_forward
            own += 0 if hparams.lwc_mixed_attention else sizes.rows(1)
            layers += hparams.num_hidden_layers * own
            continue
        for layer in range(hparams.decoder_layers):
            if sizes.is_dual(layer, decoder=True):
                past = min(hparams.dc_kernel_size - 1, step - 1)
                # The ancestry mask selects a hypothesis's own inputs among those of all hypotheses.
                own = sizes.dual(1, columns, past + 1) + past * beam_size * hparams.hidden_size
            elif sizes.convolves:
                taps = hparams.decoder_kernels[layer]
                own = sizes.convolution(layer, decoder=True) - hparams.hidden_size * taps
                own += hparams.hidden_size * beam_size * min(taps, step)
            else:
                own = 2 * sizes.rows(1) + sizes.looks(1, columns)
            layers += own + sizes.rows(1) + sizes.looks(1, source) + sizes.feed_forward + sizes.gates(1)
    softmax = steps * hparams.hidden_size * vocab_size
    parts = {"source": once, "steps": beam_size * layers, "softmax": beam_size * softmax}
    return {name: count / 1e6 for name, count in parts.items()}


def decoding_step_in_squares(hparams: Any, model: str) -> float:
    """Returns the multiplications of projections and feed-forward layers in a decoding step, in units of d squared.

    They are for one hypothesis: 84 for 6 layers of a Transformer with f = 4 d, 168 for 14 layers of layer-wise
    coordination.
    """
    sizes = Sizes(hparams, model)
    d = hparams.hidden_size
    total = 0.0
    for layer in range(hparams.num_hidden_layers if sizes.coordinated else hparams.decoder_layers):
        if not sizes.coordinated and sizes.is_dual(layer, decoder=True):
            total += sizes.dual(1, 0, hparams.dc_kernel_size)
        else:
            total += sizes.convolution(layer, decoder=True) if sizes.convolves else 2 * sizes.rows(1)
        total += sizes.feed_forward + (0 if sizes.coordinated else sizes.rows(1))
    return total / (d * d)


def _source(sizes: Sizes, source: float, *, at_once: bool) -> float:
    """Returns the multiplications of all layers on the source alone.

    On whole sequences (``at_once``), layer-wise coordination computes queries, keys and values in one product. So it
    also computes queries of source positions that are not used.
    """
    hparams = sizes.hparams
    if sizes.coordinated:
        unused = sizes.queries(source) if at_once else 0.0
        layer = sizes.attention(source, source) + source * sizes.feed_forward
        # The target's layers have their own projections of the source.
        if not hparams.lwc_share_weights or hparams.lwc_source == "last":
            return hparams.encoder_layers * layer + hparams.num_hidden_layers * (sizes.rows(source) + unused)
        # Nothing reads the source's output of the last layer, which therefore computes only keys and values.
        return (hparams.num_hidden_layers - 1) * layer + sizes.rows(source) + unused
    return sum(
        sizes.mixer(layer, source, decoder=False) + source * sizes.feed_forward
        for layer in range(hparams.encoder_layers)
    )


def _coordinated_layer(sizes: Sizes, source: float, target: float) -> float:
    """Returns the multiplications of a coordinated layer on the target; those for the source are in ``_source``."""
    own = 2 * sizes.rows(target) + sizes.looks(target, source + target) + target * sizes.feed_forward
    if not sizes.hparams.lwc_mixed_attention:
        own += sizes.rows(target)  # queries and output of the second attention
    return own
