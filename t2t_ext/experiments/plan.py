"""Turns a recipe into the commands that carry it out.

A plan first generates the data, then trains, averages and scores for each seed. If the data need pseudo references, the
two recipes that make them are trained before that. A stage that several recipes need is in the plan only once.
"""

import dataclasses
import pathlib
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from t2t_ext import registry
from t2t_ext.config import problem_options
from t2t_ext.config.decode import NOT_IN_THE_RESULT, resolve_decode_hparams
from t2t_ext.config.hyperparameters import HParams
from t2t_ext.config.training import TrainConfig
from t2t_ext.data.datasets.manifest import manifest_path
from t2t_ext.data.datasets.pseudo_references import SUFFIX
from t2t_ext.errors import UserError
from t2t_ext.evaluation.score_table import digest
from t2t_ext.experiments.recipes import AUGMENT_MODELS, BOTH, STEPS_OF_SCHEDULES, Recipe, RecipeBook
from t2t_ext.experiments.sweep import folder_name
from t2t_ext.search.directions import check_directions, directions_of

KINDS = ("data", "pseudo", "train", "average", "score", "compare", "report")
EVAL_FREQUENCY = TrainConfig.local_eval_frequency  # of t2t_ext-trainer without the flag
# Flags that determine where and how fast something is computed, but not the result.
_NOT_IN_THE_RESULT = frozenset(
    {"data_dir", "tmp_dir", "output_dir", "output_data_dir", "warm_start_from", "translations_dir", "num_processes",
     "distribution", "tpu", "xla_compile", "worker_timeout", "log_step_count_steps", "t2t_usr_dir", "wait_minutes",
     "inter_op_parallelism_threads", "intra_op_parallelism_threads", "preempted_exit_code", "l2r", "r2l", "forward",
     "backward", "decode_to_file", "nbest_file", "report_file", "json", "html", "overwrite"}
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The user's changes to a recipe, and the folders to use.

    Attributes:
      work_dir: Folder for all output.
      problem: Replaces the recipes' problem; "": keep it.
      tmp_dir: Folder that raw files are in or are downloaded to; "": ``tmp`` in ``work_dir``.
      seeds: The seeds; empty: 1 up to the recipe's number of seeds.
      teachers_seed: Seed of the runs that make pseudo references; these are made once for all seeds.
      scale: Factor by which all numbers of steps are multiplied; 1 keeps the paper's.
      train_steps: Replaces the recipe's number of training steps; 0: keep it.
      hparams: Further changes to the hparams set, name -> value as text.
      train: Further flags of the trainer.
      datagen: Further flags of datagen.
      problem_options: Further options of the problem.
      augment: Further flags of t2t_ext-augment, and ``models``, the number of runs of each translating recipe.
      decode: Further decode hparams.
      beams: Beam sizes to try instead of the recipes' own; empty: keep these.
      t2t_usr_dir: Folder of the user's own modules.
    """

    work_dir: pathlib.Path
    problem: str = ""
    tmp_dir: str = ""
    seeds: Sequence[int] = ()
    teachers_seed: int = 1
    scale: float = 1.0
    train_steps: int = 0
    hparams: Mapping[str, str] = dataclasses.field(default_factory=dict)
    train: Mapping[str, str] = dataclasses.field(default_factory=dict)
    datagen: Mapping[str, str] = dataclasses.field(default_factory=dict)
    problem_options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    augment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    decode: Mapping[str, str] = dataclasses.field(default_factory=dict)
    beams: Sequence[int] = ()
    t2t_usr_dir: str = ""

    def changes(self) -> list[str]:
        """Returns the deviations from the recipe, as flags, for the report; empty if there are none."""
        found = [f"--problem={self.problem}"] if self.problem else []
        found += [f"--teachers_seed={self.teachers_seed}"] if self.teachers_seed != 1 else []
        found += [f"--scale={self.scale:g}"] if self.scale != 1 else []
        found += [f"--train_steps={self.train_steps}"] if self.train_steps else []
        for name in ("hparams", "train", "datagen", "problem_options", "augment", "decode"):
            counted = _counted(getattr(self, name))
            if name == "decode":
                counted = _of_the_result(counted)
            if counted:
                flag = "decode_hparams" if name == "decode" else name
                found.append(f"--{flag}={assignments(counted)}")
        return found + ([f"--beams={','.join(map(str, self.beams))}"] if self.beams else [])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """A command of an experiment.

    Attributes:
      name: The name, such as ``train`` or ``score test``.
      kind: One of ``KINDS``.
      command: The command without ``t2t_ext-``.
      flags: Its flags, name -> value.
      folder: Folder that holds its marker and its log.
      output: The folder or file that it makes.
      key: Digest of everything that determines its result: its flags and those of the stages that it depends on.
      seed: The seed; 0 if it has none.
      split: The split that is scored, or empty.
      owner: The recipe that it belongs to, if that is another one, whose runs the executed recipe needs.
      needs: The stages whose results it uses.
      files: The positional arguments of its command line.
      system: The recipe that it scores, which is a row of the report if several systems are compared.
      label: The name of its scores in the report: the split, or split and beam.
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
    needs: tuple["Stage", ...] = dataclasses.field(default=(), repr=False)
    files: tuple[str, ...] = ()
    system: str = ""
    label: str = ""

    @property
    def title(self) -> str:
        """The stage's name in words."""
        seed = f", seed {self.seed}" if self.seed else ""
        return f"{self.name}{seed}" + (f" of {self.owner}" if self.owner else "")

    @property
    def arguments(self) -> list[str]:
        """The command's arguments."""
        return [*(f"--{name}={_text(value)}" for name, value in self.flags.items()), *self.files]

    @property
    def runs(self) -> list[pathlib.Path]:
        """The runs that a scoring stage translates with."""
        return [pathlib.Path(self.flags[name]) for name in ("output_dir", "l2r", "r2l") if name in self.flags]

    @property
    def command_line(self) -> str:
        """The command as a user types it."""
        return shlex.join([f"t2t_ext-{self.command}", *self.arguments])

    @property
    def file_name(self) -> str:
        """Name of its marker and log, without extension; each choice of search settings has its own."""
        return f"score_{self.output.name}" if self.kind == "score" else self.name.replace(" ", "_")

    @property
    def log(self) -> pathlib.Path:
        """The log file of its output."""
        return self.folder / f"{self.file_name}.log"

    @property
    def marker(self) -> pathlib.Path:
        """The file that records that the stage was begun, and later that it is done."""
        return self.folder / f"{self.file_name}.stage.json"

    def counted_flags(self) -> dict[str, str]:
        """Returns the flags that determine the result."""
        return _counted(self.flags)


def plan(recipe: Recipe, book: RecipeBook, options: Options) -> list[Stage]:
    """Returns the stages of a recipe in the order in which they run, without the report, which is not a command.

    Raises:
      UserError: The options do not fit the recipe.
    """
    _check_beams(recipe, options)
    planner = _Planner(recipe, book, options)
    seeds = list(options.seeds) or list(range(1, recipe.seeds + 1))
    systems = [recipe, *(book.recipe(name) for name in recipe.beside)]
    for seed in seeds:
        for system in systems:
            planner.add_system(system, seed)
    if recipe.analyzed and not options.beams:
        for split in recipe.splits:
            planner.add_comparison([*systems[1:], recipe], seeds[0], split)  # the baselines first
    return list(planner.stages.values())


def _check_beams(recipe: Recipe, options: Options) -> None:
    """Refuses beam sizes that are given in two ways, or for a recipe that reranks and has no beam of its own."""
    if options.beams and recipe.rerank:
        raise UserError(
            f"--beams={','.join(map(str, options.beams))}: {recipe.name} reranks lists of k translations, which "
            "its two models search with a beam of k. Leave --beams out; --decode_hparams=beam_size=N is another beam."
        )
    if "beam_size" in options.decode and (beams := options.beams or recipe.beams):
        raise UserError(
            f"--decode_hparams=beam_size={options.decode['beam_size']}: {recipe.name} is scored with beams of "
            f"{', '.join(map(str, beams))}. Leave beam_size out; --beams chooses others."
        )


def _check_kept(recipe: Recipe, options: Options) -> None:
    """Refuses a user's flag of the trainer that keeps fewer checkpoints than a recipe averages."""
    kept = options.train.get("keep_checkpoint_max", "")
    if re.fullmatch(r"\d{1,9}", kept) and 0 < int(kept) < recipe.average:
        raise UserError(
            f"--train=keep_checkpoint_max={kept}: {recipe.name} averages the last {recipe.average} checkpoints, and "
            f"fewer would be there. Give {recipe.average} or more, or 0, which keeps all."
        )


def requirements(stages: Sequence[Stage]) -> list[Stage]:
    """Returns stages with all their direct and indirect dependencies, each once; dependencies come first."""
    found: dict[pathlib.Path, Stage] = {}

    def add(stage: Stage) -> None:
        for need in stage.needs:
            add(need)
        found.setdefault(stage.marker, stage)

    for stage in stages:
        add(stage)
    return list(found.values())


def has_teachers(stages: Sequence[Stage]) -> bool:
    """Returns whether any stage makes pseudo references, whose runs ``Options.teachers_seed`` chooses."""
    return any(stage.command == "pseudo-references" for stage in stages)


def run_folder(owner: str, options: Options, seed: int) -> pathlib.Path:
    """Returns the folder of a seed of a recipe."""
    return options.work_dir / owner / f"seed{seed}"


def assignments(values: Mapping[str, Any]) -> str:
    """Returns values as ``a=1,b=x``, as ``--hparams`` takes them."""
    return ",".join(f"{name}={_text(value)}" for name, value in values.items())


def scaled_train_flags(recipe: Recipe, options: Options) -> dict[str, Any]:
    """Returns a recipe's flags for the trainer, with the user's changes.

    Raises:
      UserError: ``options.scale`` is not positive.
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
        if options.train_steps < flags.get("local_eval_frequency", EVAL_FREQUENCY):
            flags["local_eval_frequency"] = options.train_steps
    flags.update(options.train)
    return flags


class _Planner:
    """Collects the stages of recipes, each once (by its marker), in the order in which they are run."""

    def __init__(self, main: Recipe, book: RecipeBook, options: Options) -> None:
        self._main, self._book, self._options = main, book, options
        self.stages: dict[pathlib.Path, Stage] = {}

    def add_system(self, recipe: Recipe, seed: int) -> None:
        """Adds all stages that are needed to score the splits of a recipe with a seed."""
        if recipe.rerank:
            for direction in BOTH:
                self._trained(self._book.recipe(recipe.rerank[direction]), seed)
        else:
            self._trained(recipe, seed)
        for split in recipe.splits:
            for beam in (0,) if recipe.rerank else self._options.beams or recipe.beams or (0,):
                self._scored(recipe, seed, split, beam)

    def add_comparison(self, systems: Sequence[Recipe], seed: int, split: str) -> None:
        """Adds the comparison on a split of those systems that translate it."""
        scored = [self._scored(system, seed, split) for system in systems if split in system.splits]
        read = [each.output.with_suffix(".jsonl") if each.command == "rerank" else each.output for each in scored]
        folder = run_folder(self._main.name, self._options, seed)
        flags = {
            "output_dir": str(scored[0].runs[0]),
            "split": split,
            "names": ",".join(stage.system for stage in scored),
            "protocol": self._scoring(self._main),
            **self._user_modules(),
            "json": str(folder / f"compare.{split}.json"),
            "html": str(folder / f"compare.{split}.html"),
        }
        self._add(
            f"compare {split}", "compare", "compare", flags, folder, folder / f"compare.{split}.json", scored,
            seed=seed, split=split, files=tuple(map(str, read)),
        )  # fmt: skip

    def _add(
        self,
        name: str,
        kind: str,
        command: str,
        flags: Mapping[str, Any],
        folder: pathlib.Path,
        output: pathlib.Path,
        needs: Sequence[Stage],
        **more: Any,
    ) -> Stage:
        """Returns the described stage of the plan, after adding it if it is not there yet."""
        stage = Stage(
            name=name, kind=kind, command=command, flags=flags, folder=folder, output=output, key="",
            needs=tuple(needs), **more,
        )  # fmt: skip
        key = digest([*(need.key for need in needs), stage.counted_flags()])
        planned = self.stages.setdefault(stage.marker, dataclasses.replace(stage, key=key))
        if planned.key != key:
            raise UserError(
                f"'{stage.title}' would be two results in one place, {stage.output}: {_difference(planned, stage)} "
                "Carry out the recipes one by one, each with a --work_dir of its own."
            )
        return planned

    def _runs_of(self, recipe: Recipe) -> Recipe:
        """Returns the recipe whose runs a row shows."""
        return self._book.recipe(recipe.same_runs_as) if recipe.same_runs_as else recipe

    def _owner(self, recipe: Recipe) -> str:
        """Returns the recipe's name, or "" if it is the recipe that is carried out."""
        return "" if recipe.name == self._runs_of(self._main).name else recipe.name

    def _problem(self, recipe: Recipe) -> str:
        name = self._options.problem or recipe.problem
        return registry.reversed_name(name) if recipe.reversed else name

    def _scoring(self, recipe: Recipe) -> str:
        if not self._options.problem:
            return recipe.scoring
        return registry.problem(self._problem(recipe), **self._options.problem_options).scoring

    def _user_modules(self) -> dict[str, str]:
        return {"t2t_usr_dir": self._options.t2t_usr_dir} if self._options.t2t_usr_dir else {}

    def _problem_flags(self, recipe: Recipe) -> dict[str, str]:
        """Returns the flags that identify the data of a recipe."""
        own = {} if self._options.problem else recipe.problem_options
        options = {**own, **self._options.problem_options}
        flags = {"problem": self._problem(recipe)}
        return flags | ({"problem_options": assignments(options)} if options else {})

    def _base_name(self, recipe: Recipe) -> str:
        """Returns the base name of a recipe's data, which may depend on the problem's options."""
        flags = self._problem_flags(recipe)
        return registry.problem(flags["problem"], **problem_options.parse(flags.get("problem_options", ""))).base_name

    def _data(self, recipe: Recipe) -> Stage:
        options = self._options
        folder = options.work_dir / "data"
        flags = {**self._problem_flags(recipe), **recipe.datagen, **options.datagen, **self._user_modules()}
        counted = _counted(flags)
        # NAME and NAME_rev are usually made from the same files. Other options give other data, in a folder beside.
        base = self._base_name(recipe)
        name = base if set(counted) == {"problem"} else f"{base}.{digest({**counted, 'problem': base})[:6]}"
        output = folder / name
        flags["data_dir"] = str(output)
        flags["tmp_dir"] = options.tmp_dir or str(options.work_dir / "tmp")
        key = digest({**counted, "problem": base})
        stage = Stage(
            name=f"data {name}", kind="data", command="datagen", flags=flags, folder=folder, output=output, key=key
        )
        return self.stages.setdefault(stage.marker, stage)

    def _pseudo_references(self, recipe: Recipe) -> Stage:
        """Adds the pseudo references that a recipe is trained on, and before them the runs that make them."""
        problem = self._problem(recipe)
        if problem.endswith(SUFFIX):
            raise UserError(
                f"--problem={problem}: {recipe.name} makes the pseudo references itself. Name the "
                f"problem without {SUFFIX}."
            )
        teachers = self._of_both_directions(recipe.pseudo_references)
        trained = [self._trained(teacher, self._options.teachers_seed) for teacher in teachers]
        data = self._data(recipe)
        flags = {
            **self._problem_flags(recipe),
            **_both_runs(trained, teachers),
            **_without_directions(recipe.pseudo_references),
            **self._user_modules(),
            "data_dir": str(data.output),
            "overwrite": True,  # only output of other models; check_unchanged decides whether it may be lost
        }
        name = data.output.name.replace(self._base_name(recipe), problem, 1)
        output = manifest_path(data.output, problem + SUFFIX)
        return self._add(
            f"pseudo references {name}", "pseudo", "pseudo-references", flags, data.folder, output, [data, *trained]
        )

    def _augmented(self, recipe: Recipe) -> Stage:
        """Adds the augmented data that a recipe is trained on, and before them the runs that make them."""
        said = {**recipe.augment, **self._options.augment}
        models = str(said.pop("models", 1))
        if not re.fullmatch(r"\d{1,9}", models) or not int(models):
            raise UserError(f"--augment=models={models}: it must be a whole number from 1 on.")
        if said["method"] == "back_translation" and not said.get("target_text"):
            raise UserError(
                f"{recipe.name} translates text in the target language back: say which with "
                "--augment=target_text=FILE, a sentence a line."
            )
        data = self._data(recipe)
        flags: dict[str, Any] = self._problem_flags(recipe)
        needs = [data]
        for kind in AUGMENT_MODELS:
            if said.get(kind):
                teacher = self._book.recipe(said.pop(kind))
                trained = [self._trained(teacher, seed) for seed in range(1, int(models) + 1)]
                flags[kind] = _listed([stage.flags["output_dir"] for stage in trained], self._options)
                if teacher.checkpoint != "latest":
                    flags["checkpoint_path"] = teacher.checkpoint
                needs += trained
        flags |= {**said, **self._user_modules(), "data_dir": str(data.output), "overwrite": True}
        name = f"{data.output.name}.{said['method']}.{digest([*(need.key for need in needs), _counted(flags)])[:6]}"
        folder = data.folder / name
        flags["output_data_dir"] = str(folder)
        output = manifest_path(folder, self._base_name(recipe))
        return self._add(f"augment {name}", "pseudo", "augment", flags, data.folder, output, needs)

    def _of_both_directions(self, names: Mapping[str, Any]) -> list[Recipe]:
        """Returns the recipes whose runs generate left to right and right to left."""
        if "target_direction" in self._options.hparams:
            raise UserError(
                f"--hparams=target_direction={self._options.hparams['target_direction']}: {self._main.name} needs runs "
                f"of both directions, {names['l2r']} and {names['r2l']}, and what is changed holds for all runs. Leave "
                "target_direction out."
            )
        return [self._book.recipe(names[direction]) for direction in BOTH]

    def _trained(self, recipe: Recipe, seed: int) -> Stage:
        """Adds a recipe's run with a seed and its dependencies; returns the stage whose weights are used."""
        recipe = self._runs_of(recipe)
        train = self._train(recipe, seed)
        if not recipe.average:
            return train
        return self._add(
            "average", "average", "avg-all", {"output_dir": str(train.output), "n": recipe.average}, train.folder,
            train.output / "averaged", [train], seed=seed, owner=self._owner(recipe),
        )  # fmt: skip

    def _train(self, recipe: Recipe, seed: int) -> Stage:
        options = self._options
        recipe = self._runs_of(recipe)
        data = self._data(recipe)
        needs = [data]
        folder = run_folder(recipe.name, options, seed)
        flags: dict[str, Any] = self._problem_flags(recipe)
        if recipe.pseudo_references:
            needs.append(self._pseudo_references(recipe))
            flags["problem"] += SUFFIX
        data_dir = str(data.output)
        if recipe.augment:
            needs.append(self._augmented(recipe))
            data_dir = needs[-1].flags["output_data_dir"]
        first = self._train(self._book.recipe(recipe.warm_start), seed) if recipe.warm_start else None
        flags |= {"model": recipe.model, "hparams_set": recipe.hparams_set}
        hparams = self._hparams(recipe)
        if hparams:
            flags["hparams"] = assignments(hparams)
        flags |= scaled_train_flags(recipe, options)
        _check_kept(recipe, options)
        flags["random_seed"] = seed
        flags |= self._user_modules()
        flags |= {"data_dir": data_dir, "output_dir": str(folder / "run")}
        if first:
            needs.append(first)
            flags["warm_start_from"] = first.flags["output_dir"]
        return self._add(
            "train", "train", "trainer", flags, folder, folder / "run", needs, seed=seed, owner=self._owner(recipe)
        )

    def _hparams(self, recipe: Recipe) -> dict[str, Any]:
        """Returns the changes that a recipe and the user make to the hparams set.

        The user's changes apply to every run of the plan. A change that another recipe's model cannot use is left out.
        """
        options = self._options
        known = registry.hparams(recipe.hparams_set)
        every = bool(self._main.rerank) or recipe.name == self._runs_of(self._main).name
        hparams = {**recipe.hparams}
        for name, value in options.hparams.items():
            # Without pseudo references there is nothing to choose from.
            if every or (_takes(known, {**hparams, name: value}) and (recipe.pseudo_references or name != "pseudo")):
                hparams[name] = value
        if not every:
            hparams = _read(known, hparams, options.hparams)
        for name in STEPS_OF_SCHEDULES if options.scale != 1 else ():
            steps = recipe.hparams.get(name, getattr(known, name))
            if steps and name not in options.hparams:
                hparams = _read(known, {**hparams, name: max(1, round(steps * options.scale))}, [name])
        return hparams

    def _directions(self, recipe: Recipe) -> int:
        """Returns the number of directions in which a recipe's model generates at once."""
        changes = assignments(self._hparams(recipe))
        try:
            return directions_of(registry.hparams(recipe.hparams_set).override(changes))
        except UserError as error:
            given = " with --hparams" if self._options.hparams else ""
            raise UserError(f"The recipe {recipe.name}{given}: {error}") from error

    def _decode(self, recipe: Recipe) -> dict[str, str]:
        """Returns the user's decode hparams, without the two-direction ones if the model has one direction."""
        two_sided = not recipe.rerank and self._directions(recipe) == 2
        return {name: value for name, value in self._options.decode.items() if two_sided or not name.startswith("sb_")}

    def _scored(self, recipe: Recipe, seed: int, split: str, beam: int = 0) -> Stage:
        """Adds the stage that scores a split; a nonzero ``beam`` replaces the recipe's beam size."""
        decode = {**recipe.decode, **({"beam_size": beam} if beam else {}), **self._decode(recipe)}
        label = f"{split}, beam {beam}" if beam else split
        more = {"seed": seed, "split": split, "system": recipe.name, "label": label}
        if recipe.rerank:
            return self._reranked(recipe, seed, split, decode, more)
        owner = self._runs_of(recipe)
        folder = run_folder(owner.name, self._options, seed)
        checkpoints = {"latest": "checkpoints"}.get(recipe.checkpoint, recipe.checkpoint)
        flags: dict[str, Any] = {"output_dir": str(folder / "run"), "split": split, "checkpoints": checkpoints}
        flags |= {"last_only": True, "scoring": self._scoring(recipe)}
        hparams = resolve_decode_hparams(assignments(decode))
        check_directions(hparams, self._directions(recipe))
        if decode:
            flags["decode_hparams"] = assignments(decode)
        flags |= self._user_modules()
        flags |= {"wait_minutes": 0, "translations_dir": str(folder / "translations")}
        output = folder / "translations" / folder_name(split, checkpoints, hparams)
        return self._add(
            f"score {label}", "score", "translate-all", flags, folder, output, [self._trained(recipe, seed)],
            owner=self._owner(owner), **more,
        )  # fmt: skip

    def _reranked(
        self, recipe: Recipe, seed: int, split: str, decode: Mapping[str, Any], more: Mapping[str, Any]
    ) -> Stage:
        """Adds the reranking of a split by the runs of two recipes."""
        parts = self._of_both_directions(recipe.rerank)
        trained = [self._trained(part, seed) for part in parts]
        if "beam_size" not in self._options.decode:
            decode = {name: value for name, value in decode.items() if name != "beam_size"}  # k is the beam
        flags: dict[str, Any] = {
            **_both_runs(trained, parts),
            "split": split,
            "scoring": self._scoring(recipe),
            **_without_directions(recipe.rerank),
            **({"decode_hparams": assignments(decode)} if decode else {}),
            **self._user_modules(),
        }
        folder = run_folder(self._runs_of(recipe).name, self._options, seed)
        output = folder / f"rerank.{split}.{digest(_counted(flags))[:6]}.json"
        flags |= {"nbest_file": str(output.with_suffix(".jsonl")), "report_file": str(output)}
        return self._add(
            f"score {split}", "score", "rerank", flags, folder, output, trained, owner=self._owner(recipe), **more
        )


def _difference(stage: Stage, other: Stage) -> str:
    """Returns a sentence that names the difference between two stages with the same marker."""
    ours, theirs = stage.counted_flags(), other.counted_flags()
    for name in sorted({*ours, *theirs}):
        if ours.get(name) != theirs.get(name):
            return (
                f"--{name} is {ours.get(name, 'not given')} for one and {theirs.get(name, 'not given')} for the other."
            )
    needs = [[need.title for need in each.needs if need.kind != "data"] for each in (stage, other)]
    return f"one needs {', '.join(needs[0]) or 'nothing'}, the other {', '.join(needs[1]) or 'nothing'}."


def _takes(hparams: HParams, changes: Mapping[str, Any]) -> bool:
    """Returns whether the hparams allow these changes."""
    try:
        hparams.override(assignments(changes))
    except UserError:
        return False
    return True


def _read(hparams: HParams, changes: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Returns changes to hparams, without the named ones that would have no effect."""
    try:
        resolved = hparams.override(assignments(changes))
    except UserError:  # reported when the commands are checked
        return dict(changes)
    unread = {name for name in names if name in changes and resolved.without_effect([name])}
    return {name: value for name, value in changes.items() if name not in unread}


def _listed(runs: Sequence[str], options: Options) -> str:
    """Returns several runs as the value of one flag."""
    if len(runs) > 1 and "," in str(options.work_dir):
        raise UserError(
            f"--work_dir={options.work_dir}: t2t_ext-augment is given {len(runs)} runs in this folder as a list, whose "
            "paths must have no comma. Choose another folder."
        )
    return ",".join(runs)


def _both_runs(trained: Sequence[Stage], recipes: Sequence[Recipe]) -> dict[str, str]:
    """Returns the flags that name two runs and their checkpoints."""
    flags = {direction: stage.flags["output_dir"] for direction, stage in zip(BOTH, trained, strict=True)}
    if recipes[0].checkpoint != "latest":
        flags["checkpoint_path"] = recipes[0].checkpoint
    return flags


def _without_directions(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the flags in a table without ``l2r`` and ``r2l``, which name recipes."""
    return {name: value for name, value in flags.items() if name not in BOTH}


def _counted(flags: Mapping[str, Any]) -> dict[str, str]:
    """Returns the flags that determine a result, as text."""
    counted = {name: _text(value) for name, value in flags.items() if name not in _NOT_IN_THE_RESULT}
    search = counted.get("decode_hparams", "")
    if any(name in search for name in NOT_IN_THE_RESULT):  # otherwise the text stays as it is written
        kept = _of_the_result(problem_options.parse(search, "decode_hparams"))
        counted = {**counted, "decode_hparams": assignments(kept)}
        if not kept:
            del counted["decode_hparams"]
    return counted


def _of_the_result(decode: Mapping[str, str]) -> dict[str, str]:
    """Returns the decode hparams that affect the translations."""
    return {name: value for name, value in decode.items() if name not in NOT_IN_THE_RESULT}


def _text(value: Any) -> str:
    """Returns a value as it is written in a flag."""
    return str(value).lower() if isinstance(value, bool) else str(value)
