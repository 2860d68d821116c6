"""Reads CNN/Daily Mail's articles and highlights as pairs of texts, from each of the formats that are published.

In the target every sentence is between ``<t>`` and ``</t>``, whatever marks the files have.

* ``Stories``: the ``.story`` files of https://cs.nyu.edu/~kcho/DMQA/ (Hermann et al. 2015); lists of their URLs say
  which story is in which split (See et al. 2017, https://github.com/abisee/cnn-dailymail).
* ``SummaryFiles``: line-aligned files.
* ``TfdsStories``: ``cnn_dailymail`` of tensorflow-datasets.
"""

import dataclasses
import functools
import hashlib
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from t2t_ext.data.corpora import readers
from t2t_ext.data.corpora.readers import INVALID_UTF8, ChangedPairs, ReadReport
from t2t_ext.data.text import document_steps
from t2t_ext.errors import UserError
from t2t_ext.problems._tfds_pairs import TfdsDataset, TfdsPairs

MISSING_STORY, EMPTY_ARTICLE, NO_HIGHLIGHTS = "missing_story", "empty_article", "no_highlights"

_HIGHLIGHT = "@highlight"
# Sentence endings in See et al.'s preparation; captions and headings without one get a full stop.
_ENDS = (".", "!", "?", "...", "'", "`", '"', "\u2019", "\u201d", ")")
_OTHER_MARKS = re.compile(r"\s*(?:</?[st]>|<q>)\s*")
_HOSTS = {"cnn": "cnn.com", "dailymail": "dailymail.co.uk"}


def tagged_summary(text: str) -> str:
    """Returns a summary with each sentence between ``<t>`` and ``</t>``.

    The given text has these marks, ``<s>`` and ``</s>``, or ``<q>`` in between. A text without marks stays as it is.
    """
    if not _OTHER_MARKS.search(text):
        return text
    return document_steps.tagged(part for part in _OTHER_MARKS.split(text) if part.strip())


def first_words(summary: str, count: int) -> str:
    """Returns the first ``count`` words of a summary; tags do not count, and a truncated sentence gets its end tag."""
    if not document_steps.is_tagged(summary):
        return document_steps.FirstWords("", count=count).prepare(summary)
    kept, left = [], count
    for sentence in document_steps.sentences(summary):
        if left <= 0:
            break
        words = len(sentence.split())
        kept.append(sentence if words <= left else " ".join(sentence.split()[:left]))
        left -= words
    return document_steps.tagged(kept)


def parse_story(lines: Iterable[str], *, tokenized: bool = False) -> tuple[str, list[str]]:
    """Returns the article and the highlights of a story file.

    Args:
      lines: The lines of the file: first the article, then after each ``@highlight`` a sentence of the summary.
      tokenized: Whether spaces separate words and punctuation; an added full stop then also gets a space before it.
    """
    article: list[str] = []
    highlights: list[str] = []
    found = article
    for line in map(str.strip, lines):
        if line.startswith(_HIGHLIGHT):
            found = highlights
        elif line:
            found.append(line if line.endswith(_ENDS) else line + (" ." if tokenized else "."))
    return " ".join(article), highlights


def url_hash(url: str) -> str:
    """Returns the name of a story's file without its ending: the SHA-1 of its URL."""
    return hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stories:
    """The stories of a split as a ``readers.PairSource``.

    Attributes:
      list_path: The file with the split's URLs, one per line.
      folders: Publisher -> the folder of its stories.
      tokenized: Whether the stories are already tokenized.
    """

    list_path: pathlib.Path
    folders: Mapping[str, pathlib.Path]
    tokenized: bool = False

    @property
    def paths(self) -> tuple[pathlib.Path, ...]:
        """The list of URLs only: there are too many stories to check each of them."""
        return (self.list_path,)

    def count(self) -> int:
        """Returns the number of URLs of the wanted publishers."""
        return sum(1 for _ in self._urls())

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields article and summary of every story in the order of the list; reports unusable ones as dropped."""
        for number, (line, publisher, url) in enumerate(self._urls(), 1):
            if wanted and not wanted(number):
                continue
            path = self.folders[publisher] / f"{url_hash(url)}.story"
            try:
                text = path.read_bytes().decode().removeprefix("\ufeff")
            except FileNotFoundError:
                report.drop(MISSING_STORY, self.list_path, line, f"the story of {url} is not there ({path})")
                continue
            except UnicodeDecodeError:
                report.drop(INVALID_UTF8, path, 1, "invalid UTF-8")
                continue
            except OSError as error:
                raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error
            article, highlights = parse_story(text.split("\n"), tokenized=self.tokenized)
            if not article or not highlights:
                reason = NO_HIGHLIGHTS if article else EMPTY_ARTICLE
                what = "no highlights" if article else "no article"
                report.drop(reason, path, 1, f"the story has {what} ({self.list_path}, line {line})")
                continue
            yield article, document_steps.tagged(highlights)

    def _urls(self) -> Iterator[tuple[int, str, str]]:
        """Yields (line number, publisher, URL) for the publishers that have a folder."""
        for number, line in enumerate(readers.read_lines(self.list_path), 1):
            url = line.decode(errors="replace").strip()
            publisher = next((name for name, host in _HOSTS.items() if host in url), "")
            if url and not publisher:
                raise UserError(
                    f"{self.list_path}, line {number}: {url[:80]!r} is no URL of {' or '.join(_HOSTS.values())}. The "
                    "lists all_train.txt, all_val.txt and all_test.txt have one a line."
                )
            if publisher in self.folders:
                yield number, publisher, url


class SummaryFiles(ChangedPairs):
    """Line-aligned files of articles and summaries; the sentences of the summaries get ``<t>`` and ``</t>``."""

    def change(self, pair: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the article and its tagged summaries; a summary without sentence marks is unchanged."""
        return pair[0], *map(tagged_summary, pair[1:])


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoriesDataset(TfdsDataset):
    """``cnn_dailymail``, which has no configurations; ``languages`` are its features."""

    languages: tuple[str, str] = ("article", "highlights")
    name: str = "cnn_dailymail"
    extra: str = "summarization"

    @property
    def config_name(self) -> str:
        """Empty, because the data are directly in ``cnn_dailymail/3.4.0``."""
        return ""


class TfdsStories(TfdsPairs):
    """A split of ``StoriesDataset``, where each line of the summary is a highlight."""

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields article and summary of every story."""
        for _, (article, highlights) in self._decoded(report, wanted):
            yield " ".join(article.split("\n")), document_steps.tagged(filter(str.strip, highlights.split("\n")))


def find_folder(tmp_dir: pathlib.Path, names: Sequence[str]) -> pathlib.Path | None:
    """Returns the first of the named folders that exists; None if there is none."""
    return next((tmp_dir / name for name in names if (tmp_dir / name).is_dir()), None)


@functools.lru_cache(maxsize=4)
def holds_stories(folder: str | os.PathLike) -> bool:
    """Returns whether a folder has any story file."""
    with os.scandir(os.fspath(folder)) as entries:
        return any(entry.name.endswith(".story") for entry in entries)
