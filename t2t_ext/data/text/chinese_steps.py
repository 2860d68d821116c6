"""Text steps that find words in languages written without spaces, such as Chinese."""

import functools
import logging
import re
from typing import Any

from t2t_ext.data.text.step import Stage, Step

# Han, kana, bopomofo, Hangul letters (not syllables), their punctuation and full-width forms: written without spaces.
_WIDE = (
    "\u2e80-\u2fdf\u3000-\u30ff\u3100-\u31ff\u3200-\u4dbf\u4e00-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef"
    "\U00020000-\U0003ffff"
)
_WIDE_CHARACTER = re.compile(f"([{_WIDE}])")
_SPACE_AT_WIDE = re.compile(f"(?<=[{_WIDE}]) +| +(?=[{_WIDE}])")
_MARK_IN_NUMBER = re.compile(r"(?<=\d) ([,.:/-]) (?=\d)")
# jieba cuts punctuation that is not Chinese alone into its characters.
_SPACE_OF_JIEBA = re.compile("(?<=…) +(?=…)|(?<=—) +(?=—)|(?<=[“‘(\\[]) +| +(?=[”’)\\]])")
_RANGE = re.compile(r"(?<=\d) – (?=\d)")
_CHINESE = ("zh", "zho", "chi", "cmn", "yue", "wuu", "lzh", "nan")


class Segmented(Step):
    """Accepts text whose words a segmenter has already separated by spaces (papers often use Stanford's)."""

    name, stage = "segmented", Stage.WORDS
    meaning = "the text's words are separated by blanks already; translations are joined"
    loss = "blanks next to Chinese characters that belonged to the text"

    def prepare(self, text: str) -> str:
        """Returns the text with single spaces."""
        return " ".join(text.split())

    def restore(self, text: str) -> str:
        """Removes the spaces next to Chinese characters and inside numbers such as 3,250 and 00:40."""
        return _MARK_IN_NUMBER.sub(r"\1", _SPACE_AT_WIDE.sub("", text))


class Characters(Segmented):
    """Makes each Chinese character or kana a word; words of other scripts remain as they are."""

    name = "characters"
    meaning = "every Chinese character is a word; words of other scripts stay as they are"

    def prepare(self, text: str) -> str:
        """Returns the text with spaces around every wide character."""
        return " ".join(_WIDE_CHARACTER.sub(r" \1 ", text).split())


class Jieba(Segmented):
    """Segments Chinese text into words with jieba."""

    name = "jieba"
    meaning = "Chinese words as jieba cuts them, with its own dictionary and its model of unknown words"
    loss = (
        "blanks next to Chinese characters, inside brackets and quotation marks and in ranges such as 9 – 11; "
        "punctuation inside foreign words, such as addresses, is set apart"
    )
    packages = ("jieba",)
    extra = "zh"

    @classmethod
    def complaint(cls, language: str) -> str:
        """Returns why the step cannot be used for a language, or an empty string if it can."""
        if language in _CHINESE:
            return ""
        return "jieba is for Chinese only; moses_tokenize is for languages with spaces, characters for others without."

    def prepare(self, text: str) -> str:
        """Returns the words of the text, separated by spaces."""
        return " ".join(word for word in _segmenter().cut(text) if not word.isspace())

    def restore(self, text: str) -> str:
        """Removes, beside what ``segmented`` removes, spaces in ……, —— and 9–11, and inside brackets and quotes."""
        return super().restore(_RANGE.sub("–", _SPACE_OF_JIEBA.sub("", text)))


@functools.cache
def _segmenter() -> Any:
    """Returns jieba's segmenter with the dictionary of the jieba package.

    jieba's own initialization is avoided. It reads and writes a cache in the directory for temporary files, where
    another user may have placed a different dictionary.
    """
    import jieba

    jieba.setLogLevel(logging.WARNING)
    segmenter = jieba.Tokenizer()
    segmenter.FREQ, segmenter.total = segmenter.gen_pfdict(segmenter.get_dict_file())
    segmenter.initialized = True
    return segmenter


STEPS = (Segmented, Characters, Jieba)
