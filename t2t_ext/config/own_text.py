"""Options of ``translate_parallel_text``, the user's own text; its flags and checks are made from them."""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

from t2t_ext.config.strict_params import StrictParams, hparam

GROUP = "Your own text (--problem=translate_parallel_text)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnTextOptions(StrictParams):
    """Options of ``translate_parallel_text``; those without a group are for ``--problem_options`` alone.

    Manifests keep the fields in this order.
    """

    _prefix: ClassVar[str] = "--"

    train_source: str = hparam("", "Training text in the source language.", group=GROUP, metavar="FILE")
    train_target: str = hparam("", "Training text in the target language.", group=GROUP, metavar="FILE")
    dev_source: str = hparam("", "Development text in the source language.", group=GROUP, metavar="FILE")
    dev_target: str = hparam("", "Development text in the target language.", group=GROUP, metavar="FILE")
    test_source: str = hparam("", "Test text in the source language.", group=GROUP, metavar="FILE")
    test_target: str = hparam("", "Test text in the target language.", group=GROUP, metavar="FILE")
    dev_lines: int = hparam(
        0,
        "Without --dev_source, hold out this many lines of the training text, chosen at random with a fixed seed; "
        "0 = 5%, at most 2,000. A training line that repeats one of them word for word stays.",
        minimum=0,
        group=GROUP,
    )
    train_weights: str = hparam(
        "",
        "How often the pairs of each training file occur, fractions included; 0 leaves a file out.",
        group=GROUP,
        metavar="1,0.5,...",
    )
    train_tags: str = hparam(
        "",
        "First word of the source of each training file, such as <2de>,<2fr>; NAME_rev then has data of its own, with "
        "the tags on what is its source.",
        group=GROUP,
        metavar="<A>,<B>,...",
    )
    default_tag: str = hparam(
        "",
        "The tag of dev and test text and of what is translated later; lines that are held out have their file's.",
        group=GROUP,
        metavar="<A>",
    )
    source_language: str = hparam("", "Tag of the source language, such as de.", group=GROUP, metavar="TAG")
    target_language: str = hparam("", "Tag of the target language.", group=GROUP, metavar="TAG")
    columns: str = hparam(
        "",
        "Columns of source and target in tab-separated files, from 1: columns=2,4; in Parquet and JSON lines their "
        "names, such as columns=article,highlights.",
    )
    encodings: str = hparam("", "Encodings that files may have besides UTF-8: encodings=gb18030,big5hkscs.")

    def validate(self) -> Iterator[str]:
        """Yields contradictions between fields."""
        if self.dev_lines and self.dev_source:
            yield f"--dev_lines={self.dev_lines} holds lines out of the training text: leave it or --dev_source out"
