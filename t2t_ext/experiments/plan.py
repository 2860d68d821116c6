"""From a recipe to the commands that carry it out: data, then for each seed training, averaging and scoring."""

import dataclasses
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_ext import registry
from t2t_ext.errors import UserError
from t2t_ext.experiments.recipes import Recipe, RecipeBook
from t2t_ext.experiments.score_table import digest
from t2t_ext.experiments.sweep import folder_name
from t2t_ext.hyperparameters import resolve_decode_hparams

KINDS = ("data", "train", "average", "score", "report")
# Flags that say where and how fast something is computed, not what comes out.
_NOT_IN_THE_RESULT = frozenset(
    {"data_dir", "tmp_dir", "output_dir", "warm_start_from", "translations_dir", "num_processes", "distribution", "tpu",
     "worker_timeout", "log_step_count_steps", "t2t_usr_dir", "wait_minutes", "inter_op_parallelism_threads",
     "intra_op_parallelism_threads", "preempted_exit_code"}
)  # fmt: skip
_LEAST_STEPS = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What the user changes about a recipe, and where things are put.

    Attributes:
      work_dir: Where everything is put.
      tmp_dir: Where raw files are, or are downloaded to.
      seeds: The seeds; empty: 1 up to the recipe's number.
      scale: Factor of all numbers of steps; 1 is the paper's.
      train_steps: In place of the recipe's; 0: the recipe's.
      hparams: Further changes to the hparams set, name -> value as text.
      train: Further flags of the trainer.
      datagen: Further flags of datagen.
      problem_options: Further options of the problem.
      decode: Further decode hparams.
      t2t_usr_dir: Folder of the user's own modules.
    """

    work_dir: pathlib.Path
    tmp_dir: str = ""
    seeds: Sequence[int] = ()
    scale: float = 1.0
    train_steps: int = 0
    hparams: Mapping[str, str] = dataclasses.field(default_factory=dict)
    train: Mapping[str, str] = dataclasses.field(default_factory=dict)
    datagen: Mapping[str, str] = dataclasses.field(default_factory=dict)
    problem_options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    decode: Mapping[str, str] = dataclasses.field(default_factory=dict)
    t2t_usr_dir: str = ""

    def changes(self) -> list[str]:
        """Returns what is not as the recipe says, for the report; empty where everything is."""
        found = [f"--scale={self.scale:g}"] if self.scale != 1 else []
        found += [f"--train_steps={self.train_steps}"] if self.train_steps else []
        for name in ("hparams", "train", "datagen", "problem_options", "decode"):
            counted = {k: v for k, v in getattr(self, name).items() if k not in _NOT_IN_THE_RESULT}
            if counted:
                flag = "decode_hparams" if name == "decode" else name
                found.append(f"--{flag}={assignments(counted)}")
        return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """A command of an experiment.

    Attributes:
      name: Such as ``train seed 1``.
      kind: One of ``KINDS``.
      command: The command without ``t2t_ext-``.
      flags: Its flags, name -> value.
      folder: Where its marker and its log are.
      output: What it makes: a folder or a file.
      key: Digest of what determines its result: its flags and those of the stages before it.
      seed: The seed, 0 where it has none.
      split: The split that is scored, or empty.
      owner: The recipe that it belongs to, where that is another one, whose run gives the first weights.
    """

    name: str
    kind: str
    command: str
    flags: Mapping[str, Any]
    folder: pathlib.Path
    output: pathlib.Path
    key: str
    seed: int = 0
    split: str = ""
    owner: str = ""

    @property
    def title(self) -> str:
        """What it is, in words."""
        seed = f", seed {self.seed}" if self.seed else ""
        return f"{self.name}{seed}" + (f" of {self.owner}" if self.owner else "")

    @property
    def arguments(self) -> list[str]:
        """The command's arguments."""
        return [f"--{name}={_text(value)}" for name, value in self.flags.items()]

    @property
    def command_line(self) -> str:
        """The command as a user types it."""
        return shlex.join([f"t2t_ext-{self.command}", *self.arguments])

    @property
    def file_name(self) -> str:
        """Name of its marker and log without ending; searches with other settings have their own."""
        return f"score_{self.output.name}" if self.kind == "score" else self.name.replace(" ", "_")

    @property
    def log(self) -> pathlib.Path:
        """Where its output goes."""
        return self.folder / f"{self.file_name}.log"

    @property
    def marker(self) -> pathlib.Path:
        """Where it is noted that it was begun, and that it is done."""
        return self.folder / f"{self.file_name}.stage.json"

    def counted_flags(self) -> dict[str, str]:
        """Returns the flags that determine the result."""
        return {name: _text(value) for name, value in self.flags.items() if name not in _NOT_IN_THE_RESULT}


def plan(recipe: Recipe, book: RecipeBook, options: Options) -> list[Stage]:
    """Returns the stages of a recipe in order; the report, which is no command, is not among them.

    Raises:
      UserError: The options do not go with the recipe.
    """
    owner = book.recipe(recipe.same_runs_as) if recipe.same_runs_as else recipe
    seeds = list(options.seeds) or list(range(1, recipe.seeds + 1))
    data = _data_stage(recipe, options)
    stages = [data]
    for seed in seeds:
        stages += _training_stages(owner, book, options, data, seed)
        if recipe.average:
            stages.append(_average_stage(recipe, options, stages[-1], seed))
        trained = stages[-1]
        stages += [_score_stage(recipe, owner, options, trained, seed, split) for split in recipe.splits]
    return stages


def run_folder(owner: str, options: Options, seed: int) -> pathlib.Path:
    """Returns the folder of a seed of a recipe."""
    return options.work_dir / owner / f"seed{seed}"


def assignments(values: Mapping[str, Any]) -> str:
    """Returns values as ``a=1,b=x``, as ``--hparams`` takes them."""
    return ",".join(f"{name}={_text(value)}" for name, value in values.items())


def scaled_train_flags(recipe: Recipe, options: Options) -> dict[str, Any]:
    """Returns the trainer's settings of a recipe with the user's changes.

    Raises:
      UserError: Nothing sensible is left of the steps.
    """
    if options.scale <= 0:
        raise UserError(
            f"--scale={options.scale:g}: it must be more than 0, such as 0.01 for a hundredth of the steps."
        )
    flags = dict(recipe.train)
    if options.scale != 1:
        for name in ("train_steps", "local_eval_frequency", "eval_early_stopping_steps"):
            if flags.get(name):
                flags[name] = max(1, round(flags[name] * options.scale))
    if options.train_steps:
        flags["train_steps"] = options.train_steps
        flags["local_eval_frequency"] = min(flags.get("local_eval_frequency", 1000), options.train_steps)
    flags.update(options.train)
    return flags


def _data_stage(recipe: Recipe, options: Options) -> Stage:
    folder = options.work_dir / "data"
    flags: dict[str, Any] = {"problem": recipe.problem}
    problem_options = {**recipe.problem_options, **options.problem_options}
    if problem_options:
        flags["problem_options"] = assignments(problem_options)
    flags.update({**recipe.datagen, **options.datagen})
    if options.t2t_usr_dir:
        flags["t2t_usr_dir"] = options.t2t_usr_dir
    counted = {name: _text(value) for name, value in flags.items() if name not in _NOT_IN_THE_RESULT}
    # NAME and NAME_rev are usually made from the same files; other options are other data, beside those.
    base = registry.problem(recipe.problem).base_name
    name = base if set(counted) == {"problem"} else f"{base}.{digest({**counted, 'problem': base})[:6]}"
    output = folder / name
    flags["data_dir"] = str(output)
    flags["tmp_dir"] = options.tmp_dir or str(options.work_dir / "tmp")
    return Stage(
        name=f"data {name}",
        kind="data",
        command="datagen",
        flags=flags,
        folder=folder,
        output=output,
        key=digest({**counted, "problem": base}),
    )


def _training_stages(recipe: Recipe, book: RecipeBook, options: Options, data: Stage, seed: int) -> list[Stage]:
    """Returns the training of a seed, after those of the recipes that give its first weights."""
    stages = []
    folder = run_folder(recipe.name, options, seed)
    first = book.recipe(recipe.warm_start) if recipe.warm_start else None
    if first:
        owner = book.recipe(first.same_runs_as) if first.same_runs_as else first
        stages = [
            dataclasses.replace(stage, owner=stage.owner or owner.name)
            for stage in _training_stages(owner, book, options, data, seed)
        ]
    hparams = {**recipe.hparams, **options.hparams}
    if options.scale != 1 and "learning_rate_warmup_steps" not in options.hparams:
        warm_up = _warm_up(recipe)
        if warm_up:
            hparams["learning_rate_warmup_steps"] = max(1, round(warm_up * options.scale))
    flags: dict[str, Any] = {name: data.flags[name] for name in ("problem", "problem_options") if name in data.flags}
    flags |= {"model": recipe.model, "hparams_set": recipe.hparams_set}
    if hparams:
        flags["hparams"] = assignments(hparams)
    flags |= scaled_train_flags(recipe, options)
    flags["random_seed"] = seed
    if options.t2t_usr_dir:
        flags["t2t_usr_dir"] = options.t2t_usr_dir
    flags |= {"data_dir": str(data.output), "output_dir": str(folder / "run")}
    if first:
        flags["warm_start_from"] = stages[-1].flags["output_dir"]
    stage = Stage(
        name="train",
        kind="train",
        command="trainer",
        flags=flags,
        folder=folder,
        output=folder / "run",
        key="",
        seed=seed,
    )
    key = digest([data.key, stages[-1].key if stages else "", stage.counted_flags()])
    return [*stages, dataclasses.replace(stage, key=key)]


def _warm_up(recipe: Recipe) -> int:
    stated = recipe.hparams.get("learning_rate_warmup_steps")
    return stated or registry.hparams(recipe.hparams_set).learning_rate_warmup_steps


def _average_stage(recipe: Recipe, options: Options, train: Stage, seed: int) -> Stage:
    stage = Stage(
        name="average",
        kind="average",
        command="avg-all",
        flags={"output_dir": str(train.output), "n": recipe.average},
        folder=train.folder,
        output=train.output / "averaged",
        key="",
        seed=seed,
    )
    return dataclasses.replace(stage, key=digest([train.key, stage.counted_flags()]))


def _score_stage(recipe: Recipe, owner: Recipe, options: Options, before: Stage, seed: int, split: str) -> Stage:
    decode = {**recipe.decode, **options.decode}
    run = run_folder(owner.name, options, seed) / "run"
    flags: dict[str, Any] = {
        "output_dir": str(run),
        "split": split,
        "checkpoints": {"latest": "checkpoints"}.get(recipe.checkpoint, recipe.checkpoint),
        "last_only": True,
        "scoring": recipe.scoring,
    }
    hparams = resolve_decode_hparams(assignments(decode))
    if decode:
        flags["decode_hparams"] = assignments(decode)
    if options.t2t_usr_dir:
        flags["t2t_usr_dir"] = options.t2t_usr_dir
    folder = run_folder(owner.name, options, seed)
    flags |= {"wait_minutes": 0, "translations_dir": str(folder / "translations")}
    stage = Stage(
        name=f"score {split}",
        kind="score",
        command="translate-all",
        flags=flags,
        folder=folder,
        output=folder / "translations" / folder_name(split, flags["checkpoints"], hparams),
        key="",
        seed=seed,
        split=split,
    )
    return dataclasses.replace(stage, key=digest([before.key, stage.counted_flags()]))


def _text(value: Any) -> str:
    """Returns a value as a flag has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
