"""A run directory: everything that a later command needs to know about a training run.

    RUN/config.json             the settings with which the run was made (RunConfig)
    RUN/vocab.source.model      the subword models, byte for byte; config.json has their SHA-256
    RUN/vocab.target.model
    RUN/checkpoints/            see t2t_ext.runs.checkpoints; RUN/best and RUN/averaged have the same layout
    RUN/t2t_usr_dir/            copy of the user's own modules (--t2t_usr_dir), if there are any
    RUN/metrics.jsonl           the log of the training; RUN/gradient_norms.jsonl has the gradient norms by layer

So ``t2t_ext-decoder --output_dir=RUN`` needs no other flag. ``config.json`` is written last: a
directory that contains it is a run. This module imports no TensorFlow.
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
USER_CODE_NAME = user_directory.COPIES_NAME

# Settings that may change when a run is resumed: they alter neither what an update computes nor which data it sees.
# The names are those that ``differences`` reports; the name of a field stands for everything in it.
MAY_CHANGE = frozenset(
    {
        "created",
        "data_dir",  # data_digest fixes its contents
        "format_version",
        # Once a run has trained, these may change only if the global batches stay the same, which the trainer checks.
        "hparams.batch_size",
        "hparams.gradient_accumulation_steps",
        "hparams.parallel_slices",
        "origins",
        "t2t_usr_dir",
        "t2t_usr_dir_sha256",
        "train_command",
        "training",
        "versions",
        "warm_start_from",  # for a run that has no checkpoint yet
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
    """The settings with which a run was made; all are JSON values.

    Attributes:
      problem: Registered name of the problem, with ``_rev`` if it is reversed.
      problem_options: The problem's constructor arguments, such as the user's own files.
      model: Registered name of the model.
      hparams_set: Registered name of the set that the hparams started from.
      hparams_class: Class of the hparams, ``module:QualifiedName``.
      hparams: All hparams, name -> value.
      origins: Hparam name -> where its value came from (default, a set, the flag).
      data_dir: Directory of the generated data when the run was made.
      data_digest: SHA-256 of the data's manifest.
      t2t_usr_dir: The user's directory of modules, or ``""``. It only informs people: the run's copy is loaded.
      t2t_usr_dir_sha256: Digest of the run's copy of these modules. ``""`` if there is none; ``config.json`` then omits
        it.
      random_seed: Seed of initial weights, dropout and data order.
      warm_start_from: The run or checkpoint that the first weights were taken from, or ``""``.
      warm_start_optimizer: ``keep`` if its optimizer state and steps were taken over as well; ``reset`` if they started
        afresh (``config.json`` then omits it).
      training: The trainer's settings that alter neither an update nor its data (steps, evaluation, checkpoints),
        name -> value; all of them may change when the run is resumed.
      train_command: The command line as a list of arguments.
      versions: Package -> version with which the run was made.
      created: When the run was made, ISO 8601, UTC.
      source_feature_size: Size of the source's feature vectors; 0 for text (``config.json`` then omits it).
      vocabularies: ``source`` and ``target`` -> SHA-256 of the subword model; set by ``RunDirectory.create``.
      format_version: Version of the format of ``config.json``; newer ones than this package's are refused.
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
        """Builds a configuration from the contents of ``config.json``; error messages name ``place`` as their source.

        Raises:
          UserError: The contents are damaged, or a newer version wrote them.
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
      name: The setting's name, such as ``model`` or ``hparams.hidden_size``.
      stored: The value in the run directory; None if it has no such setting.
      given: The value given now; None if there is no such setting.
      may_change: Whether a run may be resumed with another value.
    """

    name: str
    stored: Any
    given: Any
    may_change: bool

    def __str__(self) -> str:
        return f"{self.name}: {self.stored!r} is stored, {self.given!r} is given"


def differences(stored: RunConfig, given: RunConfig, may_change: Iterable[str] = ()) -> list[Difference]:
    """Returns a row for each setting in which two configurations differ.

    The settings that may not change come first; both kinds are sorted by name. ``may_change`` names settings that may
    change in addition to ``MAY_CHANGE``.
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
    """Checks that a run can be resumed with the given settings; ``may_change`` is as for ``differences``.

    Raises:
      UserError: A setting differs that may not change; the message names each such setting with both values.
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
    """An existing run directory; obtained from ``create`` or ``open``."""

    def __init__(self, path: pathlib.Path, config: RunConfig) -> None:
        self._path = path
        self._config = config
        self._hparams: Any = None
        self._encoders: tuple[SubwordEncoder, SubwordEncoder] | None = None

    @classmethod
    def create(cls, path: files.PathLike, config: RunConfig, source_encoder: Any, target_encoder: Any) -> Self:
        """Turns a directory into a run, with a ``SubwordEncoder`` (anything with ``model_bytes``) for each side.

        A missing directory is created; files that it already contains stay.

        Raises:
          UserError: The directory is already a run, or the disk is full or not writable.
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
          UserError: There is no such directory; it is not a run; a newer version made it; or its configuration or a
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
        """Returns whether a directory is a run (of any version)."""
        return (pathlib.Path(path) / CONFIG_NAME).is_file()

    @property
    def path(self) -> pathlib.Path:
        """The directory."""
        return self._path

    @property
    def config(self) -> RunConfig:
        """The settings with which the run was made."""
        return self._config

    @property
    def checkpoints_dir(self) -> pathlib.Path:
        """The folder of the checkpoints from which training resumes."""
        return self._path / "checkpoints"

    @property
    def best_dir(self) -> pathlib.Path:
        """The folder of the best checkpoint by the evaluation metric."""
        return self._path / "best"

    @property
    def averaged_dir(self) -> pathlib.Path:
        """The folder of averaged checkpoints."""
        return self._path / "averaged"

    @property
    def metrics_path(self) -> pathlib.Path:
        """The machine-readable log, one JSON object per line."""
        return self._path / "metrics.jsonl"

    @property
    def gradient_norms_path(self) -> pathlib.Path:
        """The gradient norms of the model's parts at the logged steps, one JSON object per line."""
        return self._path / "gradient_norms.jsonl"

    @property
    def skipped_steps_path(self) -> pathlib.Path:
        """The record of the batches of a training that stopped because gradients were not finite."""
        return self._path / "skipped_steps.json"

    def holds(self, path: files.PathLike) -> bool:
        """Returns whether a path belongs to the run's own files, which no output may overwrite."""
        folders = (self.checkpoints_dir, self.best_dir, self.averaged_dir, self._path / USER_CODE_NAME)
        own = [self._path / name for name in (CONFIG_NAME, *VOCABULARY_NAMES.values())]
        own += [self.metrics_path, self.gradient_norms_path]
        given = pathlib.Path(path).resolve()
        inside = any(given.is_relative_to(folder.resolve()) for folder in folders)
        return inside or given in [each.resolve() for each in own]

    def update(self, config: RunConfig, may_change: Iterable[str] = ()) -> None:
        """Stores changed settings (of those in ``MAY_CHANGE`` and ``may_change``); the subword models stay the same.

        Raises:
          UserError: Another setting differs, or the disk is full or not writable.
        """
        stored = self._config if config.hparams == self._config.hparams else self.config_now()
        check_resumable(stored, config, self._path, may_change)
        config = _with_user_code(config.replace(vocabularies=self._config.vocabularies), self._path)
        files.write_text_atomically(self._path / CONFIG_NAME, config.to_json())
        self._config, self._hparams = config, None

    def config_now(self) -> RunConfig:
        """Returns the configuration, including hparams added since the run was made.

        Their defaults do what was done before they existed.
        """
        return self._config.replace(hparams=self.hparams().to_dict())

    def load_user_code(self) -> None:
        """Registers problems, models and hparams from the user modules that the run was trained with, if there are any.

        The modules are loaded from the copy in the run, never from the directory that ``config.json`` names, which may
        hold anything. If the user has named a directory (the commands' ``--t2t_usr_dir``), that directory is used
        instead.

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
        """Returns the run's ``HParams``, in the class from which they were saved; they are read only once.

        Raises:
          UserError: The class is not registered, or one of the fields does not exist in this version.
        """
        if self._hparams is not None:
            return self._hparams
        self.load_user_code()
        try:
            found = known_class(self._config.hparams_class, HParams)
            self._hparams = found.from_dict(self._config.hparams)
        except UserError as error:
            own = self._config.t2t_usr_dir_sha256 and user_directory.named()
            copy = " The run holds the modules that it was trained with: leave --t2t_usr_dir out to use these."
            raise UserError(f"The run {self._path} cannot be read. {error}{copy if own else ''}") from error
        return self._hparams

    def require_text(self, what: str, instead: str = "Use t2t_ext-decoder or t2t_ext-exporter with it.") -> None:
        """Checks that the run reads text, as ``what``, a command or a flag, requires.

        Args:
          what: The command or flag.
          instead: What to do if the run reads feature vectors.

        Raises:
          UserError: The run reads feature vectors.
        """
        if self._config.source_feature_size:
            raise UserError(
                f"{what} reads text, but the run {self._path} reads feature vectors ({self._config.problem}, "
                f"{self._config.source_feature_size} numbers each). {instead}"
            )

    def text_encoders(self) -> tuple["SubwordEncoder", "SubwordEncoder"]:
        """Returns the text encoders of source and target, read only once; a shared subword model gives one object."""
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
    """Returns the path of a run's copy of the user's modules; a package keeps its name."""
    return run / USER_CODE_NAME / (pathlib.Path(directory).name.strip(".") or "modules")


def _with_user_code(config: RunConfig, run: pathlib.Path) -> RunConfig:
    """Copies the user's loaded modules into the run and returns the configuration with their digest."""
    directory = user_directory.absolute(config.t2t_usr_dir) if config.t2t_usr_dir else ""
    if directory not in user_directory.loaded():
        return config
    if not user_directory.is_as_loaded(directory):
        raise UserError(
            f"The modules in {directory} were changed after this command loaded them: {run} would hold others than "
            "those it was trained with. Start the command again."
        )
    with files.atomic_directory(run / USER_CODE_NAME) as temporary:
        digest = user_directory.copy(directory, temporary / _user_code(run, directory).name)
    # The stored path has no links, because modules are imported under its name.
    return config.replace(t2t_usr_dir=directory, t2t_usr_dir_sha256=digest)


def class_name(hparams: Any) -> str:
    """Returns the ``RunConfig.hparams_class`` of an hparams object: ``module:QualifiedName``."""
    return f"{type(hparams).__module__}:{type(hparams).__qualname__}"


def _flatten(config: RunConfig) -> dict[str, Any]:
    """Returns setting -> value; dictionaries are flattened by one level, to names such as ``hparams.hidden_size``."""
    flat = {}
    # The round trip through JSON makes a tuple given now equal to the list that was stored.
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
