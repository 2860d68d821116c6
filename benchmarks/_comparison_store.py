"""The stored results of ``comparison.py``: a line of JSON for every training, sufficient for all tests and tables.

BLEU's counts of each sentence in the test set are stored in packed form: the lengths of translation and reference, and
the numbers of correct 1- to 4-grams. So tests can be repeated without runs, references or translations.
"""

import base64
import contextlib
import datetime
import fcntl
import hashlib
import json
import math
import pathlib
import statistics
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import _comparison_teachers
import _quality_curves as curves
import _report
import numpy as np
from _comparison_plan import Job

from t2t_ext.errors import UserError
from t2t_ext.experiments.plan import Stage
from t2t_ext.experiments.recipes import Recipe
from t2t_ext.experiments.results import collect
from t2t_ext.experiments.stages import score_record
from t2t_ext.io import files

_DIVERGED = "diverged"
_FORMAT = 1
_PACKED = 6  # numbers per sentence: lengths of translation and reference, matches of 1- to 4-grams
Record = dict[str, Any]


def key(record: Mapping[str, Any]) -> Job:
    """Returns the training that a record belongs to."""
    return Job(record["row"], record["variant"], tuple(record["cell"].values()), record["seed"])


class Store:
    """The results of a corpus, each written to disk as soon as it is added.

    Attributes:
      path: The file.
      records: Training -> its record.
    """

    def __init__(self, path: pathlib.Path) -> None:
        """Reads the file if it exists.

        Raises:
          UserError: The file is damaged.
        """
        self.path, self.records = path, dict[Job, Record]()
        self._read()

    def _read(self) -> None:
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if content["format"] != _FORMAT:
                raise ValueError(f"format {content['format']}, known is {_FORMAT}")
            self.records = {key(record): record for record in content["results"]}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{self.path} is damaged ({error}). Restore it, or choose other --results.") from error

    def add(self, record: Record) -> None:
        """Stores a result and keeps those that other commands have stored in the meantime."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked():
            self._read()
            self.records[key(record)] = record
            lines = [json.dumps(self.records[job], ensure_ascii=False) for job in sorted(self.records)]
            text = f'{{"format": {_FORMAT}, "results": [\n' + ",\n".join(lines) + "\n]}\n"
            files.write_text_atomically(self.path, text)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self.path.with_name(f".{self.path.name}.lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def scores(self) -> dict[Job, float]:
        """Returns the development BLEU of every training."""
        return dev_scores(self.records)

    def check(self, job: Job, settings: Mapping[str, str]) -> None:
        """Checks that a stored result was made with the settings that are wanted now.

        Raises:
          UserError: It was made with other settings.
        """
        then = self.records[job]["settings"]
        differ = [name for name in sorted({*then, *settings}) if then.get(name) != settings.get(name)]
        if differ:
            shown = "; ".join(f"{name}: {then.get(name)!r}, now {settings.get(name)!r}" for name in differ[:3])
            raise UserError(
                f"{self.path} has {job.row}, seed {job.seed}, made with other settings: {shown}. Choose other "
                "--results and another --work_dir, or take its line out of the file: it is then trained again."
            )


# === A result ===

LAST_EVALUATIONS = 5


def dev_scores(records: Mapping[Job, Record]) -> dict[Job, float]:
    """Returns the development BLEU of every training: the mean of its last evaluations, or -infinity if it diverged.

    The BLEU of the best evaluation would favor trainings with more evaluations.
    """
    found = {}
    for job, record in records.items():
        last = [bleu for *_, bleu in record.get("curve") or []][-LAST_EVALUATIONS:]
        if last or has_diverged(record):
            found[job] = statistics.fmean(last) if last else -math.inf
    return found


def has_diverged(record: Mapping[str, Any]) -> bool:
    """Returns whether a training ended without a result because its gradients were no longer finite."""
    return record["ended"] == _DIVERGED


def settings_of(stages: Sequence[Stage]) -> dict[str, str]:
    """Returns the settings that determine a result: all except the precision, which depends on the machine."""
    return {
        " ".join(filter(None, [stage.kind, stage.split, stage.owner, f"--{name}"])): _without_precision(name, value)
        for stage in stages
        for name, value in stage.counted_flags().items()
    }


def _without_precision(name: str, value: str) -> str:
    """Returns the value of a flag; that of ``--hparams`` without the precision."""
    if name != "hparams":
        return value
    return ",".join(each for each in value.split(",") if not each.startswith("precision="))


def _precision_of(stages: Sequence[Stage]) -> str:
    """Returns the precision of the last training; empty if none is given."""
    given = next((stage.flags.get("hparams", "") for stage in reversed(stages) if stage.kind == "train"), "")
    return next((each.partition("=")[2] for each in given.split(",") if each.startswith("precision=")), "")


def record_of_diverged(
    job: Job, cell: Mapping[str, float], recipe: Recipe, stages: Sequence[Stage], seconds: float, cores: int
) -> Record:
    """Returns the record of a training that diverged; the arguments are those of ``record_of``."""
    run = curves.read_run(next(stage.output for stage in reversed(stages) if stage.kind == "train"))
    return {
        **_identity(job, cell, recipe, stages, cores),
        "updates": run.updates,
        "minutes": round(run.minutes, 3),
        "minutes_before": 0.0,
        "seconds": round(seconds),
        "ended": _DIVERGED,
        "dev_loss": None,
    }


def _identity(job: Job, cell: Mapping[str, float], recipe: Recipe, stages: Sequence[Stage], cores: int) -> Record:
    return {
        "row": job.row,
        "variant": job.variant,
        "cell": dict(cell),
        "seed": job.seed,
        "name": recipe.name,
        "words": recipe.row,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "machine": _machine(cores),
        "precision": _precision_of(stages),
        "settings": settings_of(stages),
    }


def record_of(
    job: Job, cell: Mapping[str, float], recipe: Recipe, stages: Sequence[Stage], seconds: float, cores: int
) -> Record:
    """Returns the record of a training whose stages are done.

    Args:
      job: The training.
      cell: Its cell of the grid: hparam -> value.
      recipe: Its recipe.
      stages: Its commands.
      seconds: The time that all commands took in this run.
      cores: The number of cores that each command had.
    """
    scored = {stage.split: stage for stage in stages if stage.kind == "score" and stage.system == recipe.name}
    trained = {stage.output: stage for stage in stages if stage.kind == "train"}
    own = scored["test"].runs
    alone = len(own) == 1  # not a reranking of several runs, which trains nothing itself
    others = [run for run in trained if run not in own]  # runs of initial weights and of teachers
    before = sum(curves.read_run(run).minutes for run in others)
    runs = [curves.read_run(run, before=before) for run in own]
    best = [point for run in runs if (point := run.best)]
    found = {figure.name: figure for figure in collect(recipe, stages)}
    losses = [point.loss for point in runs[0].points if point.loss is not None]
    return {
        **_identity(job, cell, recipe, stages, cores),
        **_comparison_teachers.described(stages),
        "parameters": round(found["parameters"].mean),
        "updates": sum(run.updates for run in runs),
        "updates_to_best": best[0].updates if alone else None,
        "minutes": round(sum(run.minutes for run in runs), 3),
        "minutes_to_best": round(sum(point.minutes for point in best), 3),
        "minutes_before": round(before if alone else sum(run.minutes for run in runs), 3),
        "seconds": round(seconds),
        "ended": _ended([trained[run].flags for run in own], [run.updates for run in runs]),
        "tokens_per_second": _tokens_per_second(own[0]) if alone else None,
        "sentences_per_second": _rounded(
            found["sentences_per_second"].mean if "sentences_per_second" in found else None
        ),
        "dev_loss": min(losses) if alone and losses else None,
        "curve": [
            [point.updates, round(point.minutes, 3), _rounded(point.loss, 4), round(point.bleu, 3)]
            for point in (runs[0].points if alone else ())
        ],
        "dev": {**_scores(scored["dev"]), **_kept(_analysis(scored["dev"]))} if "dev" in scored else {},
        "test": described_score(scored["test"]),
    }


def _ended(flags: Sequence[Mapping[str, str]], updates: Sequence[int]) -> str:
    """Returns what ended a row's trainings: early stopping, a fixed budget, or the limit on the number of steps."""
    if not any(int(each.get("eval_early_stopping_steps", "0")) for each in flags):
        return "budget"
    reached = any(count >= int(each["train_steps"]) for each, count in zip(flags, updates, strict=True))
    return "limit" if reached else "early stopping"


def _machine(cores: int) -> str:
    found = _report.machine()
    return ", ".join([*found["gpus"], found["cpu"], f"{cores} core{'s' if cores > 1 else ''} a training"])


def _kept(analysis: Record) -> Record:
    """Returns the part of an analysis that tests on the development set need."""
    return {name: analysis[name] for name in ("sentences", "counts")}


def _rounded(value: float | None, digits: int = 1) -> float | None:
    return None if value is None else round(value, digits)


def _tokens_per_second(run: pathlib.Path) -> float | None:
    """Returns the median over the log's lines of source and target tokens per second.

    The first line is left out if there are others because it includes building the graph.
    """
    rates = [record["tokens_per_second"] for record in curves.records(run) if record["kind"] == "train"]
    return round(statistics.median(rates[1:] or rates)) if rates else None


def described_score(stage: Stage) -> Record:
    """Returns the scores of a stage that is done, statistics of its translation, and BLEU's counts of its sentences."""
    return {**_scores(stage), **_analysis(stage)}


def _scores(stage: Stage) -> dict[str, Any]:
    record = score_record(stage)
    if record is None:
        raise UserError(f"{stage.output} has no scores. Its log is {stage.log}.")
    label, value = next(iter(record.scores.items()))
    shares = {name: each["share"] for name, each in record.directions.items()}
    return {"BLEU": value, "signature": f"{label} {record.signatures[label]}", **({"won": shares} if shares else {})}


def _analysis(stage: Stage) -> dict[str, Any]:
    """Returns statistics of a translation in addition to its score, and BLEU's packed counts of its sentences."""
    from t2t_ext.evaluation import protocols, scored_files
    from t2t_ext.evaluation.comparison import comparison, segment_statistics
    from t2t_ext.evaluation.run_texts import RunTexts
    from t2t_ext.evaluation.scorer import references_of
    from t2t_ext.runs.run_directory import RunDirectory

    protocol = protocols.protocol(stage.flags["scoring"])
    texts = RunTexts(run=RunDirectory.open(stage.runs[0]))
    sources, references = texts.split(stage.split)
    references = references_of(references, texts.run.text_encoders()[1], tokenized=protocol.tokenized)
    path = stage.output.with_suffix(".jsonl") if stage.command == "rerank" else stage.output
    read = scored_files.read_beside(
        [str(path)], list(map(str, sources)), references, stage.split, tokenized=protocol.tokenized
    )
    lines, language = list(read.translations[0].lines), getattr(texts.problem, "target_language", "")
    settings = comparison.Settings((protocol.name, "chrf"), language, resamples=2, sentences=0)
    found = comparison.compare({"": lines}, references, source=list(map(str, sources)), settings=settings)
    bleu, chrf = (each.systems[""] for each in found.scores[:2])
    counts = segment_statistics.by_segment(next(iter(protocol.metrics(references, language).values())), lines)
    return {
        "chrF2": round(chrf.value, 3),
        "length_ratio": round(bleu.details["hypothesis_length"] / bleu.details["reference_length"], 4),
        "first": _rounded(found.ends[""].first, 2),
        "last": _rounded(found.ends[""].last, 2),
        "by_length": {each.label: [each.sentences, _rounded(each.bleu[""], 2)] for each in found.by_length},
        "sha256": hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest(),
        "sentences": len(lines),
        "counts": pack(counts),
    }


# === Counts of every sentence ===


def pack(counts: Any) -> str:
    """Returns BLEU's counts as text.

    The counts are [sentences, 10]: lengths of translation and reference, matches, totals of 1 to 4 words. The totals
    are not packed, because they follow from the length of the translation.
    """
    array = np.asarray(counts)[:, :_PACKED].astype("<u2")
    return base64.b85encode(zlib.compress(array.T.tobytes(), 9)).decode("ascii")


def unpack(text: str, sentences: int) -> np.ndarray:
    """Returns the counts that ``pack`` has packed: float64 [sentences, 10]."""
    array = np.frombuffer(zlib.decompress(base64.b85decode(text)), "<u2").reshape(_PACKED, sentences).T.astype(float)
    totals = [np.maximum(0.0, array[:, 0] - order) for order in range(4)]
    return np.concatenate([array, np.stack(totals, axis=1)], axis=1)
