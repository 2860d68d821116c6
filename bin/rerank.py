"""t2t_ext-rerank: chooses among the translations of a left-to-right and a right-to-left run by both."""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from t2t_ext.bin._flag_groups import USER_DIRECTORY, decode_flags, thread_flags
from t2t_ext.bin._flags import Flag, FlagParser, FlagTable, command, start_tensorflow
from t2t_ext.bin._run_text import (
    SCORE_FLAGS,
    check_files,
    check_names_output,
    check_scoring,
    check_shortlist,
    chosen_text,
    keep_runs,
    report_speed,
    report_truncated_lines,
    run_texts,
)
from t2t_ext.data.corpora import text_lines
from t2t_ext.data.corpora.text_lines import STANDARD, one_line
from t2t_ext.errors import UserError
from t2t_ext.io import log, outputs
from t2t_ext.io.progress import running_total
from t2t_ext.translation.hypothesis import EMPTY_TRANSLATION, NO_TRANSLATION
from t2t_ext.translation.rerank import DEFAULT_K, DIRECTIONS, SCORES

if TYPE_CHECKING:
    from t2t_ext.evaluation.run_texts import RunTexts
    from t2t_ext.translation.rerank import Reranker

_SYSTEMS = {"l2r": "L2R", "r2l": "R2L", "reranked": "reranked"}
_EXAMPLES = """\
  t2t_ext-rerank --l2r=RUN --r2l=OTHER --decode_from_file=in.txt --decode_to_file=out.txt --decode_reference=ref.txt
  t2t_ext-rerank --l2r=RUN --r2l=OTHER --checkpoint_path=averaged --split=test --report_file=rerank.json
  cat in.txt | t2t_ext-rerank --l2r=RUN --r2l=OTHER --k=4 --decode_from_file=- > out.txt
"""
_FLAGS: FlagTable = {
    "What": {
        "l2r=RUN[,RUN]": Flag("Run that generates left to right; A,B: several, as an ensemble.", required=True),
        "r2l=RUN[,RUN]": Flag("Run that generates right to left; A,B: several, as an ensemble.", required=True),
        "checkpoint_path=NAME": "Checkpoint of both runs: best, averaged or a step; default: the latest of each.",
        "l2r_checkpoint_path=DIR": "Checkpoint of --l2r only, instead of --checkpoint_path.",
        "r2l_checkpoint_path=DIR": "Checkpoint of --r2l only, instead of --checkpoint_path.",
        **USER_DIRECTORY,
    },
    "How to choose": {
        "k": Flag(
            "Number of translations per line that each run's search finds; also its beam size, unless --decode_hparams "
            "sets a larger one.",
            DEFAULT_K,
            minimum=1,
            maximum=1000,
        ),
        "score": Flag(
            "sum: the sum of both log-probabilities; penalized: this sum divided by the length penalty of "
            "--decode_hparams.",
            "sum",
            choices=SCORES,
        ),
        "weights=X,X": Flag(
            "Weights of the log-probabilities of the L2R and the R2L run.", "1,1", kind=float, many=True
        ),
    },
    "Input (one of these)": {
        "decode_from_file=FILE": "File of lines to translate; - = standard input.",
        "split=NAME": "Translate dev or a test set of the L2R run's data and score it.",
    },
    "With the input": {
        "source_tag=<TAG>": "Tag from --train_tags to put before every line.",
    },
    "Output": {
        "decode_to_file=FILE": "Output file of translations, line by line; - = standard output. Default: "
        "FILE.reranked, for --decode_from_file=FILE.",
        "nbest_file=FILE": "File for all translations of both lists with both log-probabilities, their score and their "
        "ranks in the lists, one JSON object per line.",
        "report_file=FILE": "JSON file for the shares of the lists, scores and settings.",
    },
}


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    description = (
        "Translates with a left-to-right and a right-to-left run: of all translations that either finds, it chooses "
        "the one that both together find most probable."
    )
    tables = _FLAGS, SCORE_FLAGS, decode_flags(beam_size=DEFAULT_K), thread_flags(many_batches=True)
    return FlagParser("t2t_ext-rerank", description, *tables, examples=_EXAMPLES)


@command(build_parser)
def main(flags: argparse.Namespace) -> None:
    """Reranks as the flags say."""
    # Finds all user errors before TensorFlow starts and models are loaded.
    config, decode_hparams = _settings(flags)
    output = _checked_output(flags)
    from t2t_ext.runs.chosen_runs import choose_runs
    from t2t_ext.translation.rerank import check_runs

    chosen = {}
    for direction in DIRECTIONS:
        checkpoint = getattr(flags, f"{direction}_checkpoint_path") or flags.checkpoint_path or None
        chosen[direction] = choose_runs(getattr(flags, direction), checkpoint, warn=log.warning)
    check_runs(*(chosen[direction][0].run for direction in DIRECTIONS))
    for direction in DIRECTIONS:
        check_shortlist(chosen[direction][0].run, decode_hparams)
    keep_runs([each.run for runs in chosen.values() for each in runs], (output, flags.nbest_file, flags.report_file))
    text = run_texts(chosen["l2r"][0].run, flags)
    _, sources, references = chosen_text(flags, text)
    text.tagged([])  # raises an error if the tag is unknown
    start_tensorflow(flags.inter_op_parallelism_threads, flags.intra_op_parallelism_threads)
    from t2t_ext.translation.rerank import Reranker
    from t2t_ext.translation.translator import Translator

    l2r, r2l = (Translator.of_runs(chosen[direction], decode_hparams) for direction in DIRECTIONS)
    reranker = Reranker(l2r, r2l, config)
    found = _Found(text, reranker, references)
    with text_lines.writers(output, flags.nbest_file) as writers:
        for window in text_lines.windows(sources):
            found.add(text.tagged(window), *writers)
    report_truncated_lines((l2r, r2l), found.truncated)
    for noted, what in ((found.untranslated, NO_TRANSLATION), (found.empty, EMPTY_TRANSLATION)):
        if noted.count:
            log.warning(f"{what}: {noted}")
    report_speed("Reranked", found.lines, found.seconds, output)
    report = {
        "l2r": flags.l2r,
        "r2l": flags.r2l,
        "checkpoints": {direction: [str(each.checkpoint) for each in chosen[direction]] for direction in DIRECTIONS},
        "k": flags.k,
        "score": config.score,
        "weights": list(config.weights),
        "decode_hparams": decode_hparams.to_dict(),
        "lines": found.lines,
        "seconds": round(found.seconds, 3),
        **found.told(sys.stderr if outputs.is_standard(output) else sys.stdout),
    }
    if flags.report_file:
        text_lines.write(flags.report_file, [json.dumps(report, ensure_ascii=False, indent=1)])


def _settings(flags: argparse.Namespace) -> tuple[Any, Any]:
    """Returns the RerankConfig and the DecodeHParams of both searches."""
    from t2t_ext.config.decode import DecodeHParams, resolve_decode_hparams
    from t2t_ext.search.directions import check_directions
    from t2t_ext.translation.rerank import RerankConfig

    if len(flags.weights) != 2:
        raise UserError("--weights: give two numbers, as --weights=1,0.5.")
    config = RerankConfig(flags.score, flags.weights)
    hparams = resolve_decode_hparams(flags.decode_hparams, DecodeHParams(beam_size=flags.k))
    for name in hparams.changed("num_hypotheses", "return_beams", "write_beam_scores"):
        raise UserError(f"--decode_hparams: {name} says what is written of one search; here --k does.")
    if hparams.sampling_method != "argmax":
        raise UserError(
            f"--decode_hparams: sampling_method={hparams.sampling_method} draws; reranking chooses among the lists of "
            "two searches. Leave it out."
        )
    check_directions(hparams, 1)
    if hparams.beam_size < flags.k:
        raise UserError(
            f"--k={flags.k} translations are more than beam_size={hparams.beam_size} finds: raise beam_size, or leave "
            "it out."
        )
    return config, hparams.replace(num_hypotheses=flags.k)


def _checked_output(flags: argparse.Namespace) -> str:
    """Checks the inputs and outputs that the flags name; returns the path for translations, "" for none."""
    if bool(flags.decode_from_file) == bool(flags.split):
        problem = "exclude each other" if flags.split else "are both missing: there is nothing to do"
        raise UserError(f"--decode_from_file and --split {problem}; give one of them.")
    for name, other in (("decode_reference", "decode_from_file"), ("data_dir", "split")):
        if getattr(flags, name) and not getattr(flags, other):
            raise UserError(f"--{name} goes with --{other}.")
    check_scoring(flags)
    output = flags.decode_to_file
    if flags.decode_from_file and not output:
        output = _default_output(flags.decode_from_file)
    check_files(flags, ("decode_from_file", "decode_reference"), (output, flags.nbest_file, flags.report_file))
    if STANDARD in (flags.nbest_file, flags.report_file):
        raise UserError("Standard output is for translations: give --nbest_file and --report_file names of files.")
    return output


def _default_output(source: str) -> str:
    if source == STANDARD:
        return STANDARD
    check_names_output(source)
    return f"{source.rstrip('/')}.reranked"


class _Found:
    """Collects what is reported about the translations of all windows; the translations themselves are not kept.

    Attributes:
      lines: Number of lines.
      seconds: Time that they took.
      truncated: Lines that were truncated.
      untranslated: Lines with text for which neither model has a translation.
      empty: Lines with text whose translation is empty.
    """

    def __init__(self, text: "RunTexts", reranker: "Reranker", references: Sequence[Collection[str]]) -> None:
        from t2t_ext.translation.rerank import Winners

        self.lines, self.seconds = 0, 0.0
        self.truncated, self.untranslated, self.empty = (text_lines.LineNumbers() for _ in range(3))
        self._text, self._reranker, self._winners = text, reranker, Winners()
        self._references = list(map(iter, references))
        self._scorers = {name: text.scorer(reranker.l2r.target_encoder) for name in _SYSTEMS if references}

    def add(self, lines: list[str], write: text_lines.Add | None, write_nbest: text_lines.Add | None) -> None:
        """Reranks a window of lines, writes the results, and updates the counts."""
        from t2t_ext.translation import rerank
        from t2t_ext.translation.hypothesis import nbest_lines

        started = time.monotonic()
        results = self._reranker.rerank(lines, passes=running_total)
        self.seconds += time.monotonic() - started
        both = self._reranker.l2r, self._reranker.r2l  # the subwords of their sources may differ
        truncated = {number for each in both for number in each.truncated_line_numbers}
        self.truncated.add(self.lines + number for number in sorted(truncated))
        self.empty.add(self.lines + i for i, candidates in enumerate(results, 1) if len(candidates[0].ids) == 1)
        nowhere = set(both[0].untranslated_line_numbers) & set(both[1].untranslated_line_numbers)
        self.untranslated.add(self.lines + number for number in sorted(nowhere))
        if write_nbest:
            records = ([candidate.record() for candidate in candidates] for candidates in results)
            write_nbest(nbest_lines(lines, records, self.lines + 1))
        if write:
            write(one_line(candidates[0].text) for candidates in results)
        self.lines += len(lines)
        self._winners += rerank.winners(results)
        references = [list(itertools.islice(each, len(lines))) for each in self._references]
        for system, scorer in self._scorers.items():
            wins = system == "reranked"
            scorer.add([each[0] if wins else rerank.best_of(each, system) for each in results], references)

    def told(self, stream: Any) -> dict[str, Any]:
        """Prints where the winners come from and the scores of all three systems; returns both for the report."""
        for each in self._references:
            next(each, None)  # a file reports its problems at its end
        found, shares = self._winners, self._winners.shares()
        print(
            f"winners: {found.l2r:,} from the L2R list only ({100 * shares['l2r']:.1f}%), {found.r2l:,} from the R2L "
            f"list only ({100 * shares['r2l']:.1f}%), {found.both:,} from both ({100 * shares['both']:.1f}%); "
            f"{found.union:.1f} different translations a line",
            file=stream if self._scorers else sys.stderr,
            flush=True,
        )
        report: dict[str, Any] = {"winners": shares, "lines_with_text": found.lines, "union": found.union}
        for system, scorer in self._scorers.items():
            rows = report.setdefault("scores", {})[system] = []
            for score in self._text.scores(scorer):
                print(f"{_SYSTEMS[system]}: {score}", file=stream, flush=True)
                confidence = {} if score.confidence is None else {"confidence": score.confidence}
                rows.append({"name": score.name, "value": score.value, "signature": score.signature, **confidence})
        return report


if __name__ == "__main__":
    raise SystemExit(main())
