"""Rerank-NMT: a left-to-right and a right-to-left model choose together among all translations that they have found.

The method is that of Liu et al. (2016) and Sennrich et al. (2016), and a baseline of Zhou et al. (2019), section 4.3.
The beam search of each model gives a k-best list. Both models score every translation in the union of the lists, and
the translation with the highest sum of the two log-probabilities wins.

Translations count as the same if their token ids in text order are the same. A translation keeps the log-probability
from the search that found it. Forced decoding of exactly its tokens and EOS gives the other model's log-probability.
Forced decoding also replaces the search's own log-probability if the translation was truncated at the length limit
(it has no EOS) or if the model searches with a shortlist.

Legend: k translations of a list.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from t2t_ext.data.text.text_encoder import EOS_ID
from t2t_ext.errors import UserError, suggest
from t2t_ext.search.directions import directions_of
from t2t_ext.translation.hypothesis import text_record

if TYPE_CHECKING:
    from t2t_ext.runs.run_directory import RunDirectory
    from t2t_ext.translation.translator import Hypothesis, Translator

SCORES = ("sum", "penalized")
DIRECTIONS = ("l2r", "r2l")
DEFAULT_K = 10  # the paper's
_BOTH_WAYS = (
    "it generates in both directions at once, so that the probability of a translation depends on its partner. "
    "Reranking takes models of one direction each."
)

Ids = tuple[int, ...]
Progress = Callable[[int, int], None]
# (description, total, unit) -> a context that yields the callback that a Translator calls with (done, total)
Passes = Callable[[str, int, str], AbstractContextManager[Progress]]


@dataclasses.dataclass(frozen=True)
class RerankConfig:
    """The settings for the choice of translations.

    Attributes:
      score: ``sum``: the weighted sum of both log-probabilities; ``penalized``: this sum divided by the length penalty
        of the L2R model's decode hparams.
      weights: The weights of the L2R and the R2L model's log-probability, neither negative.
    """

    score: str = "sum"
    weights: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        if self.score not in SCORES:
            raise UserError(f"score={self.score!r}: it is one of {', '.join(SCORES)}.{suggest(self.score, SCORES)}")
        if len(self.weights) != 2 or not all(0 <= weight < float("inf") for weight in self.weights):
            shown = ",".join(f"{weight:g}" for weight in self.weights)
            raise UserError(f"weights={shown}: give two numbers, for the L2R and the R2L model, neither negative.")
        if not any(self.weights):
            raise UserError("weights=0,0: at least one of the models must count.")


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A translation of a line that at least one of the models has found; a ``Scorer`` accepts it, too.

    Attributes:
      text: The translation as readable text.
      prepared: The translation as the model generated it.
      ids: Its token ids in text order, with EOS; empty for a line without text.
      log_probs: Direction -> natural logarithm of its probability, EOS included.
      score: The score by which it is ranked.
      ranks: Direction -> its place, from 0, in that model's list; only lists that contain it.
    """

    text: str
    prepared: str
    ids: Ids
    log_probs: Mapping[str, float]
    score: float
    ranks: Mapping[str, int]

    @property
    def length(self) -> int:
        """Tokens with EOS."""
        return len(self.ids)

    def record(self) -> dict[str, Any]:
        """Returns the translation as it appears in an n-best list, as JSON values; places are counted from 1."""
        return {
            **text_record(self),
            "score": self.score,
            "log_probs": dict(self.log_probs),
            "length": self.length,
            "lists": {direction: rank + 1 for direction, rank in self.ranks.items()},
        }


@dataclasses.dataclass(frozen=True)
class Winners:
    """Counts of where the chosen translations come from; lines without text do not count.

    Attributes:
      l2r: Lines whose winner is only in the L2R list.
      r2l: Lines whose winner is only in the R2L list.
      both: Lines whose winner is in both lists.
      translations: Different translations of each line, summed over the lines.
    """

    l2r: int = 0
    r2l: int = 0
    both: int = 0
    translations: int = 0

    def __add__(self, other: "Winners") -> "Winners":
        return Winners(*(getattr(self, each.name) + getattr(other, each.name) for each in dataclasses.fields(self)))

    @property
    def lines(self) -> int:
        """The number of lines with text."""
        return self.l2r + self.r2l + self.both

    @property
    def union(self) -> float:
        """The mean number of different translations of a line."""
        return self.translations / max(1, self.lines)

    def shares(self) -> dict[str, float]:
        """Returns the share of lines for each kind of winner: ``l2r``, ``r2l`` and ``both``."""
        return {name: getattr(self, name) / max(1, self.lines) for name in ("l2r", "r2l", "both")}


def check_runs(l2r: "RunDirectory", r2l: "RunDirectory") -> None:
    """Checks that two runs can rerank each other's translations, before anything is loaded.

    Raises:
      UserError: A run generates in both directions or in the wrong one, or the target ids of the runs differ.
    """
    for run, direction in ((l2r, "l2r"), (r2l, "r2l")):
        if directions_of(run.hparams()) != 1:
            raise UserError(f"--{direction}={run.path}: {_BOTH_WAYS}")
        generated = run.config.hparams.get("target_direction", "l2r")
        if generated != direction:
            raise UserError(
                f"--{direction}={run.path} generates {generated} (target_direction in its hparams). Give a run that "
                f"was trained with --hparams=target_direction={direction}."
            )
    if l2r.config.vocabularies["target"] != r2l.config.vocabularies["target"]:
        _check_ids(l2r.text_encoders()[1], r2l.text_encoders()[1], f"{l2r.path} and {r2l.path}", str(l2r.path))


class Reranker:
    """Two translators of opposite directions that choose translations together.

    Attributes:
      config: The settings for the choice.
      l2r: The translator that generates left to right.
      r2l: The translator that generates right to left.
    """

    def __init__(self, l2r: "Translator", r2l: "Translator", config: RerankConfig | None = None) -> None:
        """Takes translators of models or ensembles; their decode hparams determine the length of the lists.

        Raises:
          UserError: The directions are wrong, the target ids differ, or a translator draws samples.
        """
        self.config = config or RerankConfig()
        self.l2r, self.r2l = l2r, r2l
        self._translators = {"l2r": l2r, "r2l": r2l}
        for direction, translator in self._translators.items():
            if translator.model.directions != 1:
                raise UserError(f"The {direction} model: {_BOTH_WAYS}")
            if translator.target_direction != direction:
                raise UserError(
                    f"The {direction} model generates {translator.target_direction}: exchange the two models."
                )
            if translator.samples:
                raise UserError("Reranking chooses among the lists of two searches: leave sampling_method=random out.")
        _check_ids(l2r.target_encoder, r2l.target_encoder, "the two models")

    def rerank(
        self, lines: Sequence[str], progress: Progress | None = None, *, passes: Passes | None = None
    ) -> list[list[Candidate]]:
        """Returns all translations that the two models have found for every line, best first.

        Args:
          lines: Source sentences as raw text.
          progress: Called with (done, total) after every batch. The total is four times the number of lines: both
            models translate, and both score translations that the other has found.
          passes: Used instead of ``progress`` to show the progress of each of these four passes separately.

        Raises:
          UserError: The log-probability of a translation is not finite.
        """
        passes = passes or _together(progress, len(lines))
        found = {}
        for direction, translator in self._translators.items():
            with passes(f"Translating {direction}", len(lines), "lines") as update:
                found[direction] = translator.translate(lines, update)
        # A token is more probable among a shortlist's candidates than in the whole vocabulary, which forced decoding
        # uses; so log-probabilities from a search with a shortlist do not count.
        whole = [direction for direction in DIRECTIONS if self._translators[direction].shortlist is None]
        unions = [_union(lists, whole) for lists in zip(found["l2r"], found["r2l"], strict=True)]
        for direction, translator in self._translators.items():
            missing = [[ids for ids, each in union.items() if direction not in each["log_probs"]] for union in unions]
            wanted = missing
            if direction == "r2l":  # in the order of generation
                wanted = [[(*reversed(ids[:-1]), ids[-1]) for ids in row] for row in missing]
            with passes(f"Scoring {direction}", sum(map(len, wanted)), "translations") as update:
                scored = translator.score_ids(lines, wanted, update)
            for number, (union, row, results) in enumerate(zip(unions, missing, scored, strict=True), 1):
                for ids, result in zip(row, results, strict=True):
                    if not math.isfinite(result.log_prob):
                        raise UserError(
                            f"Line {number}: the log-probability that the {direction} model gives a translation is "
                            f"{result.log_prob}, which cannot be ranked. Try another checkpoint of it, or "
                            "precision=float32 in --decode_hparams."
                        )
                    union[ids]["log_probs"][direction] = result.log_prob
        return [self._ranked(union, found["l2r"][row][0]) for row, union in enumerate(unions)]

    def _ranked(self, union: Mapping[Ids, Mapping[str, Any]], first: "Hypothesis") -> list[Candidate]:
        """Returns a line's translations, best first; among equal scores, those in the L2R list come first.

        ``first`` is the only candidate of a line without text.
        """
        if not union:
            return [Candidate(first.text, first.prepared, (), dict.fromkeys(DIRECTIONS, 0.0), 0.0, {})]
        candidates = [
            Candidate(
                each["hypothesis"].text,
                each["hypothesis"].prepared,
                ids,
                {direction: each["log_probs"][direction] for direction in DIRECTIONS},
                self._score(each["log_probs"], len(ids)),
                each["ranks"],
            )
            for ids, each in union.items()
        ]
        return sorted(candidates, key=lambda candidate: -candidate.score)

    def _score(self, log_probs: Mapping[str, float], length: int) -> float:
        weighted = zip(self.config.weights, DIRECTIONS, strict=True)
        total = sum(weight * log_probs[direction] for weight, direction in weighted)
        if self.config.score == "sum":
            return total
        from t2t_ext.search.search_state import length_penalty

        hparams = self._translators["l2r"].decode_hparams
        return total / float(length_penalty(length, hparams.alpha, hparams.length_penalty))


def _together(progress: Progress | None, lines: int) -> Passes:
    """Returns passes that report to a single callback; each of the four passes counts as ``lines``."""
    before = 0

    @contextlib.contextmanager
    def each(description: str, total: int, unit: str) -> Iterator[Progress]:
        nonlocal before
        tell = progress or (lambda done, total: None)
        yield lambda done, total: tell(before + done * lines // total, 4 * lines)
        before += lines
        tell(before, 4 * lines)

    return each


def _union(lists: Sequence[Sequence["Hypothesis"]], scored: Sequence[str]) -> dict[Ids, dict[str, Any]]:
    """Returns a line's translations by their ids, with the hypothesis, log-probabilities and ranks from the searches.

    ``scored`` are the directions whose log-probabilities from the search are kept.
    """
    union: dict[Ids, dict[str, Any]] = {}
    for direction, hypotheses in zip(DIRECTIONS, lists, strict=True):
        for rank, hypothesis in enumerate(hypotheses):
            if not hypothesis.length:
                continue  # a line without text
            ids = text_order(hypothesis.ids, direction)
            each = union.setdefault(ids, {"hypothesis": hypothesis, "log_probs": {}, "ranks": {}})
            each["ranks"].setdefault(direction, rank)
            if hypothesis.finished and direction in scored:
                each["log_probs"].setdefault(direction, hypothesis.log_prob)
    return union


def text_order(ids: Sequence[int], direction: str) -> Ids:
    """Returns the ids of a hypothesis in text order, with EOS even if the length limit kept it from ending."""
    body = [token for token in ids if token != EOS_ID]
    return (*(reversed(body) if direction == "r2l" else body), EOS_ID)


def best_of(candidates: Sequence[Candidate], direction: str) -> Candidate:
    """Returns the translation of a line that one of the models would have chosen on its own."""
    return next((each for each in candidates if each.ranks.get(direction) == 0), candidates[0])


def winners(results: Sequence[Sequence[Candidate]]) -> Winners:
    """Counts where the chosen translations come from."""
    chosen = [candidates[0].ranks for candidates in results if candidates[0].ids]
    l2r, r2l = (sum(set(ranks) == {direction} for ranks in chosen) for direction in DIRECTIONS)
    found = sum(len(candidates) for candidates in results if candidates[0].ids)
    return Winners(l2r, r2l, len(chosen) - l2r - r2l, found)


def _check_ids(l2r: Any, r2l: Any, where: str, run: str = "RUN") -> None:
    digests = [encoder.ids_sha256[:12] for encoder in (l2r, r2l)]
    if l2r.ids_sha256 != r2l.ids_sha256:
        raise UserError(
            f"The target ids of {where} differ (SHA-256 {digests[0]}... and {digests[1]}...): neither "
            "could score the other's translations. Train both on the same generated data, or on data made with "
            f"t2t_ext-datagen --vocab_from={run}."
        )
