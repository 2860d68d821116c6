"""Prepares text before subword segmentation, and restores text from the output of a model.

Each step has a name, works on the language of one side, and states which parts of a text it
cannot restore. A chain of steps is checked when it is created. Some steps, such as the truecaser,
learn from training text. A chain writes a record, from which it can be created again anywhere.

steps = TextSteps(("moses_tokenize", "lowercase"), "de")
steps.prepare(["Guten Morgen!"])     # ["guten morgen !"]
steps.restore(["guten morgen !"])    # ["guten morgen!"]
"""

import functools
import importlib.metadata
import itertools
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from t2t_ext.data.text import chinese_steps, document_steps, moses_steps
from t2t_ext.data.text.step import Stage, Step
from t2t_ext.errors import UserError, require_package, suggest


class Nfc(Step):
    """Normalizes text to Unicode's canonical composition (NFC)."""

    name, stage = "nfc", Stage.UNICODE
    meaning = "Unicode normalization form C: one spelling for each composed character"
    loss = "how composed characters were spelt"
    _form: ClassVar[Literal["NFC", "NFKC"]] = "NFC"

    def prepare(self, text: str) -> str:
        """Returns the text in this normalization form."""
        return unicodedata.normalize(self._form, text)


class Nfkc(Nfc):
    """Normalizes text to Unicode's compatibility composition (NFKC)."""

    name = "nfkc"
    meaning = "Unicode normalization form KC: also ligatures, full-width and superscript characters become plain ones"
    loss = "how composed characters were spelt, and compatibility forms such as ﬁ, Ａ and ²"
    _form = "NFKC"


class HyphenSplit(Step):
    """Splits hyphens as Moses does with ``tokenizer.perl -a``, but after tokenization."""

    name, stage = "hyphen_split", Stage.HYPHENS
    meaning = "a hyphen between letters or digits becomes a word of its own, @-@"
    loss = "the difference between a hyphen and a word @-@ that the text itself held"

    def prepare(self, text: str) -> str:
        """Returns ``a @-@ b`` for ``a-b``."""
        return _HYPHEN.sub(r"\1 @-@ ", text)

    def restore(self, text: str) -> str:
        """Returns ``a-b`` for ``a @-@ b``."""
        return text.replace(" @-@ ", "-")


class Lowercase(Step):
    """Lowercases text."""

    name, stage = "lowercase", Stage.CASE
    meaning = "all letters in lower case"
    loss = "the case of every letter: translations are in lower case"

    def prepare(self, text: str) -> str:
        """Returns the lowercased text."""
        return text.lower()


_HYPHEN = re.compile(r"([^\W_])-(?=[^\W_])")


def step_classes() -> dict[str, type[Step]]:
    """Returns a dictionary from step names to step classes, in the order of the stages."""
    own = (Nfc, Nfkc, HyphenSplit, Lowercase)
    classes: list[type[Step]] = [*own, *moses_steps.STEPS, *chinese_steps.STEPS, *document_steps.STEPS]
    return {kind.name: kind for kind in sorted(classes, key=lambda kind: kind.stage)}


def step_class(name: str) -> type[Step]:
    """Returns the class of a valid step's name, such as ``lowercase`` or ``first_400_words``."""
    return step_classes()[document_steps.general_name(name)]


def parse_steps(text: str, flag: str) -> tuple[str, ...]:
    """Returns the step names in the value of a flag, which are separated by commas; ``none`` means no steps.

    Raises:
      UserError: As in ``check_steps``, which does not check the language here.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    names = () if names == ("none",) else names
    check_steps(names, "", flag)
    return names


def check_steps(names: Sequence[str], language: str, what: str = "The steps") -> None:
    """Checks that all steps exist and form a valid chain.

    Args:
      names: The names of the steps, first to last.
      language: The language of the text, a tag such as ``zh-Hant``, or empty.
      what: Where the names come from, for messages.

    Raises:
      UserError: A name is unknown, two steps exclude each other, a step is in the wrong place, lacks a package, or
        does not support the language.
    """
    known = step_classes()
    shown = f"{what}={','.join(names)}" if what.startswith("-") else f"{what} {','.join(names)}"
    for name in names:
        if document_steps.general_name(name) not in known or name == "first_N_words":
            raise UserError(
                f"{shown}: there is no step {name!r}.{suggest(name, known)} In order: {', '.join(known)} (N a number "
                f"from 1 to {document_steps.MOST_FIRST_WORDS:,}); or none."
            )
    kinds = [known[document_steps.general_name(name)] for name in names]
    if {Stage.SENTENCES, Stage.LENGTH} <= {kind.stage for kind in kinds}:
        raise UserError(
            f"{shown}: sentence_tags and first_N_words exclude each other: each sentence would be truncated instead of "
            f"the text."
        )
    for (name, before), (next_name, after) in itertools.pairwise(zip(names, kinds, strict=True)):
        if name == next_name:
            raise UserError(f"{shown}: {name} is given twice; once is enough.")
        if before.stage == after.stage:
            raise UserError(f"{shown}: {name} and {next_name} exclude each other ({_WHY[before.stage]}).")
        if before.stage > after.stage:
            in_order = sorted(zip(names, kinds, strict=True), key=lambda pair: pair[1].stage)
            raise UserError(
                f"{shown}: {next_name} must come before {name}, {_WHY[after.stage]}. Write "
                f"{','.join(each for each, _ in in_order)}."
            )
    words = any(kind.stage == Stage.WORDS for kind in kinds)
    for kind in kinds:
        if (kind.stage == Stage.HYPHENS and not words) or (kind.learns and not words):
            raise UserError(
                f"{shown}: {kind.name} needs words separated by spaces; put moses_tokenize before it, or tokenized "
                "where the text has been tokenized already."
            )
        complaint = kind.complaint(base_language(language)) if language else ""
        if complaint:
            raise UserError(f"{shown} for the language {language}: {complaint}")
        for package in kind.packages if kind.extra else ():
            require_package(package, kind.extra, f"{shown}: the step")


_WHY = {
    Stage.SENTENCES: "since the others work on each sentence",
    Stage.LENGTH: "since it counts the words that the others have found",
    Stage.UNICODE: "since it decides what a character is",
    Stage.PUNCTUATION: "since it works on running text",
    Stage.WORDS: "since it finds the words",
    Stage.HYPHENS: "since it divides words",
    Stage.CASE: "since it decides how letters are written",
}


def base_language(tag: str) -> str:
    """Returns the base language of a tag, such as ``zh`` for ``zh-Hant`` and ``zh_CN``."""
    return re.split(r"[-_]", tag)[0].lower()


def _chain(functions: Sequence[Callable[[str], str]]) -> Callable[[str], str]:
    """Returns a function that applies the given functions in order."""
    return lambda text: functools.reduce(lambda made, function: function(made), functions, text)


class TextSteps:
    """A chain of text steps for one side.

    Attributes:
      names: The names of the steps, first to last.
      language: The language of this side, a tag such as ``de``; empty if unknown.
      tags: Words such as ``<2de>`` at the beginning of a line, which no step changes.
    """

    def __init__(
        self,
        names: Sequence[str] = (),
        language: str = "",
        *,
        tags: Sequence[str] = (),
        learned: Mapping[str, bytes] | None = None,
    ) -> None:
        """Creates a chain; ``learned`` maps the names of steps to what they have learned.

        Raises:
          UserError: As in ``check_steps``, or a tag is not a single word.
        """
        check_steps(names, language)
        for tag in tags:
            if not tag or tag.split() != [tag]:
                raise UserError(f"The tag {tag!r} is not one word; tags are words such as <2de>.")
        self.names, self.language, self.tags = tuple(names), language, tuple(tags)
        known = step_classes()
        self._steps: list[Step] = []
        for name in names:
            count = document_steps.count_in(name)
            kind = functools.partial(document_steps.FirstWords, count=count) if count else known[name]
            self._steps.append(kind(base_language(language), (learned or {}).get(name)))
        self._by_sentence = any(step.stage == Stage.SENTENCES for step in self._steps)
        self._tags = re.compile(rf"(?:(?:{'|'.join(map(re.escape, tags))})(?: +|$))+") if tags else None

    def __bool__(self) -> bool:
        return bool(self._steps)

    @property
    def learned(self) -> dict[str, bytes]:
        """What the steps have learned, by step name."""
        return {step.name: step.learned for step in self._steps if step.learned is not None}

    @property
    def unlearned(self) -> tuple[str, ...]:
        """The names of the steps that still have to learn."""
        return tuple(step.name for step in self._steps if step.learns and step.learned is None)

    def until(self, name: str) -> Self:
        """Returns a chain of the steps that come before the given step."""
        return type(self)(self.names[: self.names.index(name)], self.language, tags=self.tags, learned=self.learned)

    def with_learned(self, name: str, learned: bytes) -> Self:
        """Returns a copy of the chain in which the given step has learned ``learned``."""
        return type(self)(self.names, self.language, tags=self.tags, learned={**self.learned, name: learned})

    def learn(self, name: str, texts: Iterable[str]) -> bytes:
        """Returns what a step learns from texts that the previous steps have prepared."""
        if self._by_sentence:
            texts = (sentence for text in texts for sentence in document_steps.sentences(text))
        return self._steps[self.names.index(name)].learn(texts)

    def prepare(self, texts: Sequence[str], *, sentences: bool = True, since: str = "") -> list[str]:
        """Applies the steps to texts and returns the results.

        Args:
          texts: Any strings, each a line.
          sentences: Whether the texts are complete sentences. Phrases do not begin or end like sentences, and they are
            not truncated.
          since: The first step to apply, if the steps before it have already prepared the texts; empty for all steps.
        """
        steps = self._steps[self.names.index(since) if since else 0 :]
        # The truecaser changes the beginning of a sentence, so phrases do not pass through it.
        steps = [step for step in steps if sentences or not step.learns]
        return self._prepared(texts, steps, is_open=not sentences)

    def prepare_beginnings(self, texts: Sequence[str]) -> list[str]:
        """Applies the steps to beginnings of texts; the last tagged sentence gets no end tag if it had none.

        An abbreviation at the end remains one word, as in the middle of a text, and nothing is truncated.
        """
        prepared = self._prepared(texts, self._steps, is_open=True)
        return list(map(document_steps.left_open, prepared, texts)) if self._by_sentence else prepared

    def restore(self, prepared: Sequence[str]) -> list[str]:
        """Undoes the steps and returns texts for people."""
        if not self._steps:
            return list(prepared)
        if self._by_sentence:
            parts = [self._restored(document_steps.sentences(text)) for text in prepared]
            return [" ".join(filter(None, each)) for each in parts]
        return self._restored(prepared)

    def _prepared(self, texts: Sequence[str], steps: Sequence[Step], *, is_open: bool) -> list[str]:
        """Applies the given steps to texts; ``is_open`` says that the texts may continue."""
        if not steps:
            return list(texts)
        whole = _chain([step.prepare for step in steps])
        end = _chain([step.prepare_open for step in steps]) if is_open else whole
        return [self._apply(text, whole, end) for text in texts]

    def _restored(self, prepared: Sequence[str]) -> list[str]:
        restore = _chain([step.restore for step in reversed(self._steps)])
        return [self._apply(text, restore, restore) for text in prepared]

    def record(self) -> dict[str, Any]:
        """Returns a JSON-compatible description of what the steps do and of what cannot be undone."""
        packages = sorted({package for step in self._steps for package in step.packages})
        return {
            "language": self.language,
            "steps": [
                {"name": each.name, "meaning": each.meaning, "not_restored": each.loss or "nothing"}
                for each in self._steps
            ],
            **({"tags": list(self.tags)} if self.tags else {}),
            "packages": {package: importlib.metadata.version(package) for package in packages},
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any], learned: Mapping[str, bytes]) -> Self:
        """Returns the chain that a record describes, and warns if another version of a library is installed.

        Raises:
          UserError: As for a new chain.
          KeyError: The record lacks a key.
        """
        steps = cls(
            [step["name"] for step in record["steps"]],
            record["language"],
            tags=record.get("tags", ()),
            learned=learned,
        )
        for package, version in record["packages"].items():
            installed = importlib.metadata.version(package)
            if installed != version:
                warnings.warn(
                    f"the text was prepared with {package} {version}, but {installed} is installed: words may be "
                    f"split otherwise than in training. pip install {package}=={version} makes them equal.",
                    stacklevel=2,
                )
        return steps

    def _apply(self, text: str, apply: Callable[[str], str], apply_open: Callable[[str], str]) -> str:
        """Applies a function to a text, or to each of its tagged sentences, and keeps the tags.

        ``apply_open`` is used instead for untagged text and for a last sentence without an end tag.
        """
        found = self._tags.match(text) if self._tags else None
        tags, text = (found[0].split(), text[found.end() :]) if found else ([], text)
        by_sentence = document_steps.sentence_by_sentence
        text = by_sentence(text, apply, apply_open) if self._by_sentence else apply_open(text)
        return " ".join([*tags, text]) if text else " ".join(tags)
