"""Multi30k: English captions of images, translated into German and French.

Elliott et al. 2016, https://aclanthology.org/W16-3210 (German) and Elliott et al. 2017,
https://aclanthology.org/W17-4718 (French). The text is the raw text of task 1; dev is ``val``, test is
``test_2016_flickr``.
"""

import os
import pathlib
from collections.abc import Sequence

from t2t_ext import registry
from t2t_ext.data.corpora import download
from t2t_ext.data.corpora.readers import PairFiles
from t2t_ext.problem import DEV, TEST, TRAIN, ParallelFilesProblem

URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
FILE_STEMS = {TRAIN: "train", DEV: "val", TEST: "test_2016_flickr"}
SHA256 = {
    "test_2016_flickr.de.gz": "d9747e9ef1c1bf36bf4a0e43c0d0fba58cc55d6b2b8e388cc863cba02b043fea",
    "test_2016_flickr.en.gz": "4f32cb8118b90cd5189d141e34791f70c245315e17065ecf9b2af6ab57e747cf",
    "test_2016_flickr.fr.gz": "aaa466eae473f1807a1b4a1683e18b6bba1234aee4ebf70e04bbc11d1e87d2be",
    "train.de.gz": "d71259ddb13479e1c9cac315c123493b7e97d2c996465b76d885a80a9e8daccd",
    "train.en.gz": "e1d89f49b9f003db6bb35c24382eb56531fec4e3840cb704cf36f0c0e192b62d",
    "train.fr.gz": "41e4a42abcf242f69c88814fe0f8df106d877f0b07482c841f6063e3ed739039",
    "val.de.gz": "c7c5fd8dde71846406de776f1c342f0c1e95e1c375e3bea7d52a77faec72e965",
    "val.en.gz": "0a9a01b4fd231cafeebea18983300016112dc919d3b26c5c74f6d6f388936aeb",
    "val.fr.gz": "9ccb4038b407530093f76c4aa5e955842303e96b0bdef3c626a0c8320d450f36",
}


class Multi30kProblem(ParallelFilesProblem):
    """Multi30k between English and another language."""

    def __init__(self, *, name: str | None = None, was_reversed: bool = False) -> None:
        """Makes the problem; downloads nothing yet."""
        super().__init__(name=name, was_reversed=was_reversed)

    def prepare(self, tmp_dir: str | os.PathLike) -> None:
        """Downloads the files that are not in ``tmp_dir`` yet, and checks all of them."""
        problem = self.base()
        for split in self.splits:
            for path in problem.source_files(split, tmp_dir):
                download.fetch(URL + path.name, path, SHA256[path.name])

    def pair_files(self, split: str, tmp_dir: str | os.PathLike) -> Sequence[PairFiles]:
        """Returns the two files of a split."""
        stem = pathlib.Path(tmp_dir, FILE_STEMS[split])
        return (PairFiles.aligned(stem.with_name(f"{stem.name}.{tag}.gz") for tag in self.base().languages),)


@registry.register_problem
class TranslateDeenMulti30k(Multi30kProblem):
    """German to English."""

    source_language, target_language = "de", "en"


@registry.register_problem
class TranslateEnfrMulti30k(Multi30kProblem):
    """English to French."""

    source_language, target_language = "en", "fr"
