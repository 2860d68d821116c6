"""t2t_ext-analyze shortlist: makes a vocabulary shortlist from a run's training data."""

import argparse

from t2t_ext.bin._flag_groups import USER_DIRECTORY
from t2t_ext.bin._flags import Flag, FlagParser, FlagTable
from t2t_ext.bin._run_text import keep_runs, run_texts
from t2t_ext.data.corpora.text_lines import STANDARD
from t2t_ext.errors import UserError
from t2t_ext.io import log, outputs
from t2t_ext.runs.run_directory import RunDirectory

_NAME = "t2t_ext-analyze shortlist"
_EXAMPLES = """\
  t2t_ext-analyze shortlist --output_dir=RUN
  t2t_ext-analyze shortlist --output_dir=RUN --candidates=20 --shortlist_file=small.npz --vmap_file=vmap.txt
  t2t_ext-decoder --output_dir=RUN --decode_from_file=in.txt --decode_hparams="shortlist=RUN/shortlist.npz"
"""
_FLAGS: FlagTable = {
    "What": {"output_dir=RUN": Flag("Run directory written by t2t_ext-trainer.", required=True), **USER_DIRECTORY},
    "Pairs": {
        "data_dir=DIR": "Data directory of the run, if the data have moved since training.",
        "max_examples": Flag(
            "Maximum number of training examples to count; if there are more, this many are taken, evenly spaced.",
            500_000,
            minimum=1,
        ),
    },
    "Candidates": {
        "frequent": Flag(
            "How many of the most frequent target subwords are candidates for every sentence.",
            100,
            minimum=0,
            maximum=10_000_000,
        ),
        "candidates": Flag(
            "How many candidates, the most probable ones, each source subword has.", 50, minimum=1, maximum=10_000
        ),
    },
    "Output": {
        "shortlist_file=FILE": "Output file, to be given as shortlist in --decode_hparams; default: RUN/shortlist.npz.",
        "vmap_file=FILE": "Also write the shortlist to this file, in the form of CTranslate2's vmap.txt.",
    },
}


def build_parser() -> FlagParser:
    """Returns the flags of the command."""
    description = (
        "Finds the target subwords that sentences may need, from the run's training data (IBM Model 1), for faster "
        "decoding. It needs no checkpoint."
    )
    return FlagParser(_NAME, description, _FLAGS, examples=_EXAMPLES)


def run(flags: argparse.Namespace) -> None:
    """Makes the shortlist."""
    directory = RunDirectory.open(flags.output_dir)
    directory.require_text(_NAME)
    output = flags.shortlist_file or str(directory.path / "shortlist.npz")
    if STANDARD in (output, flags.vmap_file):
        raise UserError("A shortlist is not written to standard output: give --shortlist_file and --vmap_file names.")
    outputs.check_all([output, flags.vmap_file], [])
    keep_runs([directory], (output, flags.vmap_file))
    from t2t_ext.data.datasets.example_store import ExampleStore
    from t2t_ext.data.datasets.shortlist import Shortlist

    store = ExampleStore.load(run_texts(directory, flags).data(), "train")
    source, target = directory.text_encoders()
    shortlist = Shortlist.make(
        *(store, source, target),
        frequent=flags.frequent,
        candidates=flags.candidates,
        max_examples=flags.max_examples,
    )
    shortlist.write(output)
    if flags.vmap_file:
        shortlist.write_vmap(flags.vmap_file, source, target)
    kept = f"{len(shortlist.always):,} subwords for every sentence, up to {flags.candidates} for each of its subwords"
    log.info(f"{kept} -> {output}{f' and {flags.vmap_file}' if flags.vmap_file else ''}")
