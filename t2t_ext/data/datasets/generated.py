"""Opens the generated data of a problem for the trainer, the decoder and evaluation."""

import dataclasses
import hashlib
import os
import pathlib
import shlex
from typing import Any, Self

from t2t_ext.config.own_text import OwnTextOptions
from t2t_ext.data.datasets.manifest import Manifest, SplitSummary, manifest_path, problems_in
from t2t_ext.data.datasets.pseudo_references import PseudoReferences
from t2t_ext.data.features.float_files import FloatSequences
from t2t_ext.data.features.sources import FeatureSource
from t2t_ext.data.text.text_encoder import SubwordEncoder
from t2t_ext.errors import UserError
from t2t_ext.io.inputs import suggest_path
from t2t_ext.problem import Problem


def datagen_command(problem: Problem, data_dir: str | os.PathLike) -> str:
    """Returns the command that makes a problem's data, with its options; FILE stands for files that are not given."""
    flags: dict[str, Any] = {"problem": problem.data_name, "data_dir": data_dir}
    own_text = [field.name for field in dataclasses.fields(OwnTextOptions) if field.metadata["group"]]
    flags |= {name: value for name, value in problem.options.items() if name in own_text}
    is_own_text = issubclass(getattr(problem, "options_class", object), OwnTextOptions)
    if is_own_text and "train_source" not in problem.options:
        flags |= {"train_source": "FILE", "train_target": "FILE"}
    if others := [f"{name}={value}" for name, value in problem.options.items() if name not in own_text]:
        flags["problem_options"] = ",".join(others)
    return shlex.join(["t2t_ext-datagen", *(f"--{name}={value}" for name, value in flags.items())])


def check_reversible(manifest: Manifest, problem: Problem, data_dir: str | os.PathLike) -> None:
    """Checks that ``problem``, a ``NAME_rev``, can use the data of NAME.

    Raises:
      UserError: The sources begin with tags, which would be on the target side after swapping.
    """
    train = manifest.splits.get("train")
    if tags := dict.fromkeys(corpus["tag"] for corpus in train.corpora.values() if corpus["tag"]) if train else ():
        raise UserError(
            f"The sources of {manifest.problem} begin with tags ({', '.join(tags)}), so that its data cannot be read "
            f"in the other direction; {problem.data_name} needs data of its own. Run, with its --train_tags: "
            f"{datagen_command(problem, data_dir)}"
        )


@dataclasses.dataclass(eq=False)
class GeneratedData:
    """The data files of one problem, seen in the problem's direction.

    Attributes:
      data_dir: The directory of the files.
      manifest: Describes the files, in the base problem's direction.
      was_reversed: Whether source and target are swapped (``NAME_rev``).
      pseudo: The pseudo references of ``NAME_synchronous``; None for any other problem.
    """

    data_dir: pathlib.Path
    manifest: Manifest
    was_reversed: bool
    pseudo: PseudoReferences | None = None

    @classmethod
    def open(cls, problem: Problem, data_dir: str | os.PathLike) -> Self:
        """Opens the data of a problem.

        Raises:
          UserError: The data, or the pseudo references of ``NAME_synchronous``, have not been generated, do not belong
            together, or lack files. The message says which command to run.
        """
        data_dir = pathlib.Path(data_dir).expanduser()
        name = problem.data_name
        path, was_reversed = manifest_path(data_dir, problem.base_name), problem.was_reversed
        if was_reversed and manifest_path(data_dir, name).is_file():
            # If the corpora depend on the direction, NAME_rev has its own data.
            path, was_reversed = manifest_path(data_dir, name), False
        again = datagen_command(problem, data_dir)
        try:
            manifest = Manifest.load(path)
        except NotADirectoryError:
            raise UserError(f"--data_dir={data_dir} is not a directory. Give the one that {again} wrote.") from None
        except FileNotFoundError:
            missing = f"There are no data of {name} in {data_dir} (no {path.name})."
            if not data_dir.exists():
                missing = f"--data_dir={data_dir} does not exist.{suggest_path(data_dir, problems_in)}"
            raise UserError(
                f"{missing} Run: {again} (with --tmp_dir=DIR, where "
                "raw files are not in its default); t2t_ext-trainer does it first with --generate_data."
            ) from None
        damaged = manifest.damaged_files(data_dir, checksums=False)
        if damaged:
            raise UserError(
                f"Data files of {name} in {data_dir} are missing or have another size: {', '.join(damaged)}. "
                f"Run: {manifest.command(data_dir)}"
            )
        made_for = manifest.augmentation.get("problem", name)
        if made_for != name and manifest.augmentation["method"] != "both_directions":
            raise UserError(
                f"The data in {data_dir} were made by t2t_ext-augment to train {made_for}, whose sources and targets "
                f"are not alike: give --problem={made_for}, or for {name} the --data_dir of t2t_ext-datagen."
            )
        if was_reversed:
            check_reversible(manifest, problem, data_dir)
        data = cls(data_dir, manifest, was_reversed)
        if problem.with_pseudo_references:
            data.pseudo = PseudoReferences.open(name, data_dir, data.digest())
        return data

    @property
    def source_language(self) -> str:
        """The language to translate from, or empty."""
        return self.manifest.target_language if self.was_reversed else self.manifest.source_language

    @property
    def target_language(self) -> str:
        """The language to translate into, or empty."""
        return self.manifest.source_language if self.was_reversed else self.manifest.target_language

    @property
    def splits(self) -> list[str]:
        """The names of the splits."""
        return list(self.manifest.splits)

    @property
    def source_feature_size(self) -> int:
        """Size of the source's feature vectors; 0 if the source is text."""
        described = [split.floats["inputs"] for split in self.manifest.splits.values() if "inputs" in split.floats]
        return described[0]["depth"] if described else 0

    def source_features(self, split: str) -> FloatSequences | None:
        """Opens the feature vectors of a split's sources; None if the sources are text.

        The shards of the split hold the numbers of the sequences of vectors.

        Raises:
          UserError: There is no such split, or a file is damaged.
        """
        described = self._split(split).floats.get("inputs")
        if described is None:
            return None
        return FloatSequences.open(self.data_dir, described, self.manifest.command(self.data_dir))

    def text_encoders(self) -> tuple[SubwordEncoder, SubwordEncoder]:
        """Returns the text encoders of the source and the target; they are the same object if they share a file."""
        names = [self.manifest.vocab[side]["file"] for side in self._turned("source", "target")]
        source = self._text_encoder(names[0])
        return source, source if names[0] == names[1] else self._text_encoder(names[1])

    def shard_paths(self, split: str) -> list[pathlib.Path]:
        """Returns the shards of a split in order; their arrays are in the base problem's direction.

        Raises:
          UserError: There is no such split.
        """
        return [self.data_dir / name for name in self._split(split).shards]

    def texts(self, split: str) -> tuple[list[str] | list[FeatureSource], list[list[str]]]:
        """Returns the text of a dev or test split, unprocessed and complete.

        Returns:
          The source sentences (or feature vectors with their names, read when they are used), and for every reference
          set a list of the same length.

        Raises:
          UserError: There is no such split, or only its ids are kept (train).
        """
        texts = self._split(split).texts
        if "inputs" not in texts or "targets" not in texts:
            raise UserError(
                f"The {split} split of {self.manifest.problem} has no text files; take one of: "
                f"{', '.join(name for name, found in self.manifest.splits.items() if found.texts)}."
            )
        inputs, targets = self._turned("inputs", "targets")
        # In NAME_rev the references become sources; if there are several, the first is translated.
        source: list = self._lines(texts[inputs][0])
        features = self.source_features(split)
        if features is not None:
            source = [FeatureSource(name, rows) for name, rows in zip(source, features, strict=True)]
        return source, [self._lines(name) for name in texts[targets]]

    def digest(self) -> str:
        """Returns the SHA-256 of the manifest, which identifies the data: the manifest has the SHA-256 of every file.

        For ``NAME_synchronous`` it is the SHA-256 of the sidecar's manifest, which contains the digest of NAME's data.
        """
        if self.pseudo is not None:
            return self.pseudo.digest()
        return hashlib.sha256(manifest_path(self.data_dir, self.manifest.problem).read_bytes()).hexdigest()

    def _turned(self, source: str, target: str) -> tuple[str, str]:
        return (target, source) if self.was_reversed else (source, target)

    def _split(self, split: str) -> SplitSummary:
        try:
            return self.manifest.splits[split]
        except KeyError:
            raise UserError(
                f"{self.manifest.problem} in {self.data_dir} has no {split} split; it has: {', '.join(self.splits)}."
            ) from None

    def _text_encoder(self, name: str) -> SubwordEncoder:
        encoder = SubwordEncoder.from_file(self.data_dir / name)
        if encoder.sha256 != self.manifest.files[name]["sha256"]:
            raise UserError(
                f"{self.data_dir / name} is not the subword model that the data were made with; "
                f"run t2t_ext-datagen with --overwrite."
            )
        return encoder

    def _lines(self, name: str) -> list[str]:
        """Returns the lines of a text file; only LF ends a line."""
        return (self.data_dir / name).read_bytes().decode().split("\n")[:-1]
