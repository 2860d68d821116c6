"""Tries settings of the search on a text with references: each combination is a sweep over one checkpoint."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence

from t2t_ext.config.decode import NOT_IN_THE_RESULT, DecodeHParams
from t2t_ext.errors import UserError, suggest
from t2t_ext.evaluation.score_table import ScoreRecord, goodness, score_names
from t2t_ext.experiments.sweep import Say, Sweep, SweepConfig
from t2t_ext.io import log
from t2t_ext.io.progress import Progress
from t2t_ext.reporting.table import Table, columns
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import RunDirectory

FLAG = "--search_grid"
MOST = 200  # combinations
_WITHOUT_EFFECT = (*NOT_IN_THE_RESULT, "return_beams", "write_beam_scores")  # on the score


@dataclasses.dataclass(frozen=True)
class Combination:
    """One combination of the grid's values.

    Attributes:
      given: ``NAME=VALUE`` of every setting of the grid.
      hparams: All settings of the search.
    """

    given: tuple[str, ...]
    hparams: DecodeHParams


def combinations(grid: str, overrides: str = "") -> list[Combination]:
    """Returns the combinations of a grid such as ``alpha=0.6:1.0:1.4,beam_size=4:8``, in its order.

    ``overrides`` are the settings that all of them share, as in ``--decode_hparams``.

    Raises:
      UserError: The grid has a setting without values, one that is given twice or changes no score, a single
        combination or too many; or a combination is not allowed.
    """
    fixed = [part.partition("=")[0].strip() for part in overrides.split(",")]
    choices: dict[str, list[str]] = {}
    for part in grid.split(","):
        name, _, values = (each.strip() for each in part.partition("="))
        found = [value.strip() for value in values.split(":")]
        if not name or not all(found):
            raise UserError(f"{FLAG}={grid}: {part!r} is no setting with values. Write {FLAG}=alpha=0.6:1.0:1.4.")
        if name not in (known := DecodeHParams.names()):
            near, names = suggest(name, known), ", ".join(known)
            raise UserError(f"{FLAG}={grid}: {name!r} is no setting of the search.{near} Known: {names}.")
        if name in choices or len(set(found)) < len(found):
            raise UserError(f"{FLAG}={grid}: {name} has a value twice. Give each value once: {name}=A:B:C.")
        if name in fixed:
            raise UserError(f"{name} is in {FLAG} and in --decode_hparams: leave it out of one of them.")
        if name in _WITHOUT_EFFECT:
            raise UserError(f"{FLAG}={grid}: {name} changes no score, so a grid has no place for it: leave it out.")
        choices[name] = [f"{name}={value}" for value in found]
    rows = list(itertools.product(*choices.values()))
    if not 1 < len(rows) <= MOST:
        raise UserError(f"{FLAG}={grid} has {len(rows)} combination(s); it may have 2 to {MOST}.")
    tried = [Combination(row, _resolved(overrides, row)) for row in rows]
    for one, other in itertools.combinations(tried, 2):
        if one.hparams == other.hparams:
            same = f"{','.join(one.given)} and {','.join(other.given)}"
            raise UserError(f"{FLAG}={grid}: {same} are the same search. Give each value once.")
    if "num_hypotheses" in choices and all(
        each.early_stopping == "exact" and each.sampling_method == "argmax" for each in (one.hparams for one in tried)
    ):
        raise UserError(
            f"{FLAG}={grid}: num_hypotheses changes no score with early_stopping=exact: leave it out, or give "
            "early_stopping=heuristic in --decode_hparams."
        )
    return tried


def _resolved(overrides: str, row: Sequence[str]) -> DecodeHParams:
    """Returns the settings of a combination; a UserError names it."""
    given, fixed = ",".join(row), overrides.strip()
    flag = f"{FLAG} with {given}{f' and --decode_hparams={fixed}' if fixed else ''}"
    hparams = DecodeHParams().override(f"{fixed},{given}" if fixed else given, flag=flag)
    hparams.check_effect(flag)
    return hparams


@dataclasses.dataclass(frozen=True)
class Tried:
    """A combination and the record of its translations."""

    combination: Combination
    record: ScoreRecord


def try_all(
    run: RunDirectory,
    config: SweepConfig,
    grid: Sequence[Combination],
    say: Say = print,
    progress: Progress | None = None,
) -> Iterator[Tried]:
    """Translates and scores with each combination and the newest checkpoint; what is stored is not done again.

    Raises:
      UserError: As ``Sweep.run``, after the name of the combination; or the checkpoint cannot be read.
    """
    for number, combination in enumerate(grid, start=1):
        name = ",".join(combination.given)
        say(f"{number} of {len(grid)}: {name}")
        sweep = Sweep(run, dataclasses.replace(config, decode_hparams=combination.hparams, last_only=True), say=say)
        try:
            table = sweep.run(progress)
        except UserError as error:
            raise UserError(f"{name}: {error}") from error
        steps = [*map(checkpoints.checkpoint_step, checkpoints.list_checkpoints(run.path / config.checkpoints))]
        # Without checkpoints there are stored translations; otherwise the sweep would have failed.
        record = table.get(steps[-1] or 0) if steps else table.records[-1]
        if record is None:
            raise UserError(
                f"The last checkpoint in {run.path / config.checkpoints} is damaged, or the trainer saved or deleted "
                "checkpoints meanwhile. Run the command again, or with --checkpoints=best."
            )
        yield Tried(combination, record)


def ranked(tried: Sequence[Tried]) -> list[Tried]:
    """Returns the combinations, the best first score first; of equal ones the first of the grid."""
    return sorted(tried, key=lambda each: -goodness(each.record))


def shown(tried: Sequence[Tried]) -> str:
    """Returns a table of the combinations, the best first, with their scores and speed."""
    rows = ranked(tried)
    names = score_names([each.record for each in rows])
    settings = [part.partition("=")[0] for part in rows[0].combination.given]
    cells = [
        [
            *(part.partition("=")[2] for part in each.combination.given),
            *(each.record.scores.get(name) for name in names),
            each.record.lines / each.record.seconds if each.record.seconds else None,
        ]
        for each in rows
    ]
    return Table([*columns(*settings), *columns(*names, format=".2f"), *columns("lines/s", format=".1f")], cells).text()


def warn(tried: Sequence[Tried], split: str, warning: Callable[[str], None] = log.warning) -> None:
    """Warns of what makes a choice among the combinations doubtful; an empty ``split`` is another text."""
    steps = {each.record.step for each in tried}
    if len(steps) > 1:
        warning(
            f"the trainer saved checkpoints meanwhile: steps {', '.join(map(str, sorted(steps)))} are compared. Run "
            "the command again when training is over, or with --checkpoints=best"
        )
    if split and split != "dev":
        warning(f"settings chosen on {split} make its score look better than it is: choose on --split=dev")
