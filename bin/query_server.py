"""t2t_ext-query-server: translates through a model that TensorFlow Serving serves."""

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from t2t_ext.bin._flags import FlagParser, add_flag, at_least, run_main
from t2t_ext.data.corpora import text_lines
from t2t_ext.data.corpora.text_lines import STANDARD, one_line
from t2t_ext.errors import UserError
from t2t_ext.io import log
from t2t_ext.serving.client import DEFAULT_TIMEOUT_SECS, Client, Translation, make_client

_EXAMPLES = """\
  t2t_ext-query-server --server=localhost:8500 --servable_name=t2t_ext
  t2t_ext-query-server --server=localhost:8501 --rest --servable_name=t2t_ext --inputs_once="Guten Morgen."
  t2t_ext-query-server --server=localhost:8500 --servable_name=t2t_ext < in.txt > out.txt
  t2t_ext-query-server --server=localhost:8500 --servable_name=t2t_ext --features=images.npz
"""


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    parser = FlagParser(
        "t2t_ext-query-server",
        "Translates through a model that TensorFlow Serving serves: what is typed, or standard input line by line.",
        examples=_EXAMPLES,
    )
    group = parser.group("Server")
    add_flag(group, "server", "", "Its address; gRPC unless --rest or http://.", metavar="HOST:PORT", required=True)
    add_flag(group, "servable_name", "t2t_ext", "The model's name on the server.", metavar="NAME")
    add_flag(group, "servable_version", None, "The model's version; where not given, the newest.", kind=at_least(1))
    add_flag(group, "rest", False, "Use the REST API instead of gRPC.")
    add_flag(group, "timeout_secs", DEFAULT_TIMEOUT_SECS, "Longest time that a request may take.", metavar="SECONDS")
    group = parser.group("Text")
    add_flag(group, "inputs_once", "", "Translate this and leave.", metavar="TEXT")
    add_flag(
        group,
        "features",
        "",
        "Of a model that reads feature vectors: .npz, .npy, .tsv or a folder (docs/captioning.md), in place of lines.",
        metavar="FILE",
    )
    add_flag(group, "nbest", False, "All translations kept by the search, each with its score.")
    add_flag(group, "align", False, "After each translation its word alignment, source-target pairs such as 0-0 2-1.")
    add_flag(
        group, "batch_size", 32, "Lines sent in one request, where they do not come from a terminal.", kind=at_least(1)
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_main(lambda: _main(build_parser().parse_args(argv)))


def _main(flags: argparse.Namespace) -> None:
    if flags.features and (flags.inputs_once or flags.align):
        wrong = "--inputs_once" if flags.inputs_once else "--align"
        raise UserError(f"{wrong} is for text; with --features there is none. Leave one of them out.")
    sources = _features(flags.features) if flags.features else iter(())
    client = make_client(
        flags.server,
        flags.servable_name,
        rest=flags.rest,
        timeout_secs=flags.timeout_secs,
        version=flags.servable_version,
    )
    with client:
        if flags.features:
            while batch := list(itertools.islice(sources, flags.batch_size)):
                _answer(client, batch, flags.nbest, False)
        elif flags.inputs_once:
            _answer(client, [flags.inputs_once], flags.nbest, flags.align)
        elif sys.stdin.isatty():
            for line in text_lines.typed_lines():
                try:
                    _answer(client, [line], flags.nbest, flags.align)
                except UserError as error:  # the next line may do better
                    log.error(str(error))
        else:
            lines = iter(text_lines.read(STANDARD).lines)
            while batch := list(itertools.islice(lines, flags.batch_size)):
                _answer(client, batch, flags.nbest, flags.align)


def _features(path: str) -> Iterator[Any]:
    """Yields the sources of a file of feature vectors, float32 [regions, F] each."""
    from t2t_ext.data.features.sources import read_sources

    yield from [source.rows for source in read_sources(path)]


def _answer(client: Client, lines: list[Any], nbest: bool, align: bool) -> None:
    found = client.nbest(lines) if nbest else client.translate(lines)
    rows = [row for rows in found for row in rows]
    alignments: list[str] = []
    if align:
        sources = [line for line, rows in zip(lines, found, strict=True) for _ in rows]
        alignments = client.align([(source, row.text) for source, row in zip(sources, rows, strict=True)])
    columns = zip(rows, alignments or itertools.repeat(None), strict=False)
    text_lines.write(STANDARD, (_line(row, nbest, alignment) for row, alignment in columns))


def _line(translation: Translation, with_score: bool, alignment: str | None) -> str:
    text = one_line(translation.text, tabs=alignment is None)
    text = f"{translation.score:.4f}\t{text}" if with_score else text
    return text if alignment is None else f"{text}\t{alignment}"


if __name__ == "__main__":
    raise SystemExit(main())
