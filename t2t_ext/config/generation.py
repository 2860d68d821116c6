"""Settings of data generation; flags of ``t2t_ext-datagen``, checks and the tables of the docs are made from them."""

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
_BY_PROBLEM = "by default as the problem says"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerationSettings(StrictParams):
    """What the written bytes depend on besides the raw data; None where the user said nothing.

    Every field is documented by its ``hparam(...)``; manifests keep the fields in this order.
    """

    _prefix: ClassVar[str] = "--"
    # Fields whose 0 or False is a choice of the user; elsewhere a flag's 0 or "" says nothing.
    zero_counts: ClassVar[tuple[str, ...]] = (
        "seed", "max_length_ratio", "max_tokens", "vocab_threshold", "joint_vocab", "bpe_dropout",
    )  # fmt: skip

    seed: int | None = hparam(
        None,
        f"Seed of the shuffling and of the sample that the subword model is trained on; by default {DEFAULT_SEED}.",
        minimum=0,
        maximum=2**63 - 1,
        group=_GENERATION,
        flag="random_seed",
    )
    num_shards: int | None = hparam(
        None,
        "Number of files of the train split; 0 = one for 200,000 samples.",
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
        "subword_nmt splits words further until every subword occurs this often on its side; 0 = however rare.",
        minimum=0,
        group=_TEXT,
    )
    bpe_codes: str | None = hparam(
        None,
        "Codes of subword-nmt to use instead of learning any; SOURCE,TARGET if they have their own.",
        group=_TEXT,
        metavar="FILE",
    )
    bpe_vocab: str | None = hparam(
        None,
        "The vocabulary of --bpe_codes, as subword-nmt get-vocab writes it; by default counted in train.",
        group=_TEXT,
        metavar="FILE",
    )
    source_tokenizer: str | None = hparam(
        None,
        "KerasHub preset, a folder or a name, whose tokenizer is the source's; --hparams=encoder_preset needs it.",
        group=_TEXT,
        metavar="PRESET",
    )
    target_tokenizer: str | None = hparam(
        None, "Likewise the target's, for NAME_rev with encoder_preset.", group=_TEXT, metavar="PRESET"
    )
    vocab_size: int | None = hparam(
        None,
        f"Number of subwords, special ones included; {_BY_PROBLEM}. Of subword_nmt the rarest are left out.",
        minimum=0,
        maximum=10_000_000,
        group=_GENERATION,
    )
    joint_vocab: bool | None = hparam(
        None,
        f"Whether source and target have a subword model each; {_BY_PROBLEM}.",
        group=_GENERATION,
        flag="separate_vocab",  # the opposite
    )
    vocab_sample_size: int | None = hparam(
        None,
        f"Largest number of pairs, chosen at random, that train the subword model; "
        f"by default {DEFAULT_VOCAB_SAMPLE_SIZE:,}.",
        minimum=0,
        group=_GENERATION,
    )
    bpe_dropout: float | None = hparam(
        None,
        "Training texts are stored in several segmentations, each merge of two subwords left out with this probability "
        "(BPE-dropout, published: 0.1); 0 = the usual segmentation alone.",
        minimum=0,
        below=1,
        group=_TEXT,
    )
    segmentations: int | None = hparam(
        None,
        f"How many segmentations of every training pair bpe_dropout stores; by default {DEFAULT_SEGMENTATIONS}. An "
        "epoch sees each pair that often.",
        minimum=0,
        maximum=1000,
        group=_TEXT,
        metavar="N",
    )
    max_tokens: int | None = hparam(
        None,
        "Drop training texts of more subwords; 0 = none (training has its own max_length).",
        unit="subwords",
        minimum=0,
        group=_GENERATION,
        metavar="N",
    )
    max_length_ratio: float | None = hparam(
        None,
        f"Drop training pairs with more than this many times as many subwords on one side as on the other; 0 = none, "
        f"{_BY_PROBLEM}.",
        minimum=0,
        maximum=1e6,
        group=_GENERATION,
    )
    cleaning: str | Mapping[str, Any] | None = hparam(
        None,
        'Training pairs to leave out, such as "max_words=175,duplicates=true"; changes what the problem says; none = '
        f"nothing is left out. For all names see {page('data')}.",
        group=_GENERATION,
        metavar='"A=1,B=x"',
    )

    def validate(self) -> Iterator[str]:
        """Yields sizes of 0, which only flags take, for what the user says nothing about."""
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
        """Returns the settings with those of the source and of the target exchanged."""
        return self.replace(
            source_steps=self.target_steps,
            target_steps=self.source_steps,
            source_tokenizer=self.target_tokenizer,
            target_tokenizer=self.source_tokenizer,
            bpe_codes=_turned(self.bpe_codes),
            bpe_vocab=_turned(self.bpe_vocab),
        )

    def given(self) -> dict[str, Any]:
        """Returns what the user said: name -> value."""
        values = {name: getattr(self, name) for name in GenerationSettings.names()}
        return {name: value for name, value in values.items() if value is not None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerationConfig(GenerationSettings):
    """What ``generate`` does: the settings of the data, given models, and how and where it works."""

    subword_model: str = hparam(
        "",
        "SentencePiece model, or one that t2t_ext-datagen made, to use instead of training one; SOURCE,TARGET if they "
        "have one each.",
        group=_GENERATION,
        metavar="FILE",
    )
    vocab_from: str = hparam("", "Run whose subword model to use.", group=_GENERATION, metavar="RUN")
    num_processes: int = hparam(
        0, "Number of processes that encode; 0 = one a core. The data do not depend on it.", minimum=0, maximum=4096,
        group=_GENERATION,
    )  # fmt: skip
    overwrite: bool = hparam(False, "Replace data that are there already.", group=_GENERATION)
    runner: str = hparam(
        LOCAL,
        "Where it runs: local = on this machine, --num_processes; beam = as Apache Beam pipelines.",
        choices=(LOCAL, BEAM),
        group=_GENERATION,
    )
    beam_options: str = hparam(
        "",
        "Flags of Apache Beam, with --runner=beam; without a --runner among them, the DirectRunner on this machine.",
        group=_GENERATION,
        metavar='"--A=1 --B=x"',
    )


def _turned(paths: str | None) -> str | None:
    return paths if paths is None else ",".join(reversed(paths.split(",")))


def prepared_twice(flag: str) -> str:
    """Returns the message that a flag and a given subword model both say how text is prepared."""
    return f"--{flag} says how text is prepared, but a model is given whose file says that, too; leave it out."
