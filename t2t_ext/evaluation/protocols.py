"""Scoring protocols of papers, by name: each defines its input (plain text or tokens), tokenization and case handling.

    for score in protocols.score("multi_bleu", hypotheses, [references], n_bootstrap=1000):
        print(score)

A protocol for which case counts has a case-insensitive variant ``NAME_uc``. docs/scoring.md lists the protocol behind
each paper's figures. Nothing heavy is imported before a score is computed.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from t2t_ext.config.languages import base_language
from t2t_ext.errors import UserError, require_package, suggest
from t2t_ext.evaluation import scores, segment_counts

References = Sequence[Sequence[str]]
_Make = Callable[[str, References], dict[str, Any]]
UNCASED = "_uc"
DEFAULT = "sacrebleu"
_JUDGED = 10  # minimum number of lines with a final full stop for judging whether a text is tokenized


@dataclasses.dataclass(frozen=True)
class Protocol:
    """A scoring protocol.

    Attributes:
      name: The name that flags and ``Problem.scoring`` use.
      summary: A description in one line.
      tokenized: Whether it scores tokenized text, with words separated by spaces, as the model's text preparation
        produces it; otherwise it scores plain text as people read it.
      lowercase: Whether case is ignored; None if both variants are reported, or there is no choice.
      labels: The labels of its metrics, the main one first.
      any_text: Whether it can score both tokenized and plain text; if both are available, it gets the form that
        ``tokenized`` specifies.
      empty_counts: Whether an empty line counts as a reference beside others, as in the Perl scripts; otherwise it only
        fills up its set.
      needs: The package that must be installed, and the extra of t2t_ext that installs it; empty if none is needed.
    """

    name: str
    summary: str
    tokenized: bool
    lowercase: bool | None
    _make: _Make = dataclasses.field(repr=False, compare=False)
    labels: tuple[str, ...] = ("BLEU",)
    any_text: bool = False
    empty_counts: bool = False
    needs: tuple[str, str] = ("", "")

    @property
    def is_bleu(self) -> bool:
        """Whether its main score is a BLEU."""
        return self.labels[0].startswith("BLEU")

    def references(self, sets: Sequence[Iterable[str | None]]) -> list[list[Any]]:
        """Returns sets of references in the form that the metrics take, with None for a missing reference."""
        return [list(each) for each in sets] if self.empty_counts else segment_counts.without_fillers(sets)

    def metrics(self, references: References, language: str = "") -> dict[str, Any]:
        """Creates the metrics; the references are counted only once, for all translations.

        Args:
          references: One list per set of references.
          language: The target language's code; ``sacrebleu`` and ``ter`` choose their tokenizers by it.

        Returns:
          Label, such as ``BLEU``, -> a sacrebleu metric (``sacrebleu.metrics.base.Metric``) to be called with
          ``references=None``.
        """
        return self._make(language, self.references(references))


def names_in(text: str) -> list[str]:
    """Returns the protocol names in a comma-separated text, such as the value of ``--scoring``."""
    return [name.strip() for name in text.split(",") if name.strip()]


def protocol(name: str) -> Protocol:
    """Returns the protocol with this name.

    Raises:
      UserError: There is no such protocol, or the package that it needs is not installed.
    """
    if name not in PROTOCOLS:
        known = ", ".join(PROTOCOLS)
        raise UserError(f"Unknown scoring protocol {name!r}.{suggest(name, PROTOCOLS)} Choose from: {known}.")
    package, extra = PROTOCOLS[name].needs
    if package:
        require_package(package, extra, f"The scoring protocol {name}")
    return PROTOCOLS[name]


def check_names(names: Sequence[str]) -> list[Protocol]:
    """Returns the protocols with these names, after checking that they can score the same files.

    Raises:
      UserError: There are no names, a name is unknown or given twice, or some protocols need tokens and others plain
        text.
    """
    chosen = [protocol(name) for name in names]
    if not chosen:
        raise UserError(f"No scoring protocol is given. Choose from: {', '.join(PROTOCOLS)}.")
    twice = [name for name in names if list(names).count(name) > 1]
    if twice:
        raise UserError(f"The protocol {twice[0]!r} is given twice. Give each once.")
    # Metrics of characters and edits work on any text; BLEU's protocols require one form.
    kinds = {each.tokenized: each.name for each in chosen if not each.any_text}
    if len(kinds) > 1:
        raise UserError(
            f"The protocol {kinds[True]} scores tokenized text and {kinds[False]} plain text; the same files cannot be "
            "both. Score them with a command each."
        )
    return chosen


def dev_labels() -> dict[str, bool]:
    """Returns label -> whether lower is better, for the scores of all protocols that do not report BLEU.

    NIST is not included, since its protocol also reports BLEU.
    """
    labels = [label for each in PROTOCOLS.values() if not each.is_bleu for label in each.labels]
    return {label: label.startswith("TER") for label in labels}


def with_label(label: str, preferred: str = "") -> str:
    """Returns the name of a protocol with a label of ``dev_labels``: the preferred one if it fits, else the first."""
    names = [name for name, each in PROTOCOLS.items() if label in each.labels and not each.is_bleu]
    return preferred if preferred in names else names[0]


def wants_tokens(chosen: Sequence[Protocol]) -> bool:
    """Returns whether protocols are to be given tokens together; those that require one form take precedence."""
    choosy = [each for each in chosen if not each.any_text]
    return any(each.tokenized for each in choosy or chosen)


def score(
    protocol: Protocol | str,
    hypotheses: Collection[str],
    references: Sequence[Collection[str]],
    *,
    language: str = "",
    n_bootstrap: int = 0,
) -> list[scores.Score]:
    """Scores a corpus with a protocol.

    Args:
      protocol: The protocol or its name.
      hypotheses: One translation per segment: tokenized if ``Protocol.tokenized``, plain otherwise.
      references: One list per set of references, in the same form and with the same number of segments.
      language: The target language's code, such as ``"zh"``; only some protocols use it.
      n_bootstrap: Number of bootstrap samples for 95 % confidence intervals; 0 for none. 1,000 is usual.

    Returns:
      The scores with their signatures, the protocol's main score first.

    Raises:
      UserError: The name is unknown, there are no segments, or their numbers differ.
    """
    scores.check_segments(hypotheses, references)
    named = _named(protocol)
    found = segment_counts.PartByPart(functools.partial(named.metrics, language=language), named.references)
    found.add(hypotheses, references)
    return found.scores(n_bootstrap)


def score_with(metrics: Mapping[str, Any], hypotheses: Sequence[str], n_bootstrap: int = 0) -> list[scores.Score]:
    """Returns a labeled score for each metric made by ``Protocol.metrics``; ``n_bootstrap`` is as for ``score``."""
    return [
        dataclasses.replace(scores.score_with(metric, hypotheses, n_bootstrap), name=label)
        for label, metric in metrics.items()
    ]


@dataclasses.dataclass
class FullStops:
    """Counts lines that end in a full stop.

    Attributes:
      count: Number of lines that end in a full stop.
      apart: Number of those lines whose full stop is a token of its own.
    """

    count: int = 0
    apart: int = 0

    def add(self, lines: Iterable[str]) -> None:
        """Adds the counts of further lines."""
        for line in lines:
            end = line.rstrip()
            self.count += end.endswith(".")
            self.apart += end.endswith(" .")


def doubt(protocol: Protocol | str, hypotheses: Iterable[str] | FullStops) -> str:
    """Returns a warning if translations do not look like the text form that a protocol scores, otherwise "".

    Texts with few full stops, such as those in languages without them, are not judged.
    """
    chosen = _named(protocol)
    if chosen.any_text:
        return ""
    if not isinstance(hypotheses, FullStops):
        lines, hypotheses = hypotheses, FullStops()
        hypotheses.add(lines)
    stops, apart = hypotheses.count, hypotheses.apart
    if stops < _JUDGED:
        return ""
    if chosen.tokenized and apart < stops / 2:
        return (
            f"{stops - apart} lines end in a full stop that is part of a word, but {chosen.name} scores tokenized "
            "text. Tokenize both sides, or choose a protocol for plain text, such as sacrebleu."
        )
    if not chosen.tokenized and apart > stops / 2:
        return (
            f"{apart} lines end in a full stop that stands alone, but {chosen.name} scores plain text. Detokenize "
            "both sides, or choose a protocol for tokenized text, such as multi_bleu."
        )
    return ""


def _named(choice: Protocol | str) -> Protocol:
    return choice if isinstance(choice, Protocol) else protocol(choice)


# === The metrics of each protocol; references are counted once, when a metric is created ===


def _bleu(language: str, references: References, *, lowercase: bool, tokenize: str = "") -> dict[str, Any]:
    from sacrebleu.metrics import BLEU

    tokenize = tokenize or scores.default_tokenizer(language)
    with scores.usable_tokenizer(tokenize):
        # force: suppresses sacrebleu's warning about hypotheses that look tokenized.
        return {"BLEU": BLEU(tokenize=tokenize, lowercase=lowercase, force=True, references=references)}


def _multi_bleu(language: str, references: References, **settings: bool) -> dict[str, Any]:
    from t2t_ext.evaluation.metrics import MultiBleu

    return {"BLEU": MultiBleu(references=references, **settings)}


def _mteval(language: str, references: References, *, lowercase: bool) -> dict[str, Any]:
    from t2t_ext.evaluation.metrics import MtevalBleu, Nist

    kinds = {"BLEU": MtevalBleu, "NIST": Nist}
    return {label: kind(lowercase=lowercase, references=references) for label, kind in kinds.items()}


def _t2t_intl(language: str, references: References) -> dict[str, Any]:
    from t2t_ext.evaluation.metrics import T2TBleu

    cases = {"BLEU_uncased": True, "BLEU_cased": False}
    return {label: T2TBleu(lowercase=lowercase, references=references) for label, lowercase in cases.items()}


def _chrf(language: str, references: References, *, lowercase: bool, word_order: int = 0) -> dict[str, Any]:
    from sacrebleu.metrics import CHRF

    label = "chrF2++" if word_order else "chrF2"
    return {label: CHRF(word_order=word_order, lowercase=lowercase, references=references)}


def _ter(language: str, references: References, *, lowercase: bool) -> dict[str, Any]:
    from sacrebleu.metrics import TER

    asian = base_language(language) in ("zh", "ja", "ko")
    return {"TER": TER(case_sensitive=not lowercase, normalized=asian, asian_support=asian, references=references)}


def _rouge(language: str, references: References, *, kind: str) -> dict[str, Any]:
    from t2t_ext.evaluation import rouge

    return rouge.metrics(kind, references)


def _coco(language: str, references: References) -> dict[str, Any]:
    from t2t_ext.evaluation import caption_metrics

    return caption_metrics.metrics(references)


def bleu_with(tokenize: str, *, lowercase: bool = False) -> Protocol:
    """Returns a protocol for sacrebleu's BLEU with the named tokenizer.

    Raises:
      UserError: sacrebleu has no such tokenizer, or it cannot be used here.
    """
    scores.check_tokenizer(tokenize)
    make = functools.partial(_bleu, lowercase=lowercase, tokenize=tokenize)
    return Protocol("bleu", f"sacrebleu's BLEU, tokenizer {tokenize}", False, lowercase, make, any_text=True)


def _listed() -> Iterator[Protocol]:
    tokens, plain = True, False
    split, words = functools.partial(_multi_bleu, split_compounds=True), functools.partial(_chrf, word_order=2)
    detok = functools.partial(_bleu, tokenize=scores.DEFAULT_TOKENIZER)
    paired: list[tuple[str, str, bool, Callable[..., dict[str, Any]], dict[str, Any]]] = [
        ("sacrebleu", "sacrebleu's BLEU, tokenizer by target language (13a, zh, ...)", plain, _bleu, {}),
        ("multi_bleu", "Moses' multi-bleu.perl on tokens, nothing smoothed", tokens, _multi_bleu,
         {"empty_counts": True}),
        ("multi_bleu_compound_split", "multi-bleu.perl after splitting hyphenated words, as get_ende_bleu.sh", tokens,
         split, {"empty_counts": True}),
        ("mteval_v13a", "NIST's mteval-v13a: BLEU and NIST", plain, _mteval,
         {"labels": ("BLEU", "NIST"), "empty_counts": True}),
        ("detok", "BLEU of detokenized text: sacrebleu, tokenizer 13a for every language", plain, detok, {}),
        ("chrf", "chrF2: character n-grams", plain, _chrf, {"labels": ("chrF2",), "any_text": True}),
        ("chrf++", "chrF2++: character n-grams and word n-grams up to 2", plain, words,
         {"labels": ("chrF2++",), "any_text": True}),
        ("ter", "translation edit rate, Tercom's", plain, _ter, {"labels": ("TER",), "any_text": True}),
    ]  # fmt: skip
    for name, summary, tokenized, make, more in paired:
        for ending, case, lowercase in (("", "case counts", False), (UNCASED, "case ignored", True)):
            own = functools.partial(make, lowercase=lowercase)
            yield Protocol(name + ending, f"{summary}; {case}", tokenized, lowercase, own, **more)
    both = ("BLEU_uncased", "BLEU_cased")
    yield Protocol("t2t_intl", "tensor2tensor's t2t-bleu, both cases", plain, None, _t2t_intl, both)
    labels = ("ROUGE-1", "ROUGE-2", "ROUGE-L", "ROUGE-Lsum")
    for name, which, kind in (
        ("rouge", "English by rouge-score, Porter's stemmer", "english"),
        ("rouge_unstemmed", "English by rouge-score, nothing stemmed", "english_unstemmed"),
        ("rouge_unicode", "any language, nothing stemmed", "any_language"),
    ):
        make = functools.partial(_rouge, kind=kind)
        # Tokens, since the model's own text marks its sentences; rouge-score drops punctuation, attached or not.
        yield Protocol(
            name, f"ROUGE-1, 2, L and Lsum of {which}", tokens, None, make, labels, any_text=True,
            needs=("rouge_score", "summarization"),
        )  # fmt: skip
    summary = "CIDEr and ROUGE-L of image captions by pycocoevalcap, as the COCO toolkit counts them"
    yield Protocol(
        "coco", summary, tokens, None, _coco, ("CIDEr", "COCO-ROUGE-L"), any_text=True,
        needs=("pycocoevalcap", "captioning"),
    )  # fmt: skip


PROTOCOLS: Mapping[str, Protocol] = {each.name: each for each in _listed()}
