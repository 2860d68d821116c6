"""Corpora as papers give them out: tokenised already, and cut into subwords some of them.

Subwords are put together again (the model learns its own, or takes the pack's codes with ``--bpe_codes``), and
Stanford's ``##AT##-##AT##`` around the hyphens of compounds becomes Moses's ``@-@``, which the detokeniser knows.
"""

import dataclasses
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from t2t_ext.data.corpora.readers import PairFiles, ReadReport

_JOINER = re.compile(r"@@ |@@$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pack:
    """Files that somebody gave out.

    Attributes:
      train: Name of the training files without the language.
      tests: Names of the files of dev and test sets, by the sets' names.
      validation: Name of a dev set that the pack has instead; empty where it has the papers' own.
      folders: Folders that the files may be in, under ``--tmp_dir``.
      archive: What they come in.
      url: Where that is.
      downloadable: Whether the files themselves are there, each on its own.
      subwords: Whether words are cut into subwords (``@@``).
      compounds: Whether hyphens of compounds are written ``##AT##-##AT##``.
      published: Number of training pairs.
    """

    train: str
    tests: Mapping[str, str]
    folders: Sequence[str]
    archive: str
    url: str
    downloadable: bool = False
    validation: str = ""
    subwords: bool = False
    compounds: bool = False
    published: int = 0

    def stem(self, split: str, test_set: str) -> str:
        """Returns the name of a split's files without the language; ``test_set`` is the set that is wanted of it."""
        if split == "train":
            return self.train
        return self.validation if split == "dev" and self.validation else self.tests[test_set]


@dataclasses.dataclass(frozen=True)
class PackFiles:
    """Files of a pack as words; a ``readers.PairSource``."""

    files: PairFiles
    pack: Pack

    @property
    def paths(self) -> tuple[pathlib.Path, ...]:
        """The two files."""
        return self.files.paths

    def count(self) -> int:
        """Returns the number of lines; see ``PairFiles.count``."""
        return self.files.count()

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields the pairs as words."""
        for row in self.files.read(report, wanted):
            yield tuple(self._words(text) for text in row)

    def _words(self, text: str) -> str:
        if self.pack.subwords:
            text = _JOINER.sub("", text)
        return text.replace("##AT##-##AT##", "@-@") if self.pack.compounds else text


STANFORD = Pack(
    train="train",
    tests={f"newstest{year}": f"newstest{year}" for year in range(2012, 2016)},
    folders=("", "wmt14.en-de"),
    archive="train.en, train.de, newstest2012.en, ...",
    url="https://nlp.stanford.edu/projects/nmt/data/wmt14.en-de/",
    downloadable=True,
    compounds=True,
    published=4_468_840,
)
T2T = Pack(
    train="train.tok.clean.bpe.32000",
    tests={f"newstest{year}": f"newstest{year}.tok.bpe.32000" for year in range(2009, 2017)},
    folders=("", "wmt16_en_de", "wmt16_en_de_bpe32k"),
    archive="wmt16_en_de.tar.gz",
    url="https://drive.google.com/uc?export=download&id=0B_bZck-ksdkpM25jRUN2X2UxMm8",
    subwords=True,
    published=4_500_966,
)


def fairseq(languages: str) -> Pack:
    """Returns the files that fairseq's ``prepare-wmt14en2XX.sh`` writes; its dev set is held out of train.

    Args:
      languages: ``de`` or ``fr``.
    """
    return Pack(
        train="train",
        tests={"newstest2014": "test"},
        validation="valid",
        folders=("", f"wmt17_en_{languages}", f"wmt14_en_{languages}"),
        archive=f"what prepare-wmt14en2{languages}.sh writes",
        url="https://github.com/facebookresearch/fairseq/tree/main/examples/translation",
        subwords=True,
    )
