"""Reads data set files in the formats of Hugging Face: Parquet and JSON lines.

The texts of a row are either in a column ``translation`` or in separate columns. The column ``translation`` contains
``{"de": "...", "en": "..."}`` or, for many languages, ``{"language": ["de", "en"], "translation": ["...", "..."]}``.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from t2t_ext.data.corpora import raw_files
from t2t_ext.data.corpora.readers import INVALID_UTF8, LINE_FEEDS, ReadReport, count_lines, read_lines
from t2t_ext.data.corpora.tmx import NO_TRANSLATION
from t2t_ext.errors import UserError, require_package, suggest
from t2t_ext.io import stored

TRANSLATION = "translation"
PARQUET_MAGIC = b"PAR1"
_BATCH_ROWS = 1024

_Row = Mapping[str, Any] | stored.NotUnicode  # or the error of the row


@dataclasses.dataclass(frozen=True)
class RowFile:
    """A file of rows, as a ``readers.PairSource``.

    Attributes:
      path: The file, compressed or not.
      names: The names of source and target: languages in the column ``translation``, or columns; ``a.b`` is the key b
        in column a.
      parquet: Whether the format is Parquet instead of JSON lines.
    """

    path: pathlib.Path
    names: tuple[str, str]
    parquet: bool = False

    @property
    def paths(self) -> tuple[pathlib.Path, ...]:
        """The file."""
        return (raw_files.on_disk(self.path),)

    def count(self) -> int:
        """Returns the number of rows.

        Raises:
          UserError: A wanted text occurs in no row, or the user has not named the texts.
        """
        self._check()
        if not self.parquet:
            return count_lines(self.path)
        with self._parquet_file() as file:
            return file.metadata.num_rows

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields (source, target) for each usable row, with line feeds replaced by spaces; see ``PairSource.read``."""
        self._check()
        for number, row in enumerate(self._rows(), 1):
            if wanted and not wanted(number):
                continue
            if isinstance(row, stored.NotUnicode):
                report.drop(INVALID_UTF8, self.path, number, str(row))
                continue
            found = texts_of(row)
            texts = [text for text in map(found.get, self._keys(found)) if isinstance(text, str)]
            if len(texts) < 2:
                report.drop(NO_TRANSLATION, self.path, number, f"the row has no text in {' and '.join(self.names)}")
                continue
            if any("\n" in text for text in texts):
                report.note(LINE_FEEDS, self.path, number)
            # splitlines() would also split at characters such as U+2028, which are text.
            ends = (text.replace("\r\n", "\n").removesuffix("\n") if "\n" in text else text for text in texts)
            yield tuple(text.replace("\n", " ") for text in ends)

    def _check(self) -> None:
        """Raises a UserError that lists the available texts if a wanted text occurs in no row."""
        found: dict[str, None] = {}  # the names in all rows so far, because single rows may lack a translation
        missing, readable = list(self.names), 0
        for row in self._rows():
            if isinstance(row, stored.NotUnicode):
                continue
            readable += 1
            if (names := dict.fromkeys(texts_of(row))).keys() - found.keys():
                found |= names
                missing = [name for name, key in zip(self.names, self._keys(found), strict=True) if key not in found]
            if (all(self.names) and not missing) or (readable == _BATCH_ROWS and not all(self.names)):
                break
        if not readable:
            return
        if not all(self.names):
            raise UserError(
                f"{self.path} has texts of several names: say which are translated (--source_language=de "
                f"--target_language=en, or columns=SOURCE,TARGET in --problem_options). It has: {', '.join(found)}."
            )
        if missing:
            raise UserError(
                f"{self.path} has no text called {missing[0]!r}; it has: {', '.join(found) or 'none'}."
                f"{suggest(missing[0], found)} Correct --source_language and --target_language, or give "
                "columns=SOURCE,TARGET in --problem_options."
            )

    def _keys(self, found: Mapping[str, Any]) -> list[str]:
        """Returns the names of source and target in a row, where ``de`` may be called ``de_DE``."""
        keys = []
        for name in self.names:
            others = (key for key in found if key not in self.names)  # pt is not pt-BR if that is the other side
            similar = (key for key in others if f"{key.replace('_', '-')}-".startswith(f"{name.replace('_', '-')}-"))
            keys.append(name if name in found else next(similar, name))
        return keys

    def _rows(self) -> Iterator[_Row]:
        if not self.parquet:
            yield from self._json_rows()
            return
        with self._parquet_file() as file:
            import pyarrow

            try:
                for batch in file.iter_batches(_BATCH_ROWS):
                    yield from _of_batch(batch)
            except (pyarrow.ArrowException, OSError) as error:
                raise self._damaged(error) from error

    def _json_rows(self) -> Iterator[_Row]:
        for number, line in enumerate(read_lines(self.path), 1):
            try:
                yield stored.parse(line, dict) if line.strip() else {}
            except stored.NotUnicode as error:
                yield error
            except stored.Damaged as error:
                raise UserError(
                    f"{self.path}, line {number}: {error}. Every line must be a JSON object, such as {{...}}."
                ) from error

    def _parquet_file(self) -> Any:
        require_package("pyarrow", "parquet", f"Parquet ({self.path})")
        import pyarrow
        import pyarrow.parquet

        try:
            if self._is_plain():
                return pyarrow.parquet.ParquetFile(self.path)
            with raw_files.opened(self.path) as file:
                return pyarrow.parquet.ParquetFile(pyarrow.BufferReader(file.read()))
        except pyarrow.ArrowException as error:
            raise self._damaged(error) from error

    def _is_plain(self) -> bool:
        """Returns whether the file can be read in parts: it is neither compressed as a whole nor inside an archive."""
        if not self.path.is_file():
            return False
        with open(self.path, "rb") as file:
            return file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC

    def _damaged(self, error: Exception) -> UserError:
        return UserError(f"{self.path} is damaged or incomplete Parquet ({error}).")


def _of_batch(batch: Any) -> Iterator[_Row]:
    """Yields the rows of a record batch."""
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:  # raised before any row was yielded
        for place in range(batch.num_rows):
            try:
                (row,) = batch.slice(place, 1).to_pylist()
            except UnicodeDecodeError:
                yield stored.NotUnicode("invalid UTF-8")
            else:
                yield row


def texts_of(row: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Returns the texts of a row by language or column name; texts nested in other columns are named ``a.b``.

    >>> texts_of({"id": "1", "translation": {"de": "Haus", "en": "house"}})
    {'id': '1', 'de': 'Haus', 'en': 'house'}
    """
    found: dict[str, str] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            languages, texts = value.get("language"), value.get(TRANSLATION)
            if isinstance(languages, list) and isinstance(texts, list):
                value = dict(zip(languages, texts, strict=False))  # noqa: PLW2901
            found |= texts_of(value, prefix if name == TRANSLATION else f"{prefix}{name}.")
        elif isinstance(value, str):
            found[prefix + name] = value
    return found
