"""Problems for any data set of tensorflow-datasets whose examples have two texts; the data set is given by name."""

import dataclasses
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from t2t_ext import registry
from t2t_ext.config.strict_params import StrictParams, hparam
from t2t_ext.data.corpora.readers import ReadReport
from t2t_ext.errors import UserError, suggest
from t2t_ext.problem import DEV, TEST, TRAIN, ParallelFilesProblem
from t2t_ext.problems._tfds_pairs import TfdsDataset, TfdsPairs, imported

NO_SPLIT = "none"
_NAME = re.compile(r"(\w+)(?:/([^:]+))?(?::(\d+\.\d+\.\d+))?")
_LANGUAGE_TAG = re.compile(r"[a-z]{2,3}([-_][A-Za-z0-9]+)*")
_EXAMPLE = "dataset=ted_hrlr_translate/pt_to_en,source=pt,target=en"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedDataset(TfdsDataset):
    """A data set by its name in tensorflow-datasets; ``languages`` are the names of its texts.

    Attributes:
      config: Its configuration, such as ``pt_to_en``; empty if it has none.
      version: A prepared version; empty for the newest.
    """

    config: str = ""
    version: str = ""

    @property
    def config_name(self) -> str:
        """The name of the configuration, such as ``pt_to_en``."""
        return self.config

    @property
    def title(self) -> str:
        """The full name, such as ``ted_hrlr_translate/pt_to_en:1.0.0``."""
        return super().title + (f":{self.version}" if self.version else "")

    def directory(self, data_dir: pathlib.Path) -> pathlib.Path | None:
        """Returns the folder of its files; None if it has not been prepared."""
        newest = super().directory(data_dir)
        if not self.version or newest is None:
            return newest
        chosen = newest.parent / self.version
        return chosen if chosen.is_dir() else None

    def prepare(self, data_dir: pathlib.Path, manual_dir: pathlib.Path, otherwise: str) -> None:
        """Has the data set downloaded and prepared; see TfdsDataset. Raises a UserError for an unknown name."""
        if not self.directory(data_dir):
            tfds = imported(f"{self.title} is not in {data_dir} and", otherwise, self.extra)
            known = tfds.list_builders(with_community_datasets=False)
            if self.name not in known:
                raise UserError(
                    f"dataset={self.title}: tensorflow-datasets has none of that name.{suggest(self.name, known)} "
                    "They are listed at https://www.tensorflow.org/datasets/catalog/overview."
                )
            configs = list(tfds.builder_cls(self.name).builder_configs)
            if configs and self.config not in configs:
                shown = ", ".join(configs[:20]) + (f" and {len(configs) - 20} more" if len(configs) > 20 else "")
                raise UserError(
                    f"dataset={self.title}: give one of its configurations, as in dataset={self.name}/{configs[0]}."
                    f"{suggest(self.config, configs)} They are: {shown}."
                )
        super().prepare(data_dir, manual_dir, otherwise)

    def _builder(self, tfds: Any, data_dir: pathlib.Path) -> Any:
        return tfds.builder(self.title, data_dir=data_dir, file_format="tfrecord")


class NamedTexts(TfdsPairs):
    """A split of a data set whose texts are features, possibly nested."""

    def text(self, features: Mapping[str, Any], name: str) -> bytes:
        """Returns a text by its feature's name, by the name's last part, or by language if an example has several."""
        if name in features:
            return features[name].bytes_list.value[0]
        outer, _, language = name.rpartition("/")
        for key, found in features.items():
            if key.endswith(f"/{name}"):
                return found.bytes_list.value[0]
            inside, _, last = key.rpartition("/")
            languages = list(found.bytes_list.value) if last == "language" and inside.endswith(outer) else []
            if language.encode() in languages:
                return features[f"{inside}/translation"].bytes_list.value[languages.index(language.encode())]
        return b""  # in a data set of many languages, an example need not have this one

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields the pairs; pairs with an empty side are dropped and counted, also in dev and test sets."""
        for pair in super().read(report, wanted):
            if all(map(str.strip, pair)):
                yield pair
            else:
                report.drops["empty"] += 1

    def check_names(self) -> None:
        """Raises a UserError if the data set has no text with the name of source or target."""
        features = self._reader().info.features
        names = sorted(_texts(features))
        for option, name in zip(("source", "target"), self.languages, strict=True):
            if not any(each == name or each.endswith(f"/{name}") for each in names):
                raise UserError(
                    f"{option}={name}: {self.dataset.title} has no such text.{suggest(name, names)} It has: "
                    f"{', '.join(names) or 'no text at all'}."
                )


def _texts(features: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yields the names of the texts among features; one per language if an example has several."""
    for name, feature in features.items():
        languages = getattr(feature, "languages", None)
        if languages and "language" in feature:
            yield from (f"{prefix}{name}/{language}" for language in languages)
        elif hasattr(feature, "items"):  # a dict of features, which is not a Mapping
            yield from _texts(feature, f"{prefix}{name}/")
        elif type(feature).__name__ == "Text":
            yield prefix + name


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsOptions(StrictParams):
    """Options of ``translate_tfds``."""

    dataset: str = hparam("", "Name of the data set, with its configuration, such as ted_hrlr_translate/pt_to_en.")
    source: str = hparam("", "Name of the source text, such as pt, translation/pt or document.")
    target: str = hparam("", "Name of the target text.")
    source_language: str = hparam("", "Source language, if the name of the text is not a language.")
    target_language: str = hparam("", "Target language, if the name of the text is not a language.")
    train_split: str = hparam("train", "Training split in the notation of tensorflow-datasets, such as train[2000:].")
    dev_split: str = hparam("validation", "Split of the development set.")
    test_split: str = hparam("test", "Split of the test set; none = no test set.")
    tfds_dir: str = hparam("", "Folder of tensorflow-datasets' data; default: tensorflow_datasets in --tmp_dir.")


@registry.register_problem
class TranslateTfds(ParallelFilesProblem):
    """A data set of tensorflow-datasets by name: any of ``tfds.translate``, and any other with two texts.

    Options are the fields of ``TfdsOptions``.
    """

    path_options = ("tfds_dir",)
    extra = "tfds"

    options_class: ClassVar[type[TfdsOptions]] = TfdsOptions
    texts_class: ClassVar[type[NamedTexts]] = NamedTexts

    def __init__(self, *, name: str | None = None, was_reversed: bool = False, **options: Any) -> None:
        """Makes the problem; reads nothing yet. Without options it can use data that were generated before."""
        given = self.options_class(**options)
        self._texts = (given.source, given.target)
        last = [text.rpartition("/")[2] for text in self._texts]
        named = [text if _LANGUAGE_TAG.fullmatch(text) else "" for text in last]
        super().__init__(
            name=name,
            was_reversed=was_reversed,
            source_language=given.source_language or named[0],
            target_language=given.target_language or named[1],
        )
        self._options: dict[str, Any] = {name: getattr(given, name) for name in given.changed()}
        found = _NAME.fullmatch(given.dataset)
        if given.dataset and not found:
            raise UserError(
                f"dataset={given.dataset}: give NAME, NAME/CONFIG or NAME/CONFIG:VERSION, such as {_EXAMPLE}."
            )
        dataset, config, version = (part or "" for part in found.groups()) if found else ("", "", "")
        self._dataset = NamedDataset(
            languages=self._texts, name=dataset, config=config, version=version, extra=self.extra
        )
        self._named = {TRAIN: given.train_split, DEV: given.dev_split, TEST: given.test_split}
        self.splits = (TRAIN, DEV) if given.test_split == NO_SPLIT else (TRAIN, DEV, TEST)

    def prepare(self, tmp_dir: str | os.PathLike) -> None:
        """Has tensorflow-datasets prepare the data set, and checks that it has the texts and the splits."""
        missing = [name for name in ("dataset", "source", "target") if name not in self._options]
        if missing:
            raise UserError(f'{self.base_name} needs {" and ".join(missing)}: --problem_options="{_EXAMPLE}".')
        data_dir = self._tfds_dir(tmp_dir)
        otherwise = "Its own page says what it needs: https://www.tensorflow.org/datasets/catalog/" + self._dataset.name
        self._dataset.prepare(data_dir, data_dir / "downloads" / "manual", f"{otherwise}.")
        for split in self.splits:
            (files,) = self.pair_files(split, tmp_dir)
            try:
                files.count()
            except UserError as error:
                raise UserError(
                    f"{error} Say which are meant, such as train_split=train[2000:],dev_split=train[:2000],"
                    f"test_split={NO_SPLIT}."
                ) from error
            files.check_names()
        super().prepare(tmp_dir)

    def pair_files(self, split: str, tmp_dir: str | os.PathLike) -> Sequence[NamedTexts]:
        """Returns a split of the data set."""
        return (
            self.texts_class(
                dataset=self._dataset,
                split=self._named[split],
                languages=self._texts,
                data_dir=self._tfds_dir(tmp_dir),
            ),
        )

    def _tfds_dir(self, tmp_dir: str | os.PathLike) -> pathlib.Path:
        folder = self._options.get("tfds_dir")
        return pathlib.Path(folder or pathlib.Path(tmp_dir, "tensorflow_datasets")).expanduser()
