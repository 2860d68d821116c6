"""Carries out a plan: runs the requested stages, then writes the report."""

import pathlib
from collections.abc import Sequence

from t2t_ext.errors import UserError, suggest
from t2t_ext.experiments.plan import KINDS, Options, Stage, requirements
from t2t_ext.experiments.recipes import Recipe, RecipeBook
from t2t_ext.experiments.redo import Redo
from t2t_ext.experiments.report import write_report
from t2t_ext.experiments.results import collect
from t2t_ext.experiments.stages import Say, check_unchanged, is_redone, run_stage, state_of

REDONE = tuple(kind for kind in KINDS if kind != "report")  # kinds of stages that can be made again


def kinds_of_redo(text: str, stages: Sequence[Stage]) -> list[str]:
    """Returns the kinds of stages listed in a comma-separated text.

    Raises:
      UserError: There is no such kind, or the plan has no stage of it.
    """
    redo = [name.strip() for name in text.split(",") if name.strip()]
    for name in redo:
        if name not in REDONE:
            raise UserError(f"--redo={text}: {name!r} is no stage.{suggest(name, REDONE)} It is {', '.join(REDONE)}.")
        _check_has(stages, name, f"--redo={name}")
    return redo


def _check_has(stages: Sequence[Stage], kind: str, given: str) -> None:
    """Checks that a plan has a stage of a kind.

    Raises:
      UserError: It has none.
    """
    kinds = [name for name in KINDS if any(stage.kind == name for stage in stages)]
    if kind not in kinds:
        raise UserError(f"{given}: this recipe has no such stage. Its stages are {', '.join(kinds)}.")


def redo_kinds(text: str, stages: Sequence[Stage]) -> list[str]:
    """Returns the kinds of stages that are to be redone, from their comma-separated names.

    Raises:
      UserError: There is no such kind, the recipe has no stage of this kind (or only recipes that it uses have), or
        data or runs were made with other settings and their kinds are not among those to be redone.
    """
    redo = kinds_of_redo(text, stages)
    for name in redo:
        of_others = sorted({stage.owner for stage in stages if stage.kind == name and stage.owner})
        if of_others and not any(is_redone(stage, [name]) for stage in stages):
            raise UserError(
                f"--redo={name}: this recipe has none of its own; it takes what belongs to {' and '.join(of_others)}. "
                f"Make that again by t2t_ext-experiment --recipe={of_others[0]} --redo={name}."
            )
    check_unchanged(stages, redo)
    return redo


def wanted_stages(
    stages: Sequence[Stage], stage: str = "", until: str = "", *, redo: Sequence[str] = (), dry: bool = False
) -> list[Stage]:
    """Returns the stages that ``--stage`` (only this kind) or ``--until`` (up to this kind) selects.

    Args:
      stages: All stages of the plan.
      stage: The only kind to run; "": all kinds.
      until: The last kind to run; "": all kinds.
      redo: Kinds to redo; the selection must include them.
      dry: Whether this is a dry run. Then the stages that ``stage`` depends on need not be done.

    Raises:
      UserError: Both ``stage`` and ``until`` are given, a stage that ``stage`` depends on is not done, or a kind in
        ``redo`` is not selected.
    """
    wanted = _wanted_stages(stages, stage, until, dry=dry)
    for name in redo:
        if any(is_redone(each, [name]) for each in stages) and not any(is_redone(each, [name]) for each in wanted):
            given = f"--stage={stage}" if stage else f"--until={until}"
            raise UserError(
                f"--redo={name} does nothing with {given}, which leaves that stage out. Leave one of them out."
            )
    return wanted


def _wanted_stages(stages: Sequence[Stage], stage: str, until: str, *, dry: bool) -> list[Stage]:
    if stage and until:
        raise UserError("--stage and --until exclude each other: give one of them.")
    if not stage:
        last = KINDS.index(until or "report")
        # A stage may depend on a later kind: pseudo references are made by trained runs.
        needed = requirements([each for each in stages if KINDS.index(each.kind) <= last])
        return [each for each in stages if each in needed]
    if stage != "report":
        _check_has(stages, stage, f"--stage={stage}")
    chosen = [each for each in stages if each.kind == stage]
    for each in requirements(chosen or stages) if not dry else ():
        if each not in chosen and state_of(each).word != "done":
            raise UserError(
                f"--stage={stage}: '{each.title}' comes before it and is not done. Leave out --stage, or run that one "
                "first."
            )
    return chosen


def run_stages(
    stages: Sequence[Stage], wanted: Sequence[Stage], redo: Sequence[str], work_dir: pathlib.Path, say: Say
) -> None:
    """Runs the selected stages of a plan that are not done or are to be redone.

    Args:
      stages: All stages of the plan.
      wanted: The selected stages.
      redo: Kinds whose results are removed and made again. If the call is interrupted, repeating it resumes.
      work_dir: The folder of the experiment.
      say: Called with each progress message, line by line.

    Raises:
      UserError: A command failed.
      Interrupted: SIGTERM or Ctrl-C was received.
    """
    ran: set[pathlib.Path] = set()
    redone = Redo(work_dir, wanted, redo, say)
    for number, stage in enumerate(stages, start=1):
        if stage not in wanted:
            continue
        # If a run has just been trained, existing averages and scores are outdated.
        again = stage.kind in ("average", "score", "compare") and any(need.marker in ran for need in stage.needs)
        due = redone.is_due(stage)
        if run_stage(stage, f"{number}/{len(stages)}", say, redo=due, again=again, removed=redone.removed):
            ran |= set() if stage.kind == "data" else {stage.marker}
    redone.end()


def report_text(recipe: Recipe, book: RecipeBook, stages: Sequence[Stage], options: Options) -> str:
    """Writes the report on the stages that are done and returns its text.

    Raises:
      UserError: Nothing has been scored.
    """
    figures = collect(recipe, stages)
    if not figures:
        raise UserError("There is nothing to report yet: no translation has been scored. Leave out --stage=report.")
    beside = {name: collect(book.recipe(name), stages) for name in recipe.beside}
    rows = {name: book.recipe(name).row for name in recipe.beside}
    return write_report(recipe, book.paper(recipe), figures, stages, options, beside, rows)
