"""Translations and scores as a Translator returns them, and their form in files. Imports no TensorFlow."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from t2t_ext.config.decode import DecodeHParams
from t2t_ext.data.corpora.text_lines import one_line
from t2t_ext.data.text.text_encoder import PAD_ID, SubwordEncoder
from t2t_ext.errors import UserError

# A command's message for lines that have text but whose translation is empty.
EMPTY_TRANSLATION = "the translation is empty: it ended at once (min_length=1 in --decode_hparams forbids it)"
# A command's message for lines that have text but no translation.
NO_TRANSLATION = (
    "no translation: the model's probabilities are NaN (try another checkpoint, or precision=float32 in "
    "--decode_hparams), or the rules leave none"
)
_MOST_IN_A_NAME = 60
_LEAST_LOG_PROB = -5e8  # lower ones mark empty places among the hypotheses


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """A translation of a line.

    Attributes:
      text: The translation as readable text.
      log_prob: Natural logarithm of its probability, EOS included.
      length: Tokens with EOS.
      score: log_prob divided by the length penalty.
      finished: False if it was truncated at the length limit.
      ids: Its token ids in the order of generation, with EOS if finished.
      unmet_constraints: Number of required phrases that it lacks; None if no line had constraints.
      prepared: The translation as the model generated it, with words as the target's preparation steps make them; the
        same as ``text`` if there are no steps.
      direction: The direction in which it was generated: ``l2r`` or ``r2l``.
    """

    text: str
    log_prob: float
    length: int
    score: float
    finished: bool
    ids: tuple[int, ...]
    unmet_constraints: int | None = None
    prepared: str = ""
    direction: str = "l2r"


@dataclasses.dataclass(frozen=True)
class PairScore:
    """The model's score of a given translation.

    Attributes:
      log_prob: Natural logarithm of its probability, EOS included.
      length: Tokens with EOS.
      score: log_prob divided by the length penalty.
      token_log_probs: The log-probability of each token in text order, EOS last.
    """

    log_prob: float
    length: int
    score: float
    token_log_probs: tuple[float, ...]


def exists(log_prob: float) -> bool:
    """Returns whether a place among the hypotheses has one, by its log-probability.

    If the rules leave fewer translations than there are places, the last places are empty.
    """
    return log_prob > _LEAST_LOG_PROB


def hypotheses_of(
    found: Mapping[str, list[Any]], row: int, encoder: SubwordEncoder, unmet: int | None = None
) -> list[Hypothesis]:
    """Returns the hypotheses in a row of the results of ``Searcher.search``, without empty places; at least one.

    ``unmet`` is used as their number of unmet constraints if the search had no constraints.
    """
    values = {name: rows[row] for name, rows in found.items()}
    there = [n for n, log_prob in enumerate(values["log_probs"]) if exists(log_prob)]
    hypotheses = []
    for n in there or [0]:
        each = {name: of_places[n] for name, of_places in values.items()}
        prepared = encoder.join([each["outputs"].decode("utf-8", errors="replace")])
        hypotheses.append(
            Hypothesis(
                text=encoder.restore(prepared)[0],
                prepared=prepared[0],
                log_prob=each["log_probs"],
                length=each["lengths"],
                score=each["scores"],
                finished=each["finished"],
                ids=tuple([i for i in each["ids"] if i != PAD_ID]),
                unmet_constraints=each.get("unmet_constraints", unmet),
                direction="r2l" if each["directions"] else "l2r",
            )
        )
    return hypotheses


def pair_score(scored: Mapping[str, list[Any]], row: int) -> PairScore:
    """Returns the score in a row of the results of ``ForcedDecoder.score``."""
    length = scored["lengths"][row]
    return PairScore(
        log_prob=scored["log_probs"][row],
        length=length,
        score=scored["scores"][row],
        token_log_probs=tuple(scored["token_log_probs"][row][:length]),
    )


# === Files ===


def output_line(hypotheses: Sequence[Hypothesis], hparams: DecodeHParams) -> str:
    """Returns the line of the output file for the hypotheses of a line, in the form that the decode hparams ask for."""
    if not hypotheses[0].length:
        return ""  # there was nothing to translate: an empty line stays empty, even among n-best lists
    most = hparams.returned
    if most == 1 and not hparams.write_beam_scores:
        return one_line(hypotheses[0].text)
    columns: list[str] = []
    for hypothesis in hypotheses[:most]:
        columns.append(one_line(hypothesis.text, tabs=False))
        columns.extend([f"{hypothesis.score:.4f}"] if hparams.write_beam_scores else [])
    return "\t".join(columns)


def output_name(
    source: str,
    config: Any,
    hparams: DecodeHParams,
    members: int,
    checkpoint: str = "",
    others: Mapping[str, Any] | None = None,
) -> str:
    """Returns the name of the output file for a source file and a ``RunConfig``, in T2T's style.

    Changed settings other than beam size and alpha, and the checkpoint if given, are part of the name; long ones appear
    as a digest. ``others``, JSON values on which translations also depend, always appear as a digest.
    """
    named, search = {"batch_size", "beam_size", "alpha"}, f"beam{hparams.beam_size}.alpha{hparams.alpha}"
    if hparams.sampling_method == "random":
        named |= {"sampling_method", "sampling_seed", "sampling_temp"}
        search = f"sample{hparams.sampling_seed}.temp{hparams.sampling_temp}"
    parts = [source.rstrip("/"), config.model, config.hparams_set, config.problem, search]
    changed = [f"{name}{getattr(hparams, name)}" for name in hparams.changed() if name not in named]
    parts += [_in_a_name(".".join(changed))] if changed else []
    parts += [f"ensemble{members}"] if members > 1 else []
    parts += [_in_a_name(checkpoint)] if checkpoint else []
    parts += [_short_digest(json.dumps(others, sort_keys=True))] if others else []
    return ".".join([*parts, "decodes"])


def _in_a_name(text: str) -> str:
    """Returns a text as a part of a file name: a digest if it is long or has characters unsuitable there."""
    if len(text) <= _MOST_IN_A_NAME and re.fullmatch(r"[\w.,-]+", text):
        return text
    return _short_digest(text)


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]


def hypothesis_record(hypothesis: Hypothesis, alignment: str | None, *, with_direction: bool) -> dict[str, Any]:
    """Returns a hypothesis as it appears in an n-best list, as JSON values."""
    return {
        **text_record(hypothesis),
        "log_prob": hypothesis.log_prob,
        "length": hypothesis.length,
        "score": hypothesis.score,
        "finished": hypothesis.finished,
        **({"direction": hypothesis.direction} if with_direction else {}),
        **({} if alignment is None else {"alignment": alignment}),
        **({} if hypothesis.unmet_constraints is None else {"unmet_constraints": hypothesis.unmet_constraints}),
    }


def text_record(translation: Any) -> dict[str, str]:
    """Returns the ``text`` of a translation, and ``prepared`` only if it differs from the text."""
    texts = {"text": translation.text, "prepared": translation.prepared}
    return texts if translation.prepared != translation.text else {"text": translation.text}


def nbest_lines(
    sources: Sequence[Any], records: Iterable[Sequence[Mapping[str, Any]]], first: int = 1
) -> Iterable[str]:
    """Yields the lines of an n-best list: the number, the text and the hypotheses' records of each source, as JSON."""
    for number, (source, hypotheses) in enumerate(zip(sources, records, strict=True), start=first):
        record = {"line": number, "source": str(source), "hypotheses": list(hypotheses)}
        yield json.dumps(record, ensure_ascii=False)


def parse_pairs(
    name: str, lines: Sequence[str], directions: int, first: int = 1
) -> tuple[list[str], list[str], dict[str, list[str]]]:
    """Parses lines ``source TAB target``, for a model of two directions with ``TAB partner [TAB direction]``.

    ``name`` is the file's name for messages, ``first`` the number of the first line.

    Returns:
      Sources, targets, and the other arguments of ``Translator.score`` for a model of two directions: ``partners`` and
      ``directions``, the direction in which each target is generated.

    Raises:
      UserError: A line has the wrong number of columns, or an unknown direction.
    """
    rows = [line.split("\t") for line in lines]
    allowed, wanted = {2}, "'source TAB target' are 2"
    if directions == 2:
        allowed = {3, 4}
        wanted = (
            "'source TAB target TAB partner' are 3 (and l2r or r2l may follow): this model generates in both "
            "directions at once, and each attends to the other, so that a score needs what the other direction "
            "generates beside the target: its partner, in text order"
        )
    for number, row in enumerate(rows, start=first):
        if len(row) not in allowed:
            raise UserError(f"{name}, line {number}: {len(row)} tab-separated columns where {wanted}.")
        if len(row) == 4 and row[3] not in ("l2r", "r2l"):
            raise UserError(
                f"{name}, line {number}: {row[3]!r} is no direction in which a target is generated: l2r or r2l."
            )
    sides = {}
    if directions == 2:
        sides = {"partners": [row[2] for row in rows], "directions": [[*row, "l2r"][3] for row in rows]}
    return [row[0] for row in rows], [row[1] for row in rows], sides
