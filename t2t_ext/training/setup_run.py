"""Resolves the user's request into a run: configuration, hparams, data, run directory. Imports no TensorFlow."""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from t2t_ext import registry
from t2t_ext.config import user_directory
from t2t_ext.config.asynchronous import AsynchronousHParams
from t2t_ext.config.decode import DecodeHParams, resolve_decode_hparams
from t2t_ext.config.hyperparameters import AUTO_BATCH_SIZE, HParams
from t2t_ext.config.strict_params import FLAG
from t2t_ext.config.training import KEEP, RESET, TrainConfig, TrainingSettings
from t2t_ext.data.datasets import target_variants
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.data.datasets.manifest import Manifest, manifest_path
from t2t_ext.data.features.types import Floats
from t2t_ext.data.generation.settings import differing_options, other_members
from t2t_ext.data.text.special_ids import CONTROL_SYMBOLS, FIRST_TEXT_ID, L2R_ID, R2L_ID
from t2t_ext.data.text.text_encoder import SubwordEncoder
from t2t_ext.errors import UserError
from t2t_ext.io import files, log
from t2t_ext.io import stored as stored_values
from t2t_ext.models import families
from t2t_ext.runs import checkpoints, folders
from t2t_ext.runs.changed_hparams import changed
from t2t_ext.runs.run_directory import RunConfig, RunDirectory, check_resumable, class_name
from t2t_ext.search.directions import check_directions, directions_of
from t2t_ext.training import dev_metrics, records, warm_start

_NEEDED = ("problem", "model", "hparams_set", "data_dir")
_CHIEF_WAIT_SECONDS = 300.0


@dataclasses.dataclass(frozen=True)
class ResolvedRun:
    """A run's configuration with all missing values filled in.

    Attributes:
      asked: What the user asked for.
      config: The configuration that is, or will be, stored.
      hparams: The hyper-parameters.
      settings: The settings that may change when the run is resumed.
      decode_hparams: How the development set is translated.
      stored: The run directory if the run already exists, otherwise None.
      output_dir: The run's path.
    """

    asked: TrainConfig
    config: RunConfig
    hparams: HParams
    settings: TrainingSettings
    decode_hparams: DecodeHParams
    stored: RunDirectory | None
    output_dir: str


def resolve(config: TrainConfig) -> ResolvedRun:
    """Fills in what was not given, from the stored run or the defaults. Reads no data and writes nothing.

    Raises:
      UserError: A name is unknown, a required value is missing, or the stored run was made with other values.
    """
    if not config.output_dir:
        raise UserError("No run directory was given. Name one: --output_dir=RUN (it is made where it is missing).")
    stored = RunDirectory.open(config.output_dir) if RunDirectory.exists(config.output_dir) else None
    if stored is None:
        _check_new(config)
    old = stored.config if stored else None
    usr_dir = _load_user_code(config, stored)
    hparams, origins, set_name = _hparams(config, stored)
    settings = _settings(config, old, hparams)
    # Decode hparams that nothing reads are refused, unless the run has been using them all along.
    as_before = old is not None and settings.decode_hparams == old.training.get("decode_hparams")
    decode_hparams = check_settings(
        settings, hparams, config.given_settings(), stored=as_before, exists=old is not None
    )
    problem = config.problem or (old.problem if old else "")
    data_dir = os.path.abspath(config.data_dir or (old.data_dir if old else ""))
    model = config.model or (old.model if old else "")
    if model not in registry.model_names():
        registry.model(model)  # raises; an existing model is imported, and TensorFlow with it, only when needed
    if not old:
        _check_model(model, hparams, set_name)
        options = {**_problem(problem, _options_of_new_run(config, hparams, data_dir)).options}
    elif problem != old.problem:
        options = dict(old.problem_options)  # the other name is refused below, whatever its options
    else:  # those that are given again must equal the stored ones, which is checked below
        options = {**_problem(problem, {**old.problem_options, **(config.problem_options or {})}).options}
    new = RunConfig(
        problem=problem,
        problem_options=options,
        model=model,
        hparams_set=set_name,
        hparams_class=class_name(hparams),
        hparams=hparams.to_dict(),
        origins=origins,
        data_dir=data_dir,
        data_digest=old.data_digest if old else "",
        source_feature_size=old.source_feature_size if old else 0,
        t2t_usr_dir=usr_dir,
        t2t_usr_dir_sha256=old.t2t_usr_dir_sha256 if old else "",
        warm_start_from=_warm_start_from(config, stored),
        warm_start_optimizer=_warm_start_optimizer(config, stored),
        random_seed=old.random_seed if old and "random_seed" not in config.given() else config.random_seed,
        training={name: getattr(settings, name) for name in settings.names()},
        train_command=list(config.train_command),
    )
    stored_values.check_unicode(new.to_json())
    if old and stored:
        may_change = _paths_that_may_change(_problem(old.problem, options), old)
        check_resumable(stored.config_now(), new, config.output_dir, may_change)
        new = dataclasses.replace(new, created=old.created)
    return ResolvedRun(config, new, hparams, settings, decode_hparams, stored, config.output_dir)


def _check_new(config: TrainConfig) -> None:
    """Checks that a new run can be made in its directory, and that nothing it needs is missing.

    Raises:
      UserError: The directory cannot be that of a run, or a required value is missing.
    """
    folders.check_new(config.output_dir, config.data_dir)
    missing = [name for name in _NEEDED if not getattr(config, name)]
    if missing:
        raise UserError(
            f"{config.output_dir} is no run yet, and a new one needs "
            f"{', '.join(f'--{name}' for name in missing)} as well. --registry_help lists the names."
        )


def _load_user_code(config: TrainConfig, stored: RunDirectory | None) -> str:
    """Loads the user's modules, from ``--t2t_usr_dir`` or the run's copy; returns their directory to store, or ""."""
    if config.t2t_usr_dir:
        directory = user_directory.absolute(config.t2t_usr_dir)  # modules are imported from the path without links
        registry.load_user_directory(directory)
        return directory
    if not stored:
        return ""
    stored.load_user_code()
    return stored.config.t2t_usr_dir


def _options_of_new_run(config: TrainConfig, hparams: HParams, data_dir: str) -> dict[str, Any]:
    """Returns the problem options that are given, and for others those of the data that are there.

    Raises:
      UserError: The hparams do not fit the problem, or the data were made with other options.
    """
    given = dict(config.problem_options or {})
    target_variants.check_problem(hparams, _problem(config.problem, given), data_dir, config.model)
    _check_source(hparams, _problem(config.problem, given))
    return {**options_of_data(config.problem, given, data_dir), **given}


def check_settings(
    settings: TrainingSettings,
    hparams: HParams,
    given: Mapping[str, Any],
    *,
    stored: bool = False,
    exists: bool = False,
) -> DecodeHParams:
    """Checks the training settings that depend on each other and on the hparams.

    Args:
      settings: The training settings.
      hparams: The hparams of the training.
      given: The settings that the user gave.
      stored: Whether the run has stored the decode hparams; see ``resolve_decode_hparams``.
      exists: Whether the run exists, so that its hparams stay as they are.

    Returns:
      How the development set is translated.

    Raises:
      UserError: They contradict each other.
    """
    decode_hparams = resolve_decode_hparams(settings.decode_hparams, stored=stored)
    if settings.eval_bleu_sentences >= 0:
        check_directions(decode_hparams, directions_of(hparams))
    compiled = "--distribution=tpu" if settings.distribution == "tpu" else "--xla_compile"
    of_few_shapes = hparams.batch_shapes == "static" or hparams.length_groups > 1
    if (settings.xla_compile or settings.distribution == "tpu") and not of_few_shapes:
        slices = hparams.gradient_accumulation_steps * hparams.parallel_slices
        some = f"batch_shapes=static, or length_groups={-(-4 // slices) * slices},"
        how = f"begin a new run with {some} in" if exists else f"add {some} to"
        raise UserError(f"{compiled} needs batches of few shapes: {how} --hparams.")
    if given.get("tpu") and settings.distribution != "tpu":
        raise UserError(
            f"--tpu={settings.tpu} is not used with --distribution={settings.distribution}: give --distribution=tpu, "
            "or leave it out."
        )
    dev_metrics.check(settings)
    return decode_hparams


def _check_model(model: str, hparams: HParams, set_name: str) -> None:
    """Checks that a new run's model accepts its hparams, and warns if the set is meant for other models."""
    families.check_hparams(model, hparams, set_name)
    if told := families.made_for_others(model, hparams, set_name):
        log.warning(told)


def make_problem(run: ResolvedRun) -> Any:
    """Returns the run's problem."""
    return _problem(run.config.problem, run.config.problem_options)


def first_weights(run: ResolvedRun) -> str | None:
    """Returns the run or checkpoint to take the first weights from; None if the run has a checkpoint of its own."""
    if run.stored and checkpoints.list_checkpoints(run.stored.path):
        return None
    return run.config.warm_start_from or None


def check_checkpoints(run: ResolvedRun) -> None:
    """Checks that a run that has begun still has a checkpoint from which it can be resumed.

    Without one it would begin anew, and delete its measurements and its best checkpoint, which may be all that is left.

    Raises:
      UserError: All checkpoints are gone, but ``best`` or ``averaged`` holds some, or one was evaluated.
    """
    if run.stored is None or checkpoints.list_checkpoints(run.stored.checkpoints_dir):
        return
    for folder in (run.stored.best_dir, run.stored.averaged_dir):
        if left := checkpoints.list_checkpoints(folder):
            raise UserError(
                f"The run {run.output_dir} has no checkpoint to resume from: {run.stored.checkpoints_dir} holds none, "
                f"but {folder} holds {left[-1].name}. Restore one from a backup; or begin a new run with these "
                f"weights, --warm_start_from={left[-1]}, in another --output_dir; or delete the run to begin anew."
            )
    # A checkpoint is saved before it is evaluated. A run that was killed before its first one begins anew.
    evaluated = [each["step"] for each in records.read(run.stored.metrics_path, sys.maxsize) if each["kind"] == "eval"]
    if evaluated:
        raise UserError(
            f"The run {run.output_dir} has no checkpoint to resume from: {run.stored.checkpoints_dir} holds none, but "
            f"{run.stored.metrics_path.name} has the measurements of a training up to step {max(evaluated)}, which "
            "beginning anew would delete. Restore a checkpoint from a backup, give another --output_dir, or delete "
            "the run to begin anew."
        )


def check_first_weights(run: ResolvedRun) -> None:
    """Checks, without reading arrays, that the checkpoint of the first weights exists and can be used as requested.

    Raises:
      UserError: The checkpoint does not exist, or training cannot continue from it.
    """
    origin = first_weights(run)
    if origin:
        _, path = warm_start.find_checkpoint(origin)
        if run.config.warm_start_optimizer == KEEP:
            warm_start.check_keepable(path, run.hparams, run.settings.train_steps)


def check_stored(run: ResolvedRun, generated: GeneratedData) -> None:
    """Checks that a stored run was made from the given data.

    Raises:
      UserError: The run was made from other data.
    """
    if run.stored is not None:
        given = run.config.replace(data_digest=generated.digest())
        may_change = _paths_that_may_change(make_problem(run), run.stored.config)
        check_resumable(run.stored.config_now(), given, run.output_dir, may_change)


def _check_control_symbols(run: ResolvedRun, encoder: SubwordEncoder) -> None:
    """Checks that the ids with which some models mark directions, or never generate, are no text of the vocabulary.

    Raises:
      UserError: The target's vocabulary was made elsewhere and has text in their place.
    """
    needed = set[int]()
    if directions_of(run.hparams) > 1:
        needed = {L2R_ID, R2L_ID}
    elif isinstance(run.hparams, AsynchronousHParams):
        needed = set(range(L2R_ID, FIRST_TEXT_ID))
    if lacking := sorted(needed - set(encoder.control_ids)):
        raise UserError(
            f"--model={run.config.model} needs the ids {', '.join(map(str, lacking))} of the target's vocabulary as "
            f"control symbols, but in that of {run.config.problem} they are text ({encoder.pieces(lacking[:1])[0]!r}). "
            "Let t2t_ext-datagen train the vocabulary, or train yours with "
            f"--control_symbols={','.join(CONTROL_SYMBOLS)}."
        )


def what_workers_share(run: ResolvedRun, generated: GeneratedData) -> str:
    """Returns, as one text, everything that must be equal on all workers of a run."""
    config = run.config
    shared = ("problem", "problem_options", "model", "hparams_class", "hparams", "random_seed", "training")
    return json.dumps([generated.digest(), *(getattr(config, name) for name in shared)], sort_keys=True, default=str)


def open_run(run: ResolvedRun, generated: GeneratedData, *, is_chief: bool = True) -> RunDirectory:
    """Creates the run directory on the chief, or opens the existing one; other workers wait for the chief's.

    Raises:
      UserError: The stored run was made from other data.
    """
    config = run.config.replace(data_digest=generated.digest(), source_feature_size=generated.source_feature_size)
    check_stored(run, generated)
    if run.stored is not None:
        if is_chief:
            stored = run.stored
            curves = [stored.path / name for name in ("train", "eval", "tensorboard")]
            files.remove_leftovers(stored.path)  # users' decoders may write here
            for folder in (stored.checkpoints_dir, stored.best_dir, *curves):
                files.remove_leftovers(folder, sole_writer=True)
            before = run.stored.config
            run.stored.update(config, _paths_that_may_change(make_problem(run), before))
            _say_where_text_is(config, before)
        return run.stored
    if is_chief:
        encoders = generated.text_encoders()
        _check_control_symbols(run, encoders[1])
        return RunDirectory.create(run.output_dir, config, *encoders)
    deadline = time.monotonic() + _CHIEF_WAIT_SECONDS
    while not RunDirectory.exists(run.output_dir):
        if time.monotonic() > deadline:
            raise UserError(
                f"The chief worker has not made {run.output_dir} in {_CHIEF_WAIT_SECONDS:.0f} s. "
                "--output_dir must be on a file system that all workers share."
            )
        time.sleep(0.2)
    return RunDirectory.open(run.output_dir)


def _hparams(config: TrainConfig, stored: RunDirectory | None) -> tuple[HParams, dict[str, str], str]:
    """Returns the hparams, the origin of each, and the name of their set."""
    if stored is None or (config.hparams_set and config.hparams_set != stored.config.hparams_set):
        resolved = registry.resolve_hparams(config.hparams_set, config.hparams)
        return resolved, resolved.origins(), config.hparams_set
    # Overrides that are not repeated keep their stored values.
    hparams = stored.hparams().override(config.hparams, flag="--hparams")
    if hparams.batch_size == AUTO_BATCH_SIZE:
        # The size that was probed when the run began stays: a resumed run must see the same batches.
        origin, number = stored.config.origins.get("batch_size", ""), stored.hparams().batch_size
        if not origin.startswith("auto"):
            raise UserError(
                f"--hparams: batch_size=auto, but the run {config.output_dir} was made with batch_size={number} "
                f"(origin: {origin or 'unknown'}). Leave batch_size out to resume it, or choose another "
                "--output_dir."
            )
        hparams = hparams.replace(batch_size=number)
    given = [name for name, origin in hparams.origins().items() if origin == FLAG]
    values, before = hparams.to_dict(), stored.hparams().to_dict()
    # A value that is given again unchanged keeps its origin, so that a probed batch_size is still known as probed.
    origins = {**stored.config.origins, **{name: FLAG for name in given if values[name] != before[name]}}
    _warn_of_an_edited_set(config, stored.config, given)
    return hparams, origins, stored.config.hparams_set


def _warn_of_an_edited_set(config: TrainConfig, stored: RunConfig, given: Collection[str]) -> None:
    """Warns if the user's own hparams set was edited after the run was made; the run keeps its values.

    Args:
      config: What the user asked for.
      stored: The run's stored configuration.
      given: The hparams that ``--hparams`` names.
    """
    name = stored.hparams_set
    if not config.t2t_usr_dir:  # without it, the set comes from the run's own copy
        return
    if name not in registry.user_names(user_directory.absolute(config.t2t_usr_dir)).get("hparams set", ()):
        return
    try:
        now = registry.resolve_hparams(name)
    except UserError:  # the edited set is invalid, but the run does not use it
        return
    others = [
        f"{each} is {value!r} now, the run has {before!r}"
        for each, before, value in changed(stored, now)
        if each not in given and stored.origins.get(each) != FLAG
    ]
    if others:
        log.warning(
            f"{name} of {config.t2t_usr_dir} is not what it was when the run {config.output_dir} was made: "
            f"{'; '.join(others)}. The run goes on with its own values; another --output_dir is a run with those of now"
        )


def _check_source(hparams: HParams, problem: Any) -> None:
    """Checks that an hparam for sources of feature vectors is not given for a source of text.

    Raises:
      UserError: The source is text.
    """
    if hparams.origins().get("feature_positions") == FLAG and not isinstance(problem.features()["inputs"], Floats):
        raise UserError(
            f"--hparams: feature_positions has no effect: the source of {problem.name} is text, whose positions are "
            "as pos says. Leave it out, or set pos."
        )


def _warm_start_from(config: TrainConfig, stored: RunDirectory | None) -> str:
    """Returns the absolute path to store as ``warm_start_from``, or ""; a run that has begun keeps its own."""
    before = stored.config.warm_start_from if stored else ""
    if not config.warm_start_from:
        return before
    given = os.path.abspath(config.warm_start_from)
    if stored and given != before and checkpoints.list_checkpoints(stored.path):
        raise UserError(
            f"--warm_start_from={config.warm_start_from}: the run {config.output_dir} has checkpoints already and "
            f"resumes from the last one; it began with {before or 'fresh weights'}. Leave --warm_start_from out, or "
            f"choose another --output_dir."
        )
    return given


def _warm_start_optimizer(config: TrainConfig, stored: RunDirectory | None) -> str:
    """Returns whether a warm start resets or keeps the optimizer; a run that has begun keeps its choice."""
    before = stored.config.warm_start_optimizer if stored else RESET
    given = config.given().get("warm_start_optimizer", before)
    if given == KEEP and not _warm_start_from(config, stored):
        raise UserError(
            f"--warm_start_optimizer={given}: there is no optimizer to keep without --warm_start_from=RUN. (A run that "
            "is there continues with its own: name it in --output_dir alone.)"
        )
    if stored and given != before and checkpoints.list_checkpoints(stored.path):
        raise UserError(
            f"--warm_start_optimizer={given}: the run {config.output_dir} has checkpoints already; it began with "
            f"{before} and resumes from the last one. Leave the flag out, or choose another --output_dir."
        )
    return given


def _settings(config: TrainConfig, old: RunConfig | None, hparams: HParams) -> TrainingSettings:
    stored = old.training if old else {}
    known = {name: value for name, value in stored.items() if name in TrainingSettings.names()}
    for name in sorted(set(stored) - set(known)):
        log.warning(f"{config.output_dir} stores the setting {name}, which this version does not have: left out")
    given = config.given_settings()
    bleu = given.get("eval_bleu_sentences", 0) >= 0
    if not old and (bleu or hparams.early_stopping_metric != "bleu"):
        known["eval_early_stopping_metric"] = hparams.early_stopping_metric
    known |= {} if old else dev_metrics.defaults(given)
    settings = TrainingSettings(**{**known, **given})
    idle = [name for name in given if name.startswith("eval_early_stopping_metric")]
    if idle and not settings.eval_early_stopping_steps:
        log.warning(f"--{idle[0]} does nothing without --eval_early_stopping_steps=N, which stops a run early")
    return settings


def _problem(name: str, options: Any) -> Any:
    return registry.problem(name, **dict(options or {}))


def _paths_that_may_change(problem: Any, stored: RunConfig) -> Iterable[str]:
    """Returns the settings of a run, as ``differences`` names them, that say where the problem's raw files are.

    Only the contents of the files count, and the digest of the data covers these. Which member of an archive is read
    is still compared, since the archive may be the same.
    """
    before, now = stored.problem_options, problem.options
    return {
        f"problem_options.{name}" for name in problem.path_options if not other_members(before.get(name), now.get(name))
    }


def _say_where_text_is(now: RunConfig, before: RunConfig) -> None:
    """Reports that a run now stores other paths of raw text, which does not change its data."""
    for name, path in now.problem_options.items():
        stored = before.problem_options.get(name)
        if path != stored:
            log.info(
                f"{name}={path} is stored in place of {stored or 'none'}; the run goes on with the data in "
                f"{now.data_dir}. --generate_data compares them with what the files hold"
            )


def options_of_data(name: str, options: Any, data_dir: str | os.PathLike) -> dict[str, Any]:
    """Returns the options, except paths, that existing data were made with, such as tags and layouts.

    Raises:
      UserError: The data were made with other options than the given ones.
    """
    problem = _problem(name, options)
    for path in (manifest_path(data_dir, problem.data_name), manifest_path(data_dir, problem.base_name)):
        if path.is_file():
            made_with = Manifest.load(path).problem_options
            if others := differing_options(problem, made_with):
                raise UserError(
                    f"The data of {problem.base_name} in {data_dir} were made in another way: {'; '.join(others)}. "
                    f"Leave the options out, which takes those of the data, or give a --data_dir with such data."
                )
            return {name: value for name, value in made_with.items() if name not in problem.path_options}
    return {}
