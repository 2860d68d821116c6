"""Stores the manifest of generated data: contents, inputs, settings and drops; and summarizes it for people."""

import dataclasses
import json
import os
import pathlib
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, NotRequired, Self, TypedDict

from t2t_ext.errors import UserError
from t2t_ext.io import files, stored
from t2t_ext.io.stored import Count, FileEntry


def manifest_path(data_dir: str | os.PathLike, base_name: str) -> pathlib.Path:
    """Returns the path of a problem's manifest."""
    return pathlib.Path(data_dir, f"{base_name}.manifest.json")


def problems_in(directory: str | os.PathLike) -> list[str]:
    """Returns the sorted names of the problems with generated data in a directory; none if it does not exist."""
    path = pathlib.Path(directory)
    end = manifest_path("", "").name
    return sorted(entry.name.removesuffix(end) for entry in path.glob(f"?*{end}")) if path.is_dir() else []


def shard_name(base_name: str, split: str, index: int, count: int) -> str:
    """Returns a shard's file name, which follows T2T's pattern with our suffix."""
    return f"{base_name}-{split}-{index:05d}-of-{count:05d}.npz"


def text_name(base_name: str, split: str, feature: str, reference: int = 0) -> str:
    """Returns the file name of a dev or test set's text; ``reference`` numbers additional references from 1."""
    return f"{base_name}-{split}.{feature}{f'.{reference}' if reference else ''}.txt"


def vocab_name(base_name: str, vocab_size: int, side: str = "") -> str:
    """Returns a subword model's file name; ``side`` is empty if source and target share the model."""
    return f"vocab.{base_name}.{vocab_size}{f'.{side}' if side else ''}.model"


def is_data_file(name: str, base_name: str) -> bool:
    """Returns whether generating this problem writes files with such a name."""
    base = re.escape(base_name)
    patterns = (
        rf"{base}-\w+-\d{{5}}-of-\d{{5}}\.npz",
        rf"{base}-\w+\.\w+(\.\d+)?\.txt",
        rf"{base}-\w+\.\w+-(\d{{5}}|lengths)\.npy",
        rf"vocab\.{base}\.\d+(\.\w+)?\.model",
    )
    return re.fullmatch("|".join(patterns), name) is not None


class StoredManifest:
    """Base class of the manifests of data and of pseudo references, which are dataclasses.

    Class attributes:
      latest_format: The latest ``format_version`` that can be read.
      split_class: Class of the entries of ``splits``.
      again: How to make the files again, for error messages.
    """

    latest_format: ClassVar[int]
    split_class: ClassVar[type]
    again: ClassVar[str]
    files: dict[str, FileEntry]

    @classmethod
    def load(cls, path: str | os.PathLike) -> Self:
        """Reads a manifest.

        Raises:
          UserError: The file is damaged, or a later version of t2t_ext wrote it.
          FileNotFoundError: There is no such file.
        """
        try:
            content = stored.read(path)
            stored.check(content, stored.Versioned)
            if (version := content["format_version"]) > cls.latest_format:
                raise UserError(
                    f"{path} has format {version}, but this t2t_ext reads formats up to {cls.latest_format}; "
                    f"update t2t_ext, or {cls.again}"
                )
            stored.check(content, cls)
            stored.check(content["splits"], dict[str, cls.split_class], "splits")  # type: ignore[name-defined]
            _check_names(content)
            content["splits"] = {name: cls.split_class(**split) for name, split in content["splits"].items()}
            return cls(**content)
        except (IsADirectoryError, PermissionError, ValueError) as error:
            raise UserError(f"{path} is damaged ({error}); {cls.again}") from error

    def damaged_files(self, data_dir: str | os.PathLike, *, checksums: bool = False) -> list[str]:
        """Returns the names of files that are missing or differ from those that were written.

        Args:
          data_dir: The directory of the files.
          checksums: Whether to compare SHA-256 as well; existence and sizes are always checked.
        """
        damaged = []
        for name, expected in self.files.items():
            path = pathlib.Path(data_dir, name)
            intact = path.is_file() and path.stat().st_size == expected["bytes"]
            if not intact or (checksums and files.sha256_of_file(path) != expected["sha256"]):
                damaged.append(name)
        return damaged


def _check_names(content: Mapping[str, Any]) -> None:
    """Raises ``Damaged`` if a file name in a manifest leads out of the manifest's directory."""
    names = [*content["files"]]
    for split in content["splits"].values():
        names += split["shards"]
        for texts in split.get("texts", {}).values():
            names += [texts] if isinstance(texts, str) else texts
        for floats in split.get("floats", {}).values():
            names += [*floats["files"], floats["lengths"]]
    names += [side["file"] for side in content.get("vocab", {}).values() if isinstance(side, dict) and "file" in side]
    for name in names:
        if name != os.path.basename(name) or name in ("", ".", "..") or "\0" in name:
            raise stored.Damaged(f"{stored.shown(name)} is not the name of a file beside it")


class CorpusSummary(TypedDict):
    """One of several corpora: its weight and tag, the number of pairs read, and their occurrences with this weight."""

    weight: float
    tag: str
    pairs: Count
    occurrences: Count


class FloatsSummary(TypedDict):
    """The files of a float-vector feature and their contents; see ``t2t_ext.data.features.float_files``."""

    depth: Count
    storage: str
    sequences: Count
    vectors: Count
    longest: Count
    files: list[str]
    lengths: str


class VocabFile(TypedDict):
    """The text encoder of one side."""

    file: str
    size: Count
    sha256: str


class VocabTraining(TypedDict):
    """What the subword models were trained on, or the files of reused models."""

    reused: NotRequired[list[str]]
    samples_used: NotRequired[Count]
    samples_read: NotRequired[Count]


class VocabSummary(TypedDict):
    """The text encoders of the data; a side of float vectors has none."""

    joint: bool
    training: VocabTraining
    source: NotRequired[VocabFile]
    target: VocabFile


class AugmentationSummary(TypedDict):
    """The method that made augmented data and the problem whose direction they have; other entries are for people."""

    method: str
    problem: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitSummary:
    """The contents of one split.

    Attributes:
      read: Number of samples before any were dropped.
      samples: Number of samples written; with BPE-dropout, every segmentation counts.
      drops: Number of dropped samples by reason.
      notes: Number of lines changed without loss, by kind of change.
      first: The first occurrence of each reason and each kind of change.
      tokens: Number of stored items (EOS included) by feature; for float vectors, the number of vectors kept.
      longest: Largest number of items in one sample, by feature.
      unknown: Number of tokens that are not in the vocabulary, by feature. Omitted from the file if there are none.
      shards: File names, in order.
      texts: File names by feature: for text, the text and then further references; for float vectors, the names of
        the sequences. Dev and test sets only.
      corpora: Weight, tag, pairs read and their occurrences by corpus, if there are several corpora.
      floats: Files and contents of each float-vector feature; see ``t2t_ext.data.features.float_files``.
        Omitted from the file if there are none.
      identical: Number of samples with the same text on both sides, if these are the majority. Otherwise omitted
        from the file, so that data keep the digest from before this was counted.
    """

    read: Count
    samples: Count
    drops: dict[str, Count] = dataclasses.field(default_factory=dict)
    notes: dict[str, Count] = dataclasses.field(default_factory=dict)
    first: dict[str, str] = dataclasses.field(default_factory=dict)
    tokens: dict[str, Count]
    longest: dict[str, Count]
    shards: list[str]
    texts: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    corpora: dict[str, Annotated[dict[str, Any], CorpusSummary]] = dataclasses.field(default_factory=dict)
    floats: dict[str, Annotated[dict[str, Any], FloatsSummary]] = dataclasses.field(default_factory=dict)
    unknown: dict[str, Count] = dataclasses.field(default_factory=dict)
    identical: Count = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest(StoredManifest):
    """Describes a finished set of data files. It records no time or machine, so the same data give the same bytes.

    Attributes:
      problem: The base problem's name.
      problem_options: The options given for the problem.
      source_language: The base problem's source language, or empty.
      target_language: The base problem's target language, or empty.
      settings: Every setting of the generation, with defaults filled in.
      inputs: Name, size in bytes and SHA-256 of every raw file that was read, by split.
      vocab: Files (``source`` and ``target``, the same name if they share a file), sizes, and how models were trained.
      splits: The contents of each split.
      files: Size in bytes and SHA-256 of every file of the set, by name.
      versions: Versions of the software that made the data.
      augmentation: For data made by t2t_ext-augment: the method, the problem whose direction they are for, and what
        they were made from. Omitted from the file for other data.
    """

    latest_format = 1
    split_class = SplitSummary
    again = "generate the data again: t2t_ext-datagen --overwrite."

    format_version: int = latest_format
    problem: str
    problem_options: dict[str, Any]
    source_language: str
    target_language: str
    settings: dict[str, Any]
    inputs: dict[str, list[dict[str, Any]]]
    vocab: Annotated[dict[str, Any], VocabSummary]
    splits: dict[str, SplitSummary]
    files: dict[str, FileEntry]
    versions: dict[str, str]
    augmentation: Annotated[dict[str, Any], AugmentationSummary] = dataclasses.field(default_factory=dict)

    def command(self, data_dir: str | os.PathLike) -> str:
        """Returns the command that makes the data again from the same raw files, for the end of a message."""
        if self.augmentation:
            made = f"--problem={self.augmentation['problem']} --method={self.augmentation['method']}"
            return f"t2t_ext-augment {made} --output_data_dir={data_dir} ... --overwrite"
        flags = {"problem": self.problem, "data_dir": data_dir}
        if self.problem_options:
            flags["problem_options"] = ",".join(f"{name}={value}" for name, value in self.problem_options.items())
        given = shlex.join(f"--{name}={value}" for name, value in flags.items())
        return f"t2t_ext-datagen {given} --overwrite and what else you gave"

    def to_json(self) -> str:
        """Returns the manifest as JSON text."""
        content = dataclasses.asdict(self)
        if not self.augmentation:
            del content["augmentation"]
        for split in content["splits"].values():
            for name in ("floats", "unknown", "identical"):
                if not split[name]:  # keeps the digest from before these fields existed
                    del split[name]
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def describe_file(path: str | os.PathLike) -> FileEntry:
    """Returns a file's size in bytes and SHA-256 as a manifest lists them."""
    return {"bytes": os.path.getsize(path), "sha256": files.sha256_of_file(path)}


# There is a warning if at least this share of the samples was dropped.
LOUD_SHARE = 0.1
# There is a warning if at least this share of the tokens is unknown.
LOUD_UNKNOWN_SHARE = 0.005
# There is a warning if more than this share of the pairs has the same text on both sides.
LOUD_IDENTICAL_SHARE = 0.5
REASONS = {
    "empty": "an empty side",
    "line_feeds": "a line feed within a text became a space",
    "too_long": "too long",
    "length_ratio": "length ratio",
    "invalid_utf8": "invalid UTF-8",
    "wrong_columns": "wrong number of columns",
    "no_translation": "no text in one of the languages",
    "duplicate_segment": "a segment id that is there twice",
    "misaligned_segment": "a segment without its translation",
    "extra_segment": "a translation without its segment",
    "encoding": "damaged characters (encoding)",
    "too_few_words": "too few words",
    "too_many_words": "too many words",
    "word_ratio": "ratio of words",
    "identical": "source and target identical",
    "script": "another script than the language's",
    "language": "the other side's language",
    "numbers": "different numbers",
    "test_overlap": "stands in a dev or test set",
    "duplicate": "occurred before",
    "carriage_returns": "a carriage return before the line feed removed",
    "byte_order_mark": "a byte order mark at the beginning of the file removed",
    "unpaired_file": "a file without its other side",
    "missing_features": "no features",
    "damaged_features": "damaged features",
    "no_caption": "no caption",
    "missing_story": "a story whose file is not there",
    "empty_article": "a story without an article",
    "no_highlights": "a story without highlights",
}


def in_words(reason: str) -> str:
    """Returns a drop reason or a note in words; a user's own problem may have reasons that are not in ``REASONS``."""
    return REASONS.get(reason, reason)


def summary_lines(
    manifest: Manifest,
    data_dir: str | os.PathLike,
    published: Mapping[str, int] | None = None,
    *,
    vocab_from: str = "",
) -> Iterator[str]:
    """Yields lines that say what was generated, what was dropped and why, and how this compares with ``published``.

    ``published`` holds published numbers of pairs by split. ``vocab_from`` is the run whose subword models were reused.
    The manifest does not name it, because the data do not depend on where the run is.
    """
    settings = manifest.settings
    yield f"{manifest.problem} in {data_dir}:"
    of_one_side = any(split.floats for split in manifest.splits.values())
    yield f"  {_vocabulary(manifest, vocab_from, of_one_side=of_one_side)}"
    for side in ("source", "target"):
        if settings.get(f"{side}_steps", "none") != "none":
            yield f"  {side} text: {settings[f'{side}_steps']}"
    if settings.get("cleaning"):
        yield "  cleaning: " + ", ".join(f"{name}={value}" for name, value in settings["cleaning"].items())
    for name, split in manifest.splits.items():
        is_weighted = any(corpus["weight"] != 1 for corpus in split.corpora.values())
        by_weights = ", by the weights below" if is_weighted else ""
        segmentations = settings.get("segmentations", 1) if name == "train" else 1
        count = split.samples // segmentations
        kept = f"{count:,} of {split.read:,}" if split.drops and not is_weighted else f"{count:,}"
        shards = f"{kept} samples in {len(split.shards)} shard{'s' if len(split.shards) > 1 else ''}{by_weights}"
        shards += f", each in {segmentations} segmentations" if segmentations > 1 else ""
        as_published = beside_published(count, (published or {}).get(name))
        yield f"  {name}: {shards}; {', '.join(_sizes(split))}{as_published}"
        for corpus, counted in split.corpora.items():
            yield f"    {corpus_line(corpus, counted)}"
        # If weights repeat a pair, every occurrence is a sample, but a drop counts only once.
        pairs = " pairs" if is_weighted else ""
        for what, counts in ((f"dropped {{:,}}{pairs}", split.drops), ("changed {:,}", split.notes)):
            for reason, count in counts.items():
                where = f" (first: {split.first[reason]})" if reason in split.first else ""
                yield f"    {what.format(count)}: {in_words(reason)}{where}"
        dropped = sum(split.drops.values())
        if dropped >= LOUD_SHARE * split.read and not is_weighted:
            yield f"    warning: {dropped / split.read:.0%} of {name} was dropped. {_remedy(split)}".rstrip()
        if split.identical:
            drops = (
                " A model of them learns to copy; --cleaning=identical=true drops such pairs."
                if name == "train"
                else ""
            )
            yield (
                f"    warning: {split.identical:,} pairs of {name}, most of them, have the same text on both sides. Do "
                f"the files hold translations?{drops}"
            )
    yield from _warnings_of_unknown_tokens(manifest)


def _remedy(split: SplitSummary) -> str:
    """Returns what to do about many drops, by the most frequent reason; the doctor examines only text."""
    if max(split.drops, key=split.drops.__getitem__) == "invalid_utf8":
        return (
            "Find out the encoding of the files, convert them (iconv -f ISO-8859-1 -t UTF-8 FILE > NEW), start again."
        )
    return "" if split.floats else "t2t_ext-doctor with the same flags shows examples of every reason."


def _warnings_of_unknown_tokens(manifest: Manifest) -> Iterator[str]:
    """Yields warnings about texts with many unknown tokens, which a model would also learn to generate."""
    for name, split in manifest.splits.items():
        shares = {feature: count / split.tokens[feature] for feature, count in split.unknown.items()}
        loud = [f"{share:.1%} of the {feature}" for feature, share in shares.items() if share >= LOUD_UNKNOWN_SHARE]
        if loud:
            yield f"  warning: {name}: {' and '.join(loud)} are unknown tokens. {_remedy_of_unknown_tokens(manifest)}"


def _remedy_of_unknown_tokens(manifest: Manifest) -> str:
    asked = manifest.vocab["training"].get("asked_size")
    largest = max(manifest.vocab[side]["size"] for side in ("source", "target"))
    if manifest.settings.get("subwords") == "subword_nmt" and asked and largest >= asked:
        return (
            f"--vocab_size={asked} leaves the rarest subwords out; for a smaller vocabulary without unknown tokens "
            "leave it out and give fewer merges (--num_merges)."
        )
    if "reused" in manifest.vocab["training"]:
        return "The vocabulary is not of this text: make one of it, or clean the text of characters that are not meant."
    return (
        "They are characters that the training text has not, or too rarely: clean the text of those that are not "
        "meant, give more training text, or use --subwords=sentencepiece, which spells them in bytes."
    )


def _sizes(split: SplitSummary) -> Iterator[str]:
    """Yields the size of each feature in words."""
    for name, count in split.tokens.items():
        kept = split.floats.get(name)
        if kept:
            yield (
                f"{name} {count:,} vectors of {kept['depth']:,} x {kept['storage']} in {kept['sequences']:,} sequences "
                f"(longest {kept['longest']:,})"
            )
        else:
            unknown = f", {split.unknown[name]:,} unknown" if split.unknown.get(name) else ""
            yield f"{name} {count:,} tokens (longest {split.longest[name]:,}{unknown})"


def beside_published(count: int, published: int | None) -> str:
    """Returns text to print after a number of pairs: the published number, and by how much they differ."""
    if not published:
        return ""
    if count == published:
        return "; as published"
    return f"; published: {published:,} ({count - published:+,}, {(count - published) / published:+.2%})"


def _vocabulary(manifest: Manifest, vocab_from: str, *, of_one_side: bool) -> str:
    vocab, training = manifest.vocab, manifest.vocab["training"]
    if of_one_side:
        sizes = f"{vocab['target']['size']:,} subwords"
    elif vocab["joint"]:
        sizes = f"{vocab['source']['size']:,} subwords, source and target joint"
    else:
        sizes = f"{vocab['source']['size']:,} source and {vocab['target']['size']:,} target subwords"
    if "reused" in training:
        return f"{sizes}; reused from {', '.join(os.path.join(vocab_from, name) for name in training['reused'])}"
    used, read = training["samples_used"], training["samples_read"]
    share = f"all {read:,}" if used == read else f"a sample of {used:,} of the {read:,}"
    return f"{sizes}; trained on {share} training samples"


def corpus_line(name: str, counted: Mapping[str, Any]) -> str:
    """Returns a line about a corpus: its pairs, its weight, how often its pairs occur with this weight, and its tag."""
    tag = f", tag {counted['tag']}" if counted["tag"] else ""
    if counted["weight"] == 1:
        return f"{name}: {counted['pairs']:,} pairs{tag}"
    return f"{name}: {counted['pairs']:,} pairs, weight {counted['weight']:g}: {counted['occurrences']:,}{tag}"
