"""Shows the recipes as a list, and a plan as shell commands."""

import fnmatch
from collections.abc import Sequence

from t2t_ext.errors import UserError, suggest
from t2t_ext.experiments.plan import Options, Stage
from t2t_ext.experiments.recipes import Recipe, RecipeBook
from t2t_ext.experiments.stages import state_of
from t2t_ext.reporting.table import Table, columns

_STATES = {"to do": "", "begun": " (begun)", "done": " (done)", "changed": " (made with other settings or text)"}


def list_text(book: RecipeBook, pattern: str = "") -> str:
    """Returns the table of recipes: name, place in the paper, published figures, and what is missing to run it.

    Raises:
      UserError: No recipe's name matches the pattern.
    """
    names = [name for name in book.names() if fnmatch.fnmatch(name, pattern or "*")]
    if not names:
        raise UserError(f"--recipe={pattern}: no recipe has such a name.{suggest(pattern, book.names())}")
    by_paper: dict[str, list[list[str]]] = {key: [] for key in book.papers}
    for name in names:
        recipe = book.recipe(name)
        figures = ", ".join(f"{key} {_shown(value)}" for key, value in recipe.published.items()) or "-"
        by_paper[recipe.paper].append([name, f"{recipe.table}: {recipe.row}", figures, "; ".join(book.missing(recipe))])
    headings = columns("recipe", "result", "published", "missing", words=True)
    parts = [f"{book.papers[key].citation}\n{Table(headings, rows).text()}\n" for key, rows in by_paper.items() if rows]
    runnable = sum(not row[-1] for rows in by_paper.values() for row in rows)
    return "\n".join([*parts, f"{len(names)} recipes, {runnable} of which run in this version."])


def dry_run_text(
    recipe: Recipe, book: RecipeBook, stages: Sequence[Stage], options: Options, wanted: Sequence[Stage]
) -> str:
    """Returns the commands of the selected stages, with explanatory comments, ready for a shell."""
    paper = book.paper(recipe)
    lines = [f"# {recipe.name}: {paper.short}, {recipe.table}, {recipe.row}", f"# {paper.citation}"]
    lines += [f"# published: {key} {_shown(value)}" for key, value in recipe.published.items()]
    lines += [f"# hardware: {recipe.hardware}"] if recipe.hardware else []
    lines += [f"# note: {note}" for note in recipe.notes]
    lines += [f"# NOT {recipe.setting}: {', '.join(options.changes())}"] if options.changes() else []
    for number, stage in enumerate(stages, start=1):
        if stage not in wanted:
            continue
        state = _STATES[state_of(stage).word]
        lines += ["", f"# {number}/{len(stages)} {stage.title}{state}", stage.command_line]
    return "\n".join(lines)


def _shown(value: float) -> str:
    return f"{value / 1e6:g}M" if value >= 1e6 else f"{value:.2f}"
