"""Options of ``translate_parallel_text``, the user's own text; flags and checks are generated from them."""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

from t2t_ext.config.strict_params import StrictParams, hparam

GROUP = "Your own text (--problem=translate_parallel_text)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnTextOptions(StrictParams):
    """Options of ``translate_parallel_text``; those without a group can only be set in ``--problem_options``.

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
        "Without --dev_source, hold out this many lines of the training text as the development set, chosen at random "
        "with a fixed seed; 0 = 5%, at most 2,000. Training lines that repeat a held-out line word for word stay.",
        minimum=0,
        group=GROUP,
    )
    train_weights: str = hparam(
        "",
        "How many times to use the pairs of each training file, fractions included; 0 = leave the file out.",
        group=GROUP,
        metavar="1,0.5,...",
    )
    train_tags: str = hparam(
        "",
        "Tag that begins each source line, one per training file, such as <2de>,<2fr>. NAME_rev then needs data of its "
        "own, with the tags on its own source side.",
        group=GROUP,
        metavar="<A>,<B>,...",
    )
    default_tag: str = hparam(
        "",
        "Tag for development and test text and for text translated later; held-out lines have the tag of their file.",
        group=GROUP,
        metavar="<A>",
    )
    source_language: str = hparam("", "Tag of the source language, such as de.", group=GROUP, metavar="TAG")
    target_language: str = hparam("", "Tag of the target language.", group=GROUP, metavar="TAG")
    columns: str = hparam(
        "",
        "Columns of source and target: in tab-separated files numbers from 1 (columns=2,4), in Parquet and JSON lines "
        "names (columns=article,highlights).",
    )
    encodings: str = hparam("", "Encodings that files may have besides UTF-8: encodings=gb18030,big5hkscs.")

    def validate(self) -> Iterator[str]:
        """Yields contradictions between fields."""
        if self.dev_lines and self.dev_source:
            yield f"--dev_lines={self.dev_lines} holds lines out of the training text: leave it or --dev_source out"
