"""Compares the papers' models at convergence: equally tuned, trained until they stop improving, tested over all seeds.

    python benchmarks/comparison.py --work_dir=W --tmp_dir=RAW                     # Multi30k; days on one core
    taskset -c 1 python benchmarks/comparison.py --work_dir=W --tmp_dir=RAW        # only on core 1
    python benchmarks/comparison.py --work_dir=W --tmp_dir=RAW --only='comparison_enc_dc*' --seeds=1 --dry_run
    python benchmarks/comparison.py --corpus=iwslt14 --work_dir=W --tmp_dir=PLAIN --cores=8 --cores_each=8   # a GPU
    python benchmarks/comparison.py --work_dir=W --tmp_dir=RAW --alphas            # length penalties of finished rows
    python benchmarks/comparison.py --report                                       # tables and figure, no training

docs/comparison_protocol.md is the protocol; benchmarks/comparison.toml has the rows and their order,
recipes/comparison*.toml the models. Every family is tuned first; its rows are then trained with the chosen learning
rate and dropout. Each training is a separate ``t2t_ext-experiment`` command on its own core; as many run side by side
as ``--cores`` allows.

Ctrl-C, SIGTERM and kill -9 end the trainings, which save first; the same command resumes them. The result of a finished
training is stored in docs/results/comparison_CORPUS.json (``--results``) at once, with everything that the tests need.
It is never made again, even if its run is gone. A failed training is skipped, and the next command tries it again.
"""

import argparse
import contextlib
import dataclasses
import fcntl
import functools
import os
import pathlib
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO

import _comparison_alphas
import _comparison_claims
import _comparison_readme
import _comparison_report
import _comparison_store
from _comparison_plan import PLAIN, Job, Plan
from _comparison_queue import Queue, made_again

from t2t_ext.bin._flags import run_main
from t2t_ext.bin.experiment import check_commands, recipe_book
from t2t_ext.config.problem_options import parse
from t2t_ext.errors import UserError, suggest
from t2t_ext.experiments import plan as plans
from t2t_ext.experiments.recipes import Recipe, RecipeBook
from t2t_ext.experiments.stages import Interrupted, run_stage, state_of
from t2t_ext.io import files
from t2t_ext.runs.run_directory import RunDirectory

_HERE = pathlib.Path(__file__).resolve().parent
_RESULTS = _HERE.parent / "docs" / "results"
_README = _HERE.parent / "README.md"
_PAGE = _HERE.parent / "docs" / "comparison.md"
_LOCK_SECONDS = 120.0
_PASSED_ON = ("problem_options", "hparams", "train")  # flags that are passed on to t2t_ext-experiment


def main(argv: Sequence[str] | None = None) -> int:
    """Trains and tests the models, writes the report, and returns the exit status."""
    return run_main(lambda: _run(_parser().parse_args(argv)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--corpus", default="multi30k", help="of comparison.toml [multi30k]")
    add("--work_dir", type=pathlib.Path, help="where data, runs and recipes are put")
    add("--tmp_dir", default="", help="raw text for generating data")
    add("--only", action="append", default=[], help="pattern of the wanted rows; what they need is trained, too [all]")
    add("--seeds", default="1,2,3", help="of the main rows; ablations have the second one")
    add("--variants", default="", help="recipes of training, such as plain,best [all, one after the other]")
    add("--full_grid", action="store_true", help="all cells of the grid, not one hparam after the other")
    add("--no_tuning", action="store_true", help="rate and dropout as the recipes have them")
    add("--cores", type=int, default=0, help="how many of the cores that this command may use [all]")
    add("--cores_each", type=int, default=1, help="of each training")
    add("--train_steps", type=int, default=0, help="in place of the recipes' limit")
    add("--hparams", default="", help="changes to all rows: A=1,B=x")
    add(
        "--precision",
        default="",
        choices=("float32", "mixed_bfloat16"),
        help="the one that is faster on this machine; results of both go together [the recipes']",
    )
    add("--train", default="", help="further flags of every training: A=1,B=x")
    add("--problem_options", default="", help="options of the corpus: A=x,B=y")
    add("--results", type=pathlib.Path, help="stored results [docs/results/comparison_CORPUS.json]")
    add(
        "--alphas",
        action="store_true",
        help="instead of training, translate again with the length penalties that finished trainings choose on the "
        "development set, if their runs are still there",
    )
    add("--report", action="store_true", help="write tables and figure from the stored results, and train nothing")
    add("--out", type=pathlib.Path, help="path of the tables and the figure without ending [beside the results]")
    add("--dry_run", action="store_true", help="list the trainings in order")
    add("--say_every", type=float, default=60.0, help="seconds between two lines that say how far all is")
    return parser


def _run(args: argparse.Namespace) -> int:
    garden = recipe_book()
    plan = Plan(_HERE / "comparison.toml", args.corpus, garden, tune=not args.no_tuning, full=args.full_grid)
    results = args.results or _RESULTS / f"comparison_{args.corpus}.json"
    store = _comparison_store.Store(results)
    if args.report and not store.records:
        raise UserError(f"{results} has no results yet. Leave out --report to train, or name another file.")
    try:
        failed = {} if args.report else (_alphas if args.alphas else _train)(args, plan, store)
    except KeyboardInterrupt:
        _write(args, plan, results)
        raise
    _write(args, plan, results)
    for title, why in failed.items():
        print(f"failed: {title}: {why}")
    return 1 if failed else 0


def _write(args: argparse.Namespace, plan: Plan, results: pathlib.Path) -> None:
    """Writes tables and figures of the stored results; those of the repository only with the plan that they have."""
    store = _comparison_store.Store(results)  # read again: other commands may have stored results meanwhile
    if not store.records or args.dry_run:
        return
    published = not args.results and not args.out
    if published and (args.no_tuning or args.full_grid):
        print(f"{results} has the results. Without --no_tuning and --full_grid, --report writes their tables.")
        return
    replaced = _comparison_store.Store(results.with_stem(f"{results.stem}_replaced"))
    _comparison_report.write(plan, store.records, args.out or results.with_suffix(""), replaced.records)
    if published:
        _comparison_readme.update(_README, plan, store.records)
        _comparison_claims.update(_PAGE, plan, store.records)


def _train(args: argparse.Namespace, plan: Plan, store: _comparison_store.Store) -> dict[str, str]:
    """Carries out the trainings that are not stored yet; returns the failed ones with their reasons."""
    if not args.work_dir:
        raise UserError("--work_dir=DIR says where data, runs and recipes are put; --report needs none.")
    (seeds, variants, only), slots = _chosen(args, plan), _slots(args)
    with contextlib.ExitStack() as stack:
        lock, folder = None, args.work_dir.resolve() / args.corpus
        if args.dry_run:  # do not overwrite the recipes of a queue at work
            recipes = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        else:
            lock, recipes = stack.enter_context(_locked(folder)), folder / "recipes"
        work = ExperimentWork(args, plan, store, folder, recipes)

        def jobs() -> tuple[list[Job], int]:
            found, later = plan.jobs(store.scores(), seeds, variants, only)
            work.write_recipes(found)
            return found, later

        named, later = jobs()
        for job in named:
            if job in store.records:
                store.check(job, work.settings(job))
            else:
                check_commands(work.stages(job))
        done = sum(job in store.records for job in named)
        print(f"{len(named) + later} trainings, {done} of them done already", flush=True)
        if lock is None:
            waiting, cells = [job for job in named if job not in store.records], plan.cells(store.scores())
            again = made_again(plan, work, waiting, cells)
            for job in named:
                words = " (again: its run is gone, and others take it)" if job in again else ""
                print(f"  {'done ' if job in store.records else 'to do'} {plan.name(job)}, seed {job.seed}{words}")
            print(f"  and {later} more, whose rate and dropout tuning decides" if later else "  and no more")
            return {}
        queue = Queue(plan, store, work, jobs, slots, keep_open=[lock.fileno()])
        queue.run(args.say_every)
    return {f"{plan.name(job)}, seed {job.seed}": why for job, why in queue.failed.items()}


def _alphas(args: argparse.Namespace, plan: Plan, store: _comparison_store.Store) -> dict[str, str]:
    """Adds to stored results what they reach with the length penalty that they choose; returns the failed ones."""
    if not args.work_dir:
        raise UserError("--work_dir=DIR says where the runs are that --alphas translates with.")
    seeds, variants, only = _chosen(args, plan)
    failed = {}
    with tempfile.TemporaryDirectory() as recipes:  # not those of a queue, which may be at work
        work = ExperimentWork(args, plan, store, args.work_dir.resolve() / args.corpus, pathlib.Path(recipes))
        named, _ = plan.jobs(store.scores(), seeds, variants, only)
        work.write_recipes(named)
        for job in named:
            record, title = store.records.get(job), f"{plan.name(job)}, seed {job.seed}"
            if record is None or plan.is_of_the_grid(job) or not record.get("updates_to_best"):  # not a reranking
                continue
            store.check(job, work.settings(job))
            if _comparison_alphas.FIELD in record or work.gone(job):
                print(f"{title}: {'done already' if _comparison_alphas.FIELD in record else 'its run is gone'}")
                continue
            if args.dry_run:
                print(f"{title}: to do")
                continue
            try:
                found = _comparison_alphas.measured(functools.partial(work.stages, job), _scored, record)
            except UserError as error:
                failed[title] = str(error)
                continue
            store.add({**record, _comparison_alphas.FIELD: found})
            print(f"{title}: alpha {found['alpha']:g}, test BLEU {found['test']['BLEU']:.2f}", flush=True)
    return failed


def _scored(stage: plans.Stage) -> None:
    try:
        run_stage(stage, "alpha", functools.partial(print, flush=True))
    except Interrupted:
        raise KeyboardInterrupt from None


def _chosen(args: argparse.Namespace, plan: Plan) -> tuple[list[int], list[str], list[str]]:
    """Returns the checked seeds, variants and patterns of rows."""
    try:
        seeds = [int(seed) for seed in args.seeds.split(",")]
    except ValueError:
        raise UserError(f"--seeds={args.seeds}: whole numbers, as --seeds=1,2,3.") from None
    variants = [name for name in args.variants.split(",") if name] or list(plan.variants)
    for name in variants:
        if name not in plan.variants:
            raise UserError(f"--variants={args.variants}: {name!r} is none of {', '.join(plan.variants)}.")
    rows = [*plan.main, *plan.ablations]
    only = [pattern for each in args.only for pattern in each.split(",")] or ["*"]
    for pattern in only:
        if not plan.matching(pattern):
            raise UserError(f"--only={pattern}: no row of {plan.corpus} has such a name.{suggest(pattern, rows)}")
    return seeds, sorted(variants, key=[PLAIN, *plan.variants].index), only


def _slots(args: argparse.Namespace) -> list[list[int]]:
    """Returns, for each of the trainings that run side by side, its cores."""
    usable = sorted(os.sched_getaffinity(0))
    cores = args.cores or len(usable)
    if not 1 <= args.cores_each <= cores <= len(usable):
        raise UserError(
            f"--cores={cores}, --cores_each={args.cores_each}: there are {len(usable)} cores that this command may use."
        )
    return [usable[n * args.cores_each : (n + 1) * args.cores_each] for n in range(cores // args.cores_each)]


def _locked(work_dir: pathlib.Path) -> IO[str]:
    """Returns the open lock file of a folder; waits a little while the trainings of a killed queue save and end.

    Raises:
      UserError: Another queue is at work there.
    """
    work_dir.mkdir(parents=True, exist_ok=True)
    lock = open(work_dir / ".lock", "w", encoding="utf-8")  # noqa: SIM115
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except OSError:
            if time.monotonic() > until:
                lock.close()
                raise UserError(
                    f"--work_dir={work_dir}: another command is at work there. Wait until it has ended."
                ) from None
            time.sleep(0.5)


class ExperimentWork:
    """Carries out a training with ``t2t_ext-experiment``."""

    def __init__(
        self,
        args: argparse.Namespace,
        plan: Plan,
        store: _comparison_store.Store,
        folder: pathlib.Path,
        recipes: pathlib.Path,
    ) -> None:
        """Prepares; ``write_recipes`` writes the file of recipes.

        Args:
          args: The command's flags.
          plan: The rows.
          store: The results.
          folder: Where data and runs go.
          recipes: Where the file of recipes goes.
        """
        self._args, self._plan, self._store = args, plan, store
        self._folder, self._recipes = folder, recipes / "tuned.toml"
        self._written = ""
        self._book: RecipeBook | None = None
        self._named: dict[Job, None] = {}
        self._passed_on = {name: getattr(args, name) for name in _PASSED_ON}
        if args.precision:
            given = [args.hparams] if args.hparams else []
            self._passed_on["hparams"] = ",".join([*given, f"precision={args.precision}"])
        self._options = plans.Options(
            work_dir=folder / "runs",
            tmp_dir=str(pathlib.Path(args.tmp_dir).resolve()) if args.tmp_dir else "",
            train_steps=args.train_steps,
            **{name: parse(value, name) for name, value in self._passed_on.items()},
        )

    def write_recipes(self, jobs: Sequence[Job]) -> None:
        """Writes the recipes of all known trainings if they have changed.

        Recipes of trainings that are no longer wanted, because another cell was chosen, stay: one may still be running.
        """
        self._named |= dict.fromkeys(jobs)
        text = self._plan.toml(list(self._named), self._plan.cells(self._store.scores()))
        if text != self._written:
            self._recipes.parent.mkdir(parents=True, exist_ok=True)
            files.write_text_atomically(self._recipes, text)
            self._written = text
            self._book = recipe_book(str(self._recipes.parent))

    def stages(self, job: Job, alpha: float | None = None) -> list[plans.Stage]:
        """Returns the commands of a training; with an ``alpha``, those that translate have it in place of their own."""
        assert self._book is not None
        options = self._options_of(job)
        if alpha is not None:
            options = dataclasses.replace(options, decode={"alpha": f"{alpha:g}"})
        return plans.plan(self._book.recipe(self._plan.name(job)), self._book, options)

    def _options_of(self, job: Job) -> plans.Options:
        """Returns the options of a training; each training recipe and seed has its own teachers, and therefore data."""
        of_the_recipe = [] if self._plan.shares_data(job.variant) else [job.variant]
        runs = "_".join(["runs", *of_the_recipe, *([f"seed{job.seed}"] if job.seed > 1 else [])])
        return dataclasses.replace(
            self._options, seeds=(job.seed,), teachers_seed=job.seed, work_dir=self._folder / runs
        )

    def settings(self, job: Job) -> dict[str, str]:
        """Returns the settings that determine the result of a training."""
        return _comparison_store.settings_of(self.stages(job))

    def prepare(self, job: Job) -> None:
        """Puts the run that a training continues where it finds it."""
        began = self._plan.began(job)
        if began is None:
            return
        source, run = self.folder(began) / "run", self.folder(job) / "run"
        if run.exists() or not RunDirectory.exists(source):
            return
        partial = run.with_name(".run.partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(source, partial)
        partial.rename(run)

    def command(self, job: Job) -> list[str]:
        """Returns the command that carries out a training."""
        args = self._args
        flags = {
            "recipe": self._plan.name(job),
            "recipes_dir": self._recipes.parent,
            "work_dir": self._options_of(job).work_dir,
            "tmp_dir": self._options.tmp_dir,
            "first_seed": job.seed,
            "teachers_seed": job.seed if plans.has_teachers(self.stages(job)) else "",
            "seeds": 1,
            "train_steps": args.train_steps or "",
            **self._passed_on,
        }
        given = [f"--{name}={value}" for name, value in flags.items() if value != ""]
        return [sys.executable, "-m", "t2t_ext.bin.experiment", *given]

    def folder(self, job: Job) -> pathlib.Path:
        """Returns the folder of a training's log; its run is in the subfolder ``run``."""
        return plans.run_folder(self._plan.name(job), self._options_of(job), job.seed)

    def unfinished(self, job: Job) -> set[pathlib.Path]:
        """Returns the markers of the stages that the training's command would still carry out."""
        return {stage.marker for stage in self.stages(job) if state_of(stage).word != "done"}

    def gone(self, job: Job) -> bool:
        """Returns whether the run of a training with a stored result no longer exists."""
        own = self.folder(job) / "run"
        return any(stage.output == own and state_of(stage).word != "done" for stage in self.stages(job))

    def record(self, job: Job, seconds: float) -> _comparison_store.Record:
        """Returns the result of a finished training."""
        return _comparison_store.record_of(*self._described(job), seconds, self._args.cores_each)

    def record_of_failed(self, job: Job, seconds: float) -> _comparison_store.Record | None:
        """Returns the record of a diverged cell of the grid, so that its family gets another cell; otherwise None."""
        run = self.folder(job) / "run"
        if not self._plan.is_of_the_grid(job) or not RunDirectory.exists(run):
            return None
        if not RunDirectory.open(run).skipped_steps_path.exists():
            return None
        return _comparison_store.record_of_diverged(*self._described(job), seconds, self._args.cores_each)

    def _described(self, job: Job) -> tuple[Job, dict[str, float], Recipe, list[plans.Stage]]:
        assert self._book is not None
        cell = dict(zip(self._plan.grid.values if self._plan.grid else (), job.cell, strict=True))
        return job, cell, self._book.recipe(self._plan.name(job)), self.stages(job)


if __name__ == "__main__":
    sys.exit(main())
