"""Recipes: published experiments as tables in TOML files.

A file holds any number of recipes, one table each::

    [he2018_table1_roen_baseline]
    extends = "he2018_iwslt"                     # another table of any file; it supplies the keys that are not set here
    row = "Ro-En, Transformer (small)"
    published = { test = 29.64 }
    problem = "translate_roen_iwslt14_he2018"

Nested tables, such as hparams, are merged with the inherited ones; the value ``"default"`` removes an inherited value.
Two table names are not recipes: ``papers`` (key -> citation) and ``coming`` (names that recipes may use although they
are not registered in this version). A table with ``template = true`` exists only to be extended. This module imports no
TensorFlow and contains no recipe.
"""

import dataclasses
import math
import pathlib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from t2t_ext import registry
from t2t_ext.errors import UserError, suggest
from t2t_ext.evaluation import protocols

CHECKPOINTS = ("averaged", "best", "latest")
# Keys that ``published`` may have besides the splits.
OTHER_FIGURES = (
    "average", "parameters", "train_steps_per_second", "sentences_per_second", "first_tokens", "last_tokens",
)  # fmt: skip
# Flags of the commands that the experiment sets itself.
OF_THE_EXPERIMENT = (
    "output_dir", "data_dir", "tmp_dir", "t2t_usr_dir", "problem", "problem_options", "model", "hparams_set",
    "warm_start_from", "output_data_dir",
)  # fmt: skip
STEPS_OF_SCHEDULES = ("learning_rate_warmup_steps", "learning_rate_decay_steps", "average_every")  # hparams
_NOT_INHERITED = ("row", "published", "template", "same_runs_as", "beside", "beams")
_ADDED_UP = ("notes", "needs")
_TAKEN_BACK = "default"  # a value in a table such as hparams that removes the inherited value
_MOST_DEEP = 20


@dataclasses.dataclass(frozen=True)
class Paper:
    """The source of recipes: its citation (authors, year, title, venue) and a short form such as ``He et al. 2018``."""

    citation: str
    short: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """A published experiment: one row of a table.

    Attributes:
      name: Its name.
      paper: Key of its paper.
      table: The paper's table, such as ``Table 1``.
      row: The label of the row.
      published: The paper's figures: split -> score, and ``SPLIT LABEL`` -> a further score if the protocol has
        several, such as ``test ROUGE-2``. Also ``average`` (the mean over the test splits), ``parameters``,
        ``train_steps_per_second``, ``sentences_per_second``, and ``first_tokens`` and ``last_tokens``: the accuracy of
        the first and of the last four tokens, in percent.
      problem: Registered name of the problem.
      problem_options: Its options.
      datagen: Further flags of t2t_ext-datagen.
      model: Registered name of the model.
      hparams_set: Registered name of the hparams set.
      hparams: Changes to the set.
      train: Flags of t2t_ext-trainer; ``train_steps`` must be among them.
      seeds: Number of seeds; the paper's figure is a mean over them.
      average: Number of last checkpoints that are averaged; 0: no averaging.
      checkpoint: The checkpoint that translates: ``averaged``, ``best`` (on the development set) or ``latest``.
      size: Replaces ``{size}`` in ``hparams_set``, if that contains it: tiny, small, base or big.
      pseudo_references: ``l2r`` and ``r2l``: recipes whose runs (with ``Options.teachers_seed``, by default 1) make the
        pseudo references in this recipe's data; also further flags of t2t_ext-pseudo-references. Empty: none.
      rerank: ``l2r`` and ``r2l``: recipes whose runs with the same seed rerank each other's translations; this recipe
        then has no run of its own. Also further flags of t2t_ext-rerank. Empty: nothing is reranked.
      augment: How t2t_ext-augment makes the training data: ``method``, ``forward`` and ``backward`` (recipes whose runs
        translate; the backward one's ``reversed`` differs from this recipe's), ``models`` (number of runs of each, with
        seeds from 1) and further flags. Empty: training uses the data as they are.
      reversed: Whether it is trained on the problem's other direction.
      decode: Decode hparams.
      beams: Beam sizes that are tried one after the other; empty: only the one in ``decode``.
      beside: Recipes that are also carried out and appear next to this one in the report.
      splits: Splits that are translated and scored.
      scoring: Name of the scoring protocol.
      warm_start: Recipe whose run with the same seed provides the initial weights.
      same_runs_as: Recipe whose runs this row reports on; only the report is made anew.
      hardware: The hardware that the paper trained on.
      needs: Further requirements that are not part of this version.
      notes: Details that the paper leaves open, and its errors, with the choices made here.
    """

    name: str
    paper: str = ""
    table: str = ""
    row: str = ""
    published: Mapping[str, float] = dataclasses.field(default_factory=dict)
    problem: str = ""
    problem_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    datagen: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    model: str = ""
    hparams_set: str = ""
    hparams: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    train: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seeds: int = 1
    average: int = 0
    checkpoint: str = "averaged"
    size: str = ""
    pseudo_references: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rerank: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    augment: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    reversed: bool = False
    decode: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    beams: Sequence[int] = ()
    beside: Sequence[str] = ()
    splits: Sequence[str] = ("test",)
    scoring: str = ""
    warm_start: str = ""
    same_runs_as: str = ""
    hardware: str = ""
    needs: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def setting(self) -> str:
        """The name that a report uses for the recipe's own setting if the user has changed something."""
        return "the published setting" if self.published else "the recipe's setting"

    @property
    def analyzed(self) -> bool:
        """Whether its translations are analyzed and compared with those of the recipes in ``beside``."""
        return not self.beams and (bool(self.beside) or bool({"first_tokens", "last_tokens"} & set(self.published)))


_EMPTY = Recipe(name="")
_KEYS = (*(field.name for field in dataclasses.fields(Recipe) if field.name != "name"), "extends", "template")
_KINDS: Mapping[type, str] = {
    dict: "a table", list: "a list of strings", str: "a string", int: "a whole number", bool: "true or false",
}  # fmt: skip
_OF_THE_RUNS = (
    "problem", "problem_options", "datagen", "model", "hparams_set", "hparams", "train", "average", "checkpoint",
    "decode", "scoring", "warm_start", "pseudo_references", "rerank", "augment", "reversed",
)  # fmt: skip
_NEEDED = ("paper", "table", "row", "problem", "scoring")
_OF_A_RUN = ("model", "hparams_set", "train")  # required, except for a recipe that reranks
_WHOLE_NUMBERS = ("train_steps", "local_eval_frequency", "eval_early_stopping_steps", "keep_checkpoint_max")
_NUMBERS = ("beams",)  # lists of whole numbers; all other lists contain strings
BOTH = ("l2r", "r2l")  # directions
AUGMENT_MODELS = ("forward", "backward")  # from source to target, from target to source
_SIZE = "{size}"


class RecipeBook:
    """All recipes of some folders.

    Attributes:
      papers: Key -> paper.
      coming: Kind (``models``, ``hparams_sets``, ``problems``) -> names that are not part of this version.
    """

    def __init__(self, folders: Iterable[pathlib.Path], size: str = "") -> None:
        """Reads recipes from TOML files.

        Args:
          folders: Folders, all of whose TOML files are read, or single files.
          size: Replaces the size of every recipe that has one; "": no change.

        Raises:
          UserError: A folder has no TOML file, a file is not TOML, a name is defined twice, or a recipe is invalid.
        """
        self.papers: dict[str, Paper] = {}
        self.coming: dict[str, set[str]] = {"models": set(), "hparams_sets": set(), "problems": set()}
        self._tables: dict[str, dict[str, Any]] = {}
        self._places: dict[str, pathlib.Path] = {}
        self._size = size
        self._being_checked: list[str] = []
        for folder in folders:
            found = [folder] if folder.is_file() else sorted(folder.glob("*.toml"))
            if not found:
                raise UserError(f"There is no recipe (*.toml) in {folder}. Give the folder of your recipes.")
            for path in found:
                self._read(path)

    def names(self) -> list[str]:
        """Returns the names of all recipes, sorted."""
        return sorted(name for name, table in self._tables.items() if not table.get("template"))

    def recipe(self, name: str) -> Recipe:
        """Returns a recipe with its inherited values, after checking it.

        Raises:
          UserError: There is no recipe of this name, or it is invalid; the message says what is wrong and where.
        """
        if name not in self.names():
            raise UserError(f"There is no recipe {name!r}.{suggest(name, self.names())} --list shows all.")
        recipe = self._checked(name, self._merged(name, []))
        if recipe.same_runs_as:
            other = self._needed(name, "same_runs_as", recipe.same_runs_as)
            if other.same_runs_as:
                known = f"same_runs_as = {other.name!r}, which has no runs of its own: name {other.same_runs_as!r}"
                raise self._error(name, known)
            for field in _OF_THE_RUNS:
                if getattr(recipe, field) != getattr(other, field):
                    raise self._error(name, f"same_runs_as = {other.name!r}, but {field} differs")
        for key, needed in _others(recipe):
            other = self._needed(name, key, needed)
            data = [(each.problem, each.problem_options, each.datagen) for each in (recipe, other)]
            if data[0] != data[1]:
                raise self._error(name, f"{key} = {other.name!r} is trained on other data")
        self._check_translating(recipe)
        self._check_beside(recipe)
        return recipe

    def _needed(self, name: str, key: str, needed: str) -> Recipe:
        """Returns a recipe that another one needs; fails if the dependencies are circular."""
        if needed in (name, *self._being_checked):
            raise self._error(name, f"{key} = {needed!r} needs this recipe itself")
        self._being_checked.append(name)
        try:
            return self.recipe(needed)
        finally:
            self._being_checked.pop()

    def _check_translating(self, recipe: Recipe) -> None:
        """Checks the recipes whose translations a recipe uses."""
        for key, both in (("pseudo_references", recipe.pseudo_references), ("rerank", recipe.rerank)):
            others = [self.recipe(both[direction]) for direction in BOTH if both]
            for direction, other in zip(BOTH, others, strict=False):
                if other.hparams.get("target_direction", "l2r") != direction or other.rerank:
                    raise self._error(recipe.name, f"{key}.{direction} = {other.name!r} has no {direction} run")
                if other.reversed != recipe.reversed:
                    what = f"{key}.{direction} = {other.name!r} translates into the other language (reversed differs)"
                    raise self._error(recipe.name, what)
            if others and others[0].checkpoint != others[1].checkpoint:
                raise self._error(recipe.name, f"{key}: {others[0].name!r} and {others[1].name!r} differ in checkpoint")
        translators = {kind: self.recipe(recipe.augment[kind]) for kind in AUGMENT_MODELS if recipe.augment.get(kind)}
        for kind, other in translators.items():
            if other.reversed != (recipe.reversed ^ (kind == "backward")) or other.rerank:
                raise self._error(recipe.name, f"augment.{kind} = {other.name!r} has no run that translates {kind}")
        if len({other.checkpoint for other in translators.values()}) > 1:
            raise self._error(recipe.name, "augment: the recipes of forward and backward differ in checkpoint")

    def _check_beside(self, recipe: Recipe) -> None:
        """Checks that the recipes beside a recipe translate the same test sets and are scored alike."""
        for name in recipe.beside:
            other = self._checked(name, self._merged(name, []))
            for field in ("problem", "reversed", "scoring"):
                own, its = getattr(recipe, field), getattr(other, field)
                if own != its:
                    raise self._error(recipe.name, f"beside: {name!r} has {field} = {its!r}, not {own!r}")
            if _of_the_test_sets(recipe) != _of_the_test_sets(other):
                raise self._error(recipe.name, f"beside: problem_options of {name!r} give it other dev or test sets")

    def missing(self, recipe: Recipe) -> list[str]:
        """Returns descriptions of everything a recipe needs that this version lacks; empty if it can be run."""
        return self._missing(recipe, set())

    def _missing(self, recipe: Recipe, looked_at: set[str]) -> list[str]:
        """Returns what is missing for a recipe and those that it names, which may name it in turn."""
        if recipe.name in looked_at:
            return []
        looked_at.add(recipe.name)
        found = []
        for kind, name, known in (
            ("model", recipe.model, registry.model_names()),
            ("hparams_set", recipe.hparams_set, registry.hparams_names()),
        ):
            coming = self.coming[f"{kind}s"]
            if name in known or recipe.rerank:
                continue
            if name not in coming:
                raise self._error(recipe.name, f"{kind} = {name!r} is unknown.{suggest(name, [*known, *coming])}")
            found.append(f"{kind.replace('_', ' ')} {name} is not in this version")
        if recipe.problem in self.coming["problems"]:
            found.append(f"problem {recipe.problem} is not in this version")
        found = found[:1]  # if the model is missing, its hparams set and problem usually are, too
        found += [f"{need} is not in this version" for need in recipe.needs]
        others = [name for _, name in _others(recipe)] + [recipe.same_runs_as, *recipe.beside]
        for other in others:
            if other and not found:
                found += self._missing(self.recipe(other), looked_at)
        return found

    def paper(self, recipe: Recipe) -> Paper:
        """Returns the paper of a recipe."""
        return self.papers[recipe.paper]

    def _read(self, path: pathlib.Path) -> None:
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
            raise UserError(f"{path} cannot be read as TOML: {reason}.") from error
        for name, table in content.items():
            if not isinstance(table, dict):
                raise UserError(f"{path}: {name!r} stands outside of any table; a recipe is written under [NAME].")
            if name == "papers":
                for key, value in table.items():
                    known = isinstance(value, dict) and set(value) == {"citation", "short"}
                    if not known or not all(isinstance(text, str) for text in value.values()):
                        needed = "citation = '...' and short = '...', and nothing else"
                        raise UserError(f"{path}: [papers.{key}] needs {needed}.")
                    self.papers[key] = Paper(**value)
            elif name == "coming":
                self._read_coming(path, table)
            elif name in self._tables:
                raise UserError(f"{path}: the recipe {name!r} is already defined in {self._places[name]}. Rename one.")
            else:
                self._tables[name], self._places[name] = table, path
                for key, value in table.items():
                    self._check_type(name, key, value)

    def _read_coming(self, path: pathlib.Path, table: Mapping[str, Any]) -> None:
        for kind, names in table.items():
            if kind not in self.coming:
                close = suggest(kind, self.coming)
                raise UserError(
                    f"{path}: [coming] has the unknown key {kind!r}.{close} Known: {', '.join(self.coming)}."
                )
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise UserError(f"{path}: [coming] {kind} = {names!r} must be a list of strings.")
            self.coming[kind].update(names)

    def _check_type(self, name: str, key: str, value: Any) -> None:
        """Checks that a recipe may have this key, and that the value has the key's type."""
        if key not in _KEYS:
            raise self._error(name, f"unknown key {key!r}.{suggest(key, _KEYS)} Known: {', '.join(_KEYS)}")
        default: Any = {"extends": "", "template": False}.get(key, getattr(_EMPTY, key, ""))
        kind = list if isinstance(default, tuple) else type(default)
        item = int if key in _NUMBERS else str
        if type(value) is not kind or (kind is list and any(type(each) is not item for each in value)):
            numbers = "a list of whole numbers" if key in _NUMBERS else ""
            raise self._error(name, f"{key} = {value!r} must be {numbers or _KINDS[kind]}")
        for inner, each in value.items() if isinstance(value, dict) else ():
            is_plain = isinstance(each, str | int) or (isinstance(each, float) and math.isfinite(each))
            if not is_plain and key != "published":
                raise self._error(name, f"{key}.{inner} = {each!r} must be a string, a number, or true or false")

    def _merged(self, name: str, below: list[str]) -> dict[str, Any]:
        """Returns a table merged with everything it inherits."""
        table = dict(self._tables[name])
        parent = table.pop("extends", "")
        if not parent:
            return table
        if parent not in self._tables:
            raise self._error(name, f"extends = {parent!r}, which is not there.{suggest(parent, self._tables)}")
        if parent in below or len(below) > _MOST_DEEP:
            raise self._error(name, f"extends itself: {' -> '.join([*below, name, parent])}")
        inherited = self._merged(parent, [*below, name])
        merged = {key: value for key, value in inherited.items() if key not in _NOT_INHERITED}
        for key, value in table.items():
            if key in _ADDED_UP:
                merged[key] = [*merged.get(key, []), *value]
            elif isinstance(value, dict):
                both = {**merged.get(key, {}), **value}
                merged[key] = {inner: each for inner, each in both.items() if each != _TAKEN_BACK}
            else:
                merged[key] = value
        return merged

    def _checked(self, name: str, table: dict[str, Any]) -> Recipe:
        """Turns a merged table into a recipe and checks it."""
        table.pop("template", None)
        missing = [key for key in (*_NEEDED, *(() if table.get("rerank") else _OF_A_RUN)) if not table.get(key)]
        if missing:
            raise self._error(name, f"{', '.join(missing)} must be given, here or in what it extends")
        if _SIZE in table.get("hparams_set", ""):
            table["size"] = self._size or table.get("size", "")
            table["hparams_set"] = table["hparams_set"].replace(_SIZE, table["size"])
        recipe = Recipe(name=name, **table)
        self._check_values(recipe)
        self._check_pipeline(recipe)
        self._check_figures(recipe)
        return recipe

    def _check_values(self, recipe: Recipe) -> None:
        """Checks a recipe's values, alone and in combination."""
        name = recipe.name
        if recipe.paper not in self.papers:
            close = suggest(recipe.paper, self.papers)
            raise self._error(name, f"paper = {recipe.paper!r} is not among [papers].{close}")
        if recipe.checkpoint not in CHECKPOINTS:
            raise self._error(name, f"checkpoint = {recipe.checkpoint!r} must be one of {', '.join(CHECKPOINTS)}")
        if (recipe.checkpoint == "averaged") != (recipe.average > 0):
            raise self._error(name, f"checkpoint = {recipe.checkpoint!r} does not go with average = {recipe.average}")
        if "train_steps" not in recipe.train and not recipe.rerank:
            raise self._error(name, "train needs train_steps")
        for table in ("train", "datagen", "augment"):
            for key in [key for key in getattr(recipe, table) if key in OF_THE_EXPERIMENT]:
                raise self._error(name, f"{table}.{key} is what other keys and the command say; leave it out")
        for key in [key for key in ("random_seed", "hparams") if key in recipe.train]:
            raise self._error(name, f"train.{key}: say it with {'seeds' if key == 'random_seed' else key}")
        numbers = [("train", recipe.train, key) for key in _WHOLE_NUMBERS]
        for table, values, key in [*numbers, *(("hparams", recipe.hparams, each) for each in STEPS_OF_SCHEDULES)]:
            if type(values.get(key, 0)) is not int:
                raise self._error(name, f"{table}.{key} = {values[key]!r} must be a whole number, without quotes")
        average, kept = recipe.average, recipe.train.get("keep_checkpoint_max", 20)
        if 0 < kept < average:
            raise self._error(name, f"average = {average} needs train.keep_checkpoint_max of as many, not {kept}")
        if not recipe.splits or recipe.seeds < 1 or recipe.average < 0:
            raise self._error(name, "splits must not be empty, seeds at least 1, average at least 0")

    def _check_pipeline(self, recipe: Recipe) -> None:
        """Checks how a recipe is composed of others."""
        name = recipe.name
        for key in ("pseudo_references", "rerank"):
            both = getattr(recipe, key)
            if both and not all(isinstance(both.get(direction), str) for direction in BOTH):
                raise self._error(name, f"{key} needs l2r = 'RECIPE' and r2l = 'RECIPE'")
        self._check_augmentation(recipe)
        if recipe.rerank and (recipe.pseudo_references or recipe.warm_start or recipe.beams):
            raise self._error(name, "rerank has no run of its own: leave out pseudo_references, warm_start and beams")
        if any(beam < 1 for beam in recipe.beams):
            raise self._error(name, f"beams = {recipe.beams!r} must be numbers from 1 on")
        if name in recipe.beside or len(set(recipe.beside)) < len(recipe.beside):
            raise self._error(name, f"beside = {recipe.beside!r} must name other recipes, each once")
        for other in recipe.beside:
            if other not in self.names():
                raise self._error(name, f"beside: there is no recipe {other!r}.{suggest(other, self.names())}")

    def _check_augmentation(self, recipe: Recipe) -> None:
        """Checks a recipe's description of the models that make its training data."""
        name, said = recipe.name, recipe.augment
        if not said:
            return
        if not isinstance(said.get("method"), str):
            raise self._error(name, "augment needs method, one of those of t2t_ext-augment")
        for kind in AUGMENT_MODELS:
            if not isinstance(said.get(kind, ""), str):
                raise self._error(name, f"augment.{kind} must be the name of a recipe")
        models = said.get("models", 1)
        if type(models) is not int or models < 1:
            raise self._error(name, f"augment.models = {models!r} must be a whole number from 1 on")
        if recipe.pseudo_references or recipe.rerank:
            raise self._error(name, "augment does not go with pseudo_references or rerank: leave one of them out")

    def _check_figures(self, recipe: Recipe) -> None:
        """Checks the published figures."""
        scored = protocols.PROTOCOLS.get(recipe.scoring)
        further = scored.labels[1:] if scored and scored.lowercase is None else ()
        known = (*recipe.splits, *(f"{split} {label}" for split in recipe.splits for label in further), *OTHER_FIGURES)
        if "average" in recipe.published and len([split for split in recipe.splits if split != "dev"]) < 2:
            raise self._error(recipe.name, "published.average needs several test sets in splits")
        for figure, value in recipe.published.items():
            if figure not in known:
                others = f"nor one of {', '.join(OTHER_FIGURES)}.{suggest(figure, known)}"
                raise self._error(recipe.name, f"published.{figure} is neither a split that is scored {others}")
            if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
                raise self._error(recipe.name, f"published.{figure} = {value!r} must be a number")

    def _error(self, name: str, what: str) -> UserError:
        """Returns an error about a recipe; its message includes the recipe's file and name."""
        what = what.rstrip(".")
        return UserError(f"{self._places[name]}, [{name}]: {what}{'' if what.endswith('?') else '.'}")


def _of_the_test_sets(recipe: Recipe) -> dict[str, Any]:
    """Returns the problem options that choose dev and test sets; those of the training text may be compared."""
    return {name: value for name, value in recipe.problem_options.items() if name.startswith(("dev", "test"))}


def _others(recipe: Recipe) -> list[tuple[str, str]]:
    """Returns the recipes whose runs a recipe needs, each with the key that names it."""
    found = [("warm_start", recipe.warm_start)] if recipe.warm_start else []
    for key in ("pseudo_references", "rerank"):
        both = getattr(recipe, key)
        found += [(f"{key}.{direction}", both[direction]) for direction in BOTH if both]
    found += [(f"augment.{kind}", recipe.augment[kind]) for kind in AUGMENT_MODELS if recipe.augment.get(kind)]
    return found
