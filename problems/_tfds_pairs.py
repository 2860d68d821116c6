"""Reads pairs of sentences from tensorflow-datasets as a stream.

The pairs come in the order of its files, which differs from the corpora's: tensorflow-datasets shuffles all that it
prepares, including test sets.
"""

import dataclasses
import html
import itertools
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from t2t_ext.data.corpora.readers import INVALID_UTF8, LINE_FEEDS, ReadReport
from t2t_ext.errors import UserError, require_package

# tensorflow-datasets requires a version; this is the one of data sets that are put together here.
_OWN_VERSION = "1.0.0"
_INFO = "dataset_info.json"
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_FILE_FORMAT = "tfrecord"
_LENGTH_BYTES, _CHECKSUM_BYTES = 8, 4
_HEADER_BYTES = _LENGTH_BYTES + _CHECKSUM_BYTES
_MOST_BYTES = 1 << 28  # of a pair


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsDataset:
    """A data set of tensorflow-datasets' WMT family.

    Attributes:
      languages: The foreign language and ``en``, as tensorflow-datasets orders them.
      name: Its name, such as ``wmt14_translate``; ``wmt_translate`` for one that is put together from subsets.
      subsets: For ``wmt_translate``, split -> the names of its subsets.
      label: A name that distinguishes it from other data sets that are put together.
      extra: The extra of t2t_ext that installs the required packages.
    """

    languages: tuple[str, str]
    name: str = "wmt_translate"
    subsets: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    label: str = ""
    extra: str = "wmt"

    @property
    def config_name(self) -> str:
        """The name of the configuration: ``de-en``, or ``ru-en.LABEL``."""
        return "-".join(self.languages) + (f".{self.label}" if self.label else "")

    @property
    def title(self) -> str:
        """The name with the configuration, such as ``wmt14_translate/de-en``."""
        return f"{self.name}/{self.config_name}".rstrip("/")

    def directory(self, data_dir: pathlib.Path) -> pathlib.Path | None:
        """Returns the folder of the newest prepared version; None if none has been prepared."""
        found = {}
        for path in pathlib.Path(data_dir, self.name, self.config_name).glob(f"*/{_INFO}"):
            version = _VERSION.fullmatch(path.parent.name)  # folders of incomplete versions have other names
            if version:
                found[tuple(map(int, version.groups()))] = path.parent
        return found[max(found)] if found else None

    def prepare(self, data_dir: pathlib.Path, manual_dir: pathlib.Path, otherwise: str) -> None:
        """Has tensorflow-datasets download and prepare the data set, unless it is there.

        Args:
          data_dir: Where tensorflow-datasets puts data sets.
          manual_dir: Where it looks for files that must be downloaded by hand.
          otherwise: Sentences that say what else the user can do if this fails.

        Raises:
          UserError: tensorflow-datasets is not installed, or failed.
        """
        if self.directory(data_dir):
            return
        tfds = imported(f"{self.title} is not in {data_dir} and", otherwise, self.extra)
        try:
            builder = self._builder(tfds, data_dir)
            downloads = tfds.download.DownloadConfig(manual_dir=manual_dir)
            builder.download_and_prepare(download_config=downloads)
        except Exception as error:  # downloads, checks and parsers raise errors of any kind
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UserError(
                f"tensorflow-datasets could not prepare {self.title} in {data_dir}: {reason[:500]} {otherwise}"
            ) from error

    def _builder(self, tfds: Any, data_dir: pathlib.Path) -> Any:
        if not self.subsets:
            return tfds.builder(self.title, data_dir=data_dir)
        config = tfds.translate.wmt.WmtConfig(
            version=_OWN_VERSION,
            language_pair=self.languages,
            name=self.label,
            subsets={split: list(names) for split, names in self.subsets.items()},
            description=f"{', '.join(name for names in self.subsets.values() for name in names)}.",
        )
        return tfds.builder(self.name, config=config, data_dir=data_dir)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsPairs:
    """A split of a data set as a ``readers.PairSource``.

    Attributes:
      dataset: The data set.
      split: ``train``, ``validation`` or ``test``; or parts in tensorflow-datasets' notation, such as ``train[:2000]``.
      languages: Source and target.
      data_dir: Where tensorflow-datasets puts data sets.
      from_sgml: Whether the text comes from SGML, whose entities tensorflow-datasets does not resolve.
    """

    dataset: TfdsDataset
    split: str
    languages: tuple[str, str]
    data_dir: pathlib.Path
    from_sgml: bool = False

    @property
    def paths(self) -> tuple[pathlib.Path, ...]:
        """The prepared files; empty before the data set is prepared."""
        directory = self.dataset.directory(self.data_dir)
        found = [directory.glob(f"*-{name}.*-of-*") for name in self._split_names] if directory else []
        return tuple(sorted(itertools.chain.from_iterable(found)))

    def count(self) -> int:
        """Returns the number of pairs; tensorflow-datasets has already dropped pairs with an empty side."""
        return self._info().num_examples

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields the pairs; line feeds within a sentence (TMX has some) become spaces and are counted."""
        for number, texts in self._decoded(report, wanted):
            if any("\n" in text for text in texts):
                report.note(LINE_FEEDS, self._place, number)
                texts = [text.replace("\n", " ") for text in texts]  # noqa: PLW2901
            yield tuple(map(html.unescape, texts)) if self.from_sgml else tuple(texts)

    @property
    def _split_names(self) -> list[str]:
        """The names of the splits that this split is a part of."""
        return sorted({part.partition("[")[0].strip() for part in self.split.split("+")})

    @property
    def _place(self) -> str:
        return f"{self.dataset.title} {self.split}"

    def _decoded(self, report: ReadReport, wanted: Callable[[int], bool] | None) -> Iterator[tuple[int, list[str]]]:
        """Yields (number, texts) of the pairs that are wanted and valid UTF-8."""
        parts = self._info().file_instructions
        for number, row in enumerate(itertools.chain.from_iterable(map(self._rows_of, parts)), 1):
            if wanted and not wanted(number):
                continue
            try:
                yield number, [text.decode() for text in row]
            except UnicodeDecodeError:
                report.drop(INVALID_UTF8, self._place, number, "invalid UTF-8")

    def _rows_of(self, part: Any) -> Iterator[list[bytes]]:
        """Yields the source and target of those pairs of a file that belong to the split."""
        return itertools.islice(self._rows(part.filename), part.skip, None if part.take < 0 else part.skip + part.take)

    def _rows(self, path: os.PathLike) -> Iterator[list[bytes]]:
        """Yields the source and target of every pair of a file."""
        # The package's own copy of TensorFlow's message: starting TensorFlow would fix its threads and take GPUs.
        from tensorflow_datasets.proto import tf_example_generated_pb2

        for record in _records(path):
            try:
                features = tf_example_generated_pb2.Example.FromString(record).features.feature
                yield [self.text(features, language) for language in self.languages]
            except (DecodeError, IndexError) as error:
                raise _damaged(path) from error

    def text(self, features: Mapping[str, Any], name: str) -> bytes:
        """Returns the text of this name from an example's features; raises IndexError if there is none."""
        return features[name].bytes_list.value[0]

    def _info(self) -> Any:
        """Returns tensorflow-datasets' information about the split.

        Raises:
          UserError: The split's notation is wrong, or it goes beyond the end.
        """
        reader = self._reader()
        try:
            return reader.info.splits[self.split]
        except (ValueError, AssertionError, KeyError) as error:
            sizes = ", ".join(f"{name} {info.num_examples:,}" for name, info in reader.info.splits.items())
            why = str(error).partition("\n")[0].rstrip(".")
            raise UserError(
                f"{self.dataset.title}: the split {self.split!r} cannot be read ({why}). It is written as train, "
                f"train[2000:] or train[:10%]. Examples there: {sizes}."
            ) from error

    def _reader(self) -> Any:
        tfds = imported("Its data", "", self.dataset.extra)
        directory = self.dataset.directory(self.data_dir)
        name = self.dataset.title
        if directory is None:
            raise UserError(f"{name} has not been prepared in {self.data_dir}.")
        try:
            builder = tfds.builder_from_directory(directory)
        except Exception as error:  # a damaged description raises errors of any kind
            raise UserError(f"{directory} is damaged ({error}); remove it to have {name} prepared again.") from error
        missing = [each for each in self._split_names if each not in builder.info.splits]
        if missing:
            raise UserError(
                f"{name} in {directory} has no {missing[0]} split; it has: {', '.join(builder.info.splits)}."
            )
        if builder.info.file_format.value != _FILE_FORMAT:
            raise UserError(
                f"{directory} was prepared as {builder.info.file_format.value}; only {_FILE_FORMAT} is read. Remove it "
                f"to have {name} prepared again, or give another tfds_dir."
            )
        return builder


def _records(path: os.PathLike) -> Iterator[bytes]:
    """Yields the records of a TFRecord file: length (uint64), checksum, bytes, checksum."""
    with open(path, "rb") as file:
        while header := file.read(_HEADER_BYTES):
            length = int.from_bytes(header[:_LENGTH_BYTES], "little")
            if len(header) < _HEADER_BYTES or length > _MOST_BYTES:
                raise _damaged(path)
            record = file.read(length + _CHECKSUM_BYTES)
            if len(record) < length + _CHECKSUM_BYTES:
                raise _damaged(path)
            yield record[:length]


def _damaged(path: os.PathLike) -> UserError:
    folder = pathlib.Path(path).parent
    return UserError(f"{path} is damaged or incomplete; remove {folder} to have it prepared again.")


def imported(need: str, otherwise: str, extra: str) -> Any:
    """Returns the package tensorflow_datasets; the arguments are those of ``require_package``."""
    require_package("tensorflow_datasets", extra, need, otherwise)
    # TensorFlow writes the files and would print messages that do not concern the user.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow_datasets

    if not sys.stderr.isatty():
        tensorflow_datasets.disable_progress_bar()
    return tensorflow_datasets
