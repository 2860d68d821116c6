"""t2t_ext-rerank: a left-to-right and a right-to-left run choose together among the translations of both."""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t2t_ext.bin._flag_groups import add_decode_flags, add_thread_flags
from t2t_ext.bin._flags import FlagParser, add_flag, at_least, run_main, start_tensorflow
from t2t_ext.bin._run_text import (
    add_score_flags,
    check_scoring,
    report_truncated_lines,
    run_texts,
)
from t2t_ext.data.corpora import text_lines
from t2t_ext.data.corpora.text_lines import STANDARD, one_line
from t2t_ext.errors import UserError
from t2t_ext.io import log
from t2t_ext.io.progress import running_total
from t2t_ext.translation.rerank import DEFAULT_K, DIRECTIONS, SCORES

if TYPE_CHECKING:
    from t2t_ext.evaluation.run_texts import RunTexts
    from t2t_ext.translation.rerank import Candidate

_SYSTEMS = {"l2r": "L2R", "r2l": "R2L", "reranked": "reranked"}
_EXAMPLES = """\
  t2t_ext-rerank --l2r=RUN --r2l=OTHER --decode_from_file=in.txt --decode_to_file=out.txt --decode_reference=ref.txt
  t2t_ext-rerank --l2r=RUN --r2l=OTHER --checkpoint_path=averaged --split=test --report_file=rerank.json
  cat in.txt | t2t_ext-rerank --l2r=RUN --r2l=OTHER --k=4 --decode_from_file=- > out.txt
"""


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    parser = FlagParser(
        "t2t_ext-rerank",
        "Translates with a left-to-right and a right-to-left run: of the translations that either finds, the one that "
        "both together think likeliest wins.",
        examples=_EXAMPLES,
    )
    group = parser.group("What")
    run = "The run that generates {}; A,B: several, as an ensemble."
    add_flag(group, "l2r", "", run.format("left to right"), metavar="RUN[,RUN]", required=True)
    add_flag(group, "r2l", "", run.format("right to left"), metavar="RUN[,RUN]", required=True)
    add_flag(
        group,
        "checkpoint_path",
        "",
        "Of both runs: best, averaged or a step; by default the latest of each.",
        metavar="NAME",
    )
    for direction in DIRECTIONS:
        add_flag(
            group,
            f"{direction}_checkpoint_path",
            "",
            f"Checkpoint of --{direction} alone, in place of --checkpoint_path.",
            metavar="DIR",
        )
    add_flag(
        group,
        "t2t_usr_dir",
        "",
        "The folder of the runs' own modules, where it has moved since training.",
        metavar="DIR",
    )
    _add_choice_flags(parser)
    _add_text_flags(parser)
    add_score_flags(parser)
    add_decode_flags(parser)
    add_thread_flags(parser, many_batches=True)
    return parser


def _add_choice_flags(parser: FlagParser) -> None:
    group = parser.group("How to choose")
    add_flag(
        group,
        "k",
        DEFAULT_K,
        "Translations of a line that each run's search finds; its beam, where --decode_hparams says no wider one.",
        kind=at_least(1),
        metavar="N",
    )
    add_flag(
        group,
        "score",
        "sum",
        "sum: both log-probabilities added up; penalised: divided by the length penalty of --decode_hparams.",
        choices=SCORES,
    )
    add_flag(group, "weights", "1,1", "Of the L2R and the R2L run's log-probability.", metavar="X,X")


def _add_text_flags(parser: FlagParser) -> None:
    group = parser.group("Input (one of these)")
    add_flag(group, "decode_from_file", "", "Lines to translate; - is standard input.", metavar="FILE")
    add_flag(group, "split", "", "Translate dev or a test set of the L2R run's data and score it.", metavar="NAME")
    add_flag(group, "source_tag", "", "Tag of --train_tags that every line begins with.", metavar="<TAG>")
    group = parser.group("Output")
    add_flag(
        group,
        "decode_to_file",
        "",
        "Translations, line by line; - is standard output. Where not given, FILE.reranked, of --decode_from_file=FILE.",
        metavar="FILE",
    )
    add_flag(
        group,
        "nbest_file",
        "",
        "All translations of both lists with both log-probabilities, their score and their places in the lists, one "
        "JSON object a line.",
        metavar="FILE",
    )
    add_flag(group, "report_file", "", "Shares of the lists, scores and settings as JSON.", metavar="FILE")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_main(lambda: run(argv))


def run(argv: Sequence[str] | None = None) -> None:
    """Reranks as the flags say.

    Raises:
      UserError: A flag is wrong, files do not fit, or the runs cannot score each other's translations.
    """
    flags = build_parser().parse_args(argv)
    # Everything that the user can have got wrong is found before TensorFlow starts and models are loaded.
    config, decode_hparams = _settings(flags)
    output = _checked_output(flags)
    chosen = _chosen_runs(flags)
    text = run_texts(chosen["l2r"][0].run, flags)
    if flags.split:
        sources, references = text.split(flags.split)
    else:
        from t2t_ext.evaluation.run_texts import read_references

        source = text.read(flags.decode_from_file)
        sources, references = source.lines, read_references(flags.decode_reference, source)
    lines = text.tagged(sources)
    reranker = _reranker(flags, chosen, config, decode_hparams)
    started = time.monotonic()
    results = reranker.rerank(lines, running_total)
    seconds = time.monotonic() - started
    report_truncated_lines(reranker.l2r)
    _write(flags, output, lines, results)
    where = f" -> {output}" if output not in ("", STANDARD) else ""
    rate = len(lines) / max(seconds, 1e-3)
    log.info(f"Reranked {len(lines):,} lines in {seconds:.1f} s ({rate:,.1f} lines/s){where}")
    report = {
        "l2r": flags.l2r,
        "r2l": flags.r2l,
        "checkpoints": {direction: [str(each.checkpoint) for each in chosen[direction]] for direction in DIRECTIONS},
        "k": flags.k,
        "score": config.score,
        "weights": list(config.weights),
        "decode_hparams": decode_hparams.to_dict(),
        "lines": len(lines),
        "seconds": round(seconds, 3),
        **_told(results, references, text, reranker, sys.stderr if output == STANDARD else sys.stdout),
    }
    if flags.report_file:
        text_lines.write(flags.report_file, [json.dumps(report, ensure_ascii=False, indent=1)])


def _settings(flags: argparse.Namespace) -> tuple[Any, Any]:
    """Returns the RerankConfig and the DecodeHParams of both searches."""
    from t2t_ext.config.decode import resolve_decode_hparams
    from t2t_ext.config.hyperparameters import parse_assignments
    from t2t_ext.search.directions import check_directions
    from t2t_ext.translation.rerank import RerankConfig

    try:
        l2r, r2l = (float(weight) for weight in flags.weights.split(","))
    except ValueError:
        raise UserError(f"--weights={flags.weights}: give two numbers, as --weights=1,0.5.") from None
    config = RerankConfig(flags.score, (l2r, r2l))
    hparams = resolve_decode_hparams(flags.decode_hparams)
    for name in ("num_hypotheses", "return_beams", "write_beam_scores"):
        if getattr(hparams, name) != getattr(type(hparams)(), name):
            raise UserError(f"--decode_hparams: {name} says what is written of one search; here --k does.")
    if hparams.sampling_method != "argmax":
        raise UserError(
            f"--decode_hparams: sampling_method={hparams.sampling_method} draws; reranking chooses among the lists of "
            "two searches. Leave it out."
        )
    check_directions(hparams, 1)
    given = parse_assignments(flags.decode_hparams, "--decode_hparams")
    wide = hparams.beam_size if "beam_size" in given else flags.k
    if wide < flags.k:
        raise UserError(
            f"--k={flags.k} translations are more than beam_size={hparams.beam_size} finds: raise beam_size, or leave "
            "it out."
        )
    return config, hparams.replace(beam_size=wide, num_hypotheses=flags.k)


def _checked_output(flags: argparse.Namespace) -> str:
    """Checks inputs and outputs that the flags name; returns where translations go, empty for nowhere."""
    if bool(flags.decode_from_file) == bool(flags.split):
        problem = "exclude each other" if flags.split else "are both missing: there is nothing to do"
        raise UserError(f"--decode_from_file and --split {problem}; give one of them.")
    for name, other in (("decode_reference", "decode_from_file"), ("data_dir", "split")):
        if getattr(flags, name) and not getattr(flags, other):
            raise UserError(f"--{name} goes with --{other}.")
    check_scoring(flags)
    output = flags.decode_to_file
    if flags.decode_from_file and not output:
        output = STANDARD if flags.decode_from_file == STANDARD else f"{flags.decode_from_file}.reranked"
    outputs = [path for path in (output, flags.nbest_file, flags.report_file) if path]
    for path in outputs:
        text_lines.check_output(path)
    if len(set(outputs)) < len(outputs):
        raise UserError("Two outputs have the same name: give each of them a file of its own.")
    if STANDARD in (flags.nbest_file, flags.report_file):
        raise UserError("Standard output is for translations: give --nbest_file and --report_file names of files.")
    if flags.decode_from_file == STANDARD == flags.decode_reference:
        raise UserError("--decode_from_file and --decode_reference cannot both be standard input.")
    return output


def _chosen_runs(flags: argparse.Namespace) -> Mapping[str, Sequence[Any]]:
    """Returns the runs and checkpoints of both directions, checked."""
    from t2t_ext.runs.chosen_runs import choose_runs
    from t2t_ext.translation.rerank import check_runs

    chosen = {}
    for direction in DIRECTIONS:
        checkpoint = getattr(flags, f"{direction}_checkpoint_path") or flags.checkpoint_path or None
        chosen[direction] = choose_runs(getattr(flags, direction), checkpoint, warn=log.warning)
    check_runs(*(chosen[direction][0].run for direction in DIRECTIONS))
    return chosen


def _reranker(flags: argparse.Namespace, chosen: Mapping[str, Sequence[Any]], config: Any, decode_hparams: Any) -> Any:
    """Starts TensorFlow and loads both runs."""
    start_tensorflow(flags.inter_op_parallelism_threads, flags.intra_op_parallelism_threads)
    from t2t_ext.translation.rerank import Reranker
    from t2t_ext.translation.translator import Translator

    l2r, r2l = (Translator.of_runs(chosen[direction], decode_hparams) for direction in DIRECTIONS)
    return Reranker(l2r, r2l, config)


def _write(
    flags: argparse.Namespace, output: str, lines: Sequence[Any], results: Sequence[Sequence["Candidate"]]
) -> None:
    from t2t_ext.translation.hypothesis import nbest_lines

    if flags.nbest_file:
        records = ([candidate.record() for candidate in candidates] for candidates in results)
        text_lines.write(flags.nbest_file, nbest_lines(lines, records))
    if output:
        text_lines.write(output, (one_line(candidates[0].text) for candidates in results))


def _told(
    results: Sequence[Sequence[Any]], references: list[list[str]], text: "RunTexts", reranker: Any, stream: Any
) -> dict[str, Any]:
    """Prints where the winners come from and the scores of all three; returns both for the report."""
    from t2t_ext.translation import rerank

    found = rerank.winners(results)
    shares = found.shares()
    print(
        f"winners: {found.l2r:,} from the L2R list only ({100 * shares['l2r']:.1f}%), {found.r2l:,} from the R2L list "
        f"only ({100 * shares['r2l']:.1f}%), {found.both:,} from both ({100 * shares['both']:.1f}%); {found.union:.1f} "
        "different translations a line",
        file=stream if references else sys.stderr,
        flush=True,
    )
    report: dict[str, Any] = {"winners": shares, "lines_with_text": found.lines, "union": found.union}
    if not references:
        return report
    chosen = {direction: [rerank.best_of(each, direction) for each in results] for direction in DIRECTIONS}
    chosen["reranked"] = [candidates[0] for candidates in results]
    report["scores"] = {}
    for system, best in chosen.items():
        report["scores"][system] = []
        for score in text.scores(best, references, reranker.l2r.target_encoder):
            print(f"{_SYSTEMS[system]}: {score}", file=stream, flush=True)
            report["scores"][system].append(
                {
                    "name": score.name,
                    "value": score.value,
                    "signature": score.signature,
                    **({} if score.confidence is None else {"confidence": score.confidence}),
                }
            )
    return report


if __name__ == "__main__":
    raise SystemExit(main())
