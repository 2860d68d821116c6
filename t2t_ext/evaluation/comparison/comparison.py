"""Compares systems that translated the same text: scores, paired tests and the analyses of the papers, in one object.

    comparison = compare({"base": lines_a, "big": lines_b}, [references], source=source)
    print(report.build(comparison).text())

All random numbers have a fixed seed: the same files give the same report.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from t2t_ext.errors import UserError
from t2t_ext.evaluation import protocols, scores
from t2t_ext.evaluation.comparison import (
    differing_sentences,
    direction_analysis,
    length_analysis,
    segment_statistics,
    significance,
    token_accuracy,
    word_frequency,
)

Lines = Sequence[str]
_LONG_WORDS = 15  # more characters per word, space included, than in any language that separates words by spaces
FORMAT = 1  # version of as_dict(); increased when readers of older files would misread new ones


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a comparison.

    Attributes:
      protocols: Names of the protocols; the analyses use the first BLEU among them, or compute one if there is none.
      language: The target language's code; "" if it is unknown.
      resamples: Number of bootstrap samples for intervals and for the paired test; None: 1,000, or fewer if there are
        many segments.
      trials: Number of trials of approximate randomization; None: 10,000, or fewer if there are many segments.
      length_bins: Lengths at which a new bin of source lengths begins.
      length_unit: Unit of the lengths, for the report: ``words``, ``subwords`` or ``characters``.
      sentences: Number of differing sentences to show.
      end_tokens: Number of tokens at each end of a sentence whose accuracy is computed.
      all_pairs: Whether every system is tested against every other one, not only against the first.
    """

    protocols: Sequence[str] = (protocols.DEFAULT, "chrf")
    language: str = ""
    resamples: int | None = None
    trials: int | None = None
    length_bins: Sequence[int] = length_analysis.DEFAULT_EDGES
    length_unit: str = "words"
    sentences: int = 20
    end_tokens: int = token_accuracy.DEFAULT_TOKENS
    all_pairs: bool = True


@dataclasses.dataclass(frozen=True)
class ProtocolScores:
    """The scores of all systems in one metric of a protocol.

    Attributes:
      protocol: The protocol's name.
      label: The metric's label.
      systems: The score by system.
      tests: Tests of each system against the first; empty for a single system.
      pairs: Tests of each system against every one before it; empty for fewer than three systems or if not requested.
    """

    protocol: str
    label: str
    systems: Mapping[str, scores.Score]
    tests: Sequence[significance.PairedTest]
    pairs: Sequence[significance.PairedTest] = ()


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The results of a comparison.

    Attributes:
      names: The systems, the baseline first.
      segments: Number of segments.
      references: Number of sets of references.
      settings: The settings used.
      analyzed: The metric whose tokens and scores the analyses use, as ``protocol label``.
      scores: Scores and tests of each metric.
      length_of: The text whose lengths define the bins: ``source`` or ``reference``.
      by_length: BLEU and lengths by the length of that text.
      ends: Accuracy at both ends, by system.
      frequencies_of: The text in which word frequencies were counted: ``training text`` or ``references``.
      by_frequency: Words grouped by frequency, by system.
      differing: The sentences that differ most.
      by_direction: For systems that generate in both directions, the sentences that each direction won.
      sentence_chrf: chrF of each sentence, by system.
      notes: Notes for the reader, one sentence each.
    """

    names: Sequence[str]
    segments: int
    references: int
    settings: Settings
    analyzed: str
    scores: Sequence[ProtocolScores]
    length_of: str
    by_length: Sequence[length_analysis.LengthBin]
    ends: Mapping[str, token_accuracy.EndsAccuracy]
    frequencies_of: str
    by_frequency: Mapping[str, Sequence[word_frequency.FrequencyBucket]]
    differing: Sequence[differing_sentences.DifferingSentence]
    by_direction: Mapping[str, Sequence[direction_analysis.DirectionPart]]
    sentence_chrf: Mapping[str, Sequence[float]]
    notes: Sequence[str]

    def wins(self) -> dict[str, tuple[int, int, int]]:
        """Returns system -> numbers of sentences with higher, lower and equal chrF than the baseline's."""
        baseline, *others = self.names
        result = {}
        for name in others:
            pairs = list(zip(self.sentence_chrf[name], self.sentence_chrf[baseline], strict=True))
            better, worse = sum(mine > theirs for mine, theirs in pairs), sum(mine < theirs for mine, theirs in pairs)
            result[name] = better, worse, len(pairs) - better - worse
        return result

    def as_dict(self) -> dict[str, Any]:
        """Returns everything as lists, dictionaries, strings and numbers, for JSON."""
        result = {"format": FORMAT, **dataclasses.asdict(self), "wins": self.wins()}
        for name, buckets in self.by_frequency.items():
            for bucket, values in zip(buckets, result["by_frequency"][name], strict=True):
                values.update(precision=bucket.precision, recall=bucket.recall, f1=bucket.f1)
        return result


def compare(
    systems: Mapping[str, Lines],
    references: Sequence[Lines],
    *,
    source: Lines | None = None,
    source_lengths: Sequence[int] | None = None,
    train_text: Iterable[str] | None = None,
    directions: Mapping[str, Sequence[str]] | None = None,
    settings: Settings | None = None,
    report: Callable[[str], None] = lambda message: None,
) -> Comparison:
    """Compares several systems, or analyzes a single one.

    Args:
      systems: Translations by name, the baseline first; tokenized if the protocols require it.
      references: One list per set of references, in the same form.
      source: The source, for lengths and for the report; without it, lengths are those of the first reference.
      source_lengths: Lengths of the source, if other than the number of words.
      train_text: Target side of the training data, as lines in the same form, for word frequencies.
      directions: System -> the winning direction of each segment (``l2r``, ``r2l``), for systems with both directions.
      settings: The settings; by default ``Settings()``.
      report: Called with a description of each step as it begins.

    Returns:
      The comparison.

    Raises:
      UserError: There are no systems or no segments, the numbers of segments differ, the protocols need different forms
        of text, or a setting is invalid.
    """
    settings = settings or Settings()
    chosen = protocols.check_names(settings.protocols)
    _check_segments(systems, references, source)
    length_analysis.bin_labels(settings.length_bins)
    segments = len(references[0])
    settings = dataclasses.replace(
        settings,
        resamples=settings.resamples or significance.affordable_resamples(segments),
        trials=settings.trials or significance.affordable_trials(segments),
    )
    made = [
        (protocol.name, label, metric)
        for protocol in chosen
        for label, metric in segment_statistics.metrics_of(protocol, systems, references, settings.language).items()
    ]
    scored = [_scores(*each, systems, settings, report) for each in made]
    tokens = any(protocol.tokenized and not protocol.any_text for protocol in chosen)
    texts = systems, references, settings.language
    analyzed, bleu = _first(made, "BLEU", "multi_bleu" if tokens else protocols.DEFAULT, *texts)
    _, chrf = _first(made, "chrF", "chrf", *texts)
    report("lengths, words and sentences")
    counted = references[0] if source is None else source
    if source_lengths is None:
        source_lengths = [len(line.split()) for line in counted]
    return Comparison(
        names=list(systems),
        segments=segments,
        references=len(references),
        settings=settings,
        analyzed=analyzed,
        scores=scored,
        length_of="reference" if source is None else "source",
        by_length=length_analysis.by_length(bleu, systems, source_lengths, settings.length_bins),
        **_token_analyses(bleu, systems, references, train_text, settings),
        differing=differing_sentences.differing_sentences(
            systems, references, chrf=chrf, bleu=bleu, source=source, count=settings.sentences
        ),
        by_direction=_by_system(directions or {}, lambda won: direction_analysis.by_direction(bleu, systems, won)),
        sentence_chrf=_by_system(systems, lambda lines: differing_sentences.sentence_scores(chrf, lines)),
        notes=_notes(systems, chosen, source if settings.length_unit == "words" else None),
    )


def _token_analyses(
    bleu: Any,
    systems: Mapping[str, Lines],
    references: Sequence[Lines],
    train_text: Iterable[str] | None,
    settings: Settings,
) -> dict[str, Any]:
    """Returns the fields of a comparison that are computed from individual tokens."""
    tokens = _by_system(systems, lambda lines: segment_statistics.tokens_of(bleu, lines))
    expected = [segment_statistics.tokens_of(bleu, lines) for lines in references]
    counted = itertools.chain(*expected)
    if train_text is not None:
        counted = itertools.chain.from_iterable(segment_statistics.tokens_of(bleu, [line]) for line in train_text)
    seen = word_frequency.count_words(counted)
    return {
        "ends": _by_system(tokens, lambda each: token_accuracy.ends_accuracy(each, expected, settings.end_tokens)),
        "frequencies_of": "references" if train_text is None else "training text",
        "by_frequency": _by_system(tokens, lambda each: word_frequency.by_frequency(each, expected, seen)),
    }


def _scores(
    protocol: str,
    label: str,
    metric: Any,
    systems: Mapping[str, Lines],
    settings: Settings,
    report: Callable[[str], None],
) -> ProtocolScores:
    report(f"{protocol} {label}: scores")
    found = {
        name: dataclasses.replace(scores.score_with(metric, lines, settings.resamples or 0), name=label)
        for name, lines in systems.items()
    }
    tests: list[significance.PairedTest] = []
    every = settings.all_pairs and len(systems) > 2
    if len(systems) > 1:
        report(f"{protocol} {label}: paired tests")
        samples = {"resamples": settings.resamples or 0, "trials": settings.trials or 0}
        tests = significance.paired_tests(label, metric, systems, **samples, all_pairs=every)
    return ProtocolScores(protocol, label, found, tests[: len(systems) - 1], tests if every else ())


def _first(
    made: Sequence[tuple[str, str, Any]],
    kind: str,
    fitting: str,
    systems: Mapping[str, Lines],
    references: Sequence[Lines],
    language: str,
) -> tuple[str, Any]:
    """Returns name and metric: the first whose label begins with ``kind``, or else the metric of ``fitting``."""
    for protocol, label, metric in made:
        if label.startswith(kind):
            return f"{protocol} {label}", metric
    found = segment_statistics.metrics_of(protocols.protocol(fitting), systems, references, language)
    ((label, metric),) = found.items()
    return f"{fitting} {label}", metric


def _by_system(systems: Mapping[str, Any], analyze: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: analyze(each) for name, each in systems.items()}


def _check_segments(systems: Mapping[str, Lines], references: Sequence[Lines], source: Lines | None) -> None:
    if not systems:
        raise UserError("There is nothing to compare. Give at least one translation.")
    for lines in systems.values():
        scores.check_segments(lines, references)
    if source is not None and len(source) != len(references[0]):
        raise UserError(
            f"Unequal numbers of segments: {len(source)} in the source, but {len(references[0])} in the references. "
            "Check that the files belong together."
        )


def _notes(
    systems: Mapping[str, Lines], chosen: Sequence[protocols.Protocol], counted_in_words: Lines | None
) -> list[str]:
    notes = []
    for name, lines in systems.items():
        doubt = next(filter(None, (protocols.doubt(protocol, lines) for protocol in chosen)), "")
        if doubt:
            notes.append(f"{name}: {doubt}")
        empty = sum(not line.strip() for line in lines)
        if empty:
            notes.append(f"{name}: {empty} of {len(lines)} translations are empty.")
    first, *others = systems
    notes += [
        f"{other} and {first} are the same, line for line." for other in others if systems[other] == systems[first]
    ]
    source = counted_in_words or ()
    words, characters = sum(len(line.split()) for line in source), sum(map(len, source))
    if characters > _LONG_WORDS * words:
        notes.append(
            f"The source has a space every {characters / max(1, words):.0f} characters: its lengths in words mean "
            "little. Count characters or subwords."
        )
    return notes
