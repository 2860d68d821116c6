"""t2t_ext-query-server: translates with a model served by TensorFlow Serving."""

import argparse
import itertools
import sys
from collections.abc import Iterator
from typing import Any

from t2t_ext.bin._flags import Flag, FlagParser, FlagTable, command
from t2t_ext.data.corpora import text_lines
from t2t_ext.data.corpora.text_lines import STANDARD, one_line
from t2t_ext.errors import UserError
from t2t_ext.io import log
from t2t_ext.pages import page
from t2t_ext.serving.client import DEFAULT_TIMEOUT_SECS, Client, Translation, make_client

_EXAMPLES = """\
  t2t_ext-query-server --server=localhost:8500 --servable_name=t2t_ext
  t2t_ext-query-server --server=localhost:8501 --rest --servable_name=t2t_ext --inputs_once="Guten Morgen."
  t2t_ext-query-server --server=localhost:8500 --servable_name=t2t_ext < in.txt > out.txt
  t2t_ext-query-server --server=localhost:8500 --servable_name=t2t_ext --features=images.npz
"""
_FLAGS: FlagTable = {
    "Server": {
        "server=HOST:PORT": Flag("Server address; gRPC unless --rest or http:// is given.", required=True),
        "servable_name=NAME": Flag("Name of the model on the server.", "t2t_ext"),
        "servable_version": Flag("Version of the model; default: the newest.", None, minimum=1, maximum=2**63 - 1),
        "rest": "Use the REST API instead of gRPC.",
        "timeout_secs=SECONDS": Flag("Maximum time for a request.", DEFAULT_TIMEOUT_SECS, maximum=86_400),
    },
    "Text": {
        "inputs_once=TEXT": "Translate this text and exit.",
        "features=FILE": "For a model that reads feature vectors, input instead of lines: a .npz, .npy or .tsv file "
        f"or a folder; for the contents see {page('captioning')}.",
        "nbest": "Print all translations kept by the search, each with its score.",
        "align": "Print after each translation its word alignment, as source-target pairs such as 0-0 2-1.",
        "batch_size": Flag(
            "Number of lines to send in one request, unless they come from a terminal.", 32, minimum=1, maximum=100_000
        ),
    },
}


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    description = "Translates with a model served by TensorFlow Serving: what is typed, or standard input line by line."
    return FlagParser("t2t_ext-query-server", description, _FLAGS, examples=_EXAMPLES)


@command(build_parser)
def main(flags: argparse.Namespace) -> None:
    """Translates the input that the flags name."""
    if flags.features and (flags.inputs_once or flags.align):
        wrong = "--inputs_once" if flags.inputs_once else "--align"
        raise UserError(f"{wrong} is for text; with --features there is none. Leave one of them out.")
    sources: Iterator[Any] | None = None
    if flags.features:
        from t2t_ext.data.features.sources import read_sources

        sources = iter([source.rows for source in read_sources(flags.features)])  # float32 [regions, F] each
    client = make_client(
        flags.server,
        flags.servable_name,
        rest=flags.rest,
        timeout_secs=flags.timeout_secs,
        version=flags.servable_version,
    )
    with client:
        if "inputs_once" in flags.given:  # even if it is empty: standard input is then not read
            _answer(client, [flags.inputs_once], flags.nbest, flags.align)
        elif sources is None and sys.stdin.isatty():
            for line in text_lines.typed_lines():
                try:
                    _answer(client, [line], flags.nbest, flags.align)
                except UserError as error:  # the next line may succeed
                    log.error(str(error))
        else:
            sources = sources or text_lines.stream(STANDARD)
            while batch := list(itertools.islice(sources, flags.batch_size)):
                _answer(client, batch, flags.nbest, flags.align)


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
