"""How translations are searched for: ``DecodeHParams``, the settings of ``--decode_hparams``."""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

from t2t_ext.config.precision import ALIASES
from t2t_ext.config.strict_params import StrictParams, hparam, only
from t2t_ext.errors import UserError

# Settings that do not change the translations: a translation does not depend on its batch.
NOT_IN_THE_RESULT = ("batch_size",)
# Limits that keep lengths in tokens far below the largest int32.
_MOST_TOKENS = 100_000
_MOST_PER_TOKEN = 1000
# Maximum of coverage_penalty x max_input_length. A subword without attention costs coverage_penalty x 13.8. Unfinished
# hypotheses rank lower by 1e6, and half of that must exceed any penalty.
_MOST_COVERAGE = 36_000
# Settings that do not change the first translation of a sentence.
_OTHER_FIELDS = {"batch_size", "num_hypotheses", "return_beams", "write_beam_scores"}
# The defaults that have changed since records name the search: those of the first version that did so.
_FIRST_DEFAULTS = {"min_length": 0}
_SAMPLING_FIELDS = ("sampling_temp", "sampling_keep_top_k", "sampling_keep_top_p", "sampling_seed")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodeHParams(StrictParams):
    """How translations are searched for (``--decode_hparams``); nothing here changes a model's weights."""

    _replaced: ClassVar[str] = "decode_hparams"

    beam_size: int = hparam(4, "Hypotheses kept per sentence; 1 = greedy.", minimum=1, maximum=1000)
    alpha: float = hparam(0.6, "Exponent of the length penalty; 0 = none.", minimum=0, maximum=10)
    length_penalty: str = hparam(
        "gnmt",
        "Divisor of a hypothesis's log-probability: ((5+length)/6)^alpha (gnmt, as in T2T) or length^alpha (len_power, "
        "as in fairseq).",
        choices=("gnmt", "len_power"),
    )
    early_stopping: str = hparam(
        "exact",
        "When to end the search for a sentence: when no unfinished hypothesis can still win at any length (exact, as "
        "in T2T), or when none would win at its current length (heuristic; faster, but a few translations differ).",
        choices=("exact", "heuristic"),
    )
    batch_size: int = hparam(
        32, "Number of sentences translated together.", unit="sentences", minimum=1, maximum=100_000
    )
    length_limit: str = hparam(
        "ratio",
        "Maximum number of tokens in a translation: max_length_ratio x source length + max_length_offset (ratio), or "
        "source length + extra_length (extra, as in T2T).",
        choices=("ratio", "extra"),
    )
    max_length_ratio: float = hparam(
        1.5,
        "See length_limit.",
        unit="tokens per source token",
        minimum=0,
        maximum=_MOST_PER_TOKEN,
        when=only("length_limit", "ratio"),
    )
    max_length_offset: int = hparam(
        20, "See length_limit.", unit="tokens", minimum=1, maximum=_MOST_TOKENS, when=only("length_limit", "ratio")
    )
    extra_length: int = hparam(
        100, "See length_limit.", unit="tokens", minimum=0, maximum=_MOST_TOKENS, when=only("length_limit", "extra")
    )
    max_input_length: int = hparam(
        1024,
        "Lines longer than this are truncated, counted and reported.",
        unit="subwords",
        minimum=1,
        maximum=_MOST_TOKENS,
    )
    num_hypotheses: int = hparam(1, "Translations returned per sentence, best first.", minimum=1, maximum=10_000)
    return_beams: bool = hparam(False, "Return all beam_size translations of a sentence, as T2T does.")
    write_beam_scores: bool = hparam(False, "Write the length-penalized score next to every translation, as T2T does.")
    precision: str = hparam(
        "",
        'Numeric type of the computations; "" = as in training.',
        choices=("", "float32", "mixed_bfloat16", "mixed_float16"),
        aliases=ALIASES,
    )
    min_length: int = hparam(
        1,
        "Minimum number of tokens in a translation, not counting EOS; 0 allows empty translations.",
        unit="tokens",
        minimum=0,
        maximum=_MOST_TOKENS,
    )
    min_length_ratio: float = hparam(
        0.0,
        "Minimum number of tokens in a translation: this x source length.",
        unit="tokens per source token",
        minimum=0,
        maximum=_MOST_PER_TOKEN,
    )
    no_repeat_ngram_size: int = hparam(
        0,
        "Let no sequence of this many tokens occur twice in a translation (for words, see no_repeat_ngram_unit); 0 = "
        "allow repetition.",
        unit="tokens",
        minimum=0,
        maximum=100,  # the graph grows with it
    )
    no_repeat_ngram_unit: str = hparam(
        "tokens",
        "Unit of no_repeat_ngram_size: subwords (tokens), or words of the segmented text (words).",
        choices=("tokens", "words"),
    )
    no_repeat_ngram_ignore: str = hparam(
        "",
        'Words, separated by spaces, such as ". <t> </t>"; sequences that contain one of them may repeat. Needs '
        "no_repeat_ngram_unit=words.",
    )
    coverage_penalty: float = hparam(
        0.0,
        "Factor (beta) of the penalty on a translation's score for how it attends to the source; 0 = none.",
        minimum=0,
        maximum=30,
    )
    coverage_kind: str = hparam(
        "wu",
        "What coverage_penalty penalizes: source words that get too little attention (wu: Wu et al. 2016), or "
        "attention to words that have had enough (summary: as in OpenNMT).",
        choices=("wu", "summary"),
    )
    stepwise_penalty: bool = hparam(
        False, "Apply coverage_penalty at every step, not only to finished hypotheses; needs coverage_kind=summary."
    )
    sampling_method: str = hparam(
        "argmax",
        "Search for the most probable translations (argmax), or draw num_hypotheses translations from the model's "
        "distribution, without beam_size (random).",
        choices=("argmax", "random"),
    )
    sampling_temp: float = hparam(
        1.0,
        "sampling_method=random: the temperature; below 1, probable tokens are drawn more often.",
        minimum=0,
        maximum=1e6,  # forbidden tokens' logits are -1e9: above this, they would be drawn
        exclusive=True,
    )
    sampling_keep_top_k: int = hparam(
        -1,
        "sampling_method=random: draw from this many of the most probable tokens; -1 = from all.",
        unit="tokens",
        minimum=-1,
        maximum=10_000_000,
    )
    sampling_keep_top_p: float = hparam(
        1.0,
        "sampling_method=random: draw from the fewest most probable tokens that together have this probability; 1 = "
        "from all.",
        minimum=0,
        maximum=1,
        exclusive=True,
    )
    sampling_seed: int = hparam(
        0,
        "sampling_method=random: the seed. Samples depend only on the seed and the source line, not on the batch or "
        "the order of the lines.",
        minimum=0,
        maximum=2**63 - 1,
    )

    diverse_groups: int = hparam(
        1,
        "Number of groups that the beam is divided into; groups are penalized for continuing alike. 1 = no groups.",
        minimum=1,
        maximum=1000,
    )
    diverse_strength: float = hparam(
        0.5,
        "Penalty on a token's log-probability for every hypothesis of an earlier group that continues with that token.",
        minimum=0,
        maximum=1e6,
        exclusive=True,
    )

    shortlist: str = hparam(
        "",
        'File of candidate subwords from t2t_ext-analyze shortlist, to which the search is restricted; "" = the whole '
        "vocabulary.",
        metavar="FILE",
    )

    beam_extends: str = hparam(
        "unfinished",
        "Which continuations to extend: the beam_size best of those that do not end (unfinished, as in T2T), or those "
        "among the beam_size best of all that do not end (top; with beam_size=2, the greedy search of Zhou et al. "
        "2019).",
        choices=("unfinished", "top"),
    )
    sb_pairing: str = hparam(
        "rank",
        "Models of two directions: which hypothesis of the other direction a hypothesis attends to, its partner: the "
        "one of the same rank (rank), or the best (best).",
        choices=("rank", "best"),
    )
    sb_finished_partner: str = hparam(
        "next_alive",
        "Models of two directions: what a hypothesis sees once its partner is finished: the live hypothesis that takes "
        "the partner's rank (next_alive), or what it saw of the partner when that finished (freeze).",
        choices=("next_alive", "freeze"),
    )
    sb_decode: str = hparam(
        "cached",
        "Models of two directions: compute the state of each step once, with the partner at that step (cached), or "
        "recompute the whole prefixes with the current partners at every step (recompute; for comparison, slow).",
        choices=("cached", "recompute"),
    )

    def validate(self) -> Iterator[str]:
        """Yields contradictions between fields."""
        random = self.sampling_method == "random"
        if not random:
            if self.num_hypotheses > self.beam_size:
                yield f"num_hypotheses={self.num_hypotheses} is more than beam_size={self.beam_size}"
            if self.return_beams and self.num_hypotheses not in (1, self.beam_size):
                yield (
                    f"num_hypotheses={self.num_hypotheses} and return_beams=true, which returns all "
                    f"beam_size={self.beam_size}, contradict each other: leave one out"
                )
            yield from self._unused("sampling_method=random", *_SAMPLING_FIELDS)
        else:
            yield from self._unused("sampling_method=argmax", "early_stopping")
            if self.return_beams:
                yield "return_beams=true returns a beam, which sampling_method=random has not: use num_hypotheses"
            if self.coverage_penalty:
                yield (
                    f"coverage_penalty={self.coverage_penalty} ranks the hypotheses of a beam, which "
                    "sampling_method=random has not: leave it out"
                )
            if self.sampling_keep_top_k == 0:
                yield "sampling_keep_top_k=0 leaves no token to draw: at least 1, or -1 for all"
        yield from self._validate_beam(random)
        if self.shortlist and random:
            yield "shortlist searches among probable subwords; sampling_method=random draws from all: leave one out"
        if self.shortlist and self.sb_decode == "recompute":
            yield "sb_decode=recompute computes all of the softmax, for comparison: leave shortlist out"
        yield from self._validate_rules()

    def _validate_beam(self, random: bool) -> Iterator[str]:
        if self.beam_extends == "top" and (random or self.diverse_groups > 1):
            other = "sampling_method=random" if random else f"diverse_groups={self.diverse_groups}"
            yield f"beam_extends=top is about a beam that is searched as one, which {other} has not: leave one out"
        if self.diverse_groups == 1:
            yield from self._unused("diverse_groups", "diverse_strength")
        elif random:
            yield f"diverse_groups={self.diverse_groups} divides a beam, which sampling_method=random has not"
        elif self.beam_size % self.diverse_groups:
            yield f"beam_size={self.beam_size} is not a multiple of diverse_groups={self.diverse_groups}"

    def _validate_rules(self) -> Iterator[str]:
        if not self.no_repeat_ngram_size:
            yield from self._unused("no_repeat_ngram_size", "no_repeat_ngram_unit", "no_repeat_ngram_ignore")
        elif self.no_repeat_ngram_unit != "words":
            yield from self._unused("no_repeat_ngram_unit=words", "no_repeat_ngram_ignore")
        if not self.coverage_penalty:
            yield from self._unused("coverage_penalty", "coverage_kind", "stepwise_penalty")
        elif self.stepwise_penalty and self.coverage_kind != "summary":
            yield (
                f"stepwise_penalty=true needs coverage_kind=summary: the penalty of {self.coverage_kind} becomes less "
                "as more of the source is attended to, and a search by it would not know when to stop"
            )

        if self.coverage_kind == "wu" and self.coverage_penalty * self.max_input_length > _MOST_COVERAGE:
            yield (
                f"coverage_penalty={self.coverage_penalty} x max_input_length={self.max_input_length} is more than "
                f"{_MOST_COVERAGE:,}: penalties so large would put translations that were cut off before complete "
                "ones. Lower one of them"
            )

    def _unused(self, needed: str, *names: str) -> Iterator[str]:
        """Yields a message for each of the named fields that is set, since it has no effect without ``needed``."""
        for name in self.changed(*names):
            yield f"{name}={getattr(self, name)} has no effect without {needed}"

    def synchronous_fields(self) -> list[str]:
        """Returns the names of the ``sb_`` fields (for models of two directions) that are not at their defaults."""
        return [name for name in self.changed() if name.startswith("sb_")]

    def describe_search(self) -> str:
        """Returns the settings that decide a sentence's best translation: beam_size, alpha, others if not default.

        The defaults are those of the first version that recorded the search, so that records of all versions compare.
        """
        other = set(_OTHER_FIELDS)
        if self.sampling_method == "random":  # the best of several samples depends on their number
            other -= {"num_hypotheses"}
        elif self.early_stopping == "heuristic":  # the search ends when it has as many as are returned
            other -= {"num_hypotheses", "return_beams"}
        values = {field.name: (getattr(self, field.name), field.default) for field in dataclasses.fields(self)}
        changed = [name for name, (value, now) in values.items() if value != _FIRST_DEFAULTS.get(name, now)]
        named = dict.fromkeys(["beam_size", "alpha", *(name for name in changed if name not in other)])
        return ",".join(f"{name}={values[name][0]}" for name in named)

    @property
    def returned(self) -> int:
        """Number of translations that are returned for each sentence."""
        return self.beam_size if self.return_beams else self.num_hypotheses

    def check_constraints(self) -> None:
        """Checks that the search can be restricted to translations that contain given phrases.

        Raises:
          UserError: One of the settings rules out such constraints.
        """
        if self.sampling_method == "random":
            raise UserError(
                "Constraints need a search, but sampling_method=random draws: leave it out, or the constraints."
            )
        if self.beam_extends == "top":
            raise UserError(
                "Constraints divide the beam among what is still missing, and beam_extends=top would let a bank run "
                "dry: leave one of them out."
            )
        if self.diverse_groups > 1:
            raise UserError(
                f"Constraints divide the beam, and so does diverse_groups={self.diverse_groups}: leave one of them out."
            )


def resolve_decode_hparams(
    overrides: str = "", base: DecodeHParams | None = None, *, stored: bool = False
) -> DecodeHParams:
    """Returns decoding hyper-parameters with the overrides of ``--decode_hparams``.

    Args:
      overrides: ``"beam_size=4,alpha=0.6"``.
      base: The values to override; default: the defaults of ``DecodeHParams``.
      stored: Whether the overrides come from a stored run; it is then too late to refuse those that have no effect.

    Returns:
      The values.

    Raises:
      UserError: An unknown key, a wrong type, the same key twice, an empty value; a value that is not allowed, or that
        has no effect with the other values.
    """
    found = (base or DecodeHParams()).override(overrides, flag="--decode_hparams")
    if not stored:
        found.check_effect("--decode_hparams")
    return found
