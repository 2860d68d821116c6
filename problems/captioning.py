"""Image captioning on COCO in Karpathy's split, or on the user's own data. The source is features of image regions.

COCO (Chen et al. 2015) is used as in Liu et al. 2020 (cross-view decoding, appendix A.3): with the split of Karpathy &
Li 2015 and the region features of Anderson et al. 2018. docs/captioning.md says where the files go.
"""

import abc
import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator, Sequence

from t2t_ext import registry
from t2t_ext.config.problem_options import chosen, given
from t2t_ext.data.corpora import readers
from t2t_ext.data.features import sources as feature_sources
from t2t_ext.data.features.sources import FeatureIndex
from t2t_ext.data.features.types import STORAGES, TARGET, Feature, Floats, Lazy, Text
from t2t_ext.errors import UserError
from t2t_ext.io import inputs
from t2t_ext.pages import page
from t2t_ext.problem import DEV, TEST, TRAIN, Problem, Sample

MISSING_FEATURES, NO_CAPTION = "missing_features", "no_caption"
TOKENS, RAW = "tokens", "raw"
REFUSE, DROP = "refuse", "drop"
# Karpathy's names of the splits; restval has the images of COCO's val2014 that are in neither val nor test.
_SPLITS = {"train": TRAIN, "restval": TRAIN, "val": DEV, "test": TEST}
_DATA_SET = "dataset_coco.json"
_FOLDERS = ("cocobu_att", "trainval_36", "trainval", "features", "")


@dataclasses.dataclass(frozen=True)
class Image:
    """An image: the name that its features have, and its captions."""

    name: str
    captions: tuple[str, ...]


class CaptioningProblem(Problem):
    """Base class of problems that map feature vectors of images to captions.

    In train each caption of an image is a separate sample. In dev and test all captions are references of one sample.

    Attributes:
      feature_size: Length of a feature vector.
      storage: Data type in which the vectors are stored.
      missing: What to do with an image of dev or test that has no usable features: ``refuse`` or ``drop``.
    """

    target_language = "en"
    approx_vocab_size = 10_000
    max_length_ratio = 0.0

    def __init__(self, *, name: str | None, was_reversed: bool, feature_size: int, storage: str, missing: str) -> None:
        """Makes the problem; reads nothing yet."""
        super().__init__(name=name, was_reversed=was_reversed)
        if feature_size < 1:
            raise UserError(f"{self.base_name}: feature_size={feature_size}: at least 1 is needed.")
        self.feature_size = feature_size
        self.storage = chosen(self.base_name, "storage", storage, STORAGES)
        self.missing = chosen(self.base_name, "missing", missing, (REFUSE, DROP))
        self._read: dict[tuple[str, str], list[Image]] = {}
        self._indices: dict[tuple[pathlib.Path, ...], FeatureIndex] = {}

    @abc.abstractmethod
    def images(self, split: str, tmp_dir: pathlib.Path) -> list[Image]:
        """Returns the images of a split with their captions."""

    @abc.abstractmethod
    def feature_paths(self, split: str, tmp_dir: pathlib.Path) -> Sequence[pathlib.Path]:
        """Returns the folders and files that hold the features of a split."""

    def features(self) -> dict[str, Feature]:
        """Returns the feature vectors and the captions."""
        return {
            "inputs": Floats(depth=self.feature_size, storage=self.storage),
            "targets": Text(side=TARGET, multiple=True),
        }

    def prepare(self, tmp_dir: str | os.PathLike) -> None:
        """Checks that captions and features are there and fit together.

        Raises:
          UserError: Files are missing, features have another size than ``feature_size``, or images of dev or test have
            no features or no caption.
        """
        directory = pathlib.Path(tmp_dir).expanduser()
        for split in self.splits:
            images, index = self._images(split, directory), self._index(split, directory)
            there = [image for image in images if image.name in index.places]
            if not there:
                shown = ", ".join(list(index.places)[:3])
                raise UserError(
                    f"None of the {len(images):,} images of {self.base_name}'s {split} split has features: they are "
                    f"called {', '.join(image.name for image in images[:3])}, ..., the features {shown}, ... Are they "
                    "features of other images?"
                )
            self._check_size(there[0], index)
            if split != TRAIN and self.missing == REFUSE:
                self._refuse_missing(split, images, index)

    def source_files(self, split: str, tmp_dir: str | os.PathLike) -> Sequence[pathlib.Path]:
        """Returns the files of the captions, and the files and folders of the features."""
        return self.feature_paths(split, pathlib.Path(tmp_dir).expanduser())

    def count(self, split: str, tmp_dir: str | os.PathLike) -> int:
        """Returns the number of captions in train, or the number of images in dev or test."""
        images = self._images(split, pathlib.Path(tmp_dir).expanduser())
        return sum(len(image.captions) or 1 for image in images) if split == TRAIN else len(images)

    def samples(self, split: str, tmp_dir: str | os.PathLike) -> Iterator[Sample]:
        """Yields the samples of a split; features are read only when they are needed."""
        directory = pathlib.Path(tmp_dir).expanduser()
        images, index = self._images(split, directory), self._index(split, directory)
        if self.missing == DROP:
            self.reading.strict = False
        most = max((len(image.captions) for image in images), default=1)
        for image in images:
            texts = [*image.captions]
            if not texts:
                self.reading.drop_item(NO_CAPTION, f"image {image.name}", "it has no caption")
            elif image.name not in index.places:
                for _ in texts if split == TRAIN else texts[:1]:
                    self.reading.drop_item(MISSING_FEATURES, f"image {image.name}", "it has no features")
            else:
                source = Lazy(image.name, index.reader(image.name))
                # Each file of references needs a line for every image; an empty line means no reference.
                filled = [[text] for text in texts] if split == TRAIN else [texts + [""] * (most - len(texts))]
                for targets in filled:
                    yield {"inputs": source, "targets": targets}

    def _images(self, split: str, tmp_dir: pathlib.Path) -> list[Image]:
        if (split, str(tmp_dir)) not in self._read:
            self._read[split, str(tmp_dir)] = self.images(split, tmp_dir)
        return self._read[split, str(tmp_dir)]

    def _index(self, split: str, tmp_dir: pathlib.Path) -> FeatureIndex:
        paths = tuple(self.feature_paths(split, tmp_dir))
        if paths not in self._indices:
            self._indices[paths] = FeatureIndex.of(paths)
        return self._indices[paths]

    def _check_size(self, image: Image, index: FeatureIndex) -> None:
        """Raises a UserError if an image's features have the wrong size; generation will report damaged ones."""
        try:
            rows = index.reader(image.name)()
        except feature_sources.UnusableValue:
            return
        if rows.ndim == 2 and rows.shape[1] != self.feature_size:
            raise UserError(
                f"The features of image {image.name} have {rows.shape[1]:,} numbers a region, not "
                f"{self.feature_size:,}. "
                f'Say so: --problem_options="feature_size={rows.shape[1]}" (and what else you gave).'
            )

    def _refuse_missing(self, split: str, images: Sequence[Image], index: FeatureIndex) -> None:
        for what, names in (
            ("features", [image.name for image in images if image.name not in index.places]),
            ("caption", [image.name for image in images if not image.captions]),
        ):
            if names:
                raise UserError(
                    f"{len(names):,} of the {len(images):,} images of {self.base_name}'s {split} split have no {what}, "
                    f"the first is {names[0]}. Get the rest, or score on fewer images than others do: "
                    f'--problem_options="missing={DROP}".'
                )


@registry.register_problem
class CaptionCoco(CaptioningProblem):
    """COCO's captions in the split of Karpathy & Li 2015: 113,287 images for training, 5,000 each in dev and test.

    Options:
      captions: Karpathy's ``dataset_coco.json``; by default it is looked for in ``--tmp_dir``. His other data
        sets (Flickr8k, Flickr30k) have the same format.
      features: The features, separated by commas: tables of Anderson et al. (``.tsv``) or folders of ``ID.npz``. The
        default is ``cocobu_att``, ``trainval_36`` or ``trainval`` in ``--tmp_dir``.
      feature_size: Length of a feature vector, by default 2048.
      storage: The data type in which features are stored: ``float16`` (the default; 18 GB) or ``float32``.
      text: ``tokens`` (the default): lower-case captions without punctuation, as Karpathy tokenized them; or ``raw``.
      missing: Images of dev and test without features: ``refuse`` (the default) or ``drop``.
    """

    published = {DEV: 5_000, TEST: 5_000}  # noqa: RUF012
    path_options = ("captions", "features")

    def __init__(
        self,
        *,
        name: str | None = None,
        was_reversed: bool = False,
        captions: str = "",
        features: str = "",
        feature_size: int = 2048,
        storage: str = "float16",
        text: str = TOKENS,
        missing: str = REFUSE,
    ) -> None:
        """Makes the problem; reads nothing yet."""
        super().__init__(
            name=name, was_reversed=was_reversed, feature_size=feature_size, storage=storage, missing=missing
        )
        self.text = chosen(self.base_name, "text", text, (TOKENS, RAW))
        self._captions, self._features = captions, features
        self._options = given(
            CaptionCoco, captions=captions, features=features, feature_size=feature_size, storage=storage, text=text,
            missing=missing,
        )  # fmt: skip

    def source_files(self, split: str, tmp_dir: str | os.PathLike) -> Sequence[pathlib.Path]:
        """Returns the data set and the features, the same for all splits."""
        directory = pathlib.Path(tmp_dir).expanduser()
        return [self._data_set(directory), *super().source_files(split, directory)]

    def feature_paths(self, split: str, tmp_dir: pathlib.Path) -> Sequence[pathlib.Path]:
        """Returns the folders and tables of the features of all splits."""
        del split
        if self._features:
            return [pathlib.Path(path.strip()).expanduser() for path in self._features.split(",")]
        for folder in _FOLDERS:
            place = tmp_dir / folder
            entries = sorted(place.iterdir()) if place.is_dir() else []
            tables = [path for path in entries if feature_sources.is_table(path)]
            if tables:
                return tables
            if folder and any(path.suffix in (".npz", ".npy") for path in entries):
                return [place]
        raise UserError(
            f"No features of images are in {tmp_dir} (looked for {', '.join(_FOLDERS[:-1])} and *.tsv). "
            'If they are elsewhere: --problem_options="features=PATH". '
            f"For where to get them see {page('captioning')}."
        )

    def images(self, split: str, tmp_dir: pathlib.Path) -> list[Image]:
        """Returns the images of a split."""
        for image_split, found in self._all_images(tmp_dir).items():
            self._read[image_split, str(tmp_dir)] = found
        if not self._read[split, str(tmp_dir)]:
            raise UserError(f"{self._data_set(tmp_dir)} has no image of the split {split}.")
        return self._read[split, str(tmp_dir)]

    def _data_set(self, tmp_dir: pathlib.Path) -> pathlib.Path:
        if self._captions:
            return pathlib.Path(self._captions).expanduser()
        places = [tmp_dir / _DATA_SET, tmp_dir / "caption_datasets" / _DATA_SET]
        return next((path for path in places if path.is_file()), places[0])

    def _all_images(self, tmp_dir: pathlib.Path) -> dict[str, list[Image]]:
        """Reads Karpathy's file."""
        path = self._data_set(tmp_dir)
        readers.require_files(
            [path], f"Karpathy's split and captions are in it; for where to get it see {page('captioning')}."
        )
        found: dict[str, list[Image]] = {split: [] for split in self.splits}
        try:
            for entry in json.loads(inputs.on_disk(path).read_bytes())["images"]:
                name = entry["cocoid"] if "cocoid" in entry else pathlib.PurePath(entry["filename"]).stem
                if entry["split"] not in _SPLITS:
                    raise UserError(
                        f"{path}: image {name} is of the split {entry['split']!r}; known are {', '.join(_SPLITS)}."
                    )
                raw = (each["raw"] if self.text == RAW else " ".join(each["tokens"]) for each in entry["sentences"])
                captions = (" ".join(text.split()) for text in raw)
                found[_SPLITS[entry["split"]]].append(Image(str(name), tuple(filter(None, captions))))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path} is not in the format of Karpathy's data sets, images with split and sentences "
                f"({type(error).__name__}: {error})."
            ) from error
        return found


@registry.register_problem
class CaptionFeatures(CaptioningProblem):
    """The user's own feature vectors and texts.

    Options:
      train, dev, test: Tab-separated files of name and text; a name with several texts is on several lines. ``test``
        may be left out.
      features: The features of all splits, separated by commas: folders of ``NAME.npz`` or ``NAME.npy``, ``.npz`` files
        with an array under every name, or tables (``.tsv``) of Anderson et al.
      feature_size: Length of a feature vector.
      storage: The data type in which features are stored: ``float32`` (the default) or ``float16``.
      target_language: The texts' language, a tag such as ``en``.
      missing: Names of dev and test without features: ``refuse`` (the default) or ``drop``.
    """

    path_options = ("train", "dev", "test", "features")

    def __init__(
        self,
        *,
        name: str | None = None,
        was_reversed: bool = False,
        train: str = "",
        dev: str = "",
        test: str = "",
        features: str = "",
        feature_size: int = 2048,
        storage: str = "float32",
        target_language: str = "",
        missing: str = REFUSE,
    ) -> None:
        """Makes the problem; reads nothing yet."""
        super().__init__(
            name=name, was_reversed=was_reversed, feature_size=feature_size, storage=storage, missing=missing
        )
        self.target_language = target_language
        self._files, self._features = {TRAIN: train, DEV: dev, TEST: test}, features
        if not test and train:
            self.splits = (TRAIN, DEV)
        self._options = given(
            CaptionFeatures, **self._files, features=features, target_language=target_language,
            feature_size=feature_size, storage=storage, missing=missing,
        )  # fmt: skip

    def prepare(self, tmp_dir: str | os.PathLike) -> None:
        """Checks that texts and features are there; see ``CaptioningProblem``."""
        missing = [option for option in (TRAIN, DEV) if not self._files[option]]
        missing += [] if self._features else ["features"]
        if missing:
            raise UserError(
                f'{self.base_name} needs --problem_options="train=FILE,dev=FILE,features=PATH,feature_size=N"; not '
                f"given: {', '.join(missing)}. For what is in these files see {page('captioning')}."
            )
        super().prepare(tmp_dir)

    def source_files(self, split: str, tmp_dir: str | os.PathLike) -> Sequence[pathlib.Path]:
        """Returns the texts of a split and the features."""
        if not self._files[split]:
            return ()
        return [pathlib.Path(self._files[split]).expanduser(), *super().source_files(split, tmp_dir)]

    def feature_paths(self, split: str, tmp_dir: pathlib.Path) -> Sequence[pathlib.Path]:
        """Returns the folders and files of the features of all splits."""
        del split, tmp_dir
        return [pathlib.Path(path.strip()).expanduser() for path in self._features.split(",") if path.strip()]

    def images(self, split: str, tmp_dir: pathlib.Path) -> list[Image]:
        """Returns the names and texts of a split, in the order of each name's first occurrence."""
        del tmp_dir
        found: dict[str, list[str]] = {}
        path = pathlib.Path(self._files[split]).expanduser()
        readers.require_files([path], f"It was given as {split}=... of --problem_options.")
        for number, line in enumerate(readers.read_lines(path), 1):
            try:
                name, tab, text = line.decode().partition("\t")
            except UnicodeDecodeError:
                raise UserError(f"{path}, line {number}: not UTF-8. Correct it.") from None
            if not tab or not name.strip():
                raise UserError(f"{path}, line {number}: not 'name TAB text'. Correct it.")
            texts = found.setdefault(name.strip(), [])
            texts += [" ".join(text.split())] if text.strip() else []
        if not found:
            raise UserError(f"{path} is empty: there is no {split} split.")
        return [Image(name, tuple(texts)) for name, texts in found.items()]
