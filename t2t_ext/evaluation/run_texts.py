"""Provides the texts that a run translates, and scores its translations. Imports no TensorFlow."""

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
from t2t_ext.io import inputs, log
from t2t_ext.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from t2t_ext.data.text.text_encoder import SubwordEncoder


@dataclasses.dataclass(eq=False)
class RunTexts:
    """The texts that a run translates, and how its translations are scored; everything is read lazily.

    Attributes:
      run: The run.
      data_dir: Folder of the run's data, if they have moved since training.
      source_tag: The tag that every source begins with; "" for the data's default tag.
      scoring: Comma-separated names of protocols; "" for the problem's own and, for translations, also chrf and ter.
      tokenize: A tokenizer of sacrebleu; if given, BLEU with this tokenizer is the only score.
      n_bootstrap: Number of bootstrap samples for the 95 % confidence intervals; 0 for none.
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
        """Returns the language of the source; "" if the problem does not define it."""
        return getattr(self.problem, "source_language", "")

    def read(self, path: str) -> text_lines.TextLines:
        """Returns the lines of a file or, if the run reads feature vectors, the sources in a file or folder.

        Raises:
          UserError: The file cannot be read or has the wrong content.
        """
        size = self.run.config.source_feature_size
        if not size:
            return text_lines.stored(path)
        if path == text_lines.STANDARD:
            self.run.require_text("Standard input", "Give a .npz, .npy or .tsv file of feature vectors, or a folder.")
        from t2t_ext.data.features.sources import read_sources

        return text_lines.TextLines(path, read_sources(path, size))

    def data(self) -> GeneratedData:
        """Opens the run's data; warns if they differ from the data that the run was trained on.

        Raises:
          UserError: The data are missing or damaged.
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
        """Returns a split of the run's data: the sources (``FeatureSource``s or lines) and the sets of references."""
        return self.data().texts(split)

    def tagged(self, lines: list[Any]) -> list[Any]:
        """Returns lines with ``source_tag`` or the default tag added, if the data have tags.

        Raises:
          UserError: The data do not have the tag ``source_tag``.
        """
        if self.run.config.source_feature_size:
            return lines
        tags, default_tag = self._tags
        return corpora.tagged(lines, tags, tag=self.source_tag, default_tag=default_tag)

    @functools.cached_property
    def _tags(self) -> tuple[Sequence[str], str]:
        """The tags that sources may begin with, and the default tag for text without one."""
        try:
            return self.problem.tags, self.problem.default_tag
        except UserError as error:
            if self.source_tag:
                raise
            log.warning(f"the run's problem cannot be made, so no line gets a tag: {error}")
            return (), ""

    def scorer(self, encoder: "SubwordEncoder") -> PartScorer:
        """Returns a scorer for the best hypotheses, which may arrive in parts; ``encoder`` is the target's."""
        names: list[Any] = protocols.names_in(self.scoring)
        if self.tokenize:
            names = [protocols.bleu_with(self.tokenize)]
        elif not names:
            own = getattr(self.problem, "scoring", protocols.DEFAULT)
            # chrF and TER are for translations, not for summaries and captions.
            others = () if protocols.protocol(own).needs[0] else ("chrf", "ter")
            names = list(dict.fromkeys((own, *others)))
        language = getattr(self.problem, "target_language", "")
        return PartScorer(names, encoder, language=language)

    def scores(self, scorer: PartScorer) -> Iterator[Score]:
        """Yields the scores of all parts as they are computed, and logs warnings about the texts."""
        for found, doubt in scorer.by_protocol(self.n_bootstrap):
            if doubt:
                log.warning(doubt)
            yield from found


def reference_paths(paths: str) -> list[str]:
    """Returns the paths in a comma-separated list; a text that names an existing file is one path."""
    if inputs.is_file(paths):
        return [paths]
    return paths.split(",") if paths else []


def read_references(paths: str, source: text_lines.TextLines) -> list[Collection[str]]:
    """Returns the lines of each reference file in a comma-separated list; each has as many lines as the source.

    Raises:
      UserError: A name is empty, a file cannot be read or has a different number of lines, or the source is empty.
    """
    names = reference_paths(paths)
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
