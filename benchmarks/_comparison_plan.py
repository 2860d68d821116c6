"""The plan of ``comparison.py``: what is trained, in which order (grid, rows, seeds), and as which recipes.

A training is a row with a seed and with the learning rate and dropout of its family. Its recipe, for
``t2t_ext-experiment``, extends the row's recipe. It has its own name, such as
``comparison_enc_dc.dropout0.2.rate0.0075``, and refers to the tuned recipes whose runs it uses. Cells of the grid
(``comparison_enc_dc.tuning...``) end earlier than rows; the row with the chosen cell continues that cell's run.
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

from t2t_ext.config.strict_params import parse_assignments
from t2t_ext.errors import UserError, suggest
from t2t_ext.experiments.plan import assignments
from t2t_ext.experiments.recipes import BOTH, Recipe, RecipeBook

PLAIN = "plain"
TUNING = "tuning"  # the variant of the grid's cells: like plain, but it ends earlier
Pair = frozenset[str]  # two rows
Cell = tuple[float, ...]  # a value for each hparam of the grid; empty: the recipe's values
_SEED_OF_THE_GRID = 1
_OF_A_CORPUS = ("problem", "problem_options", "datagen", "scoring", "train", "decode")


@dataclasses.dataclass(frozen=True, order=True)
class Job:
    """A training.

    Attributes:
      row: The recipe of its row.
      variant: ``plain``, ``tuning``, or another training recipe.
      cell: Its place in the grid.
      seed: Its seed.
    """

    row: str
    variant: str
    cell: Cell
    seed: int


@dataclasses.dataclass(frozen=True)
class Order:
    """Two rows of which one is better, according to a paper or by expectation.

    Attributes:
      above: The better row.
      below: The other row.
      gain: The difference in BLEU in the paper; None if no paper reports it.
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
      values: Hparam -> its values; the search begins with the first value of each.
      full: Whether all cells are tried, instead of one hparam after the other.
      margin: By how much a cell's score must exceed that of the search's current cell to replace it.
    """

    values: Mapping[str, Sequence[float]]
    full: bool = False
    margin: float = 0.0

    @property
    def first(self) -> Cell:
        """The cell that every family is trained with first."""
        return tuple(values[0] for values in self.values.values())

    def search(self, scores: Mapping[Cell, float]) -> tuple[list[Cell], Cell | None]:
        """Returns the cells to train next and the chosen cell, which is None until all necessary cells are trained.

        Args:
          scores: The scores of the trained cells; higher is better.
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
        """Returns the best of the others if it is better than ``cell`` by more than the margin, otherwise ``cell``."""
        best = max(others, key=lambda each: scores[each])
        return best if scores[best] > scores[cell] + self.margin else cell

    def trainings(self) -> int:
        """Returns the number of cells that are trained for a family."""
        counts = [len(values) for values in self.values.values()]
        return math.prod(counts) if self.full else 1 + sum(count - 1 for count in counts)


class Plan:
    """The rows of a corpus and what belongs to them.

    Attributes:
      corpus: Its name.
      title: Its name in words.
      grid: The grid; None: rows are trained with the settings of their recipes.
      main: The main rows, the most informative first.
      ablations: The other rows.
      variants: Training recipe -> its table; ``plain`` is the first.
      orders: Paper -> its orders; "Controls" -> pairs that no paper compares.
      readme: The main rows that README.md shows, in its order.
      further_seeds: Main row -> seeds beyond those of all rows; no test for a conclusion uses them.
    """

    def __init__(
        self, path: pathlib.Path, corpus: str, book: RecipeBook, *, tune: bool = True, full: bool = False
    ) -> None:
        """Reads ``comparison.toml``.

        Args:
          path: The file.
          corpus: One of its corpora.
          book: Where the rows' recipes are.
          tune: Whether to use the grid, if the corpus has one.
          full: Whether all cells of the grid are trained.

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
        own_variants = self._corpus.get("variants", {})
        self.variants: dict[str, Mapping[str, Any]] = {PLAIN: {}, **content["variants"], **own_variants}
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
        """Returns the row on which a family is tuned."""
        return self._content["families"][family][0]

    def families(self) -> list[str]:
        """Returns the families of the main rows."""
        return list(dict.fromkeys(map(self.family, self.main)))

    def control(self, row: str) -> str:
        """Returns the row that a row is compared with; empty for the Transformer."""
        controls = self._content["controls"]
        found = _closest(row, controls)
        return controls[found] if found else self.main[0] if row != self.main[0] else ""

    def shares_runs(self, row: str, other: str) -> bool:
        """Returns whether two rows have a run in common for each seed: one row's own run, or that of a third row."""

        def held(name: str) -> set[str]:
            recipe = self._recipe(name)
            parts = [recipe.warm_start, *(recipe.rerank[each] for each in BOTH if recipe.rerank)]
            return {name}.union(*(held(each) for each in parts if each))

        return bool(held(row) & held(other))

    def pairs(self) -> tuple[list[Pair], list[Pair]]:
        """Returns the pairs of main rows that are tested, each once: the primary pairs and the others.

        First come the pairs in the papers' orders, then the remaining pairs of a row and its control.
        """
        found = [frozenset((each.above, each.below)) for orders in self.orders.values() for each in orders]
        found += [frozenset((row, self.control(row))) for row in self.main if self.control(row)]
        whole = [pair for pair in dict.fromkeys(found) if pair <= set(self.main)]
        primary = [pair for pair in whole if sorted(pair) in self._content["primary"]["pairs"]]
        return primary, [pair for pair in whole if pair not in primary]

    def words(self, row: str) -> str:
        """Returns a row's name in words."""
        return self._recipe(row).row

    def brief(self, row: str) -> str:
        """Returns a row's name in words, without its source in brackets."""
        return re.sub(r" \(.*?\)", "", self.words(row))

    def published(self, row: str) -> tuple[float, str] | None:
        """Returns a paper's difference of a row from its control, in BLEU, and its corpus; None if no paper has it."""
        control = self.control(row)
        for order in (order for orders in self.orders.values() for order in orders):
            if {order.above, order.below} == {row, control} and order.gain is not None:
                return (order.gain if order.above == row else -order.gain), order.where
        return None

    def needs(self, job: Job, cells: Mapping[str, Cell]) -> list[Job] | None:
        """Returns the trainings whose runs a training uses or continues; None if a family of them is not tuned yet."""
        needed = self._needed(job.row, job.seed)
        if any(self.family(row) not in cells for row, _ in needed):
            return None
        continued = self._continued(job.variant)
        found = [dataclasses.replace(job, variant=continued)] if continued else []
        return found + [Job(row, self._of_needed(job.variant), cells[self.family(row)], seed) for row, seed in needed]

    def began(self, job: Job) -> Job | None:
        """Returns the training whose run, if it exists, a training continues; None if it always starts anew.

        It is a cell of the grid, or that of the training recipe that another one only makes longer.
        """
        if continued := self._continued(job.variant):
            return dataclasses.replace(job, variant=continued)
        if not self.grid or job.variant != PLAIN or job.seed != _SEED_OF_THE_GRID:
            return None
        return dataclasses.replace(job, variant=TUNING)

    def _continued(self, variant: str) -> str:
        """Returns the training recipe whose runs a training recipe continues, or an empty string."""
        return self.variants.get(variant, {}).get("continues", "")

    def _of_needed(self, variant: str) -> str:
        """Returns the training recipe of the runs that a training uses: for cells of the grid, the converged ones."""
        return PLAIN if variant == TUNING else self._continued(variant) or variant

    def _needed(self, row: str, seed: int) -> list[tuple[str, int]]:
        """Returns the rows and seeds whose runs a row uses."""
        recipe = self._recipe(row)
        parts = (recipe.pseudo_references, recipe.rerank)
        needed = [(names[each], seed) for names in parts for each in BOTH if names]
        return needed + ([(recipe.warm_start, seed)] if recipe.warm_start else [])

    # === Order ===

    def cells(self, scores: Mapping[Job, float]) -> dict[str, Cell]:
        """Returns the chosen cell of every family that is already tuned.

        Args:
          scores: Development BLEU of the finished trainings.
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
        """Returns all trainings in order, finished or not, as far as the grid's results already determine them.

        Args:
          scores: Development BLEU of the finished trainings.
          seeds: The seeds of the main rows. Ablations have the seed that the corpus names for them if it is among
            these, otherwise the second, or the only one.
          variants: Training recipes.
          only: Patterns of the wanted rows; the trainings that these need are included.

        Returns:
          The trainings, and the maximum number of further trainings that are not known yet.
        """
        cells, found = self.cells(scores), dict[Job, None]()
        later: set[tuple[str, str, Cell | None, int]] = set()
        cells_left: dict[str, int] = {}  # family -> number of cells that the grid's results will determine

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
                add(other, self._of_needed(variant), other_seed)
            if continued := self._continued(variant):
                add(row, continued, seed)
            if cell is None or any(self.family(other) not in cells for other, _ in needed):
                later.add((row, variant, cell, seed))
            else:
                found.setdefault(Job(row, variant, cell, seed))

        def add(row: str, variant: str, seed: int) -> None:
            tune(self.family(row))
            put(row, variant, cells.get(self.family(row)), seed)

        wanted = list(self._wanted(seeds, variants, only))
        # First one cell of every family, so that all families can be compared long before the grid is finished.
        for row in dict.fromkeys(self.tuned_on(self.family(row)) for _, _, row in wanted):
            if self.grid and not self._needed(row, _SEED_OF_THE_GRID):
                put(row, TUNING, self.grid.first, _SEED_OF_THE_GRID)
        for variant, seed, row in wanted:
            add(row, variant, seed)
        return list(found), sum(cells_left.values()) + len(later)

    def rows_of(self, variant: str) -> list[str]:
        """Returns the main rows that are trained with a training recipe."""
        patterns = self.variants[variant].get("rows", ["*"])
        return [row for row in self.main if any(fnmatch.fnmatch(row, each) for each in patterns)]

    def shares_data(self, variant: str) -> bool:
        """Returns whether a training recipe has the plain one's data and teachers, as the grid's cells have."""
        return variant in (PLAIN, TUNING) or self._continued(variant) == PLAIN

    def price(self, variant: str) -> float:
        """Returns the duration of a training recipe's update relative to the plain recipe's."""
        return self.variants.get(variant, {}).get("price", 1.0)

    def matching(self, pattern: str) -> list[str]:
        """Returns the rows whose names match a pattern."""
        return fnmatch.filter([*self.main, *self.ablations], pattern)

    def _wanted(
        self, seeds: Sequence[int], variants: Sequence[str], only: Sequence[str]
    ) -> Iterator[tuple[str, int, str]]:
        rows = {row for pattern in only for row in self.matching(pattern)}
        for variant in variants:
            of_variant = self.rows_of(variant)
            few = seeds[: self.variants[variant].get("seeds")]
            # One seed of all rows first; then further seeds of the main claims' rows, since a claim needs all three.
            claims = {row for pair in self._content["primary"]["pairs"] for row in pair}
            yield from ((variant, seed, row) for seed in few[:1] for row in of_variant if row in rows)
            for first in (True, False):
                later = [row for row in of_variant if row in rows and (row in claims) is first]
                yield from ((variant, seed, row) for seed in few[1:] for row in later)
            if variant == PLAIN:
                yield from ((variant, self._ablation_seed(row, seeds), row) for row in self.ablations if row in rows)
                if len(seeds) > 2:  # all seeds are wanted
                    further = self.further_seeds.items()
                    yield from ((variant, seed, row) for row, of_row in further if row in rows for seed in of_row)

    def _ablation_seed(self, row: str, seeds: Sequence[int]) -> int:
        # Not seed 1: that of the rows that most ablations are compared with was selected among the grid's cells.
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
        """Returns the hparams of a training that are not in its row's recipe."""
        cell = dict(zip(self._hparams(), job.cell, strict=True))
        return {
            **self._corpus.get("hparams", {}),
            **self._of_the_row("row_hparams", job.row),
            **cell,
            **self.variants.get(job.variant, {}).get("hparams", {}),
        }

    def _of_the_row(self, table: str, row: str) -> dict[str, Any]:
        """Returns what a table of the corpus (``row_hparams``, ``row_train``) has for a row."""
        own = self._corpus.get(table, {})
        return own.get(_closest(row, own), {})

    def toml(self, jobs: Sequence[Job], cells: Mapping[str, Cell]) -> str:
        """Returns the recipes of trainings as a TOML file."""
        tables = []
        for name, job in {self.name(job): job for job in jobs}.items():
            recipe = self._recipe(job.row)
            variant = self.variants.get(job.variant, {}).get("words", "")
            table: dict[str, Any] = {"extends": job.row, "row": ", ".join(filter(None, [recipe.row, variant]))}
            table |= {key: self._corpus[key] for key in _OF_A_CORPUS if key in self._corpus}
            end = self._content["tuning_end"] if job.variant == TUNING else {}
            of_variant = self.variants.get(job.variant, {}).get("train", {})
            table["train"] = {**table.get("train", {}), **self._of_the_row("row_train", job.row), **end, **of_variant}
            table |= {} if recipe.rerank else {"hparams": self.changes(job)}
            table |= self._names_of_needed(recipe, job, cells)
            lines = [f"{key} = {_toml(value)}" for key, value in table.items() if value not in ("", {})]
            tables.append("\n".join([f"[{json.dumps(name)}]", *lines]))
        return "\n\n".join(tables) + "\n"

    def _names_of_needed(self, recipe: Recipe, job: Job, cells: Mapping[str, Cell]) -> dict[str, Any]:
        def tuned(row: str) -> str:
            return self.name(Job(row, self._of_needed(job.variant), cells[self.family(row)], 0))

        table: dict[str, Any] = {"warm_start": tuned(recipe.warm_start)} if recipe.warm_start else {}
        for key in ("pseudo_references", "rerank"):
            if both := getattr(recipe, key):
                table[key] = {direction: tuned(both[direction]) for direction in BOTH}
        if (teachers := recipe.pseudo_references) and (own := self._corpus.get("decode")):
            given = parse_assignments(teachers.get("decode_hparams", ""), "decode_hparams")
            table["pseudo_references"]["decode_hparams"] = assignments({**given, **own})
        return table

    def _hparams(self) -> list[str]:
        return list(self.grid.values) if self.grid else []


def _closest(name: str, patterns: Sequence[str] | Mapping[str, Any]) -> str:
    """Returns the name itself if it is a pattern, otherwise the longest that matches it; empty if none does."""
    if name in patterns:
        return name
    return max((each for each in patterns if fnmatch.fnmatch(name, each)), key=len, default="")


def _toml(value: Any) -> str:
    """Returns a value of a recipe in TOML: text, a number, a Boolean or a table of these."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)
