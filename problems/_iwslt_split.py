"""Splits IWSLT14 German-English as is widely done: clean the training text, then make every 23rd line dev.

The text is tokenized only to count words for the cleaning. The files keep the raw text; the problem's own steps
tokenize it again later. The result has its own directory below ``--tmp_dir`` and is remade if a raw file changes.
"""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from t2t_ext.data.corpora.readers import PairFiles, PairSource, ReadReport
from t2t_ext.data.generation.cleaning import Cleaning, clean_pairs
from t2t_ext.data.text.text_steps import TextSteps
from t2t_ext.io import files as persistence
from t2t_ext.io import stored
from t2t_ext.io.progress import Advance, progress
from t2t_ext.problem import DEV, TRAIN

DEV_EVERY = 23
STEPS = ("moses_tokenize",)
CLEANING = {"min_words": 1, "max_words": 175, "max_word_ratio": 1.5}
_RECORD = "split.json"
_STEMS = {TRAIN: "train", DEV: "valid"}


def make(directory: pathlib.Path, pair: tuple[str, str], text: PairSource) -> None:
    """Cleans and splits the training text, unless this was already done with the same files.

    Args:
      directory: Where the four files go; they appear all at once.
      pair: Source and target language.
      text: The whole training text.

    Raises:
      UserError: A file is damaged, or the disk is full. No partial result is left behind.
    """
    made_from = _made_from(text)
    if _record(directory).get("made_from") == made_from:
        return
    report = ReadReport()
    persistence.remove_leftovers(directory.parent)
    with persistence.atomic_directory(directory) as temporary:
        with progress("Cleaning and splitting the training text", text.count(), "pairs") as advance:
            steps = [TextSteps(STEPS, language) for language in pair]

            def prepare(*sides: Sequence[str]) -> tuple[list[str], ...]:
                return tuple(step.prepare(texts) for step, texts in zip(steps, sides, strict=True))

            counted = _counted(text.read(report), advance)
            cleaning = Cleaning.from_settings(CLEANING)
            cleaned = clean_pairs(counted, cleaning=cleaning, languages=pair, prepare=prepare, report=report)
            lines = _write(temporary, pair, cleaned)
        record = {
            "made_from": made_from,
            "lines": lines,
            "drops": dict(report.drops),
            "notes": dict(report.notes),
            "first": report.first,
            "explanations": report.explanations,
        }
        (temporary / _RECORD).write_text(json.dumps(record, ensure_ascii=False, indent=1), encoding="utf-8")


def files(directory: pathlib.Path, pair: tuple[str, str], split: str) -> PairFiles:
    """Returns the two files of the train or dev split."""
    return PairFiles.aligned(directory / f"{_STEMS[split]}.{language}" for language in pair)


def add_drops(directory: pathlib.Path, report: ReadReport) -> None:
    """Adds to a report what was changed and dropped when the text was read and cleaned before the split."""
    record = _record(directory)
    report.drops.update(record.get("drops", {}))
    report.notes.update(record.get("notes", {}))
    report.first.update(record.get("first", {}))
    report.explanations.update(record.get("explanations", {}))


def _counted(pairs: Iterator[tuple[str, ...]], advance: Advance) -> Iterator[tuple[str, ...]]:
    for pair in pairs:
        yield pair
        advance(1)


def _write(directory: pathlib.Path, pair: tuple[str, str], pairs: Iterator[Sequence[str]]) -> int:
    """Writes every 23rd pair to the files of dev and the others to those of train; returns how many pairs there are."""
    number = 0
    with contextlib.ExitStack() as stack:
        opened = {
            split: [stack.enter_context(open(path, "wb")) for path in files(directory, pair, split).paths]
            for split in _STEMS
        }
        for number, texts in enumerate(pairs, 1):
            split = DEV if number % DEV_EVERY == 0 else TRAIN
            for file, text in zip(opened[split], texts, strict=True):
                file.write(text.encode() + b"\n")
    return number


def _made_from(text: PairSource) -> dict:
    """Returns what the split depends on: the size and time of the raw files, the settings and the tokenizer."""
    status = [os.stat(path) for path in text.paths]
    return {
        "files": [[path.name, s.st_size, s.st_mtime_ns] for path, s in zip(text.paths, status, strict=True)],
        "steps": [TextSteps(STEPS, "").record()],
        "cleaning": CLEANING,
        "dev_every": DEV_EVERY,
    }


def _record(directory: pathlib.Path) -> dict:
    try:
        return stored.read(directory / _RECORD, dict[str, Any])
    except (OSError, stored.Damaged):
        return {}
