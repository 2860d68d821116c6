"""Chooses the runs that make pseudo references, and checks beforehand that they fit each other and the data."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from t2t_ext import registry
from t2t_ext.config.decode import DecodeHParams
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.data.datasets.pseudo_references import DIRECTIONS, SUFFIX
from t2t_ext.errors import UserError
from t2t_ext.runs import checkpoints
from t2t_ext.runs.chosen_runs import ChosenRun, choose_runs
from t2t_ext.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from t2t_ext.translation.translator import Translator

Warn = Callable[[str], None]

_WORDS = {"l2r": "left to right", "r2l": "right to left"}


@dataclasses.dataclass(frozen=True)
class Teachers:
    """The runs and checkpoints that translate; several for one direction form an ensemble.

    Attributes:
      l2r: The runs that generate left to right (L2R).
      r2l: The runs that generate right to left (R2L).
    """

    l2r: tuple[ChosenRun, ...]
    r2l: tuple[ChosenRun, ...]

    @classmethod
    def choose(cls, l2r: str, r2l: str, l2r_checkpoint: str, r2l_checkpoint: str, warn: Warn) -> Self:
        """Finds runs and checkpoints in the same way as the decoder's flags ``--output_dir`` and ``--checkpoint_path``.

        The runs' own modules are loaded.

        Raises:
          UserError: A run does not exist, the runs of a direction do not fit each other, or a run generates in the
            other direction.
        """
        runs = {}
        for direction, given, checkpoint in (("l2r", l2r, l2r_checkpoint), ("r2l", r2l, r2l_checkpoint)):
            if not given:
                how = " (trained with --hparams=target_direction=r2l)" * (direction == "r2l")
                what = f"a run of t2t_ext-trainer whose model generates {_WORDS[direction]}{how}"
                raise UserError(f"--{direction}=RUN is needed: {what}.")
            runs[direction] = choose(f"--{direction}={given}", given, checkpoint, warn)
        found = {
            direction: chosen[0].run.config.hparams.get("target_direction", "l2r") for direction, chosen in runs.items()
        }
        if (found["l2r"], found["r2l"]) == ("r2l", "l2r"):
            raise UserError(
                f"--l2r and --r2l are swapped: {l2r} generates right to left (target_direction=r2l), {r2l} left to "
                f"right. Give --l2r={r2l} --r2l={l2r}."
            )
        for direction, chosen in runs.items():
            if found[direction] != direction:
                raise UserError(
                    f"--{direction}={chosen[0].run.path} generates {_WORDS[found[direction]]} "
                    f"(target_direction={found[direction]}). Give a run that generates {_WORDS[direction]}: one that "
                    f"was trained with target_direction={direction}."
                )
        return cls(**runs)

    def members(self, direction: str) -> tuple[ChosenRun, ...]:
        """Returns the runs of a direction."""
        return self.l2r if direction == "l2r" else self.r2l

    def described(self) -> dict[str, list[dict[str, Any]]]:
        """Returns direction -> for each checkpoint, what its translations depend on, ready for JSON.

        Raises:
          UserError: A checkpoint is damaged.
        """
        return {direction: [described(chosen) for chosen in self.members(direction)] for direction in DIRECTIONS}

    def check(self, problem: Any, data: GeneratedData, warn: Warn) -> None:
        """Checks that the runs can translate the data of a problem between its languages.

        Raises:
          UserError: A run was trained on another problem, or its ids mean something else.
        """
        for direction in DIRECTIONS:
            for run in dict.fromkeys(chosen.run for chosen in self.members(direction)):
                check_run(f"--{direction}", run, problem, data, warn)

    def translator(self, direction: str, decode_hparams: DecodeHParams) -> "Translator":
        """Loads and returns the ``Translator`` of a direction.

        Raises:
          UserError: A checkpoint is damaged.
        """
        from t2t_ext.translation.translator import Translator

        return Translator.of_runs(self.members(direction), decode_hparams)

    def check_models(self) -> None:
        """Checks that each model generates in only one direction; imports TensorFlow.

        Raises:
          UserError: A model generates in both directions at once.
        """
        for direction in DIRECTIONS:
            for chosen in self.members(direction):
                check_one_direction(f"--{direction}", chosen, f"generates {_WORDS[direction]} alone")


def described(chosen: ChosenRun) -> dict[str, Any]:
    """Returns what a checkpoint's translations depend on, ready for JSON.

    Raises:
      UserError: The checkpoint is damaged.
    """
    info = checkpoints.read_info(chosen.checkpoint)
    weights = {name: entry["sha256"] for name, entry in info.files.items() if name.startswith(f"{info.users_group}.")}
    return {
        "run": chosen.run.path.resolve().name,
        "model": chosen.run.config.model,
        "step": info.step,
        "weights": hashlib.sha256(json.dumps(weights, sort_keys=True).encode()).hexdigest(),
    }


def check_run(
    flag: str, run: RunDirectory, problem: Any, data: GeneratedData, warn: Warn, *, backward: bool = False
) -> None:
    """Checks that a run can translate the data of a problem, from the source or (``backward``) from the target.

    Raises:
      UserError: The run was trained on another problem, or its ids mean something else.
    """
    encoders, languages, wanted = data.text_encoders(), problem.languages, problem.data_name
    if backward:
        encoders, languages, wanted = encoders[::-1], languages[::-1], registry.reversed_name(wanted)
    trained_on = run.config.problem.removesuffix(SUFFIX)
    if trained_on != wanted:
        of_the_run = registry.problem(trained_on, **run.config.problem_options).languages
        if of_the_run != languages or not all(languages):
            raise UserError(
                f"{flag}={run.path} was trained on {run.config.problem}, not on {wanted}. Give a run of {wanted}, or "
                "the --problem that the run was trained on."
            )
        warn(f"{run.path} ({flag}) was trained on {run.config.problem}, not on {wanted}")
    for name, own, other in zip(("source", "target"), run.text_encoders(), encoders, strict=True):
        if own.ids_sha256 != other.ids_sha256:
            raise UserError(
                f"{flag}={run.path}: the ids of its {name} mean something else than those of the data in "
                f"{data.data_dir} (digests {own.ids_sha256[:12]}... and {other.ids_sha256[:12]}...). Train it on these "
                f"data, or make them with t2t_ext-datagen --vocab_from={run.path}."
            )
    if run.config.problem == wanted and run.config.data_digest != data.digest():
        warn(f"the data in {data.data_dir} are not those that {run.path} ({flag}) was trained on")


def check_one_direction(flag: str, chosen: ChosenRun, what: str) -> None:
    """Checks that a model generates in only one direction; imports TensorFlow.

    Raises:
      UserError: It generates in both directions at once; the message asks for a model that does ``what``.
    """
    name = chosen.run.config.model
    if registry.model(name).sides(chosen.run.hparams()).directions != 1:
        raise UserError(
            f"{flag}={chosen.run.path}: its model ({name}) generates in both directions at once. Give a run of a model "
            f"that {what}, such as transformer."
        )


def choose(flag: str, runs: str | Sequence[str], checkpoint: str, warn: Warn) -> tuple[ChosenRun, ...]:
    """Returns the run and checkpoint that a flag such as ``--l2r=RUN`` refers to, or the members of an ensemble.

    The runs' own modules are loaded.

    Raises:
      UserError: A run does not exist, or the runs do not fit each other; the message begins with the flag.
    """
    try:
        chosen = tuple(choose_runs(runs, checkpoint or None, warn=warn))
        for each in chosen:
            each.run.load_user_code()
        return chosen
    except UserError as error:
        raise UserError(f"{flag}: {error}") from error


def max_length(runs: Sequence[ChosenRun]) -> int:
    """Returns the longest target that the first of some runs was trained on, in tokens including EOS."""
    hparams = runs[0].run.config.hparams
    return hparams.get("max_length") or hparams["batch_size"]
