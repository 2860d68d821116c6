"""The texts that a run translates, and the scores of its translations. Imports no TensorFlow."""

import dataclasses
import functools
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from t2t_ext import registry
from t2t_ext.data.corpora import text_lines
from t2t_ext.data.corpora import weighting as corpora
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.errors import UserError
from t2t_ext.evaluation import protocols
from t2t_ext.evaluation.scorer import PartScorer
from t2t_ext.evaluation.scores import Score
from t2t_ext.io import log
from t2t_ext.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from t2t_ext.data.text.text_encoder import SubwordEncoder


@dataclasses.dataclass(eq=False)
class RunTexts:
    """The texts that a run translates, and how its translations are scored; nothing is read before it is asked for.

    Attributes:
      run: The run.
      data_dir: The run's data, where they have moved since training.
      source_tag: The tag that every source begins with; "" for the data's default tag.
      scoring: Names of protocols, separated by commas; "" for the problem's own and, of translations, chrf and ter.
      tokenize: The tokenizer of sacrebleu's BLEU, which then is the only score.
      n_bootstrap: Bootstrap samples of the 95% confidence intervals; 0 for none.
    """

    run: RunDirectory
    _: dataclasses.KW_ONLY
    data_dir: str = ""
    source_tag: str = ""
    scoring: str = ""
    tokenize: str = ""
    n_bootstrap: int = 0

    @functools.cached_property
    def problem(self) -> Any:
        """The problem that the run was trained on."""
        self.run.load_user_code()
        return registry.problem(self.run.config.problem, **self.run.config.problem_options)

    def source_language(self) -> str:
        """Returns the language of the source, "" where the problem does not say."""
        return getattr(self.problem, "source_language", "")

    def read(self, path: str) -> text_lines.TextLines:
        """Returns the lines of a file; where the run reads feature vectors, the sources of a file or a folder.

        Raises:
          UserError: It cannot be read, or holds something else.
        """
        size = self.run.config.source_feature_size
        if not size:
            return text_lines.stored(path)
        if path == text_lines.STANDARD:
            self.run.require_text("Standard input")
        from t2t_ext.data.features.sources import read_sources

        return text_lines.TextLines(path, read_sources(path, size))

    def data(self) -> GeneratedData:
        """Opens the run's data; warns where they are not those that it was trained on.

        Raises:
          UserError: They are missing or damaged.
        """
        config = self.run.config
        try:
            data = GeneratedData.open(self.problem, self.data_dir or config.data_dir)
        except UserError as error:
            if self.data_dir:
                raise
            raise UserError(f"{error} If the data have moved, give --data_dir=DIR.") from error
        if data.digest() != config.data_digest:
            log.warning(f"the data in {data.data_dir} are not those that {self.run.path} was trained on")
        return data

    def split(self, split: str) -> tuple[list, list[list[str]]]:
        """Returns the sources (``FeatureSource``s or lines) and the sets of references of a split of the run's data."""
        return self.data().texts(split)

    def tagged(self, lines: list[Any]) -> list[Any]:
        """Returns lines with the tag of the corpus that they are to be translated as, where the data have tags.

        Raises:
          UserError: The data have no such tag as ``source_tag``.
        """
        if self.run.config.source_feature_size:
            return lines
        tags, default_tag = self._tags
        return corpora.tagged(lines, tags, tag=self.source_tag, default_tag=default_tag)

    @functools.cached_property
    def _tags(self) -> tuple[Sequence[str], str]:
        """The tags that sources may begin with, and the one of text that has none."""
        try:
            return self.problem.tags, self.problem.default_tag
        except UserError as error:
            if self.source_tag:
                raise
            log.warning(f"the run's problem cannot be made, so no line gets a tag: {error}")
            return (), ""

    def scorer(self, encoder: "SubwordEncoder") -> PartScorer:
        """Returns what scores the best hypotheses, which may come in parts; the encoder is the target's."""
        own = getattr(self.problem, "scoring", protocols.DEFAULT)
        # Edits and n-grams of characters are asked of translations, not of summaries.
        others = () if protocols.protocol(own).needs[0] else ("chrf", "ter")
        names: list[Any] = protocols.names_in(self.scoring) or list(dict.fromkeys((own, *others)))
        if self.tokenize:
            names = [protocols.bleu_with(self.tokenize)]
        language = getattr(self.problem, "target_language", "")
        return PartScorer(names, encoder, language=language)

    def scores(self, scorer: PartScorer) -> Iterator[Score]:
        """Yields the scores of all parts, each when it is known; warns of odd texts."""
        for found, doubt in scorer.by_protocol(self.n_bootstrap):
            if doubt:
                log.warning(doubt)
            yield from found


def read_references(paths: str, source: text_lines.TextLines) -> list[Collection[str]]:
    """Returns the lines of files of references (separated by commas), as many as the source has in each.

    Raises:
      UserError: A name is empty, a file cannot be read or has another number of lines, or there is nothing to score.
    """
    names = paths.split(",") if paths else []
    if not all(names):
        raise UserError(
            f"--decode_reference={paths}: there is no file name before or after a comma. Give the names of all sets of "
            "references with one comma between them."
        )
    references: list[Collection[str]] = []
    for path in names:
        reference = text_lines.stored(path)
        text_lines.check_as_many(source, reference, "The reference must have one line for each line of the input.")
        references.append(reference.lines)
    if references and not len(source.lines):
        raise UserError(f"{source.name} is empty: there is nothing to score.")
    return references
