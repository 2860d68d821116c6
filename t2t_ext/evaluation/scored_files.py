"""Reads translations, references and source for scoring: plain lines, or SGML of NIST and WMT.

Translations may also be n-best lists (known by ``.jsonl`` or by how they begin, possibly compressed; the first
hypothesis of each line is used) or folders of t2t_ext-translate-all (the last checkpoint's translations are used).
"""

import dataclasses
import os
import pathlib
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from t2t_ext.data.corpora import compression, markup, raw_files, text_lines
from t2t_ext.errors import UserError
from t2t_ext.io import inputs, stored

_SGML_NAME = re.compile(rf"\.sgml?({'|'.join(map(re.escape, compression.SUFFIXES))})$", re.I)
_SGML_TEXT = re.compile(rb"\s*<(\?xml\b|!doctype\b|(mteval|srcset|refset|tstset)\b)", re.I)
_NBEST_TEXT = re.compile(rb'\{"line": \d+, "source": "')
_SHOWN = 3
_Key = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Text:
    """A text: one string per segment.

    Attributes:
      name: The file, with the system if the file has several.
      system: The system's id in an SGML file; "" if there is none and for plain files.
      lines: The segments, as a sequence, or as ``StoredLines`` if requested.
      keys: Document and segment id of each segment; None for a plain file.
      directions: The winning direction of each segment, ``l2r`` or ``r2l`` ("" if there was nothing to translate), for
        a model with both directions; otherwise None.
    """

    name: str
    system: str
    lines: Any
    keys: Sequence[_Key] | None = None
    directions: Sequence[str] | None = None


@dataclasses.dataclass(frozen=True)
class ScoredFiles:
    """Translations with the references to score them against; all have the same segments in the same order.

    Attributes:
      translations: One text per system; an SGML file may have several systems.
      references: One text per set of references.
      source: The source, or None.
    """

    translations: Sequence[Text]
    references: Sequence[Text]
    source: Text | None


def read(
    translations: Sequence[str],
    references: Sequence[str],
    source: str = "",
    *,
    tokenized: bool = False,
    streamed: bool = False,
) -> ScoredFiles:
    """Reads files and puts their segments in the order of the first SGML file among source, references, translations.

    Args:
      translations: Files or folders of translations; ``-`` is standard input.
      references: One file per set of references; an SGML file may hold several sets.
      source: The source file; "" if there is none.
      tokenized: Whether to read the model's tokens instead of the text, if an n-best list or folder has both.
      streamed: Whether the lines of plain files are ``StoredLines``.

    Returns:
      The texts.

    Raises:
      UserError: A file is missing, empty, damaged or given twice, numbers of lines differ, or segments are missing.
    """
    for number, path in enumerate(references):
        if not path:
            raise UserError("--reference has an empty name of a file. Write --reference=FILE or --reference=FILE,FILE.")
        if path in references[:number]:
            raise UserError(f"--reference names {path} twice. Give each file once.")
    if [*translations, *references, source].count(text_lines.STANDARD) > 1:
        raise UserError("Several of the files are - (standard input), which is read once: give files for all but one.")
    sources = _read_file(source, "srcset", streamed)[:1] if source else []
    sets = [text for path in references for text in _read_file(path, "refset", streamed)]
    systems = read_translations(translations, tokenized=tokenized, streamed=streamed)
    every = [*sources, *sets, *systems]
    order = next((text for text in every if text.keys is not None), None)
    if order is not None:
        every = [_ordered(text, order) for text in every]
    for text in every[:-1]:
        advice = "Check that both belong to the same input; a line ends at LF only."
        text_lines.check_as_many(every[-1], text, advice)
    split = len(sources), len(sources) + len(sets)
    return ScoredFiles(every[split[1] :], every[split[0] : split[1]], every[0] if sources else None)


def read_beside(
    translations: Sequence[str],
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    name: str,
    *,
    tokenized: bool = False,
) -> ScoredFiles:
    """Reads translations, as ``read`` does, for a split whose sources and references are known.

    ``references`` is one list per set, in the form that is scored; ``name`` is the split's name, for messages.

    Raises:
      UserError: As for ``read``.
    """
    texts = read_translations(translations, tokenized=tokenized)
    source = Text(name, "", sources)
    for text in texts:
        text_lines.check_as_many(source, text, "Give translations of that split.")
    return ScoredFiles(texts, [Text(name, "", each) for each in references], source)


def read_translations(paths: Sequence[str], *, tokenized: bool = False, streamed: bool = False) -> list[Text]:
    """Returns translations in any of the forms that ``read`` accepts, one text per system.

    Raises:
      UserError: A file is missing, empty or damaged.
    """
    systems = []
    for path in paths:
        if os.path.isdir(path):
            systems.append(_read_folder(pathlib.Path(path), tokenized))
        elif _is_nbest(path):
            systems.append(_read_nbest(path, tokenized))
        else:
            systems += _read_file(path, "tstset", streamed)
    return systems


def _is_nbest(path: str) -> bool:
    name = path
    for suffix in filter(None, compression.SUFFIXES):
        name = name.removesuffix(suffix)
    return name.endswith(".jsonl") or _begins(path, _NBEST_TEXT)


def check_given_once(paths: Sequence[str]) -> None:
    """Raises a UserError unless there are translations, each given once."""
    if not paths:
        raise UserError("No translations are given. Write their files after the flags: --reference=R A.txt B.txt")
    seen: dict[str, str] = {}
    for path in paths:
        real = os.path.realpath(path)
        if real in seen:
            raise UserError(
                f"{path} is the same file as {seen[real]}, given before. A system compared with itself tells nothing."
            )
        seen[real] = path


def system_names(translations: Sequence[Text], given: str) -> list[str]:
    """Returns the systems' names: the given ones, or SGML ids or file names, or whole paths if these are not unique.

    Raises:
      UserError: The number of given names is wrong, or they are not unique.
    """
    count = len(translations)
    if given:
        names = [name.strip() for name in given.split(",")]
        if len(names) != count or len(set(names)) < count or not all(names):
            raise UserError(
                f"--names={given} has {len(names)} names for {count} translations. Give each of them a name of its own."
            )
        return names
    names = [each.system or pathlib.PurePath(each.name).name.split(".")[0] for each in translations]
    return names if len(set(names)) == count and all(names) else [each.name for each in translations]


def source_lengths(source: Text | None, unit: str, subword_model: str = "") -> list[int] | None:
    """Returns the length of each source line in ``characters`` or ``subwords``; None for ``words``.

    Raises:
      UserError: The source or the subword model is missing, or the subword model is not used.
    """
    if subword_model and unit != "subwords":
        raise UserError("--subword_model is used with --length_unit=subwords only. Give both, or leave it out.")
    if unit == "words":
        return None
    if source is None:
        raise UserError(f"--length_unit={unit} counts the source's {unit}: give --source=FILE.")
    if unit == "characters":
        return [len(line) for line in source.lines]
    if not subword_model:
        raise UserError("--length_unit=subwords needs the source's subwords: give --subword_model=FILE.")
    from t2t_ext.data.text.text_encoder import SubwordEncoder

    encoder = SubwordEncoder.from_file(subword_model)
    return [len(ids) for ids in encoder.encode_batch(encoder.prepare(source.lines))]


class _NBest(TypedDict):
    text: str
    prepared: NotRequired[str]
    direction: NotRequired[str]
    length: NotRequired[stored.Count]


class _NBestLine(TypedDict):
    """The fields that are read from a line of an n-best list."""

    hypotheses: list[_NBest]


def _read_nbest(path: str, tokenized: bool) -> Text:
    """Reads the best hypothesis of each line of an n-best list, as written by t2t_ext-decoder and t2t_ext-rerank."""
    lines, directions = [], []
    for number, line in enumerate(text_lines.stored(path).lines, start=1):
        try:
            best: Mapping[str, Any] = stored.parse(line, _NBestLine)["hypotheses"][0]
        except (ValueError, LookupError) as error:
            reason = "hypotheses is empty" if isinstance(error, LookupError) else error
            raise UserError(
                f"{path}, line {number} is no line of an n-best list ({reason}). Files that end in .jsonl, or begin "
                "like those of --nbest_file, are n-best lists; give translations another ending."
            ) from error
        lines.append(text_lines.one_line(best.get("prepared", best["text"]) if tokenized else best["text"]))
        directions.append(sys.intern(best.get("direction", "") if best.get("length", 1) else ""))
    both = any(directions) and set(directions) <= {"l2r", "r2l", ""}
    return _not_empty(Text(path, "", lines, directions=directions if both else None))


def _read_folder(folder: pathlib.Path, tokenized: bool) -> Text:
    """Reads the translations of the last checkpoint in a folder of t2t_ext-translate-all."""
    from t2t_ext.evaluation.score_table import RECORDS_NAME, ScoreTable

    if not (folder / RECORDS_NAME).exists():
        raise UserError(f"{folder} is no folder of t2t_ext-translate-all: it has no {RECORDS_NAME}. Give a file.")
    records = ScoreTable(folder).records
    if not records:
        raise UserError(f"{folder} holds no translations yet. Run t2t_ext-translate-all first.")
    path = folder / records[-1].translations
    prepared = path.with_suffix(".prepared.txt")
    won = path.with_suffix(".directions.txt")
    lines = text_lines.read(str(prepared if tokenized and prepared.exists() else path)).lines
    directions = text_lines.read(str(won)).lines if won.exists() else None
    return _not_empty(Text(str(folder), "", lines, directions=directions))


def _read_file(path: str, kind: str, streamed: bool) -> list[Text]:
    if not _is_sgml(path):
        return [_not_empty(Text(path, "", text_lines.stored(path).lines if streamed else text_lines.read(path).lines))]
    systems: dict[str, dict[_Key, str]] = {}
    for segment in markup.read_segments(_on_disk(path)):
        if segment.kind not in (kind, ""):
            raise UserError(
                f"{path}, line {segment.line}: a segment in a <{segment.kind}>, where a <{kind}> is expected. "
                "Check which file is source, reference and translation."
            )
        texts = systems.setdefault(segment.system, {})
        key = (segment.document, segment.id)
        if key in texts:
            raise UserError(
                f"{path}, line {segment.line}: segment {segment.id!r} of document {segment.document!r} is there twice. "
                "Several translations in one file are told apart by the sysid of <doc>."
            )
        texts[key] = segment.text
    if not systems:
        raise UserError(f"{path} holds no segments: no <seg> in a <doc>.")
    several = len(systems) > 1
    return [
        Text(f"{path} ({system})" if several else path, system, list(texts.values()), list(texts))
        for system, texts in systems.items()
    ]


def _is_sgml(path: str) -> bool:
    return _SGML_NAME.search(path) is not None or _begins(path, _SGML_TEXT)


def _on_disk(path: str) -> str:
    """Returns the path to read: standard input, which would be read only once, is saved to a private file."""
    return str(inputs.keep_standard_input()) if path == text_lines.STANDARD else path


def _begins(path: str, pattern: re.Pattern[bytes]) -> bool:
    """Returns whether a file or standard input begins with a pattern."""
    try:
        with raw_files.opened(_on_disk(path)) as file:
            return pattern.match(file.read(1024).removeprefix(b"\xef\xbb\xbf")) is not None
    except (OSError, UserError):
        return False  # the line reader reports the error


def _not_empty(text: Text) -> Text:
    if not len(text.lines):
        raise UserError(f"{text.name} is empty. A score needs at least one line.")
    return text


def _ordered(text: Text, order: Text) -> Text:
    """Returns a text with its segments in the order of another; plain lines are assumed to be in that order already."""
    assert order.keys is not None
    if text.keys is None or text is order:
        return text
    found: Mapping[_Key, str] = dict(zip(text.keys, text.lines, strict=True))
    _check_keys([key for key in order.keys if key not in found], text.name, order.name)
    known = set(order.keys)
    _check_keys([key for key in text.keys if key not in known], order.name, text.name)
    return dataclasses.replace(text, lines=[found[key] for key in order.keys], keys=order.keys)


def _check_keys(missing: Sequence[_Key], name: str, other: str) -> None:
    if missing:
        shown = ", ".join(f"{segment!r} of document {document!r}" for document, segment in missing[:_SHOWN])
        more = ", ..." if len(missing) > _SHOWN else ""
        raise UserError(
            f"{name} lacks {len(missing)} segment(s) that {other} has: {shown}{more}. Both must have the same ids."
        )
