r"""Measures how long recipes must train: minutes, updates and target tokens until a dev BLEU, and test BLEU.

    python benchmarks/time_to_quality.py --work_dir=W --problem=translate_ende_cldr --targets=5,20 --minutes=2 \
        --recipe=tiny=transformer_tiny --recipe=warm=transformer_tiny:learning_rate_warmup_steps=200 --eval_every=100
    python benchmarks/time_to_quality.py --work_dir=W --recipes=benchmarks/quality.toml --recipe='multi30k_*' \
        --tmp_dir=RAW --targets=30,34,37.4,41 --minutes=15 --seeds=1,2,3
    python benchmarks/time_to_quality.py --compare W OTHER RUN --targets=30,34 --fairseq_log=train.log --out=beside

A recipe is a table of a TOML file as described in docs/experiments.md (``--recipes``), or an hparams set with changes
(``--recipe=NAME=SET:a=1,b=x``). Each recipe is trained with every seed until dev BLEU reaches the highest target
(unless ``--no_stop`` is given) or the budget ends: ``--minutes`` of training only, ``--updates``, or the recipe's own
``train_steps``. If the minutes run out, the last update is evaluated as well. Then the checkpoint that is best on the
development set translates the test set.

Every training has its own ``--cores`` cores of those that this command may use (``taskset -c 0,1 python ...``);
``--jobs`` trainings run side by side. If the command is started again, it resumes: a finished training is not repeated
and an interrupted one continues. A training that has ended also continues if the budget is larger now.

Minutes come from the run's own metrics.jsonl: of updates only, or including evaluations ("counted"). Start-up has its
own column; the writing of checkpoints is in no column. A target counts as reached at the first evaluation that reaches
it. With ``--interpolate``, it counts as reached between that evaluation and the one before, by linear interpolation of
BLEU; the JSON file has both. Results: WORK_DIR/quality.md, .html, .json and .png (``--out``), and
WORK_DIR/results/*.json, one for each training.

``--fairseq_log=FILE`` also shows a training by fairseq, if it was logged with ``--log-format json`` and validated with
``--eval-bleu``; its times have a resolution of one second.
"""

import argparse
import math
import os
import pathlib
import sys
from collections.abc import Sequence

import _quality_curves as curves
import _quality_jobs
import _quality_report
import _quality_runs
import _report

from t2t_ext.bin._flags import run_main
from t2t_ext.config.problem_options import parse
from t2t_ext.errors import UserError
from t2t_ext.experiments.plan import Options
from t2t_ext.experiments.stages import Interrupted, run_stage
from t2t_ext.reporting.report import as_json, write


def main(argv: Sequence[str] | None = None) -> int:
    """Trains, compares, prints and stores the results; returns the exit status."""
    return run_main(lambda: _run(_parser().parse_args(argv)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--work_dir", type=pathlib.Path, help="where data, runs and results are put")
    add("--recipes", type=pathlib.Path, help="TOML file or folder of recipes, beside the garden's")
    add("--recipe", action="append", default=[], help="NAME or a pattern, or NAME=SET[:a=1,b=x] [all of --recipes]")
    add("--problem", default="", help="of recipes that are given as a set")
    add("--model", default="transformer", help="of recipes that are given as a set")
    add("--hparams", default="", help="changes to every recipe: A=1,B=x")
    add("--train", default="", help="further flags of every training: A=1,B=x")
    add("--targets", default="", help="dev BLEU: A,B,...")
    add("--no_stop", action="store_true", help="train on after the highest target is reached")
    add("--minutes", type=float, default=0.0, help="budget of training, evaluations not counted [none]")
    add("--updates", type=int, default=0, help="in place of the recipe's train_steps")
    add("--eval_every", type=int, default=0, help="updates between evaluations [the recipe's]")
    add("--seeds", default="1", help="A,B,...")
    add("--data_dir", default="", help="data that are there [generated in WORK_DIR]")
    add("--tmp_dir", default="", help="raw text for generating data")
    add("--cores", type=int, default=1, help="of each training")
    add("--jobs", type=int, default=0, help="trainings side by side [as many as the cores allow]")
    add("--say_every", type=float, default=30.0, help="seconds between two lines that say how far all is")
    add("--compare", nargs="+", default=[], type=pathlib.Path, help="finished --work_dirs, or run directories")
    add("--fairseq_log", action="append", default=[], help="[NAME=]FILE; more than one of a name: its seeds")
    add("--baseline", default="", help="recipe that the others' minutes are compared with [fairseq, or the first]")
    add("--interpolate", action="store_true", help="take targets as reached between evaluations")
    add("--out", type=pathlib.Path, help="path of the report without its ending [WORK_DIR/quality]")
    return parser


def _run(args: argparse.Namespace) -> int:
    targets = _numbers("--targets", args.targets)
    failed: dict[str, str] = {}
    groups: dict[str, list[curves.Run]] = {}
    if args.recipe or args.recipes:
        done, failed = _train(args, targets)
        for run in done:
            groups.setdefault(run.name, []).append(run)
    elif not args.compare and not args.fairseq_log:
        raise UserError("--recipe or --recipes says what to train, --compare what to put side by side.")
    _add_compared(groups, args.compare)
    for number, text in enumerate(args.fairseq_log, 1):
        name, given, path = text.partition("=")
        name, path = (name, path) if given else ("fairseq", text)
        if not pathlib.Path(path).is_file():
            raise UserError(f"--fairseq_log={text}: there is no file {path}.")
        groups.setdefault(name, []).append(curves.read_fairseq(path, name, number))
        if not groups[name][-1].points:
            print(f"note: {path} has no valid_bleu: fairseq-train needs --eval-bleu. No BLEU of it is shown.")
    if groups:
        _show(args, groups, targets)
    for title, why in failed.items():
        print(f"failed: {title}: {why}")
    return 1 if failed or not groups else 0


def _numbers(flag: str, text: str) -> list[float]:
    numbers = []
    for part in filter(None, text.split(",")):
        try:
            numbers.append(float(part))
        except ValueError:
            numbers.append(math.nan)
    if not all(map(math.isfinite, numbers)):
        raise UserError(f"{flag}={text}: numbers, as {flag}=30,34.5.")
    return sorted(numbers)


def _seeds(text: str) -> list[int]:
    """Returns the seeds, each once."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(map(str.isdecimal, parts)):
        raise UserError(f"--seeds={text}: whole numbers, as --seeds=1,2,3.")
    return sorted({int(part) for part in parts})


def _train(args: argparse.Namespace, targets: Sequence[float]) -> tuple[list[curves.Run], dict[str, str]]:
    """Carries out the unfinished trainings; returns all results in the order of the recipes, and the failures."""
    if not args.work_dir:
        raise UserError("--work_dir=DIR says where data, runs and results are put.")
    slots = _slots(args)
    if not 0 <= args.minutes < math.inf:
        raise UserError(f"--minutes={args.minutes:g}: a number of minutes, or leave it out for no limit.")
    known, own = _quality_jobs.book(args.recipes)
    recipes = _quality_jobs.chosen(args.recipe, known, own, args.problem, args.model)
    if any(recipe.name not in known.names() for recipe in recipes) and not (targets or args.minutes or args.updates):
        raise UserError("Nothing ends the training: give --targets, --minutes or --updates.")
    options = Options(
        work_dir=args.work_dir,
        tmp_dir=args.tmp_dir,
        seeds=_seeds(args.seeds),
        train_steps=args.updates,
        hparams=parse(args.hparams),
        train=parse(args.train) | ({"local_eval_frequency": str(args.eval_every)} if args.eval_every else {}),
    )
    stop_at = max(targets) if targets and not args.no_stop else math.inf
    budget = _quality_jobs.Budget(minutes=args.minutes, stop_at=stop_at)
    jobs = _quality_jobs.jobs(recipes, known, options, budget, args.data_dir)
    waiting = [job for job in jobs if job.stored(args.cores) is None]
    print(f"{len(jobs)} trainings, {len(jobs) - len(waiting)} of them done already", flush=True)
    trainings = _quality_runs.Trainings(waiting, slots, args.work_dir)
    try:
        for stage in {job.data.marker: job.data for job in waiting if job.data}.values():
            run_stage(stage, "data", _quality_runs.say)
        trainings.run(args.say_every)
    except Interrupted as interrupted:
        raise KeyboardInterrupt from interrupted
    stored = {(job.name, job.seed): job.stored(args.cores) for job in jobs}
    names = list(dict.fromkeys(job.name for job in jobs))
    done = [run for name in names for (recipe, _), run in stored.items() if recipe == name and run]
    return done, trainings.failed


def _slots(args: argparse.Namespace) -> list[list[int]]:
    """Returns, for each of the trainings that run side by side, its cores."""
    usable = sorted(os.sched_getaffinity(0))
    most = len(usable) // max(args.cores, 1)
    if args.cores < 1 or not 0 <= args.jobs <= most or not most:
        raise UserError(
            f"--cores={args.cores}, --jobs={args.jobs}: there are {len(usable)} cores that this command may use."
        )
    return [usable[n * args.cores : (n + 1) * args.cores] for n in range(args.jobs or most)]


def _add_compared(groups: dict[str, list[curves.Run]], folders: Sequence[pathlib.Path]) -> None:
    """Adds finished runs; if several folders have a recipe of the same name, the folder's name is put in front."""
    for folder in folders:
        found: dict[str, list[curves.Run]] = {}
        for run in _quality_jobs.finished(folder):
            found.setdefault(run.name, []).append(run)
        for name, runs in found.items():
            groups[name if name not in groups else f"{folder}/{name}"] = runs


def _show(args: argparse.Namespace, groups: dict[str, list[curves.Run]], targets: Sequence[float]) -> None:
    """Prints the tables and writes all files."""
    baseline = args.baseline or ("fairseq" if "fairseq" in groups else next(iter(groups)))
    if baseline not in groups:
        raise UserError(f"--baseline={baseline}: there is {', '.join(groups)}.")
    made = _quality_report.report(groups, targets, baseline, _report.command(), interpolated=args.interpolate)
    found = _quality_report.figures_json(groups, targets, interpolated=args.interpolate)
    out = args.out or (args.work_dir or pathlib.Path()) / "quality"
    contents = {
        f"{out.name}.md": _quality_report.markdown(made),
        f"{out.name}.html": made.page(),
        f"{out.name}.json": as_json(_report.report(found)),
        f"{out.name}.png": _quality_report.picture(groups, targets, "png"),
    }
    print(f"\n{made.text()}\n")
    print(f"written to {out.parent}: {', '.join(write(out.parent, contents))}")


if __name__ == "__main__":
    sys.exit(main())
