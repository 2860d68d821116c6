"""Settings of data generation; flags of ``t2t_ext-datagen``, checks and tables of the docs are generated from them."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

from t2t_ext.config.strict_params import StrictParams, hparam
from t2t_ext.pages import page

DEFAULT_SEED = 429459  # tensor2tensor's
DEFAULT_VOCAB_SAMPLE_SIZE = 500_000
DEFAULT_SEGMENTATIONS = 4
LOCAL, BEAM = "local", "beam"

_GENERATION, _TEXT = "Data generation", "Text"
_BY_PROBLEM = "default: as the problem defines it"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerationSettings(StrictParams):
    """The settings that, with the raw data, determine the bytes written; None if the user did not set one.

    Every field is documented by its ``hparam(...)``; manifests keep the fields in this order.
    """

    _prefix: ClassVar[str] = "--"
    # Fields whose 0 or False is a choice of the user; for all others a flag's 0 or "" means "not set".
    zero_counts: ClassVar[tuple[str, ...]] = (
        "seed", "max_length_ratio", "max_tokens", "vocab_threshold", "joint_vocab", "bpe_dropout",
    )  # fmt: skip

    seed: int | None = hparam(
        None,
        f"Seed for shuffling and for choosing the pairs that the subword model is trained on; default: {DEFAULT_SEED}.",
        minimum=0,
        maximum=2**63 - 1,
        group=_GENERATION,
        flag="random_seed",
    )
    num_shards: int | None = hparam(
        None,
        "Number of files for the training split; 0 = one per 200,000 examples.",
        minimum=0,
        maximum=99_999,
        group=_GENERATION,
    )
    source_steps: str | None = hparam(
        None, "Steps that prepare the source, such as moses_tokenize,lowercase.", group=_TEXT, metavar="A,B"
    )
    target_steps: str | None = hparam(
        None, "Steps that prepare the target, such as moses_tokenize,lowercase.", group=_TEXT, metavar="A,B"
    )
    subwords: str | None = hparam(
        None, "Segmentation into subwords: sentencepiece or subword_nmt.", group=_TEXT, metavar="NAME"
    )
    num_merges: int | None = hparam(
        None, f"Number of merge operations of subword_nmt; {_BY_PROBLEM}.", minimum=0, maximum=10_000_000, group=_TEXT
    )
    vocab_threshold: int | None = hparam(
        None,
        "With subword_nmt, split subwords further that occur less often than this on their side; 0 = split none.",
        minimum=0,
        group=_TEXT,
    )
    bpe_codes: str | None = hparam(
        None,
        "subword-nmt codes to use instead of learning new ones; SOURCE,TARGET if each side has its own.",
        group=_TEXT,
        metavar="FILE",
    )
    bpe_vocab: str | None = hparam(
        None,
        "Vocabulary for --bpe_codes, as written by subword-nmt get-vocab; default: counted in the training split.",
        group=_TEXT,
        metavar="FILE",
    )
    source_tokenizer: str | None = hparam(
        None,
        "Source tokenizer: a KerasHub preset, as a folder or name; needed by --hparams=encoder_preset.",
        group=_TEXT,
        metavar="PRESET",
    )
    target_tokenizer: str | None = hparam(
        None,
        "Target tokenizer: a KerasHub preset, as a folder or name; for NAME_rev with encoder_preset.",
        group=_TEXT,
        metavar="PRESET",
    )
    vocab_size: int | None = hparam(
        None,
        f"Number of subwords, including special ones; {_BY_PROBLEM}. With subword_nmt the rarest are left out.",
        minimum=0,
        maximum=10_000_000,
        group=_GENERATION,
    )
    joint_vocab: bool | None = hparam(
        None,
        f"Whether source and target each have a subword model of their own; {_BY_PROBLEM}.",
        group=_GENERATION,
        flag="separate_vocab",  # the opposite
    )
    vocab_sample_size: int | None = hparam(
        None,
        "Maximum number of pairs, chosen at random, to train the subword model on; default: "
        f"{DEFAULT_VOCAB_SAMPLE_SIZE:,}.",
        minimum=0,
        group=_GENERATION,
    )
    bpe_dropout: float | None = hparam(
        None,
        "Store training texts in several segmentations, skipping each merge of two subwords with this probability "
        "(BPE-dropout, published: 0.1); 0 = only the usual segmentation.",
        minimum=0,
        below=1,
        group=_TEXT,
    )
    segmentations: int | None = hparam(
        None,
        f"Number of segmentations that bpe_dropout stores of each training pair; default: {DEFAULT_SEGMENTATIONS}. An "
        "epoch sees each pair that many times.",
        minimum=0,
        maximum=1000,
        group=_TEXT,
        metavar="N",
    )
    max_tokens: int | None = hparam(
        None,
        "Drop training pairs with more subwords than this on either side; 0 = drop none (training has its own "
        "max_length).",
        unit="subwords",
        minimum=0,
        group=_GENERATION,
        metavar="N",
    )
    max_length_ratio: float | None = hparam(
        None,
        "Drop training pairs with more than this many times as many subwords on one side as on the other; 0 = drop "
        f"none; {_BY_PROBLEM}.",
        minimum=0,
        maximum=1e6,
        group=_GENERATION,
    )
    cleaning: str | Mapping[str, Any] | None = hparam(
        None,
        'Filters for training pairs, such as "max_words=175,duplicates=true", which change those of the problem; none '
        f"= no filters. For all names see {page('data')}.",
        group=_GENERATION,
        metavar='"A=1,B=x"',
    )

    def validate(self) -> Iterator[str]:
        """Yields contradictions between fields, and sizes of 0, which only flags accept (there they mean "not set")."""
        for name in ("vocab_size", "vocab_sample_size"):
            if getattr(self, name) == 0:
                yield f"--{name}=0: {name} must be at least 1"
        if (self.segmentations or 0) > 1 and not self.bpe_dropout:
            yield f"--segmentations={self.segmentations} are all the same without --bpe_dropout; give it, such as 0.1"

        for side in ("source", "target"):
            preset, steps = getattr(self, f"{side}_tokenizer"), getattr(self, f"{side}_steps")
            if preset and steps not in (None, "none"):
                yield f"--{side}_tokenizer={preset} takes text as it is: leave --{side}_steps={steps} out"
        if (self.source_tokenizer or self.target_tokenizer) and self.joint_vocab:
            yield "a preset's tokenizer is of one side: the vocabulary cannot be joint"
        if (self.source_tokenizer or self.target_tokenizer) and self.bpe_dropout:
            yield "--bpe_dropout segments text in several ways, and a preset's tokenizer has one; leave one of them out"

    def turned(self) -> Self:
        """Returns a copy with the settings of source and target exchanged."""
        return self.replace(
            source_steps=self.target_steps,
            target_steps=self.source_steps,
            source_tokenizer=self.target_tokenizer,
            target_tokenizer=self.source_tokenizer,
            bpe_codes=_turned(self.bpe_codes),
            bpe_vocab=_turned(self.bpe_vocab),
        )

    def given(self) -> dict[str, Any]:
        """Returns the ``GenerationSettings`` that the user set: name -> value."""
        values = {name: getattr(self, name) for name in GenerationSettings.names()}
        return {name: value for name, value in values.items() if value is not None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerationConfig(GenerationSettings):
    """The settings of ``generate``: those of the data, given subword models, and how and where it runs."""

    subword_model: str = hparam(
        "",
        "SentencePiece model, or a model made by t2t_ext-datagen, to use instead of training one; SOURCE,TARGET if "
        "each side has its own.",
        group=_GENERATION,
        metavar="FILE",
    )
    vocab_from: str = hparam("", "Run whose subword model to use.", group=_GENERATION, metavar="RUN")
    num_processes: int = hparam(
        0, "Number of encoding processes; 0 = one per core. The data do not depend on it.", minimum=0, maximum=4096,
        group=_GENERATION,
    )  # fmt: skip
    overwrite: bool = hparam(False, "Replace existing data.", group=_GENERATION)
    runner: str = hparam(
        LOCAL,
        "Where to generate the data: local = on this machine, in --num_processes processes; beam = as Apache Beam "
        "pipelines.",
        choices=(LOCAL, BEAM),
        group=_GENERATION,
    )
    beam_options: str = hparam(
        "",
        "Apache Beam flags, with --runner=beam; without a --runner among them, the DirectRunner on this machine is "
        "used.",
        group=_GENERATION,
        metavar='"--A=1 --B=x"',
    )


def _turned(paths: str | None) -> str | None:
    return paths if paths is None else ",".join(reversed(paths.split(",")))


def prepared_twice(flag: str) -> str:
    """Returns the message that a flag and a given subword model both say how text is prepared."""
    return (
        f"--{flag} says how text is prepared, but a model is given whose file says that, too (a plain SentencePiece "
        "model: not at all); leave it out. To prepare text otherwise, let t2t_ext-datagen train the model."
    )
