"""Hyper-parameters: typed, strict, frozen, printable with the origin of every value.

A set of hyper-parameters is a function under ``@registry.register_hparams`` that returns
an ``HParams`` or derives one from another with ``replace``. A model family with fields of
its own subclasses ``TransformerHParams``::

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class MyHParams(TransformerHParams):
        window: int = hparam(5, "Positions that a head sees to its left.", unit="tokens", minimum=1)

        def validate(self) -> Iterator[str]:
            yield from super().validate()
            if self.window > self.max_length: yield "window is more than max_length"

Names and values are tensor2tensor's if it has them.
"""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from t2t_ext.config import variants
from t2t_ext.config.precision import ALIASES
from t2t_ext.config.strict_params import Condition, Explained, StrictParams, every, hparam, only, parse_assignments
from t2t_ext.pages import page

__all__ = ["Explained", "HParams", "StrictParams", "TransformerHParams", "hparam", "parse_assignments"]

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

FACTORS_THAT_END = ("single_cycle_cos_decay", "linear_decay")  # at --train_steps

AUTO_BATCH_SIZE = -1  # batch_size=auto, until the trainer has probed what fits
_ADAFACTOR = only("optimizer", "adafactor")
_ADAM = ("adam", "adam_w", "schedule_free_adam_w")


def _in_schedule(*factors: str, **instead: str) -> Condition:
    """Returns the condition that the learning rate schedule has one of the given factors.

    Args:
      *factors: The factors.
      **instead: Factor -> field that the user may have meant, if the schedule has that factor.
    """

    def why_not(hparams: "HParams") -> str:
        present = hparams.learning_rate_factors
        if set(factors).intersection(present):
            return ""
        meant = "".join(f"{field}, or " for factor, field in instead.items() if factor in present)
        return (
            f"has no effect: learning_rate_schedule={hparams.learning_rate_schedule} does not use it; set {meant}"
            f"a learning_rate_schedule with {' or '.join(factors)}"
        )

    return why_not


def _above_zero(name: str, example: str) -> Condition:
    """Returns the condition that another field is not 0."""
    return lambda hparams: "" if getattr(hparams, name) else f"has no effect: {name}=0; set {name}={example}"


def _with_dropout(hparams: "HParams") -> str:
    """Returns why R-Drop has no effect if nothing is dropped (both passes are then the same), or ""."""
    rates = [name for name in hparams.names() if name.endswith("_dropout")]
    if not hparams.r_drop_alpha or not rates or any(getattr(hparams, name) for name in rates):
        return ""
    return f"has no effect: every dropout is 0, so that both passes are the same; set {rates[0]}=0.1, or leave it out"


def _with_preset(hparams: "TransformerHParams") -> str:
    """Returns why a field of the pretrained encoder has no effect if there is no such encoder, or ""."""
    return "" if hparams.encoder_preset else "has no effect: set encoder_preset, too"


@dataclasses.dataclass(frozen=True, kw_only=True)
class HParams(StrictParams):
    """The hyper-parameters of every model: batches, loss, optimizer, learning rate, precision.

    Every field is documented by its ``hparam(...)``; ``explain()`` prints them.
    """

    _replaced: ClassVar[str] = "hparams"
    # Batches.
    batch_size: int = hparam(
        4096,
        "Size of one replica's batch in one training step, padding included; auto = the largest that fits the device, "
        "found by probing when the run begins.",
        unit="tokens",
        minimum=1,
        maximum=10_000_000,
        words={"auto": AUTO_BATCH_SIZE},
    )
    batch_tokens: str = hparam(
        "max",
        "Which tokens batch_size counts: the longer side of each pair (max, as in T2T), both sides (sum), or the "
        "target side (target).",
        choices=("max", "sum", "target"),
    )
    max_length: int = hparam(
        256,
        "Training pairs with a side longer than this (EOS included) are left out and counted; 0 = batch_size.",
        unit="tokens",
        minimum=0,
        maximum=1_000_000,
    )
    batch_shapes: str = hparam(
        "dynamic",
        "Pad to the longest pair of a batch (dynamic), or to the length of its bucket, which leaves only as many "
        "shapes as buckets (static; for TPU and XLA).",
        choices=("dynamic", "static"),
    )
    min_length_bucket: int = hparam(
        8,
        "Length of the shortest bucket.",
        unit="tokens",
        minimum=1,
        maximum=1_000_000,
        when=only("batch_shapes", "static"),
    )
    length_bucket_step: float = hparam(
        1.1,
        "Ratio of each bucket's length to that of the previous bucket; buckets grow by at least one token.",
        minimum=1,
        maximum=100,
        exclusive=True,
        when=only("batch_shapes", "static"),
    )
    gradient_accumulation_steps: int = hparam(
        1,
        "Number of slices of batch_size tokens, computed one after the other, that make one update. The result is that "
        "of one batch this many times as large, in the memory of one slice.",
        minimum=1,
        maximum=100_000,
    )
    parallel_slices: int = hparam(
        1,
        "Number of slices of a replica's batch to compute in parallel on a CPU; the mathematics is the same.",
        minimum=1,
        maximum=10_000,
    )
    length_groups: int = hparam(
        1,
        "Number of groups in an update, each of pairs of similar length from a different length range, so that every "
        "update sees all lengths with little padding. 1 = all pairs of an update have similar lengths; otherwise a "
        "multiple of gradient_accumulation_steps * parallel_slices.",
        minimum=1,
        maximum=10_000,
    )

    # Loss.
    label_smoothing: float = hparam(
        0.1, "Probability mass to spread evenly over the other words of the vocabulary.", minimum=0, below=1
    )
    simcut_alpha: float = hparam(
        0.0,
        "Weight of SimCut's regularizer (Gao et al. 2022): the model should predict the same when some words of source "
        "and target are hidden. An update takes twice as long. 0 = off; published: 3.",
        minimum=0,
        maximum=1e6,
    )
    simcut_probability: float = hparam(
        0.05,
        "Share of the words that SimCut hides from the second pass.",
        minimum=0,
        exclusive=True,
        below=1,
        when=_above_zero("simcut_alpha", "3"),
    )
    r_drop_alpha: float = hparam(
        0.0,
        "Weight of R-Drop's regularizer (Liang et al. 2021): the model should predict the same under two dropout "
        "masks. An update takes twice as long. 0 = off; published: 5.",
        minimum=0,
        maximum=1e6,
        when=_with_dropout,
    )

    # Optimizer.
    optimizer: str = hparam(
        "adam",
        "Optimizer. schedule_free_adam_w averages the weights instead of decaying the learning rate.",
        choices=("adam", "adam_w", "adafactor", "schedule_free_adam_w"),
    )
    optimizer_adam_beta1: float = hparam(
        0.9,
        "Decay of Adam's mean of gradients. For schedule_free_adam_w: share of the average in the weights at which "
        "gradients are computed.",
        minimum=0,
        below=1,
        when=only("optimizer", *_ADAM),
    )
    optimizer_adam_beta2: float = hparam(
        0.997, "Decay of Adam's mean of squared gradients.", minimum=0, below=1, when=only("optimizer", *_ADAM)
    )
    optimizer_adam_epsilon: float = hparam(
        1e-9,
        "Constant added to Adam's denominator.",
        minimum=0,
        maximum=1,
        exclusive=True,
        when=only("optimizer", *_ADAM),
    )
    weight_decay: float = hparam(
        0.0,
        "adam_w, schedule_free_adam_w: share of each matrix, times the learning rate, to subtract at each step. Other "
        "optimizers: L2 loss; this times each matrix is added to its gradient.",
        minimum=0,
        maximum=1000,
    )
    optimizer_schedule_free_power: float = hparam(
        0.0,
        "schedule_free_adam_w: each update counts in the average in proportion to its number to this power; above 0, "
        "early updates are forgotten sooner.",
        minimum=0,
        maximum=100,
        when=only("optimizer", "schedule_free_adam_w"),
    )
    optimizer_adafactor_beta1: float = hparam(
        0.0, "Decay of Adafactor's mean of updates; 0 = keep no mean.", minimum=0, below=1, when=_ADAFACTOR
    )
    optimizer_adafactor_beta2: float = hparam(
        0.999,
        'Decay of the mean of squared gradients if decay_type is "adam".',
        minimum=0,
        below=1,
        when=every(_ADAFACTOR, only("optimizer_adafactor_decay_type", "adam")),
    )
    optimizer_adafactor_decay_type: str = hparam(
        "pow",
        "Decay of the mean of squared gradients: 1 - step^-memory_exponent (pow) or beta2 (adam).",
        choices=("pow", "adam"),
        when=_ADAFACTOR,
    )
    optimizer_adafactor_memory_exponent: float = hparam(
        0.8,
        "Exponent for decay type pow.",
        minimum=0,
        maximum=100,
        exclusive=True,
        when=every(_ADAFACTOR, only("optimizer_adafactor_decay_type", "pow")),
    )
    optimizer_adafactor_clipping_threshold: float = hparam(
        1.0, "Scale updates down to at most this root mean square; 0 = off.", minimum=0, maximum=1e6, when=_ADAFACTOR
    )
    optimizer_adafactor_multiply_by_parameter_scale: bool = hparam(
        True, "Whether to multiply a variable's learning rate by the root mean square of its values.", when=_ADAFACTOR
    )
    clip_grad_norm: float = hparam(0.0, "Scale gradients down to at most this global norm; 0 = off.", minimum=0)
    ema_decay: float = hparam(
        0.0,
        "Decay of the moving average of the weights, which is kept in addition to them; 0 = no average.",
        minimum=0,
        below=1,
    )
    average_last: int = hparam(
        0,
        "Number of weight snapshots whose mean is evaluated, kept as the best and used to translate (LAWA); 0 = none. "
        "Needs memory for this many copies of the weights plus one.",
        minimum=0,
        maximum=10_000,
    )
    average_every: int = hparam(
        100,
        "Interval between the snapshots of average_last.",
        unit="updates",
        minimum=1,
        when=_above_zero("average_last", "10"),
    )

    # Learning rate.
    learning_rate_schedule: str = hparam(
        "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size",
        "Factors of the learning rate, joined by *: " + ", ".join(LEARNING_RATE_FACTORS) + " (legacy is T2T's noam).",
    )
    learning_rate_constant: float = hparam(
        2.0,
        "Value of the schedule factor `constant`.",
        minimum=0,
        exclusive=True,
        when=_in_schedule("constant", legacy="learning_rate"),
    )
    learning_rate: float = hparam(
        0.2,
        "Multiplier in the schedule factor `legacy`; no other factor uses it.",
        minimum=0,
        maximum=1e6,
        exclusive=True,
        when=_in_schedule("legacy", constant="learning_rate_constant"),
    )
    learning_rate_warmup_steps: int = hparam(
        8000,
        "Length of the warm-up.",
        unit="steps",
        minimum=0,
        when=_in_schedule("linear_warmup", "rsqrt_decay", "legacy", "single_cycle_cos_decay", "cosdecay", "exp_decay"),
    )
    learning_rate_decay_steps: int = hparam(
        5000,
        "Length of cosdecay and linear_decay, and of one period of exp_decay.",
        unit="steps",
        minimum=1,
        when=_in_schedule("cosdecay", "linear_decay", "exp_decay"),
    )
    learning_rate_decay_rate: float = hparam(
        1.0,
        "Factor by which exp_decay multiplies the learning rate over learning_rate_decay_steps.",
        minimum=0,
        maximum=1e6,
        exclusive=True,
        when=_in_schedule("exp_decay"),
    )

    # Numbers and direction.
    precision: str = hparam(
        "float32",
        "Numeric type of the computations; variables are always float32. bf16, bfloat16, fp32, fp16 and float16 also "
        "work.",
        choices=("float32", "mixed_bfloat16", "mixed_float16"),
        aliases=ALIASES,
    )
    target_direction: str = hparam(
        "l2r", "Direction in which targets are generated; output is always in reading order.", choices=("l2r", "r2l")
    )
    pseudo: str = hparam(
        "none",
        "Training targets for a problem NAME_synchronous: the references (none). For models with one target sequence "
        "also the pseudo references of a left-to-right model (l2r) or of both directions' models (both), as separate "
        f"examples; for models with two, the pairs two, six or one: see {page('training')}.",
        choices=("none", "l2r", "both", "two", "six", "one"),
    )

    @property
    def learning_rate_factors(self) -> tuple[str, ...]:
        """The factors that learning_rate_schedule names."""
        return tuple(factor.strip() for factor in self.learning_rate_schedule.split("*"))

    @property
    def weights_for_users(self) -> str:
        """Describes which weights are evaluated, kept as the best and used to translate."""
        if self.optimizer == "schedule_free_adam_w":
            return "the average of all updates (optimizer=schedule_free_adam_w)"
        if self.average_last:
            return f"the mean of the last {self.average_last} snapshots (average_every={self.average_every})"
        return f"a moving average (ema_decay={self.ema_decay:g})" if self.ema_decay else "as trained"

    @property
    def early_stopping_metric(self) -> str:
        """The metric that early stopping watches unless a flag names another one."""
        return "loss"

    def validate(self) -> Iterator[str]:
        """Yields contradictions between fields."""
        if self.simcut_alpha and self.r_drop_alpha:
            yield (
                f"simcut_alpha={self.simcut_alpha:g} and r_drop_alpha={self.r_drop_alpha:g} are both on: choose one of "
                "them, each needs a second pass of its own"
            )
        factors = self.learning_rate_factors
        unknown = [factor for factor in factors if factor not in LEARNING_RATE_FACTORS]
        if unknown:
            yield (
                f"learning_rate_schedule={self.learning_rate_schedule!r}: unknown factor "
                f"{', '.join(map(repr, unknown))} (known: {', '.join(LEARNING_RATE_FACTORS)})"
            )
        schedule_free = self.optimizer == "schedule_free_adam_w"
        if schedule_free and not {"constant", "linear_warmup", "rsqrt_hidden_size"}.issuperset(factors):
            yield (
                f"optimizer={self.optimizer} takes the place of a schedule, and learning_rate_schedule="
                f"{self.learning_rate_schedule!r} decays: set learning_rate_schedule=constant*linear_warmup, "
                "learning_rate_constant (0.0025, say) and learning_rate_warmup_steps"
            )
        kinds = {
            f"optimizer={self.optimizer}": schedule_free,
            f"ema_decay={self.ema_decay:g}": self.ema_decay,
            f"average_last={self.average_last}": self.average_last,
        }
        averaging = [setting for setting, averages in kinds.items() if averages]
        if len(averaging) > 1:
            yield f"{' and '.join(averaging)} each average the weights: set only one of them"
        if self.average_last == 1:
            yield "average_last=1 is no average: it is 0 (none), 2 or more"
        if self.length_groups > 1:
            slices = self.gradient_accumulation_steps * self.parallel_slices
            if self.length_groups % slices:
                yield (
                    f"length_groups={self.length_groups} is not a multiple of gradient_accumulation_steps * "
                    f"parallel_slices = {slices}: a slice is made of whole groups; set "
                    f"length_groups={-(-self.length_groups // slices) * slices}"
                )
            if self.batch_shapes == "static":
                yield (
                    f"length_groups={self.length_groups} needs batch_shapes=dynamic: static shapes would compile a "
                    "step for every combination of buckets"
                )


if TYPE_CHECKING:

    class _AllVariants(variants.TransformerVariant):
        """For the type checker, no variant's fields: ``hparams.part(...)`` gives typed access to them."""

else:

    class _AllVariants(*variants.found()):
        """The fields of every module in ``variants``."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerHParams(_AllVariants, HParams):
    """The hyper-parameters of Transformers (Vaswani et al. 2017), variants included; names and strings are T2T's."""

    # Sizes.
    hidden_size: int = hparam(512, "Width of the model (d_model).", unit="units", minimum=2, maximum=65_536)
    filter_size: int = hparam(
        2048, "Width of the feed-forward sublayers (d_ff).", unit="units", minimum=1, maximum=1_048_576
    )
    num_heads: int = hparam(8, "Number of attention heads.", minimum=1, maximum=4096)
    num_hidden_layers: int = hparam(
        6,
        "Number of layers in the encoder and in the decoder.",
        minimum=1,
        maximum=1000,
        when=lambda hparams: (
            f"has no effect: num_encoder_layers={hparams.num_encoder_layers} and num_decoder_layers="
            f"{hparams.num_decoder_layers} are set; change these, or set them to 0"
            if hparams.num_encoder_layers and hparams.num_decoder_layers
            else ""
        ),
    )
    num_encoder_layers: int = hparam(
        0,
        "Number of layers in the encoder; 0 = num_hidden_layers.",
        minimum=0,
        maximum=1000,
        when=lambda hparams: variants.own_encoder(hparams) if hparams.num_encoder_layers else "",
    )
    num_decoder_layers: int = hparam(
        0, "Number of layers in the decoder; 0 = num_hidden_layers.", minimum=0, maximum=1000
    )
    attention_key_channels: int = hparam(
        0, "Total width of queries and keys over all heads; 0 = hidden_size.", unit="units", minimum=0, maximum=65_536
    )
    attention_value_channels: int = hparam(
        0, "Total width of values over all heads; 0 = hidden_size.", unit="units", minimum=0, maximum=65_536
    )

    # A pretrained encoder.
    encoder_preset: str = hparam(
        "",
        "KerasHub preset, as a folder or name, whose backbone is the encoder; generate the data with the same preset "
        "as --source_tokenizer. Its weights are read when a run begins.",
    )
    encoder_preset_rate: float = hparam(
        1.0,
        "Learning rate of the pretrained encoder, as a multiple of the rest of the model's; 0 = frozen.",
        minimum=0,
        maximum=1000,
        when=_with_preset,
    )
    encoder_preset_frozen_layers: int = hparam(
        0,
        "Number of first layers of the pretrained encoder to freeze, along with its embeddings; 0 = none.",
        minimum=0,
        maximum=1000,
        when=_with_preset,
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
    layer_prepostprocess_dropout: float = hparam(0.1, "Dropout of sublayer outputs and embeddings.", minimum=0, below=1)
    attention_dropout: float = hparam(0.1, "Dropout of attention weights.", minimum=0, below=1)
    relu_dropout: float = hparam(
        0.1, "Dropout inside the feed-forward sublayer, after its activation.", minimum=0, below=1
    )
    norm_epsilon: float = hparam(
        1e-6, "Constant added to the variance in layer norms.", minimum=0, maximum=1, exclusive=True
    )

    # Inside the sublayers.
    ffn_activation: str = hparam(
        "relu",
        "Activation of the feed-forward sublayer; glu, geglu and swiglu have a gate (a third matrix).",
        choices=("relu", "gelu", "swish", "glu", "geglu", "swiglu"),
    )
    attention_scale: str = hparam(
        "head",
        "Factor of the queries: (width of a head)^-0.5 (head, as in T2T) or hidden_size^-0.5 (model).",
        choices=("head", "model"),
    )
    projection_bias: bool = hparam(False, "Whether query, key, value and output projections have biases.")
    initializer: str = hparam(
        "uniform_unit_scaling",
        "Initial distribution of the projection matrices.",
        choices=("uniform_unit_scaling", "normal_unit_scaling", "orthogonal"),
    )
    initializer_gain: float = hparam(1.0, "Scale of the initializer.", minimum=0, maximum=1e6, exclusive=True)

    # Embeddings.
    pos: str = hparam(
        "timing", "Positions: sinusoids added to the embeddings (timing) or none.", choices=("timing", "none")
    )
    pos_encoding: str = hparam(
        "concat",
        "Order of the sinusoids' channels: all sines, then all cosines (concat, as in T2T), or alternating "
        "(interleaved: sine and cosine of one rate side by side, as in Vaswani et al. 2017).",
        choices=("concat", "interleaved"),
        when=only("pos", "timing"),
    )
    feature_positions: str = hparam(
        "none",
        "Positions for a source of feature vectors: none, since the regions of an image have no order, or as set by "
        "pos (timing).",
        choices=("none", "timing"),
    )
    shared_embedding: bool = hparam(False, "Use one matrix for source and target embeddings; needs a joint vocabulary.")
    shared_embedding_and_softmax_weights: bool = hparam(
        True,
        "Use one matrix for the target embeddings and the softmax, and with a joint vocabulary also for the source "
        "embeddings.",
    )
    multiply_embedding_mode: str = hparam(
        "sqrt_depth",
        "Factor of the embeddings: hidden_size^0.5 (sqrt_depth) or 1 (none).",
        choices=("sqrt_depth", "none"),
    )
    use_target_space_embedding: bool = hparam(
        False,
        "Whether to add a learned vector for the target language (one of 32) to the encoder's input.",
        when=lambda hparams: variants.own_encoder(hparams) if hparams.use_target_space_embedding else "",
    )
    target_space_id: int = hparam(
        0,
        "Number of the vector that use_target_space_embedding adds.",
        minimum=0,
        maximum=31,
        when=every(only("use_target_space_embedding", True), variants.own_encoder),
    )

    @property
    def encoder_layers(self) -> int:
        """Number of encoder layers: num_encoder_layers, or num_hidden_layers if that is 0."""
        return self.num_encoder_layers or self.num_hidden_layers

    @property
    def decoder_layers(self) -> int:
        """Number of decoder layers: num_decoder_layers, or num_hidden_layers if that is 0."""
        return self.num_decoder_layers or self.num_hidden_layers

    def validate(self) -> Iterator[str]:
        """Yields contradictions between fields."""
        yield from super().validate()
        for name in ("hidden_size", "attention_key_channels", "attention_value_channels"):
            width = getattr(self, name)
            if width % self.num_heads:
                yield f"{name}={width} is not a multiple of num_heads={self.num_heads}"
        if self.pos == "timing" and self.hidden_size % 2:
            yield f"hidden_size={self.hidden_size} is odd: pos=timing needs as many sines as cosines"
        if self.feature_positions == "timing" and self.pos == "none":
            yield "feature_positions=timing adds the positions of pos=timing, but pos=none has none"
        if self.encoder_preset and (layers := getattr(self, "dc_encoder_layers", "")):
            yield (
                f"dc_encoder_layers={layers} are layers of the Transformer's own encoder, and "
                f"encoder_preset={self.encoder_preset} stands in its place: leave one of them out"
            )
        if self.encoder_preset and self.simcut_alpha:
            yield (
                f"simcut_alpha={self.simcut_alpha:g} hides words of source and target, and the encoder of "
                f"encoder_preset={self.encoder_preset} embeds the source itself: leave simcut_alpha out, or take "
                "r_drop_alpha"
            )
        if self.encoder_preset and self.optimizer == "schedule_free_adam_w" and self.encoder_preset_rate not in (0, 1):
            yield (
                f"encoder_preset_rate={self.encoder_preset_rate:g} does not go with optimizer={self.optimizer}, whose "
                "averages need one rate: set optimizer=adam_w, or a rate of 0 or 1"
            )
        if (self.layer_preprocess_sequence == "n") == (self.layer_postprocess_sequence == "dan"):
            yield (
                "layer_preprocess_sequence and layer_postprocess_sequence must be n and da (pre-norm) or none and dan "
                f"(post-norm), not {self.layer_preprocess_sequence} and {self.layer_postprocess_sequence}"
            )
