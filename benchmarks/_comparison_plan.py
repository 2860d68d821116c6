"""What ``comparison.py`` trains, in order: grid, rows and seeds, as recipes for ``t2t_ext-experiment``.

A training is a row with the rate and dropout of its family and a seed. Its recipe extends the row's; it has a name of
its own, such as ``comparison_enc_dc.dropout0.2.rate0.0075``, and names the tuned recipes whose runs it takes. Cells of
the grid (``comparison_enc_dc.tuning...``) end earlier than rows; the row of the chosen cell goes on where that ended.
"""

import dataclasses
import fnmatch
import functools
import itertools
import json
import math
import pathlib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from t2t_ext.errors import UserError, suggest
from t2t_ext.experiments.recipes import BOTH, Recipe, RecipeBook

PLAIN = "plain"
TUNING = "tuning"  # of the grid: as plain, but it ends earlier
Pair = frozenset[str]  # of two rows
Cell = tuple[float, ...]  # a value for each hparam of the grid; empty: those of the recipe
_SEED_OF_THE_GRID = 1
_OF_A_CORPUS = ("problem", "problem_options", "datagen", "scoring", "train")


@dataclasses.dataclass(frozen=True, order=True)
class Job:
    """A training.

    Attributes:
      row: Its recipe.
      variant: ``plain``, ``tuning``, or another recipe of training.
      cell: Its place in the grid.
      seed: Its seed.
    """

    row: str
    variant: str
    cell: Cell
    seed: int


@dataclasses.dataclass(frozen=True)
class Order:
    """Two rows of which one is better, in a paper or by expectation.

    Attributes:
      above: The better one.
      below: The other one.
      gain: By how many BLEU in the paper; None: no paper says.
      where: The paper's corpus.
    """

    above: str
    below: str
    gain: float | None = None
    where: str = ""


@dataclasses.dataclass(frozen=True)
class Grid:
    """Values of hparams that are tried for every family.

    Attributes:
      values: Hparam -> its values; the search begins with the first of each.
      full: Whether all cells are tried, and not one hparam after the other.
      margin: By how much a cell's score must be above that of the one that the search stands at, to take its place.
    """

    values: Mapping[str, Sequence[float]]
    full: bool = False
    margin: float = 0.0

    @property
    def first(self) -> Cell:
        """The cell that every family is trained with first."""
        return tuple(values[0] for values in self.values.values())

    def search(self, scores: Mapping[Cell, float]) -> tuple[list[Cell], Cell | None]:
        """Returns the cells to train next, and the chosen one, None before all that it takes are trained.

        Args:
          scores: Those of the cells that are trained; the higher, the better.
        """
        cell = self.first
        for place, values in enumerate([()] if self.full else self.values.values()):
            cells: list[Cell] = [(*cell[:place], value, *cell[place + 1 :]) for value in values]
            cells = cells or list(itertools.product(*self.values.values()))
            missing = [each for each in cells if each not in scores]
            if missing:
                return missing, None
            cell = self.better(cell, cells, scores)
        return [], cell

    def better(self, cell: Cell, others: Iterable[Cell], scores: Mapping[Cell, float]) -> Cell:
        """Returns the best of other cells if it is better than a cell by more than the margin, else that cell."""
        best = max(others, key=lambda each: scores[each])
        return best if scores[best] > scores[cell] + self.margin else cell

    def trainings(self) -> int:
        """Returns how many cells of a family are trained."""
        counts = [len(values) for values in self.values.values()]
        return math.prod(counts) if self.full else 1 + sum(count - 1 for count in counts)


class Plan:
    """The rows of a corpus and what belongs to them.

    Attributes:
      corpus: Its name.
      title: It in words.
      grid: The grid; None: rows are trained as their recipes say.
      main: The main rows, the most informative first.
      ablations: The others.
      variants: Recipe of training -> its table; ``plain`` is the first.
      orders: Paper -> its orders; "Controls": pairs that no paper has.
      readme: The main rows that README.md shows, in its order.
      further_seeds: Main row -> the seeds that it has besides those of all; no test of a conclusion has them.
    """

    def __init__(
        self, path: pathlib.Path, corpus: str, book: RecipeBook, *, tune: bool = True, full: bool = False
    ) -> None:
        """Reads ``comparison.toml``.

        Args:
          path: The file.
          corpus: One of its corpora.
          book: Where the rows' recipes are.
          tune: Whether there is a grid, where the corpus has one.
          full: Whether it is trained in full.

        Raises:
          UserError: There is no such corpus.
        """
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        corpora = content["corpora"]
        if corpus not in corpora:
            raise UserError(f"--corpus={corpus}: there is {', '.join(corpora)}.{suggest(corpus, corpora)}")
        self.corpus, self._corpus, self._content = corpus, corpora[corpus], content
        self._recipe = functools.cache(book.recipe)
        self.title = self._corpus["title"]
        values = {**content["tuning"], **self._corpus.get("tuning", {})}
        tune = tune and self._corpus.get("tune", True)
        self.grid = Grid(values, full, content["tuning_choice"]["margin"]) if tune else None
        patterns = self._corpus.get("rows", ["*"])
        self.main, self.ablations = (
            [row for row in content["rows"][kind] if any(fnmatch.fnmatch(row, each) for each in patterns)]
            for kind in ("main", "ablations")
        )
        self.readme: list[str] = [row for row in content["readme"]["rows"] if row in self.main]
        self.variants: dict[str, Mapping[str, Any]] = {PLAIN: {}, **content["variants"]}
        further = self._corpus.get("further_seeds", {})
        self.further_seeds: dict[str, list[int]] = {row: further[row] for row in self.main if row in further}
        here = {*self.main, *self.ablations}
        self.orders = {
            paper: [order for order in (Order(*each) for each in orders) if {order.above, order.below} <= here]
            for paper, orders in content["orders"].items()
        }

    # === Rows ===

    def family(self, row: str) -> str:
        """Returns the family of a row."""
        return next(name for name, rows in self._content["families"].items() if _closest(row, rows))

    def tuned_on(self, family: str) -> str:
        """Returns the row that a family is tuned on."""
        return self._content["families"][family][0]

    def families(self) -> list[str]:
        """Returns the families of the main rows."""
        return list(dict.fromkeys(map(self.family, self.main)))

    def control(self, row: str) -> str:
        """Returns what a row is compared with; empty for the Transformer."""
        controls = self._content["controls"]
        found = _closest(row, controls)
        return controls[found] if found else self.main[0] if row != self.main[0] else ""

    def shares_runs(self, row: str, other: str) -> bool:
        """Returns whether of each seed both rows hold the run of a third row, or one the other's run."""

        def held(name: str) -> set[str]:
            recipe = self._recipe(name)
            parts = [recipe.warm_start, *(recipe.rerank[each] for each in BOTH if recipe.rerank)]
            return {name}.union(*(held(each) for each in parts if each))

        return bool(held(row) & held(other))

    def pairs(self) -> tuple[list[Pair], list[Pair]]:
        """Returns the pairs of main rows that are tested, each once: the primary ones, and the others.

        They come in the order of the papers' orders; then those of a row and its control that are none of them.
        """
        found = [frozenset((each.above, each.below)) for orders in self.orders.values() for each in orders]
        found += [frozenset((row, self.control(row))) for row in self.main if self.control(row)]
        whole = [pair for pair in dict.fromkeys(found) if pair <= set(self.main)]
        primary = [pair for pair in whole if sorted(pair) in self._content["primary"]["pairs"]]
        return primary, [pair for pair in whole if pair not in primary]

    def words(self, row: str) -> str:
        """Returns a row in words."""
        return self._recipe(row).row

    def brief(self, row: str) -> str:
        """Returns a row in words without its source."""
        return re.sub(r" \(.*?\)", "", self.words(row))

    def published(self, row: str) -> tuple[float, str] | None:
        """Returns the difference of a row to its control that a paper has, in BLEU, and the corpus there."""
        control = self.control(row)
        for order in (order for orders in self.orders.values() for order in orders):
            if {order.above, order.below} == {row, control} and order.gain is not None:
                return (order.gain if order.above == row else -order.gain), order.where
        return None

    def needs(self, job: Job, cells: Mapping[str, Cell]) -> list[Job] | None:
        """Returns the trainings whose runs a training takes; None where a family among them is not tuned yet."""
        needed = self._needed(job.row, job.seed)
        if any(self.family(row) not in cells for row, _ in needed):
            return None
        return [Job(row, _of_needed(job.variant), cells[self.family(row)], seed) for row, seed in needed]

    def began(self, job: Job) -> Job | None:
        """Returns the training of the grid whose run a training goes on with, if it is there; None: it begins anew."""
        if not self.grid or job.variant != PLAIN or job.seed != _SEED_OF_THE_GRID:
            return None
        return dataclasses.replace(job, variant=TUNING)

    def _needed(self, row: str, seed: int) -> list[tuple[str, int]]:
        """Returns the rows and seeds whose runs a row takes."""
        recipe = self._recipe(row)
        parts = (recipe.pseudo_references, recipe.rerank)
        needed = [(names[each], seed) for names in parts for each in BOTH if names]
        return needed + ([(recipe.warm_start, seed)] if recipe.warm_start else [])

    # === Order ===

    def cells(self, scores: Mapping[Job, float]) -> dict[str, Cell]:
        """Returns the chosen cell of every family that is tuned.

        Args:
          scores: Of the trainings that are done.
        """
        found = {}
        for family in self._content["families"]:
            cell = self.grid.search(self._scores(family, scores))[1] if self.grid else ()
            if cell is not None:
                found[family] = cell
        return found

    def jobs(
        self, scores: Mapping[Job, float], seeds: Sequence[int], variants: Sequence[str], only: Sequence[str] = ("*",)
    ) -> tuple[list[Job], int]:
        """Returns all trainings, done or not, in order, as far as the grid's results say which they are.

        Args:
          scores: Development BLEU of those that are done.
          seeds: Of the main rows; ablations have the one that the corpus names for them if it is among these, else the
            second, or the only one.
          variants: Recipes of training.
          only: Patterns of the wanted rows; what they need is done, too.

        Returns:
          The trainings, and how many there will be besides at most.
        """
        cells, found = self.cells(scores), dict[Job, None]()
        later: set[tuple[str, str, Cell | None, int]] = set()
        cells_left: dict[str, int] = {}  # family -> cells that the grid's results will name

        def tune(family: str) -> None:
            if self.grid and family not in cells_left:
                known = self._scores(family, scores)
                now, _ = self.grid.search(known)
                cells_left[family] = max(0, self.grid.trainings() - len(known) - len(now)) if now else 0
                for cell in (*known, *now):
                    put(self.tuned_on(family), TUNING, cell, _SEED_OF_THE_GRID)

        def put(row: str, variant: str, cell: Cell | None, seed: int) -> None:
            needed = self._needed(row, seed)
            for other, other_seed in needed:
                add(other, _of_needed(variant), other_seed)
            if cell is None or any(self.family(other) not in cells for other, _ in needed):
                later.add((row, variant, cell, seed))
            else:
                found.setdefault(Job(row, variant, cell, seed))

        def add(row: str, variant: str, seed: int) -> None:
            tune(self.family(row))
            put(row, variant, cells.get(self.family(row)), seed)

        wanted = list(self._wanted(seeds, variants, only))
        # One cell of every family first, so that all families can be compared long before the grid is done.
        for row in dict.fromkeys(self.tuned_on(self.family(row)) for _, _, row in wanted):
            if self.grid and not self._needed(row, _SEED_OF_THE_GRID):
                put(row, TUNING, self.grid.first, _SEED_OF_THE_GRID)
        for variant, seed, row in wanted:
            add(row, variant, seed)
        return list(found), sum(cells_left.values()) + len(later)

    def rows_of(self, variant: str) -> list[str]:
        """Returns the main rows that are trained with a recipe of training."""
        patterns = self.variants[variant].get("rows", ["*"])
        return [row for row in self.main if any(fnmatch.fnmatch(row, each) for each in patterns)]

    def price(self, variant: str) -> float:
        """Returns how many times as long as the plain recipe's an update of a recipe of training takes."""
        return self.variants.get(variant, {}).get("price", 1.0)

    def matching(self, pattern: str) -> list[str]:
        """Returns the rows whose names a pattern has."""
        return fnmatch.filter([*self.main, *self.ablations], pattern)

    def _wanted(
        self, seeds: Sequence[int], variants: Sequence[str], only: Sequence[str]
    ) -> Iterator[tuple[str, int, str]]:
        rows = {row for pattern in only for row in self.matching(pattern)}
        for variant in variants:
            of_variant = self.rows_of(variant)
            few = seeds[: self.variants[variant].get("seeds")]
            # One seed of all rows; then the others of the main claims' rows, since a claim is decided by all three.
            claims = {row for pair in self._content["primary"]["pairs"] for row in pair}
            yield from ((variant, seed, row) for seed in few[:1] for row in of_variant if row in rows)
            for first in (True, False):
                later = [row for row in of_variant if row in rows and (row in claims) is first]
                yield from ((variant, seed, row) for seed in few[1:] for row in later)
            if variant == PLAIN:
                yield from ((variant, self._ablation_seed(row, seeds), row) for row in self.ablations if row in rows)
                if len(seeds) > 2:  # all of them
                    further = self.further_seeds.items()
                    yield from ((variant, seed, row) for row, of_row in further if row in rows for seed in of_row)

    def _ablation_seed(self, row: str, seeds: Sequence[int]) -> int:
        # Seed 1 of the rows that most are compared with was chosen among the cells of the grid.
        own = self._corpus.get("ablation_seeds", {})
        named = own.get(_closest(row, own))
        return named if named in seeds else seeds[1] if len(seeds) > 1 else seeds[0]

    def is_of_the_grid(self, job: Job) -> bool:
        """Returns whether a training is a cell of its family's grid."""
        own = (self.tuned_on(self.family(job.row)), TUNING, _SEED_OF_THE_GRID)
        return self.grid is not None and (job.row, job.variant, job.seed) == own

    def _scores(self, family: str, scores: Mapping[Job, float]) -> dict[Cell, float]:
        row = self.tuned_on(family)
        return {job.cell: score for job, score in scores.items() if job.row == row and self.is_of_the_grid(job)}

    # === Recipes ===

    def name(self, job: Job) -> str:
        """Returns the name of a training's recipe."""
        short, own = self._content["names"], self.variants.get(job.variant, {}).get("hparams", {})
        cell = zip(self._hparams(), job.cell, strict=True)
        values = [f"{short[hparam]}{value:g}" for hparam, value in cell if hparam not in own]
        return ".".join([job.row, *([] if job.variant == PLAIN else [job.variant]), *(values or ["untuned"])])

    def changes(self, job: Job) -> dict[str, Any]:
        """Returns the hparams of a training that its row's recipe has not."""
        own = self._corpus.get("row_hparams", {})
        cell = dict(zip(self._hparams(), job.cell, strict=True))
        of_the_row = own.get(_closest(job.row, own), {})
        return {
            **self._corpus.get("hparams", {}),
            **of_the_row,
            **cell,
            **self.variants.get(job.variant, {}).get("hparams", {}),
        }

    def toml(self, jobs: Sequence[Job], cells: Mapping[str, Cell]) -> str:
        """Returns the recipes of trainings as a TOML file."""
        tables = []
        for name, job in {self.name(job): job for job in jobs}.items():
            recipe = self._recipe(job.row)
            variant = self.variants.get(job.variant, {}).get("words", "")
            table: dict[str, Any] = {"extends": job.row, "row": ", ".join(filter(None, [recipe.row, variant]))}
            table |= {key: self._corpus[key] for key in _OF_A_CORPUS if key in self._corpus}
            if job.variant == TUNING:
                table["train"] = {**table.get("train", {}), **self._content["tuning_end"]}
            table |= {} if recipe.rerank else {"hparams": self.changes(job)}
            table |= self._names_of_needed(recipe, job, cells)
            lines = [f"{key} = {_toml(value)}" for key, value in table.items() if value not in ("", {})]
            tables.append("\n".join([f"[{json.dumps(name)}]", *lines]))
        return "\n\n".join(tables) + "\n"

    def _names_of_needed(self, recipe: Recipe, job: Job, cells: Mapping[str, Cell]) -> dict[str, Any]:
        def tuned(row: str) -> str:
            return self.name(Job(row, _of_needed(job.variant), cells[self.family(row)], 0))

        table: dict[str, Any] = {"warm_start": tuned(recipe.warm_start)} if recipe.warm_start else {}
        for key in ("pseudo_references", "rerank"):
            if both := getattr(recipe, key):
                table[key] = {direction: tuned(both[direction]) for direction in BOTH}
        return table

    def _hparams(self) -> list[str]:
        return list(self.grid.values) if self.grid else []


def _of_needed(variant: str) -> str:
    """Returns the recipe of training of those whose runs a training takes: cells of the grid take converged ones."""
    return PLAIN if variant == TUNING else variant


def _closest(name: str, patterns: Sequence[str] | Mapping[str, Any]) -> str:
    """Returns the longest pattern that a name has; empty for none."""
    return max((each for each in patterns if fnmatch.fnmatch(name, each)), key=len, default="")


def _toml(value: Any) -> str:
    """Writes a value of a recipe: text, a number, a truth value or a table of these."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)
