"""A run directory: everything that a later command needs to know about a training run.

    RUN/config.json             what the run was made with (RunConfig)
    RUN/vocab.source.model      the subword models, byte for byte; config.json has their SHA-256
    RUN/vocab.target.model
    RUN/checkpoints/            see t2t_ext.runs.checkpoints; likewise RUN/best, RUN/averaged
    RUN/t2t_usr_dir/            copy of the user's own modules (--t2t_usr_dir), where there are some
    RUN/metrics.jsonl           what was logged; RUN/gradient_norms.jsonl: of the gradient of each layer

So ``t2t_ext-decoder --output_dir=RUN`` needs no other flag. ``config.json`` is written last: a
directory that has it is a run. This module imports no TensorFlow.
"""

import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import pathlib
import platform
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from t2t_ext import registry
from t2t_ext.config import user_directory
from t2t_ext.config.hyperparameters import HParams
from t2t_ext.config.strict_params import known_class, moved_class
from t2t_ext.data.text import VOCABULARY_NAMES
from t2t_ext.errors import UserError, suggest
from t2t_ext.io import files, stored
from t2t_ext.version import __version__

if TYPE_CHECKING:
    from t2t_ext.data.text.text_encoder import SubwordEncoder

FORMAT_VERSION = 1
CONFIG_NAME = "config.json"
USER_CODE_NAME = "t2t_usr_dir"

# What may change when a run is resumed: it alters neither what an update computes nor which data it sees.
# Names as ``differences`` reports them; a field's name stands for all that is in it.
MAY_CHANGE = frozenset(
    {
        "created",
        "data_dir",  # its contents are held by data_digest
        "format_version",
        # Where the run has trained, only so that the global batches stay what they are: the trainer checks them.
        "hparams.batch_size",
        "hparams.gradient_accumulation_steps",
        "hparams.parallel_slices",
        "origins",
        "t2t_usr_dir",
        "t2t_usr_dir_sha256",
        "train_command",
        "training",
        "versions",
        "warm_start_from",  # of a run that has no checkpoint yet
        "warm_start_optimizer",
    }
)


def package_versions(
    packages: Iterable[str] = ("tensorflow", "keras", "tensorflow-text", "numpy", "sentencepiece"),
) -> dict:
    """Returns package -> installed version, read from the packages' metadata without importing them."""
    versions = {"t2t_ext": __version__, "python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What a run was made with; JSON values only.

    Attributes:
      problem: Registered name of the problem, with ``_rev`` where it is reversed.
      problem_options: The problem's constructor arguments, such as the user's own files.
      model: Registered name of the model.
      hparams_set: Registered name of the set that the hparams started from.
      hparams_class: Class of the hparams, ``module:QualifiedName``.
      hparams: Every hparam, name -> value.
      origins: Hparam name -> where its value came from (default, a set, the flag).
      data_dir: Directory of the generated data when the run was made.
      data_digest: SHA-256 of the data's manifest.
      t2t_usr_dir: The user's directory of modules, or ``""``. It is a note for people: what is loaded is the copy.
      t2t_usr_dir_sha256: Digest of the run's copy of it, or ``""``, and then not in ``config.json``.
      random_seed: Seed of initial weights, dropout and data order.
      warm_start_from: The run or checkpoint that the first weights were taken from, or ``""``.
      warm_start_optimizer: ``keep`` where its optimizer and steps were taken over, too; where they began anew it is
        ``reset``, and not in ``config.json``.
      training: The trainer's settings that are not part of what is learnt (steps, evaluation, checkpoints),
        name -> value; all of them may change when the run is resumed.
      train_command: The command line, one argument an item.
      versions: Package -> version that made the run.
      created: When the run was made, ISO 8601, UTC.
      source_feature_size: Size of the source's feature vectors; 0 of text, and then not in ``config.json``.
      vocabularies: ``source`` and ``target`` -> SHA-256 of the subword model; set by ``RunDirectory.create``.
      format_version: Of ``config.json``; a newer one is refused.
    """

    problem: str
    model: str
    hparams_set: str
    hparams_class: str
    hparams: dict[str, Any]
    data_dir: str
    data_digest: str
    random_seed: int
    problem_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    origins: dict[str, str] = dataclasses.field(default_factory=dict)
    t2t_usr_dir: str = ""
    t2t_usr_dir_sha256: str = ""
    warm_start_from: str = ""
    warm_start_optimizer: str = "reset"
    training: dict[str, Any] = dataclasses.field(default_factory=dict)
    train_command: list[str] = dataclasses.field(default_factory=list)
    versions: dict[str, str] = dataclasses.field(default_factory=package_versions)
    created: str = dataclasses.field(
        default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    )
    source_feature_size: int = 0
    vocabularies: dict[str, str] = dataclasses.field(default_factory=dict)
    format_version: int = FORMAT_VERSION

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def to_json(self) -> str:
        """Returns the contents of ``config.json``."""
        content = dataclasses.asdict(self)
        if not self.source_feature_size:
            del content["source_feature_size"]
        if not self.t2t_usr_dir_sha256:
            del content["t2t_usr_dir_sha256"]
        if self.warm_start_optimizer == "reset":
            del content["warm_start_optimizer"]
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, place: str = CONFIG_NAME) -> Self:
        """Reads the contents of ``config.json``; messages name ``place`` as where they came from.

        Raises:
          UserError: They are damaged, or a newer version wrote them.
        """
        try:
            content = stored.parse(text, stored.Versioned)
            if (version := content["format_version"]) > FORMAT_VERSION:
                versions = content.get("versions")
                writer = versions.get("t2t_ext", "") if isinstance(versions, dict) else "a newer version"
                raise UserError(
                    f"{place} has format version {version}, written by t2t_ext {writer}; this t2t_ext {__version__} "
                    f"reads up to {FORMAT_VERSION}. Install the newer t2t_ext to use this run."
                )
            stored.check(content, cls)
            content["hparams_class"] = moved_class(content["hparams_class"])
            if "class" in content["hparams"]:
                stored.check(content["hparams"]["class"], str, "hparams.class")
                content["hparams"]["class"] = moved_class(content["hparams"]["class"])
            return cls(**content)
        except ValueError as error:
            raise UserError(
                f"{place} is damaged ({error}). Restore it from a backup, or train into another directory."
            ) from error


@dataclasses.dataclass(frozen=True)
class Difference:
    """One setting in which two configurations differ.

    Attributes:
      name: Such as ``model`` or ``hparams.hidden_size``.
      stored: The value in the run directory; None where it has no such setting.
      given: The value given now, likewise.
      may_change: Whether a run may be resumed with another value.
    """

    name: str
    stored: Any
    given: Any
    may_change: bool

    def __str__(self) -> str:
        return f"{self.name}: {self.stored!r} is stored, {self.given!r} is given"


def differences(stored: RunConfig, given: RunConfig, may_change: Iterable[str] = ()) -> list[Difference]:
    """Returns a row for each setting in which two configurations differ, those that may not change first, by name.

    ``may_change`` names settings that may change besides those of ``MAY_CHANGE``.
    """
    old, new = _flatten(stored), _flatten(given)
    if not given.vocabularies:  # not known before the run directory is made
        old = {name: value for name, value in old.items() if not name.startswith("vocabularies")}
    rows = [
        Difference(
            name, old.get(name), new.get(name), bool({name, name.partition(".")[0]} & {*MAY_CHANGE, *may_change})
        )
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    return sorted(rows, key=lambda row: (row.may_change, row.name))


def check_resumable(
    stored: RunConfig, given: RunConfig, directory: files.PathLike, may_change: Iterable[str] = ()
) -> None:
    """Refuses to resume a run under other settings; ``may_change`` is as for ``differences``.

    Raises:
      UserError: A setting differs that may not change; every such setting is named with both values.
    """
    refused = [row for row in differences(stored, given, may_change) if not row.may_change]
    if [row.name for row in refused] == ["data_digest"]:
        raise UserError(_other_data_message(stored, given, directory))
    if refused:
        raise UserError(
            f"The run {directory} was made with other settings: {'; '.join(map(str, refused))}. Leave these flags "
            "out to resume with what is stored, or choose another --output_dir for a new run."
        )


def _other_data_message(stored: RunConfig, given: RunConfig, directory: files.PathLike) -> str:
    text = f"--data_dir={given.data_dir} holds other data than the run {directory} was trained with"
    if stored.data_dir == given.data_dir:
        return (
            f"{text}: they were generated anew since. Give the --data_dir of a copy of the former ones, generate them "
            "again with the same flags, or choose another --output_dir for a new run."
        )
    return (
        f"{text}, which were in {stored.data_dir}. Leave the flag out to resume with those, give the folder that they "
        "are in now, or choose another --output_dir for a new run."
    )


class RunDirectory:
    """A run directory that exists; made by ``create`` or ``open``."""

    def __init__(self, path: pathlib.Path, config: RunConfig) -> None:
        self._path = path
        self._config = config
        self._hparams: Any = None
        self._encoders: tuple[SubwordEncoder, SubwordEncoder] | None = None

    @classmethod
    def create(cls, path: files.PathLike, config: RunConfig, source_encoder: Any, target_encoder: Any) -> Self:
        """Makes a directory a run, with a ``SubwordEncoder`` (anything with ``model_bytes``) for each side.

        The directory is made where it is missing; files that it has already stay.

        Raises:
          UserError: It is a run already, or the disk is full or not writable.
        """
        path = pathlib.Path(path)
        if (path / CONFIG_NAME).exists():
            raise UserError(
                f"{path} is a run already. Run the command again to resume it, or choose another --output_dir."
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"Cannot make the run directory {path}: {error.strerror}. Choose another one.") from error
        digests = {}
        for side, encoder in (("source", source_encoder), ("target", target_encoder)):
            files.write_bytes_atomically(path / VOCABULARY_NAMES[side], encoder.model_bytes)
            digests[side] = hashlib.sha256(encoder.model_bytes).hexdigest()
        config = _with_user_code(config.replace(vocabularies=digests), path)
        files.write_text_atomically(path / CONFIG_NAME, config.to_json())
        return cls(path, config)

    @classmethod
    def open(cls, path: files.PathLike) -> Self:
        """Opens a run and checks its configuration and subword models.

        Raises:
          UserError: There is no such directory; it is no run; a newer version made it; its configuration or a
            subword model is damaged.
        """
        if not str(path):
            raise UserError("No run directory was given: --output_dir=RUN, as t2t_ext-trainer wrote it.")
        path = pathlib.Path(path)
        if not (path / CONFIG_NAME).is_file():
            raise UserError(_not_a_run_message(path))
        try:
            text = (path / CONFIG_NAME).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"Cannot read {path / CONFIG_NAME}: {error}.") from error
        run = cls(path, RunConfig.from_json(text, str(path / CONFIG_NAME)))
        run._check_vocabularies()
        return run

    @staticmethod
    def exists(path: files.PathLike) -> bool:
        """Says whether a directory is a run (of whatever version)."""
        return (pathlib.Path(path) / CONFIG_NAME).is_file()

    @property
    def path(self) -> pathlib.Path:
        """The directory."""
        return self._path

    @property
    def config(self) -> RunConfig:
        """What the run was made with."""
        return self._config

    @property
    def checkpoints_dir(self) -> pathlib.Path:
        """Where the checkpoints are that training continues from."""
        return self._path / "checkpoints"

    @property
    def best_dir(self) -> pathlib.Path:
        """Where the best checkpoint by the evaluation metric is kept."""
        return self._path / "best"

    @property
    def averaged_dir(self) -> pathlib.Path:
        """Where averages of checkpoints are kept."""
        return self._path / "averaged"

    @property
    def metrics_path(self) -> pathlib.Path:
        """The log for machines, one JSON object a line."""
        return self._path / "metrics.jsonl"

    @property
    def gradient_norms_path(self) -> pathlib.Path:
        """The gradient norms of the model's parts at the steps that were logged, one JSON object a line."""
        return self._path / "gradient_norms.jsonl"

    @property
    def skipped_steps_path(self) -> pathlib.Path:
        """What is known of the batches of a training that stopped as gradients were not finite."""
        return self._path / "skipped_steps.json"

    def holds(self, path: files.PathLike) -> bool:
        """Returns whether a path is that of a file of the run itself, which no output may take the place of."""
        folders = (self.checkpoints_dir, self.best_dir, self.averaged_dir)
        own = [self._path / name for name in (CONFIG_NAME, *VOCABULARY_NAMES.values())]
        own += [self.metrics_path, self.gradient_norms_path]
        given = pathlib.Path(path).resolve()
        inside = any(given.is_relative_to(folder.resolve()) for folder in folders)
        return inside or given in [each.resolve() for each in own]

    def update(self, config: RunConfig, may_change: Iterable[str] = ()) -> None:
        """Stores changed settings (those in ``MAY_CHANGE`` and ``may_change``); the subword models stay.

        Raises:
          UserError: Another setting differs, or the disk is full or not writable.
        """
        stored = self._config if config.hparams == self._config.hparams else self.config_now()
        check_resumable(stored, config, self._path, may_change)
        config = _with_user_code(config.replace(vocabularies=self._config.vocabularies), self._path)
        files.write_text_atomically(self._path / CONFIG_NAME, config.to_json())
        self._config, self._hparams = config, None

    def config_now(self) -> RunConfig:
        """Returns the configuration with the hparams that are new since, whose defaults do what was done before."""
        return self._config.replace(hparams=self.hparams().to_dict())

    def load_user_code(self) -> None:
        """Registers the problems, models and hparams of the user's modules that the run was trained with, if any.

        They are the copy in the run, and never the directory that ``config.json`` names, which may be anything. Where
        the user has named a directory (the commands' ``--t2t_usr_dir``), that one is taken.

        Raises:
          UserError: There is no copy, it was changed, or a module in it fails.
        """
        stored, digest = self._config.t2t_usr_dir, self._config.t2t_usr_dir_sha256
        if not stored or user_directory.named():
            return
        copy = _user_code(self._path, stored)
        if not digest or not copy.is_dir():
            raise UserError(
                f"The run {self._path} was trained with modules of your own in {stored} and holds no copy of them. "
                "Modules are not imported because a run says so: if you trust them, name their folder, "
                f"--t2t_usr_dir={stored}."
            )
        user_directory.load_copy(copy, digest, registry.load_user_directory)

    def hparams(self) -> Any:
        """Returns the run's ``HParams``, of the class they were saved from; they are read once.

        Raises:
          UserError: No such class is registered, or one of its fields does not exist in this version.
        """
        if self._hparams is not None:
            return self._hparams
        self.load_user_code()
        try:
            found = known_class(self._config.hparams_class, HParams)
        except UserError as error:
            raise UserError(f"The run {self._path} cannot be read. {error}") from error
        self._hparams = found.from_dict(self._config.hparams)
        return self._hparams

    def require_text(self, command: str) -> None:
        """Checks that the run reads text, as ``command`` needs.

        Raises:
          UserError: Its source is feature vectors.
        """
        if self._config.source_feature_size:
            raise UserError(
                f"{command} reads text, but the run {self._path} reads feature vectors ({self._config.problem}, "
                f"{self._config.source_feature_size} numbers each). Use t2t_ext-decoder or t2t_ext-exporter with it."
            )

    def text_encoders(self) -> tuple["SubwordEncoder", "SubwordEncoder"]:
        """Returns the source's and the target's text encoder, which are read once; one object for the same model."""
        from t2t_ext.data.text.text_encoder import SubwordEncoder

        if self._encoders is None:
            source = target = SubwordEncoder.from_file(self._path / VOCABULARY_NAMES["source"])
            if self._config.vocabularies["source"] != self._config.vocabularies["target"]:
                target = SubwordEncoder.from_file(self._path / VOCABULARY_NAMES["target"])
            self._encoders = source, target
        return self._encoders

    def _check_vocabularies(self) -> None:
        for side, name in VOCABULARY_NAMES.items():
            file = self._path / name
            try:
                digest = files.sha256_of_file(file)
            except OSError as error:
                raise UserError(
                    f"The run {self._path} lacks its subword model {name} ({error.strerror}). Copy it from a backup; "
                    "without it the run's ids mean nothing."
                ) from error
            if digest != self._config.vocabularies.get(side):
                raise UserError(
                    f"{file} is not the subword model that the run was trained with (SHA-256 {digest[:12]}... instead "
                    f"of {str(self._config.vocabularies.get(side))[:12]}...). Copy the right one from a backup."
                )


def _user_code(run: pathlib.Path, directory: str) -> pathlib.Path:
    """Returns where a run's copy of the user's modules is; a package keeps its name."""
    return run / USER_CODE_NAME / (pathlib.Path(directory).name.strip(".") or "modules")


def _with_user_code(config: RunConfig, run: pathlib.Path) -> RunConfig:
    """Copies the modules that the user has named into the run; returns the configuration with their digest."""
    directory = user_directory.absolute(config.t2t_usr_dir) if config.t2t_usr_dir else ""
    if directory not in user_directory.loaded():
        return config
    with files.atomic_directory(run / USER_CODE_NAME) as temporary:
        digest = user_directory.copy(directory, temporary / _user_code(run, directory).name)
    return config.replace(t2t_usr_dir=directory, t2t_usr_dir_sha256=digest)  # without links: imported under its name


def class_name(hparams: Any) -> str:
    """Returns ``RunConfig.hparams_class`` of an object: ``module:QualifiedName``."""
    return f"{type(hparams).__module__}:{type(hparams).__qualname__}"


def _flatten(config: RunConfig) -> dict[str, Any]:
    """Returns setting -> value; dictionaries are taken apart one level deep, as ``hparams.hidden_size``."""
    flat = {}
    # Through JSON, so that a tuple given now equals the list that was stored.
    for name, value in json.loads(config.to_json()).items():
        if isinstance(value, Mapping):
            flat.update({f"{name}.{key}": inner for key, inner in value.items()})
        else:
            flat[name] = value
    return flat


def _not_a_run_message(path: pathlib.Path) -> str:
    if not path.exists():
        neighbors = [entry.parent.name for entry in path.parent.glob(f"*/{CONFIG_NAME}")]
        close = suggest(path.name, neighbors)
        return f"There is no run directory {path}.{close} Train one: t2t_ext-trainer --output_dir={path} ..."
    if not path.is_dir():
        return f"{path} is a file, not a run directory. Give the directory that t2t_ext-trainer wrote (--output_dir)."
    inside = sorted(entry.parent.name for entry in path.glob(f"*/{CONFIG_NAME}"))
    hint = f" These in it are: {', '.join(inside[:5])}." if inside else ""
    if not hint and (path.parent / CONFIG_NAME).is_file():
        hint = f" Its parent is one: {path.parent}."
    return (
        f"{path} is not a run directory: it has no {CONFIG_NAME}.{hint} "
        "Give the directory that t2t_ext-trainer wrote (--output_dir)."
    )
