"""The jobs of ``time_to_quality.py``: turns recipes into commands, and reads the stored results."""

import collections
import dataclasses
import fnmatch
import json
import math
import pathlib
from collections.abc import Sequence

import _quality_curves as curves

from t2t_ext import registry
from t2t_ext.config.problem_options import parse
from t2t_ext.errors import UserError, suggest
from t2t_ext.experiments.plan import Options, Stage, plan
from t2t_ext.experiments.recipes import Recipe, RecipeBook

EXTENDED = "train_steps"  # the flag that may be raised for a finished run
_ENDLESS = 1_000_000  # updates
_STAGES = ("data", "train", "average", "score")


# === Recipes ===


def book(path: pathlib.Path | None) -> tuple[RecipeBook, list[str]]:
    """Returns the garden's recipes together with those of a file or folder, and the names of the latter."""
    import t2t_ext.recipes

    garden = pathlib.Path(t2t_ext.recipes.__path__[0])
    if path is None:
        return RecipeBook([garden]), []
    if not path.exists():
        raise UserError(f"--recipes={path}: there is no such file or folder. Name a TOML file of recipes.")
    known = RecipeBook([garden, path])
    return known, sorted({*known.names()} - {*RecipeBook([garden]).names()})


def chosen(texts: Sequence[str], known: RecipeBook, own: Sequence[str], problem: str, model: str) -> list[Recipe]:
    """Returns the recipes that the flags name.

    Args:
      texts: Each is a name or a pattern of recipes in ``known``, or ``NAME=SET`` or ``NAME=SET:a=1,b=x``, an hparams
        set with changes. Empty: all of ``own``.
      known: All recipes.
      own: Names of the recipes in the given file.
      problem: The problem of recipes that are given as a set.
      model: The model of recipes that are given as a set.

    Raises:
      UserError: There is no such recipe, one name stands for two, or a recipe is not one training.
    """
    found: list[Recipe] = []
    for text in texts or own:
        name, given, rest = text.partition("=")
        if given:
            found.append(_of_a_set(name, rest, problem, model))
        elif set("*?[") & set(name):
            names = fnmatch.filter(own or known.names(), name)
            if not names:
                raise UserError(f"--recipe={name}: no recipe has such a name{suggest(name, own or known.names())}.")
            found += map(known.recipe, names)
        else:
            found.append(known.recipe(name))
    twice = [name for name, count in collections.Counter(recipe.name for recipe in found).items() if count > 1]
    if twice:
        raise UserError(f"--recipe: {twice[0]!r} stands for two recipes. Give each its own name.")
    for recipe in found:
        missing = known.missing(recipe)
        if missing or recipe.rerank or recipe.pseudo_references or recipe.same_runs_as:
            raise UserError(f"{recipe.name}: {'; '.join(missing) or 'it is not one training'}. Leave it out.")
    return [dataclasses.replace(recipe, beside=(), beams=(), splits=("test",)) for recipe in found]


def _of_a_set(name: str, text: str, problem: str, model: str) -> Recipe:
    """Returns the recipe that is given as ``SET:a=1,b=x``."""
    hparams_set, _, changes = text.partition(":")
    if not problem:
        raise UserError(f"--recipe={name}={text}: --problem=NAME says what to translate.")
    try:
        hparams = parse(changes)
    except UserError as error:
        raise UserError(str(error).replace("--problem_options=", f"--recipe={name}={hparams_set}:")) from None
    registry.resolve_hparams(hparams_set, changes)
    return Recipe(
        name=name,
        problem=problem,
        scoring=registry.problem(problem).scoring,
        model=model,
        hparams_set=hparams_set,
        hparams=hparams,
        train={"train_steps": _ENDLESS, "keep_checkpoint_max": 2},
        checkpoint="best",
    )


# === Jobs ===


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
    """The limits of a training; it ends at the one that it reaches first.

    Attributes:
      minutes: Minutes of training only, including the training of initial weights by another recipe; 0: no limit.
      stop_at: Dev BLEU; infinite: no limit.
    """

    minutes: float = 0.0
    stop_at: float = math.inf

    def ended_by(self, run: curves.Run) -> str:
        """Returns which limit a run has reached: ``target`` or ``minutes``; empty if none."""
        if curves.reached(run.points, self.stop_at):
            return "target"
        return "minutes" if self.minutes and run.minutes >= self.minutes else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A training with a seed, and its commands.

    Attributes:
      name: The name of its recipe.
      seed: Its seed.
      stages: Its commands in order, without the generation of data.
      data: The command that generates its data; None if they exist.
      budget: The budget of its last training.
      work_dir: Where all its files go.
    """

    name: str
    seed: int
    stages: tuple[Stage, ...]
    data: Stage | None
    budget: Budget
    work_dir: pathlib.Path

    @property
    def title(self) -> str:
        """The job in words."""
        return f"{self.name}, seed {self.seed}"

    @property
    def result(self) -> pathlib.Path:
        """The file of its result."""
        return self.work_dir / "results" / f"{self.name}.seed{self.seed}.json"

    @property
    def training(self) -> Stage:
        """The training that is measured; earlier ones only provide initial weights."""
        return [stage for stage in self.stages if stage.kind == "train"][-1]

    def read(self) -> curves.Run:
        """Returns the curve so far, which begins after the minutes that its initial weights took."""
        first = [stage for stage in self.stages if stage.kind == "train" and stage is not self.training]
        before = sum(curves.read_run(stage.output).minutes for stage in first)
        return curves.read_run(self.training.output, self.name, self.seed, before)

    def settings(self, cores: int) -> dict[str, str]:
        """Returns the settings that determine its result, except the budget."""
        flags = {
            f"{stage.title} --{name}": value
            for stage in self.stages
            for name, value in stage.counted_flags().items()
            if name != EXTENDED or stage is not self.training
        }
        return {**flags, "--cores": str(cores)}

    def stored(self, cores: int) -> curves.Run | None:
        """Returns its stored result; None if there is none, or if it ended before this budget was used up.

        Raises:
          UserError: The result was made with other settings.
        """
        if not self.result.exists():
            return None
        run = read_result(self.result)
        then, now = run.more.get("settings", {}), self.settings(cores)
        differ = [name for name in sorted({*then, *now}) if then.get(name) != now.get(name)]
        if differ:
            shown = "; ".join(f"{name}: {then.get(name)!r} was used, {now.get(name)!r} is asked for" for name in differ)
            raise UserError(
                f"{self.result} was made with other settings: {shown}. Give the recipe another name or choose another "
                "--work_dir."
            )
        over = run.ended == "early stopping" or run.updates >= int(self.training.flags["train_steps"])
        return run if over or self.budget.ended_by(run) else None


def jobs(recipes: Sequence[Recipe], known: RecipeBook, options: Options, budget: Budget, data_dir: str) -> list[Job]:
    """Returns the trainings of all recipes and seeds: the first seed of all recipes, then the second, ...

    Args:
      recipes: The recipes.
      known: All recipes.
      options: Folders, seeds and changes.
      budget: The limits of each training.
      data_dir: The directory of existing data; if empty, data are generated.

    Raises:
      UserError: A flag or a name is invalid, or a recipe needs more than trainings.
    """
    from t2t_ext.bin.experiment import check_commands

    found = []
    for seed in options.seeds:
        for recipe in recipes:
            stages = plan(recipe, known, dataclasses.replace(options, seeds=(seed,)))
            data = next(stage for stage in stages if stage.kind == "data")
            steps = [_measured(stage, data_dir) for stage in stages if stage.kind != "data"]
            check_commands([*([] if data_dir else [data]), *steps])
            if any(stage.kind not in _STAGES for stage in stages):
                raise UserError(f"{recipe.name} takes more than trainings. Leave it out.")
            found.append(
                Job(
                    name=recipe.name,
                    seed=seed,
                    stages=tuple(steps),
                    data=None if data_dir else data,
                    budget=budget,
                    work_dir=options.work_dir,
                )
            )
    return found


def _measured(stage: Stage, data_dir: str) -> Stage:
    """Returns a command; a training also logs at every evaluation and uses the existing data, if given."""
    if stage.kind != "train":
        return stage
    frequency = int(stage.flags.get("local_eval_frequency", 1000))
    windows = [steps for steps in range(10, 51) if frequency % steps == 0]
    flags = {**stage.flags, "log_step_count_steps": max(windows, default=frequency)}
    return dataclasses.replace(stage, flags=flags | ({"data_dir": data_dir} if data_dir else {}))


def read_result(path: pathlib.Path) -> curves.Run:
    """Returns a stored result.

    Raises:
      UserError: The file is damaged.
    """
    try:
        return curves.Run.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error}). Remove it: the run is then looked at again.") from error


def finished(folder: pathlib.Path) -> list[curves.Run]:
    """Returns the results in a ``--work_dir``, or that of a run directory; raises a UserError if there are none."""
    results = sorted((folder / "results").glob("*.json"))
    if results:
        return [read_result(path) for path in results]
    run = curves.read_run(folder)
    if not run.points:
        raise UserError(f"{folder} has neither results/*.json nor a metrics.jsonl with dev BLEU. Name another folder.")
    return [run]
