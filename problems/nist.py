"""NIST's Chinese-English: corpora of the Linguistic Data Consortium that the user has licensed, and MT02 to MT06.

As in Zhou et al. 2019 (https://aclanthology.org/Q19-1006): 2.0M training pairs from seven LDC corpora, MT02 as dev,
MT03 to MT06 as tests with four references each. None of this is free. docs/corpora.md shows where files go.
"""

import os
import pathlib
from collections.abc import Sequence

from t2t_ext import registry
from t2t_ext.config.problem_options import chosen, given
from t2t_ext.data.corpora.readers import PairSource
from t2t_ext.errors import UserError
from t2t_ext.pages import page
from t2t_ext.problem import DEV, TRAIN, ParallelFilesProblem
from t2t_ext.problems import _ldc_files

LDC, PLAIN = "ldc", "plain"
# The titles of the seven corpora.
CORPORA = {
    "LDC2000T50": "Hong Kong Hansards Parallel Text",
    "LDC2002T01": "Multiple-Translation Chinese, part 1",
    "LDC2002E18": "Xinhua Chinese-English Parallel News Text",
    "LDC2003E07": "Chinese Treebank English Parallel Corpus",
    "LDC2003E14": "FBIS Multilanguage Texts",
    "LDC2003T17": "Multiple-Translation Chinese, part 2",
    "LDC2004T07": "Multiple-Translation Chinese, part 3",
}
EVALUATION_SETS = {
    "mt02": "LDC2010T10",
    "mt03": "LDC2010T11",
    "mt04": "LDC2010T12",
    "mt05": "LDC2010T14",
    "mt06": "LDC2010T17",
}
REFERENCES = 4
_SEGMENTERS = ("jieba", "characters", "segmented")


@registry.register_problem
class TranslateZhenNist(ParallelFilesProblem):
    """Chinese to English, 2.0M pairs; dev is MT02, tests are mt03 to mt06 with four references each.

    Each side has its own vocabulary: 30,000 merges, limited to the 30,000 most frequent subwords. English is
    lower-cased because the scores ignore case (``multi_bleu_uc``). The paper segments Chinese into words with
    Stanford's segmenter, a Java program. Give files that it has segmented (``words=segmented``), or let jieba do it.

    Options:
      layout: ``ldc``: folders or archives named after the corpora (``LDC2002T01``) and the evaluation sets (``mt03``).
        ``plain``: ``train.zh``, ``train.en``, ``mt02.zh``, ``mt02.en0`` to ``mt02.en3``, and so on.
      words: How Chinese is segmented into words: ``jieba``, ``characters``, or ``segmented`` if spaces already separate
        them.
      corpora: For the layout ``ldc``, catalog numbers of the corpora to use instead of all seven, separated by commas.
    """

    source_language, target_language = "zh", "en"
    splits = (TRAIN, DEV, "mt03", "mt04", "mt05", "mt06")
    multiple_references = True
    joint_vocab = False
    source_steps: Sequence[str] = ("jieba",)
    target_steps: Sequence[str] = ("moses_tokenize", "lowercase")
    subwords = "subword_nmt"
    approx_vocab_size = num_merges = vocab_limit = 30_000
    scoring = "multi_bleu_uc"
    published = {  # noqa: RUF012
        TRAIN: 2_000_000,
        DEV: 878,
        "mt03": 919,
        "mt04": 1_788,
        "mt05": 1_082,
        "mt06": 1_664,
    }

    def __init__(
        self,
        *,
        name: str | None = None,
        was_reversed: bool = False,
        layout: str = "",
        words: str = "",
        corpora: str = "",
    ) -> None:
        """Makes the problem; reads nothing yet."""
        super().__init__(name=name, was_reversed=was_reversed)
        self._options = given(TranslateZhenNist, layout=layout, words=words, corpora=corpora)
        self.layout = chosen(self.base_name, "layout", layout or LDC, (LDC, PLAIN))
        if corpora and self.layout != LDC:
            raise UserError(f"corpora={corpora} chooses among the corpora of layout=ldc; layout={layout} has one text.")
        self.corpora = tuple(
            chosen(self.base_name, "corpora", number.strip(), CORPORA)
            for number in (corpora or ",".join(CORPORA)).split(",")
        )
        self.words = chosen(self.base_name, "words", words or "jieba", _SEGMENTERS)
        self.source_steps = (self.words,)

    def prepare(self, tmp_dir: str | os.PathLike) -> None:
        """Unpacks archives and checks that everything is there."""
        directory = pathlib.Path(tmp_dir)
        if self.layout == LDC:
            for name in (*self.corpora, *EVALUATION_SETS, *EVALUATION_SETS.values()):
                _ldc_files.unpack(directory, name)
        missing = [*self._missing_training_text(directory)]
        for name, number in EVALUATION_SETS.items():
            if not _ldc_files.evaluation_set(directory, name, number, REFERENCES):
                missing.append(
                    f"{name}: a folder {name} or {number} with SGML files, one <srcset> and <refset>s of {REFERENCES} "
                    f"translations; or {name}.zh and {name}.en0 to {name}.en{REFERENCES - 1}"
                )
        if missing:
            raise UserError(
                f"{self.base_name} is made from licensed files, which the Linguistic Data Consortium "
                f"(https://catalog.ldc.upenn.edu) sells, in {directory}. Not there: {'; '.join(missing)}. "
                f"For the layout see {page('corpora')}."
            )

    def pair_files(self, split: str, tmp_dir: str | os.PathLike) -> Sequence[PairSource]:
        """Returns the files of a split."""
        directory = pathlib.Path(tmp_dir)
        if split != TRAIN:
            name = "mt02" if split == DEV else split
            files = _ldc_files.evaluation_set(directory, name, EVALUATION_SETS[name], REFERENCES)
            return (files,) if files else ()
        if self.layout == PLAIN:
            return _ldc_files.plain_training_text(directory)
        return [files for number in self.corpora for files in _ldc_files.corpus(directory, number)]

    def _missing_training_text(self, directory: pathlib.Path) -> Sequence[str]:
        if self.layout == PLAIN:
            return () if _ldc_files.plain_training_text(directory) else ("train.zh and train.en (or .gz and the like)",)
        return [
            f"{number} ({CORPORA[number]}): {_ldc_files.what_is_wrong(directory, number)}"
            for number in self.corpora
            if not _ldc_files.corpus(directory, number)
        ]
