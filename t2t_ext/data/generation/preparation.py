"""Describes how text is prepared and split into subwords: a problem's values, replaced by given flags."""

import dataclasses
import os
from typing import Any, Self

from t2t_ext.config.generation import prepared_twice
from t2t_ext.data.text import document_steps
from t2t_ext.data.text.text_steps import check_steps, parse_steps
from t2t_ext.errors import UserError, suggest
from t2t_ext.problem import Problem

SENTENCEPIECE, SUBWORD_NMT = "sentencepiece", "subword_nmt"
SUBWORDS = (SENTENCEPIECE, SUBWORD_NMT)
NO_STEPS = "none"
# The settings that say how text is prepared and split, which a subword model's file holds.
PREPARATION = (
    "source_steps", "target_steps", "source_tokenizer", "target_tokenizer", "subwords", "num_merges", "vocab_threshold",
    "bpe_codes", "bpe_vocab",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextPreparation:
    """The preparation of a problem's text, in the base problem's direction.

    Attributes:
      source_steps: Names of the steps of ``t2t_ext.data.text.text_steps`` for the source.
      target_steps: The same for the target.
      source_language: Language tag of the source, or empty.
      target_language: Language tag of the target, or empty.
      subwords: One of ``SUBWORDS``.
      num_merges: Number of merge operations that ``subword_nmt`` learns.
      vocab_threshold: Subwords that occur less often on their side are split further; 0 splits none.
      vocab_limit: Maximum number of ids of ``subword_nmt``, special ones included; the rarest are dropped. 0 keeps all.
      bpe_codes: Files of codes to use instead of learning any: one for both sides, or source and target.
      bpe_vocab: Files of subwords and counts that belong to the codes, one or two as above; if empty, subwords are
        counted in the training text.
      tags: Words at the beginning of a source that are never segmented.
    """

    source_steps: tuple[str, ...] = ()
    target_steps: tuple[str, ...] = ()
    source_language: str = ""
    target_language: str = ""
    subwords: str = SENTENCEPIECE
    num_merges: int = 0
    vocab_threshold: int = 0
    vocab_limit: int = 0
    bpe_codes: tuple[str, ...] = ()
    bpe_vocab: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_steps(self.source_steps, self.source_language, "--source_steps")
        check_steps(self.target_steps, self.target_language, "--target_steps")
        if self.subwords not in SUBWORDS:
            raise UserError(
                f"--subwords={self.subwords}: there is no such kind.{suggest(self.subwords, SUBWORDS)} "
                f"Choose {' or '.join(SUBWORDS)}."
            )
        if self.subwords == SENTENCEPIECE:
            for name in ("bpe_codes", "bpe_vocab", "vocab_threshold"):
                if getattr(self, name):
                    raise UserError(f"--{name} goes with --subwords={SUBWORD_NMT}, not with {SENTENCEPIECE}.")
        for name in ("bpe_codes", "bpe_vocab"):
            if len(getattr(self, name)) > 2:
                raise UserError(f"--{name} names {len(getattr(self, name))} files; give one, or source,target.")
        if self.bpe_vocab and not self.bpe_codes:
            raise UserError("--bpe_vocab belongs to codes that are given; give them, too: --bpe_codes=FILE.")

    @property
    def symbols(self) -> tuple[str, ...]:
        """Words that SentencePiece must keep as one subword each: the tags, and sentence markers of the text steps."""
        return (*self.tags, *document_steps.symbols(self.source_steps, self.target_steps))

    def check_merges(self, asked: int | None) -> None:
        """Raises a UserError if a number of merges is given (``--num_merges``) but no merges are learned."""
        if asked and self.subwords != SUBWORD_NMT:
            raise UserError(
                f"--num_merges={asked} goes with --subwords={SUBWORD_NMT}, not with {self.subwords}. Give both, or "
                "leave --num_merges out: --vocab_size is the number of subwords."
            )
        if asked and self.bpe_codes:
            raise UserError(
                f"--num_merges={asked} says how many merges are learned, but --bpe_codes={','.join(self.bpe_codes)} "
                "gives them; leave one of the two out."
            )

    @classmethod
    def of(cls, problem: Problem, settings: Any) -> Self:
        """Returns the base problem's preparation, in which given settings (not None) replace the problem's values.

        Raises:
          UserError: The settings are invalid or contradict each other.
        """

        def given(name: str, default: Any) -> Any:
            value = getattr(settings, name)
            return default if value is None else value

        def steps(name: str) -> tuple[str, ...]:
            value = getattr(settings, name)
            if getattr(settings, name.replace("_steps", "_tokenizer")):
                return ()
            return tuple(getattr(problem, name)) if value is None else parse_steps(value, f"--{name}")

        codes = split_paths(settings.bpe_codes)
        subwords = given("subwords", SUBWORD_NMT if codes else problem.subwords)
        of_codes = subwords == SUBWORD_NMT
        return cls(
            source_steps=steps("source_steps"),
            target_steps=steps("target_steps"),
            source_language=problem.source_language,
            target_language=problem.target_language,
            subwords=subwords,
            num_merges=given("num_merges", 0) or (problem.num_merges or problem.approx_vocab_size if of_codes else 0),
            vocab_threshold=given("vocab_threshold", problem.vocab_threshold if of_codes else 0),
            vocab_limit=(settings.vocab_size or problem.vocab_limit) if of_codes else 0,
            bpe_codes=codes,
            bpe_vocab=split_paths(settings.bpe_vocab),
            tags=tuple(problem.tags),
        )


def check_given_steps(problem: Problem, settings: Any) -> None:
    """Checks steps that the user gave; messages name the flags of the problem's own direction, also for ``NAME_rev``.

    Raises:
      UserError: A step does not exist, is in the wrong place or does not support the language.
    """
    for side, language in zip(("source", "target"), problem.languages, strict=True):
        flag = f"--{side}_steps"
        if (given := getattr(settings, f"{side}_steps")) is not None:
            check_steps(parse_steps(given, flag), language, flag)


def split_paths(text: str | None) -> tuple[str, ...]:
    """Returns the paths in a flag such as ``--bpe_codes=SOURCE,TARGET``."""
    return tuple(os.path.expanduser(part.strip()) for part in (text or "").split(",") if part.strip())


def check_models_given(settings: Any) -> None:
    """Checks that no setting says how subword models are trained, or text is prepared, beside given models.

    Raises:
      UserError: One does.
    """
    if settings.vocab_size or settings.vocab_sample_size or settings.joint_vocab is not None:
        raise UserError(
            "--vocab_size, --vocab_sample_size and --separate_vocab say how to train a subword model, but one is "
            "given; leave them out."
        )
    prepares = [name for name in PREPARATION if getattr(settings, name) is not None]
    if prepares:
        raise UserError(prepared_twice(prepares[0]))
