"""Hyper-parameters: typed, strict, frozen, printable with the origin of every value.

A set of hyper-parameters is a function under ``@registry.register_hparams`` that returns
an ``HParams`` or derives one from another with ``replace``. A model family with fields of
its own subclasses ``TransformerHParams``::

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class MyHParams(TransformerHParams):
        window: int = hparam(5, "Positions that a head sees to its left.", unit="tokens", minimum=1)

        def wrong(self) -> Iterator[str]:
            yield from super().wrong()
            if self.window > self.max_length: yield "window is more than max_length"

Names and values are tensor2tensor's where it has them.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from t2t_ext.config import replaced_hparams as _replaced_hparams
from t2t_ext.config.dual_context import DualContextHParams
from t2t_ext.config.source_views import SourceViewHParams
from t2t_ext.config.strict_params import Explained, StrictParams, hparam, parse_assignments
from t2t_ext.errors import UserError

__all__ = [
    "DecodeHParams",
    "Explained",
    "HParams",
    "ResolvedHParams",
    "StrictParams",
    "TransformerHParams",
    "hparam",
    "parse_assignments",
    "resolve_decode_hparams",
]

LEARNING_RATE_FACTORS = (
    "constant",
    "linear_warmup",
    "rsqrt_decay",
    "rsqrt_hidden_size",
    "single_cycle_cos_decay",
    "cosdecay",
    "linear_decay",
    "exp_decay",
    "legacy",
)

AUTO_BATCH_SIZE = -1  # batch_size=auto, until the trainer has probed what fits
# What keeps lengths in tokens far from the largest int32.
_MOST_TOKENS = 100_000
_MOST_PER_TOKEN = 1000
_SAMPLING_FIELDS = ("sampling_temp", "sampling_keep_top_k", "sampling_keep_top_p", "sampling_seed")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HParams(StrictParams):
    """What every model is trained with: batches, loss, optimizer, learning rate, precision.

    Every field is documented by its ``hparam(...)``; ``explain()`` prints them.
    """

    _replaced: ClassVar[Mapping[str, str]] = _replaced_hparams.HPARAMS
    # Which metric early stopping watches where no flag says so.
    early_stopping_metric: ClassVar[str] = "loss"

    # Batches.
    batch_size: int = hparam(
        4096,
        "Size of one replica's batch in one training step, padding included; auto: the largest that fits the device, "
        "probed when the run begins.",
        unit="tokens",
        minimum=1,
        words={"auto": AUTO_BATCH_SIZE},
    )
    batch_tokens: str = hparam(
        "max",
        "Which tokens batch_size counts: the longer side of each pair (max, as T2T), both sides (sum), or the "
        "target side (target).",
        choices=("max", "sum", "target"),
    )
    max_length: int = hparam(
        256,
        "Training pairs with a longer side (EOS included) are left out and counted; 0 = batch_size.",
        unit="tokens",
        minimum=0,
    )
    batch_shapes: str = hparam(
        "dynamic",
        "Padding: to the longest pair of a batch (dynamic), or to the bucket's length, so that there are only as many "
        "shapes as buckets (static: TPU and XLA).",
        choices=("dynamic", "static"),
    )
    min_length_bucket: int = hparam(8, "Length of the shortest bucket.", unit="tokens", minimum=1)
    length_bucket_step: float = hparam(
        1.1, "Each bucket is this many times as long as the one before, at least one token.", minimum=1, exclusive=True
    )
    gradient_accumulation_steps: int = hparam(
        1,
        "Slices of batch_size tokens, computed one after the other, that make one update: as one batch so many times "
        "as large, in the memory of one slice.",
        minimum=1,
    )
    parallel_slices: int = hparam(
        1, "Slices into which a replica's batch is cut, computed side by side on a CPU: same mathematics.", minimum=1
    )

    # Loss.
    label_smoothing: float = hparam(
        0.1, "Probability that is spread evenly over the other words of the vocabulary.", minimum=0, below=1
    )

    # Optimizer.
    optimizer: str = hparam("adam", "The optimizer.", choices=("adam", "adam_w", "adafactor"))
    optimizer_adam_beta1: float = hparam(0.9, "Decay of Adam's mean of gradients.", minimum=0, below=1)
    optimizer_adam_beta2: float = hparam(0.997, "Decay of Adam's mean of squared gradients.", minimum=0, below=1)
    optimizer_adam_epsilon: float = hparam(1e-9, "Added to Adam's denominator.", minimum=0, exclusive=True)
    weight_decay: float = hparam(
        0.0,
        "adam_w: share of a matrix, times the learning rate, taken off at each step; other optimizers: L2 loss, this "
        "times the matrix is added to its gradient.",
        minimum=0,
    )
    optimizer_adafactor_beta1: float = hparam(
        0.0, "Decay of Adafactor's mean of updates; 0 = none is kept.", minimum=0, below=1
    )
    optimizer_adafactor_beta2: float = hparam(
        0.999, 'Decay of the mean of squared gradients where decay_type is "adam".', minimum=0, below=1
    )
    optimizer_adafactor_decay_type: str = hparam(
        "pow",
        "Decay of the mean of squared gradients: 1 - step^-memory_exponent (pow) or beta2 (adam).",
        choices=("pow", "adam"),
    )
    optimizer_adafactor_memory_exponent: float = hparam(
        0.8, "The exponent of decay type pow.", minimum=0, exclusive=True
    )
    optimizer_adafactor_clipping_threshold: float = hparam(
        1.0, "Updates are scaled down to this root mean square; 0 = not.", minimum=0
    )
    optimizer_adafactor_multiply_by_parameter_scale: bool = hparam(
        True, "Whether a variable's learning rate is multiplied by the root mean square of its values."
    )
    clip_grad_norm: float = hparam(0.0, "Gradients are scaled down to this global norm; 0 = not.", minimum=0)
    ema_decay: float = hparam(
        0.0, "Decay of the moving average of the weights, kept beside them; 0 = none.", minimum=0, below=1
    )

    # Learning rate.
    learning_rate_schedule: str = hparam(
        "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size",
        "Factors of the learning rate, joined by *: " + ", ".join(LEARNING_RATE_FACTORS) + " (legacy is T2T's noam).",
    )
    learning_rate_constant: float = hparam(2.0, "The factor `constant`.", minimum=0, exclusive=True)
    learning_rate: float = hparam(0.2, "The factor of schedule `legacy`; no other uses it.", minimum=0, exclusive=True)
    learning_rate_warmup_steps: int = hparam(8000, "Length of the warm-up.", unit="steps", minimum=0)
    learning_rate_decay_steps: int = hparam(
        5000,
        "Length of cosdecay and linear_decay, and of one decay of exp_decay.",
        unit="steps",
        minimum=1,
    )
    learning_rate_decay_rate: float = hparam(
        1.0, "exp_decay multiplies by this in learning_rate_decay_steps.", minimum=0, exclusive=True
    )

    # Numbers and direction.
    precision: str = hparam(
        "float32",
        "Type of the computations; variables are float32 always.",
        choices=("float32", "mixed_bfloat16", "mixed_float16"),
    )
    target_direction: str = hparam(
        "l2r",
        "Direction in which targets are produced; what comes out is always turned left to right.",
        choices=("l2r", "r2l"),
    )
    pseudo: str = hparam(
        "none",
        "What targets are made of, of a problem NAME_synchronous: the references (none); for models with one target "
        "sequence also the pseudo references of a left-to-right model (l2r) or of both directions' models (both), as "
        "examples of their own; for models with two, the pairs two, six or one of docs/training.md.",
        choices=("none", "l2r", "both", "two", "six", "one"),
    )

    def wrong(self) -> Iterator[str]:
        """Yields what is wrong with fields taken together."""
        factors = [factor.strip() for factor in self.learning_rate_schedule.split("*")]
        unknown = [factor for factor in factors if factor not in LEARNING_RATE_FACTORS]
        if unknown:
            yield (
                f"learning_rate_schedule={self.learning_rate_schedule!r}: unknown factor "
                f"{', '.join(map(repr, unknown))} (known: {', '.join(LEARNING_RATE_FACTORS)})"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerHParams(SourceViewHParams, DualContextHParams, HParams):
    """What a Transformer is made of (Vaswani et al. 2017; field names and strings are T2T's).

    What its decoder sees of the source is in ``SourceViewHParams``, which layers have dual contextual modules in
    ``DualContextHParams``.
    """

    # Sizes.
    hidden_size: int = hparam(512, "Width of the model (d_model).", unit="units", minimum=2)
    filter_size: int = hparam(2048, "Width of the feed-forward sublayers (d_ff).", unit="units", minimum=1)
    num_heads: int = hparam(8, "Attention heads.", minimum=1)
    num_hidden_layers: int = hparam(6, "Layers of encoder and decoder each.", minimum=1)
    num_encoder_layers: int = hparam(0, "Layers of the encoder; 0 = num_hidden_layers.", minimum=0)
    num_decoder_layers: int = hparam(0, "Layers of the decoder; 0 = num_hidden_layers.", minimum=0)
    attention_key_channels: int = hparam(
        0, "Width of queries and keys, all heads together; 0 = hidden_size.", unit="units", minimum=0
    )
    attention_value_channels: int = hparam(
        0, "Width of values, all heads together; 0 = hidden_size.", unit="units", minimum=0
    )

    # Around the sublayers.
    layer_preprocess_sequence: str = hparam(
        "n",
        "Before a sublayer: n = layer norm (pre-norm; the stack ends with one too), none = nothing (post-norm).",
        choices=("n", "none"),
    )
    layer_postprocess_sequence: str = hparam(
        "da",
        "After a sublayer, in this order: d = dropout, a = add the sublayer's input, n = layer norm.",
        choices=("da", "dan"),
    )
    layer_prepostprocess_dropout: float = hparam(
        0.1, "Dropout of sublayers' outputs and of embeddings.", minimum=0, below=1
    )
    attention_dropout: float = hparam(0.1, "Dropout of attention weights.", minimum=0, below=1)
    relu_dropout: float = hparam(
        0.1, "Dropout inside the feed-forward sublayer, after its activation.", minimum=0, below=1
    )
    norm_epsilon: float = hparam(1e-6, "Added to the variance in layer norms.", minimum=0, exclusive=True)

    # Inside the sublayers.
    ffn_activation: str = hparam(
        "relu",
        "Activation of the feed-forward sublayer; glu, geglu and swiglu have a gate (a third matrix).",
        choices=("relu", "gelu", "swish", "glu", "geglu", "swiglu"),
    )
    attention_scale: str = hparam(
        "head",
        "Queries are multiplied by (width of a head)^-0.5 (head, as T2T) or hidden_size^-0.5 (model).",
        choices=("head", "model"),
    )
    projection_bias: bool = hparam(False, "Whether query, key, value and output projections have biases.")
    initializer: str = hparam(
        "uniform_unit_scaling",
        "Initial distribution of the projections' matrices.",
        choices=("uniform_unit_scaling", "normal_unit_scaling", "orthogonal"),
    )
    initializer_gain: float = hparam(1.0, "The initializer's scale.", minimum=0, exclusive=True)

    # Embeddings.
    pos: str = hparam(
        "timing", "Positions: sinusoids added to the embeddings (timing) or none.", choices=("timing", "none")
    )
    pos_encoding: str = hparam(
        "concat",
        "Order of the sinusoids' channels: all sines, then all cosines (concat, as T2T), or alternating "
        "(interleaved, as the paper).",
        choices=("concat", "interleaved"),
    )
    feature_positions: str = hparam(
        "none",
        "Positions of a source of feature vectors: none, since the regions of an image have no order, or as pos says "
        "(timing).",
        choices=("none", "timing"),
    )
    shared_embedding: bool = hparam(False, "Source and target embedding are one matrix; needs a joint vocabulary.")
    shared_embedding_and_softmax_weights: bool = hparam(
        True,
        "Target embedding and softmax are one matrix; where the vocabulary is joint, it is the source embedding too.",
    )
    multiply_embedding_mode: str = hparam(
        "sqrt_depth",
        "Embeddings are multiplied by hidden_size^0.5 (sqrt_depth) or not (none).",
        choices=("sqrt_depth", "none"),
    )
    use_target_space_embedding: bool = hparam(
        False, "Whether a learned vector for the target language (one of 32) is added to the encoder's input."
    )
    target_space_id: int = hparam(0, "Which of the 32 vectors.", minimum=0, maximum=31)

    @property
    def encoder_layers(self) -> int:
        """Layers of the encoder, with num_hidden_layers put in for 0."""
        return self.num_encoder_layers or self.num_hidden_layers

    @property
    def decoder_layers(self) -> int:
        """Layers of the decoder, with num_hidden_layers put in for 0."""
        return self.num_decoder_layers or self.num_hidden_layers

    def wrong(self) -> Iterator[str]:
        """Yields what is wrong with fields taken together."""
        yield from super().wrong()
        for name in ("hidden_size", "attention_key_channels", "attention_value_channels"):
            width = getattr(self, name)
            if width % self.num_heads:
                yield f"{name}={width} is not a multiple of num_heads={self.num_heads}"
        if self.pos == "timing" and self.hidden_size % 2:
            yield f"hidden_size={self.hidden_size} is odd: pos=timing needs as many sines as cosines"
        if self.feature_positions == "timing" and self.pos == "none":
            yield "feature_positions=timing adds the positions of pos=timing, but pos=none has none"
        if (self.layer_preprocess_sequence == "n") == (self.layer_postprocess_sequence == "dan"):
            yield (
                "layer_preprocess_sequence and layer_postprocess_sequence must be n and da (pre-norm) or none and dan "
                f"(post-norm), not {self.layer_preprocess_sequence} and {self.layer_postprocess_sequence}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodeHParams(StrictParams):
    """How translations are searched for (``--decode_hparams``); nothing here changes a model's weights."""

    _replaced: ClassVar[Mapping[str, str]] = _replaced_hparams.DECODE_HPARAMS

    beam_size: int = hparam(4, "Hypotheses kept per sentence; 1 = greedy.", minimum=1)
    alpha: float = hparam(0.6, "Exponent of the length penalty; 0 = none.", minimum=0, maximum=10)
    length_penalty: str = hparam(
        "gnmt",
        "What a hypothesis's log-probability is divided by: ((5+length)/6)^alpha (gnmt, as T2T) or "
        "length^alpha (len_power, as fairseq).",
        choices=("gnmt", "len_power"),
    )
    batch_size: int = hparam(32, "Sentences searched at once.", unit="sentences", minimum=1)
    length_limit: str = hparam(
        "ratio",
        "The most tokens of a translation: max_length_ratio x source + max_length_offset (ratio), or source + "
        "extra_length (extra, as T2T).",
        choices=("ratio", "extra"),
    )
    max_length_ratio: float = hparam(
        1.5, "See length_limit.", unit="tokens per source token", minimum=0, maximum=_MOST_PER_TOKEN
    )
    max_length_offset: int = hparam(20, "See length_limit.", unit="tokens", minimum=1, maximum=_MOST_TOKENS)
    extra_length: int = hparam(100, "See length_limit.", unit="tokens", minimum=0, maximum=_MOST_TOKENS)
    max_input_length: int = hparam(
        1024, "Longer lines are cut, counted and reported.", unit="subwords", minimum=1, maximum=_MOST_TOKENS
    )
    num_hypotheses: int = hparam(1, "Translations returned per sentence, best first.", minimum=1)
    return_beams: bool = hparam(False, "Return all beam_size translations of a sentence, as T2T does.")
    write_beam_scores: bool = hparam(False, "Write the penalised score beside every translation, as T2T does.")
    precision: str = hparam(
        "",
        'Type of the computations; "" = as the model was trained.',
        choices=("", "float32", "mixed_bfloat16", "mixed_float16"),
    )
    min_length: int = hparam(
        0, "The fewest tokens of a translation, EOS not counted.", unit="tokens", minimum=0, maximum=_MOST_TOKENS
    )
    min_length_ratio: float = hparam(
        0.0,
        "The fewest tokens of a translation: this x source.",
        unit="tokens per source token",
        minimum=0,
        maximum=_MOST_PER_TOKEN,
    )
    no_repeat_ngram_size: int = hparam(
        0,
        "No sequence of so many tokens (no_repeat_ngram_unit) comes twice in a translation; 0 = any may.",
        unit="tokens",
        minimum=0,
        maximum=100,  # the graph grows with it
    )
    no_repeat_ngram_unit: str = hparam(
        "tokens",
        "What no_repeat_ngram_size counts: subwords (tokens), or words as the model writes them (words).",
        choices=("tokens", "words"),
    )
    no_repeat_ngram_ignore: str = hparam(
        "",
        'Words, separated by blanks, with which sequences may come again, such as ". <t> </t>"; with '
        "no_repeat_ngram_unit=words.",
    )
    coverage_penalty: float = hparam(
        0.0,
        "Factor (beta) of what is taken off the score of translations by how they look at the source; 0 = nothing is.",
        minimum=0,
        maximum=30,  # what the length limit ended ranks lower by 1e6, and that must stay more than any penalty
    )
    coverage_kind: str = hparam(
        "wu",
        "What coverage_penalty counts: source words that are left without attention (wu: Wu et al. 2016), or attention "
        "to words that have had it (summary: OpenNMT's).",
        choices=("wu", "summary"),
    )
    stepwise_penalty: bool = hparam(
        False, "Take coverage_penalty off at every step, not only where translations end; with coverage_kind=summary."
    )
    sampling_method: str = hparam(
        "argmax",
        "The most probable translations are searched for (argmax), or num_hypotheses are drawn from the model's "
        "distribution, without beam_size (random).",
        choices=("argmax", "random"),
    )
    sampling_temp: float = hparam(
        1.0,
        "Temperature of random: less than 1 draws probable tokens more often.",
        minimum=0,
        maximum=1e6,  # forbidden tokens' logits are -1e9: beyond, they would be drawn
        exclusive=True,
    )
    sampling_keep_top_k: int = hparam(
        -1, "random draws from this many most probable tokens; -1 = from all.", unit="tokens", minimum=-1
    )
    sampling_keep_top_p: float = hparam(
        1.0,
        "random draws from the fewest most probable tokens that together have this probability; 1 = from all.",
        minimum=0,
        maximum=1,
        exclusive=True,
    )
    sampling_seed: int = hparam(
        0,
        "What random draws is a function of this and of the source line: the same in every batch and order.",
        minimum=0,
        maximum=2**63 - 1,
    )

    diverse_groups: int = hparam(
        1, "Groups that the beam is divided into and that are kept from going on alike; 1 = none.", minimum=1
    )
    diverse_strength: float = hparam(
        0.5,
        "What every hypothesis of an earlier group that goes on with a token takes off its log-probability while a "
        "group chooses.",
        minimum=0,
        maximum=1e6,
        exclusive=True,
    )

    sb_pairing: str = hparam(
        "rank",
        "Whom a hypothesis of a model of two directions attends to: the other direction's of the same rank (rank) or "
        "its best (best).",
        choices=("rank", "best"),
    )
    sb_finished_partner: str = hparam(
        "next_alive",
        "What it sees once that one has ended: the live one that takes the rank (next_alive), or it and its "
        "descendants keep what the ended one had (freeze).",
        choices=("next_alive", "freeze"),
    )
    sb_decode: str = hparam(
        "cached",
        "cached: the state of a step is computed once, with the partner of that step. recompute: at every step the "
        "whole prefixes with today's partners, for comparison; slow.",
        choices=("cached", "recompute"),
    )

    def wrong(self) -> Iterator[str]:
        """Yields what is wrong with fields taken together."""
        if self.sampling_method == "random":
            yield from self._wrong_in_sampling()
        else:
            if self.num_hypotheses > self.beam_size:
                yield f"num_hypotheses={self.num_hypotheses} is more than beam_size={self.beam_size}"
            yield from self._unused("sampling_method=random", _SAMPLING_FIELDS)
        yield from self._wrong_in_groups()
        yield from self._wrong_in_rules()

    def synchronous_fields(self) -> list[str]:
        """Returns the names of those fields of models of two directions that are not at their defaults."""
        fields = [field for field in dataclasses.fields(self) if field.name.startswith("sb_")]
        return [field.name for field in fields if getattr(self, field.name) != field.default]

    @property
    def returned(self) -> int:
        """Translations that are returned of a sentence."""
        return self.beam_size if self.return_beams else self.num_hypotheses

    def check_constraints(self) -> None:
        """Checks that translations can be searched for that must hold given phrases.

        Raises:
          UserError: Another way of searching is asked for that excludes it.
        """
        if self.sampling_method == "random":
            raise UserError(
                "Constraints need a search, but sampling_method=random draws: leave it out, or the constraints."
            )
        if self.diverse_groups > 1:
            raise UserError(
                f"Constraints divide the beam, and so does diverse_groups={self.diverse_groups}: leave one of them out."
            )

    def _wrong_in_sampling(self) -> Iterator[str]:
        if self.return_beams:
            yield "return_beams=true returns a beam, which sampling_method=random has not: use num_hypotheses"
        if self.coverage_penalty:
            yield (
                f"coverage_penalty={self.coverage_penalty} ranks the hypotheses of a beam, which "
                "sampling_method=random has not: leave it out"
            )
        if self.sampling_keep_top_k == 0:
            yield "sampling_keep_top_k=0 leaves no token to draw: at least 1, or -1 for all"

    def _wrong_in_rules(self) -> Iterator[str]:
        if not self.no_repeat_ngram_size:
            yield from self._unused("no_repeat_ngram_size", ("no_repeat_ngram_unit", "no_repeat_ngram_ignore"))
        elif self.no_repeat_ngram_unit != "words":
            yield from self._unused("no_repeat_ngram_unit=words", ("no_repeat_ngram_ignore",))
        if not self.coverage_penalty:
            yield from self._unused("coverage_penalty", ("coverage_kind", "stepwise_penalty"))
        elif self.stepwise_penalty and self.coverage_kind != "summary":
            yield (
                f"stepwise_penalty=true needs coverage_kind=summary: the penalty of {self.coverage_kind} becomes less "
                "as more of the source is looked at, and a search by it would not know when to stop"
            )

    def _wrong_in_groups(self) -> Iterator[str]:
        if self.diverse_groups == 1:
            yield from self._unused("diverse_groups", ("diverse_strength",))
        elif self.sampling_method == "random":
            yield f"diverse_groups={self.diverse_groups} divides a beam, which sampling_method=random has not"
        elif self.beam_size % self.diverse_groups:
            yield f"beam_size={self.beam_size} is not a multiple of diverse_groups={self.diverse_groups}"

    def _unused(self, needed: str, names: Sequence[str]) -> Iterator[str]:
        """Yields which fields of those named are set though they need another one."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in names:
            if getattr(self, name) != defaults[name]:
                yield f"{name}={getattr(self, name)} has no effect without {needed}"


@dataclasses.dataclass(frozen=True)
class ResolvedHParams:
    """An hparams set with the overrides of a command line.

    Attributes:
      hparams: The values.
      origins: Where each value comes from: field -> "default", "set NAME" or "flag".
    """

    hparams: HParams
    origins: Mapping[str, str]

    def explain(self) -> list[Explained]:
        """Returns a row per field: name, value, origin, help."""
        return self.hparams.explain(self.origins)


def resolve_decode_hparams(overrides: str = "", base: DecodeHParams | None = None) -> DecodeHParams:
    """Returns decoding hyper-parameters with the overrides of ``--decode_hparams``.

    Args:
      overrides: ``"beam_size=4,alpha=0.6"``.
      base: The values that are overridden, by default the defaults.

    Returns:
      The values.

    Raises:
      UserError: An unknown key, a wrong type, the same key twice, an empty value; a value that is not allowed.
    """
    return (base or DecodeHParams()).override(overrides, flag="--decode_hparams")
