"""What the commands that translate share: the text of a run's data, references, scores and progress."""

import argparse
import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from t2t_ext.bin._flags import FlagParser, add_flag, at_least
from t2t_ext.data.corpora import text_lines
from t2t_ext.errors import UserError

if TYPE_CHECKING:
    from t2t_ext.translation.translator import Translator


def add_score_flags(parser: FlagParser) -> None:
    """Adds ``--decode_reference``, ``--scoring`` and what else says how translations are scored."""
    group = parser.group("Scores")
    add_flag(
        group,
        "decode_reference",
        "",
        "References of --decode_from_file, as people read them: scores are printed.",
        metavar="FILE[,FILE]",
    )
    add_flag(
        group,
        "scoring",
        "",
        "Protocols that score, such as multi_bleu,chrf; where not given, the problem's own, and of translations chrf "
        "and ter. Those for tokenised text score what the model wrote, the others what --decode_to_file gets.",
        metavar="NAME[,NAME]",
    )
    add_flag(
        group,
        "n_bootstrap",
        0,
        "Bootstrap samples for 95% confidence intervals of the scores, 1000 is usual; 0 = none.",
        kind=at_least(0),
        metavar="N",
    )
    add_flag(group, "tokenize", "", "BLEU's tokenizer; where not given, that of the target language.", metavar="NAME")
    add_flag(group, "data_dir", "", "Data of --split, where they have moved since training.", metavar="DIR")


def check_scoring(flags: argparse.Namespace) -> None:
    """Checks the names of protocols and tokenizers before hours of work go into what they would score.

    Raises:
      UserError: One of them is unknown, or flags exclude each other.
    """
    if flags.scoring:
        from t2t_ext.evaluation import protocols

        for name in _scoring(flags.scoring):
            protocols.protocol(name)
    if flags.n_bootstrap == 1:
        raise UserError("--n_bootstrap=1: an interval needs more samples; 1000 is usual, 0 is for none.")
    if flags.tokenize:
        from t2t_ext.evaluation import scores

        if flags.scoring:
            raise UserError("--tokenize chooses the tokenizer of sacrebleu's BLEU, --scoring protocols; give one.")
        scores.check_tokenizer(flags.tokenize)


def _scoring(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


class RunText:
    """The text that a run translates, and how its translations are scored.

    The flags that it reads: ``data_dir``, ``source_tag`` and those of ``add_score_flags``.
    """

    def __init__(self, directory: Any, flags: argparse.Namespace) -> None:
        """Takes a ``RunDirectory`` and the command's flags."""
        self._directory, self._flags = directory, flags

    def read(self, path: str) -> text_lines.TextLines:
        """Reads the lines of a file; of a run that reads feature vectors, the ``FeatureSource``s of a file or a folder.

        Raises:
          UserError: It cannot be read, or holds something else.
        """
        size = self._directory.config.source_feature_size
        if not size:
            return text_lines.read(path)
        if path == text_lines.STANDARD:
            self._directory.require_text("Standard input")
        from t2t_ext.data.features.sources import read_sources

        return text_lines.TextLines(path, read_sources(path, size))

    def data(self) -> Any:
        """Returns the run's ``GeneratedData``, those of ``--data_dir`` where that is given."""
        from t2t_ext.data.datasets.generated import GeneratedData

        config = self._directory.config
        try:
            data = GeneratedData.open(self.problem(), self._flags.data_dir or config.data_dir)
        except UserError as error:
            if self._flags.data_dir:
                raise
            raise UserError(f"{error} If the data have moved, give --data_dir=DIR.") from error
        if data.digest() != config.data_digest:
            text_lines.warn(f"the data in {data.data_dir} are not those that {self._directory.path} was trained on")
        return data

    def split(self, split: str) -> tuple[list, list[list[str]]]:
        """Returns the sources (``FeatureSource``s or lines) and the sets of references of a split of the run's data."""
        return self.data().texts(split)

    def tagged(self, lines: list[str]) -> list[str]:
        """Returns lines with the tag of the corpus that they are to be translated as, where the data have tags.

        Raises:
          UserError: The data have no such tag as ``--source_tag``.
        """
        if self._directory.config.source_feature_size:
            return lines
        from t2t_ext.data.corpora import weighting as corpora

        tags, default_tag = self._tags
        return corpora.tagged(lines, tags, tag=self._flags.source_tag, default_tag=default_tag)

    @functools.cached_property
    def _tags(self) -> tuple[Sequence[str], str]:
        """The tags that sources may begin with, and the one of text that has none."""
        try:
            problem = self.problem()
        except UserError as error:
            if self._flags.source_tag:
                raise
            text_lines.warn(f"the run's problem cannot be made, so no line gets a tag: {error}")
            return (), ""
        return problem.tags, problem.default_tag

    def scores(self, hypotheses: list[Any], references: list[list[str]], encoder: Any) -> Iterator[Any]:
        """Yields the ``Score``s of the best hypotheses, each when it is known; warns of odd texts."""
        from t2t_ext.evaluation import protocols
        from t2t_ext.evaluation.scorer import Scorer

        flags, problem = self._flags, self.problem()
        own = getattr(problem, "scoring", protocols.DEFAULT)
        # Edits and n-grams of characters are asked of translations, not of summaries.
        others = () if protocols.protocol(own).needs[0] else ("chrf", "ter")
        names: list[Any] = _scoring(flags.scoring) or list(dict.fromkeys((own, *others)))
        if flags.tokenize:
            names = [protocols.bleu_with(flags.tokenize)]
        language = getattr(problem, "target_language", "")
        scorer = Scorer(names, references, encoder, language=language, n_bootstrap=flags.n_bootstrap)
        for found, doubts in scorer.by_protocol(hypotheses):
            for doubt in doubts:
                text_lines.warn(doubt)
            yield from found

    def problem(self) -> Any:
        """Returns the problem that the run was trained on."""
        from t2t_ext import registry

        self._directory.load_user_code()
        return registry.problem(self._directory.config.problem, **self._directory.config.problem_options)


def read_references(paths: str, source: text_lines.TextLines) -> list[list[str]]:
    """Reads ``--decode_reference``; as many lines as the source in each file.

    Raises:
      UserError: A file cannot be read or has another number of lines, or there is nothing to score.
    """
    references = [text_lines.read(path) for path in paths.split(",")] if paths else []
    for reference in references:
        if len(reference.lines) != len(source.lines):
            raise UserError(
                f"Unequal numbers of lines: {len(source.lines)} in {source.name}, {len(reference.lines)} in "
                f"{reference.name}. The reference must have one line for each line of the input."
            )
    if references and not source.lines:
        raise UserError(f"{source.name} is empty: there is nothing to score.")
    return [reference.lines for reference in references]


def report_truncated_lines(translator: "Translator") -> None:
    """Warns of the lines that the last call of a Translator truncated."""
    if translator.truncated_lines:
        limit = translator.decode_hparams.max_input_length
        lines = text_lines.count_lines(translator.truncated_line_numbers)
        text_lines.warn(f"truncated to max_input_length={limit} {translator.source.unit}: {lines}")


@contextlib.contextmanager
def shown_progress(description: str, total: int, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Shows progress on standard error; yields what the Translator calls with (done, total)."""
    from t2t_ext.io.progress import progress

    done = 0
    with progress(description, total, unit) as advance:

        def update(now: int, total: int) -> None:
            nonlocal done
            advance(now - done)
            done = now

        yield update
