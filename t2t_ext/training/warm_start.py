"""Takes the first weights from another run: by variable name, and by subword piece if the vocabulary differs.

The optimizer, the steps and with them the learning rate either start anew or continue where the other run was
(``--warm_start_optimizer``).
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from t2t_ext.config.hyperparameters import HParams
from t2t_ext.config.training import KEEP, RESET
from t2t_ext.data.text.text_encoder import FIRST_TEXT_ID, SubwordEncoder
from t2t_ext.errors import UserError
from t2t_ext.io.inputs import suggest_path
from t2t_ext.runs import checkpoints, folders, run_directory

Encoders = tuple[SubwordEncoder, SubwordEncoder]
SIDES = ("source", "target")
# Training state that is kept besides the slots of variables: how many updates there were, and their weights.
_COUNTERS = ("step", "skipped/total", "schedule_free/largest_rate", "schedule_free/sum_of_weights")
# Optimizer -> the first part of its slots' names.
_SLOTS = {"adam": "adam", "adam_w": "adam", "schedule_free_adam_w": "schedule_free", "adafactor": "adafactor"}
_LOSS_SCALE = ("loss_scale/scale", "loss_scale/finite_in_a_row")
# Matrices that another run may share with others: name -> what else holds its rows if the checkpoint lacks the name.
_SHARED_AS = {
    "source_embedding/embeddings": ("embedding/embeddings",),
    "target_embedding/embeddings": ("embedding/embeddings",),
    "softmax/embeddings": ("target_embedding/embeddings", "embedding/embeddings"),
}

# Norms of the encoder's outputs that a decoder reads. If they are new, they start as the norm of the outputs that it
# read before, since its projections were trained with the scale that this norm has learned.
_NORM_OF_VIEW = re.compile(
    r"(?:(?:backward_)?decoder/source_views|encoder/view_norms)/layer_\d+/(?:norm/)?(scale|bias)"
)
_NORM_OF_ENCODER = r"encoder/(?:final_norm|layer_(\d+)/feed_forward_frame/post_norm)/"


@dataclasses.dataclass(frozen=True)
class WarmStartReport:
    """The result of a warm start.

    Attributes:
      origin: The checkpoint that the weights came from.
      loaded: Names of variables that were loaded unchanged.
      mapped: Name -> (rows taken, rows of the new vocabulary), if only the rows of shared pieces were taken.
      skipped: Name -> why a variable of the checkpoint was not taken.
      new: Names of variables that the checkpoint does not have; they keep their fresh values.
      unshared: Name -> the checkpoint's variable that was loaded for it, since both are one matrix there.
      begun: Name of a new norm of encoder outputs -> the checkpoint's variable that it starts as: the norm of the
        outputs that the decoder read before.
      choice: Which of the run's checkpoints it is, and which others there are.
      changed: Hyper-parameter of the model -> (its value there, here), for those that differ.
      kept: What is reported about the optimizer that is kept; "" if everything except the weights starts anew.
    """

    origin: pathlib.Path
    loaded: list[str]
    mapped: dict[str, tuple[int, int]]
    skipped: dict[str, str]
    new: list[str]
    unshared: dict[str, str]
    begun: dict[str, str] = dataclasses.field(default_factory=dict)
    choice: str = ""
    changed: Mapping[str, tuple[Any, Any]] = dataclasses.field(default_factory=dict)
    kept: str = ""

    def lines(self) -> list[str]:
        """Returns the report as lines of text."""
        choice = f" ({self.choice})" if self.choice else ""
        lines = [f"warm start from {self.origin}{choice}: {len(self.loaded)} variables loaded as they are"]
        if self.changed:
            shown = {name: [value if value != "" else "''" for value in both] for name, both in self.changed.items()}
            told = ", ".join(f"{name} {before} -> {after}" for name, (before, after) in shown.items())
            lines.append(f"  hparams of the model that are others than there: {told}")
        lines += [
            f"  {name}: rows of {taken} of {total} subwords taken over, the others are new"
            for name, (taken, total) in self.mapped.items()
        ]
        lines += [f"  {name}: from {old}, which is one with it there" for name, old in self.unshared.items()]
        for before in dict.fromkeys(self.begun.values()):
            names = [name for name, old in self.begun.items() if old == before]
            lines.append(f"  new, and begins as {before}: {_together(names)}")
        for why in dict.fromkeys(self.skipped.values()):
            names = [name for name, reason in self.skipped.items() if reason == why]
            lines.append(f"  skipped {_together(names)}: {why}")
        none = "  no other variable is new" if self.begun else "  no variable is new"
        lines.append(f"  new, not in the checkpoint: {_together(self.new)}" if self.new else none)
        lines.append(f"  {self.kept or 'optimizer, steps and learning rate begin anew'}")
        return lines


def warm_start(
    fresh: Mapping[str, np.ndarray],
    encoders: Encoders,
    sides: Mapping[str, str],
    origin: str,
    hparams: HParams | None = None,
    *,
    keep: bool = False,
) -> tuple[dict[str, np.ndarray], WarmStartReport]:
    """Returns the arrays of a new model with weights taken over from another run.

    Args:
      fresh: Name -> freshly initialized array of the new model.
      encoders: The new run's source and target text encoder.
      sides: Name -> ``source`` or ``target`` for variables whose rows (axis 0) are pieces of that vocabulary.
      origin: A run directory, or a checkpoint in one (its vocabulary is needed).
      hparams: The hparams of the new run, for the report.
      keep: Take the trained weights, not the averages that a run may keep for users.

    Returns:
      (name -> array for every name of ``fresh``, the report).

    Raises:
      UserError: There is no such run or checkpoint, or nothing in it fits.
    """
    run, path = find_checkpoint(origin)
    info = checkpoints.read_info(path)
    old = checkpoints.load_arrays(path, "model" if keep else info.users_group)
    old_encoders = run.text_encoders()
    row_maps = {
        side: None if ours.ids_sha256 == theirs.ids_sha256 else shared_rows(ours, theirs)
        for side, ours, theirs in zip(SIDES, encoders, old_encoders, strict=True)
    }
    changed = {} if hparams is None else changed_hparams(run.config.hparams, hparams)
    choice = _choice(run, path, origin)
    if "ema" in info.groups and not keep:
        choice = f"the averages of its weights; {choice}"
    arrays = dict(fresh)
    report = WarmStartReport(path, [], {}, {}, [], {}, choice=choice, changed=changed)
    for name, value in fresh.items():
        row_map = row_maps[sides[name]] if name in sides else None
        taken = next((other for other in (name, *_SHARED_AS.get(name, ())) if other in old), None)
        if taken is None:
            before = _norm_of_encoder(name, old)
            if before and old[before].shape == value.shape:
                arrays[name], report.begun[name] = old[before].astype(value.dtype), before
            else:
                report.new.append(name)
            continue
        array = old[taken]
        if array.shape[1:] != value.shape[1:] or (row_map is None and array.shape != value.shape):
            report.skipped[name] = f"its shape is {list(array.shape)}, here {list(value.shape)}"
            continue
        if taken != name:
            report.unshared[name] = taken
        if row_map is None:
            arrays[name] = array.astype(value.dtype)
            report.loaded.append(name)
        else:
            new_rows, old_rows = row_map
            arrays[name] = value.copy()
            arrays[name][new_rows] = array[old_rows]
            report.mapped[name] = (len(new_rows), len(value))
    used = {*fresh, *report.unshared.values()}
    report.skipped.update({name: "the new model has no such variable" for name in old if name not in used})
    if not report.loaded and not report.mapped:
        raise UserError(_nothing_fits(path, old, report))
    return arrays, report


def _norm_of_encoder(name: str, old: Mapping[str, np.ndarray]) -> str:
    """Returns the checkpoint's variable that a new norm of encoder outputs starts as; empty for other variables."""
    view = _NORM_OF_VIEW.fullmatch(name)
    norms = [match for each in old if view and (match := re.fullmatch(_NORM_OF_ENCODER + view[1], each))]
    # The final norm of a pre-norm stack, otherwise the norm of the last layer.
    return max(norms, key=lambda match: float(match[1] or "inf"))[0] if norms else ""


def _nothing_fits(path: pathlib.Path, old: Mapping[str, np.ndarray], report: WarmStartReport) -> str:
    """Returns why no variable of a checkpoint could be taken: other sizes, or another kind of model."""
    others = [f"{name}: {why}" for name, why in report.skipped.items() if why.startswith("its shape")]
    if not others:
        return (
            f"Nothing in {path} fits this model: the checkpoint has {', '.join(sorted(old)[:3])}, ... "
            "Start from a run of the same kind of model, or leave --warm_start_from out."
        )
    sizes = [
        f"{name} is {there} there, {here} here" for name, (there, here) in report.changed.items() if type(there) is int
    ]
    return (
        f"Nothing in {path} fits this model: {len(others)} of its {len(old)} variables have the names of this model's, "
        f"but other shapes ({others[0]}). {'; '.join(sizes[:4]) + '. ' if sizes else ''}"
        "Give the sizes of that run (--hparams_set, --hparams), or leave --warm_start_from out."
    )


def check_keepable(path: pathlib.Path, hparams: HParams, train_steps: int) -> None:
    """Checks, without reading arrays, that a run can continue with a checkpoint's optimizer and after its steps.

    Raises:
      UserError: The checkpoint has only weights or another optimizer's state, or is at ``train_steps`` already.
    """
    flag = f"--warm_start_optimizer={KEEP}"
    info = checkpoints.read_info(path)
    if "training" not in info.groups:
        raise UserError(
            f"{flag}: {path} holds weights only, as best and averaged checkpoints do. Take one of the run's "
            f"checkpoints/, or --warm_start_optimizer={RESET}."
        )
    theirs = {name.partition("/")[0] for name in info.groups["training"]} & set(_SLOTS.values())
    if _SLOTS[hparams.optimizer] not in theirs:
        raise UserError(
            f"{flag}: {path} has the state of {' and '.join(sorted(theirs)) or 'no optimizer'}, which "
            f"optimizer={hparams.optimizer} cannot continue with. Set optimizer to the same, or "
            f"--warm_start_optimizer={RESET}."
        )
    if info.step >= train_steps:
        raise UserError(
            f"{flag} continues after step {info.step} of {path}, and --train_steps={train_steps} counts from the "
            f"beginning of that run: give more, or --warm_start_optimizer={RESET}."
        )


def kept_training(
    fresh: Mapping[str, np.ndarray], report: WarmStartReport
) -> tuple[dict[str, np.ndarray], WarmStartReport]:
    """Returns the training state of the report's checkpoint for the names of ``fresh``, and the completed report.

    The step counts are kept, which determine the learning rate and the order of the data, and the optimizer's state of
    variables that were loaded unchanged. The state of other variables starts as zeros, which moving averages soon
    forget. The completed report says what was kept.

    Raises:
      UserError: The optimizer keeps averages over all steps, and a variable is new.
    """
    old = checkpoints.load_arrays(report.origin, "training")
    loaded = set(report.loaded) - set(report.unshared)
    arrays = dict(fresh)
    prefixes = tuple(f"{kind}/" for kind in _SLOTS.values())
    of_variables = {name.split("/", 2)[-1] for name in fresh if name.startswith(prefixes) and name not in _COUNTERS}
    others = sorted(of_variables - loaded)
    if others and any(name.startswith("schedule_free/") for name in fresh):
        raise UserError(
            f"--warm_start_optimizer={KEEP} with optimizer=schedule_free_adam_w needs every variable in the checkpoint "
            f"as it is here, and {_together(others)} is not: its first values would stay in the mean over all steps. "
            f"Use --warm_start_optimizer={RESET}."
        )
    snapshots = {name: value.shape for name, value in fresh.items() if name.startswith("snapshots/")}
    if others or any(name not in old or old[name].shape != shape for name, shape in snapshots.items()):
        snapshots = {}  # averaging old snapshots of some variables and new ones of others makes no sense
    kept: set[str] = set()
    for name, value in fresh.items():
        variable = name.split("/", 2)[-1]
        is_slot = name.startswith(prefixes) and variable in loaded
        scales = name in _LOSS_SCALE and fresh[_LOSS_SCALE[0]] != 1 and old[_LOSS_SCALE[0]] != 1
        taken = is_slot or name in _COUNTERS or scales or name in snapshots
        if taken and name in old and old[name].shape == value.shape:
            arrays[name] = old[name].astype(value.dtype)
            kept.update([variable] if is_slot else [])
    told = f"steps and learning rate continue after step {int(arrays['step']):,}, the optimizer's state of {len(kept)} "
    told += f"variables is kept, that of the other {len(of_variables) - len(kept)} begins as zeros"
    return arrays, dataclasses.replace(report, kept=told)


def kept_averages(fresh: Mapping[str, np.ndarray], report: WarmStartReport) -> dict[str, np.ndarray]:
    """Returns the averages: the checkpoint's for variables that were loaded unchanged, otherwise the fresh ones."""
    if not fresh or "ema" not in checkpoints.read_info(report.origin).groups:
        return dict(fresh)
    old = checkpoints.load_arrays(report.origin, "ema")
    loaded = set(report.loaded) - set(report.unshared)
    return {name: old[name] if name in loaded and name in old else value for name, value in fresh.items()}


def changed_hparams(stored: Mapping[str, Any], hparams: HParams) -> dict[str, tuple[Any, Any]]:
    """Returns which hparams of the model itself differ from those that a run stored: name -> (there, here).

    Training hparams (``HParams``) and dropout are left out, since they may well differ. The weights do not reveal the
    rest, such as num_heads, or the direction in which they generate.
    """
    ours = hparams.to_dict()
    defaults = {field.name: field.default for field in dataclasses.fields(hparams)}
    of_model = [name for name in hparams.names() if name not in HParams.names() and not name.endswith("_dropout")]
    of_model.append("target_direction")
    there = {name: stored.get(name, defaults[name]) for name in of_model}
    return {name: (there[name], ours[name]) for name in of_model if there[name] != ours[name]}


def shared_rows(ours: SubwordEncoder, theirs: SubwordEncoder) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of the pieces that two vocabularies share.

    Returns:
      (rows in ours, rows in theirs), int64 [n] each, of the same pieces.
    """
    their_ids = {piece: row for row, piece in enumerate(_pieces(theirs))}
    pairs = [(row, their_ids[piece]) for row, piece in enumerate(_pieces(ours)) if piece in their_ids]
    new_rows, old_rows = np.array(pairs, np.int64).reshape(-1, 2).T
    return new_rows, old_rows


def find_checkpoint(origin: str) -> tuple[run_directory.RunDirectory, pathlib.Path]:
    """Returns the run, and the checkpoint in it, that ``--warm_start_from`` refers to.

    Raises:
      UserError: There is no such checkpoint, or it is not in a run directory.
    """
    path = pathlib.Path(origin)
    for wanted in (path, path.resolve()):  # a link to a checkpoint leads to its run
        for folder in (wanted, *wanted.parents):
            if run_directory.RunDirectory.exists(folder):
                run = run_directory.RunDirectory.open(folder)
                return run, checkpoints.resolve_checkpoint(folder, None if folder == wanted else wanted)
    if data := folders.data_in(path):
        raise UserError(
            f"--warm_start_from={origin} {data} and is no run. First weights come from a run directory, as "
            "t2t_ext-trainer wrote it (--output_dir), or a checkpoint in one."
        )
    if not path.exists():
        close = suggest_path(path, run_directory.RunDirectory.exists)
        raise UserError(
            f"--warm_start_from={origin} does not exist.{close} Give a run directory or a checkpoint in one."
        )
    raise UserError(
        f"--warm_start_from={origin} is not a run directory or a checkpoint in one. The run's subword model is needed "
        "to know which row of an embedding means which subword: copy the whole run directory."
    )


def vocabulary_sides(model: Any) -> dict[str, str]:
    """Returns which variables of a model have a row for each piece: name -> ``source`` or ``target``."""
    sides = {}
    for part, side in (("source_embedding", "source"), ("target_embedding", "target"), ("softmax", "target")):
        # A source of feature vectors has no embedding, and a model of the user's may have no such part.
        layer = getattr(model, part, None)
        for variable in () if layer is None else layer.variables:
            sides[variable.path.split("/", 1)[1]] = side
    return sides


def _choice(run: run_directory.RunDirectory, path: pathlib.Path, origin: str) -> str:
    """Returns which checkpoint of its run was found for the request, and which best or averaged ones there also are."""
    names = {run.checkpoints_dir: "last", run.best_dir: "best", run.averaged_dir: "averaged"}
    there = {folder: checkpoints.list_checkpoints(folder) for folder in names}
    info, folder = checkpoints.read_info(path), path.parent
    if folder == run.averaged_dir and "averaged_steps" in info.metadata:
        found = f"the average of steps {', '.join(map(str, info.metadata['averaged_steps']))}"
    elif folder == run.best_dir and "metric" in info.metadata:
        metric = info.metadata["metric"]
        found = f"the best by {metric}, {info.metadata.get(metric, float('nan')):.4g}, of step {info.step}"
    elif folder == run.checkpoints_dir and there[folder] and there[folder][-1] == path:
        found = f"the last one, of step {info.step}"
    elif pathlib.Path(origin) == run.path:
        found = f"of step {info.step}, the last one that is not damaged"
    else:
        found = f"of step {info.step}"
    others = [str(other) for other, paths in there.items() if paths and other not in (folder, run.checkpoints_dir)]
    return found + (f"; there is also {' and '.join(others)}" if others else "")


def _together(names: Iterable[str]) -> str:
    """Joins names; those that differ only in the number of a layer are joined into one, with their count."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(re.sub(r"\blayer_\d+", "layer_*", name), []).append(name)
    return ", ".join(one[0] if len(one) == 1 else f"{pattern} ({len(one)})" for pattern, one in groups.items())


def _pieces(encoder: SubwordEncoder) -> list[tuple[str, str]]:
    """Returns (kind of subwords, piece) for every row: ``th`` differs between kinds, but special ids do not."""
    pieces = encoder.pieces(range(encoder.vocab_size))
    return [("" if row < FIRST_TEXT_ID else encoder.kind, piece) for row, piece in enumerate(pieces)]
