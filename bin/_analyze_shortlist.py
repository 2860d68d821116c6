"""t2t_ext-analyze shortlist: makes a shortlist of the vocabulary of a run's training data."""

import argparse

from t2t_ext.bin._analyzed_runs import add_run_flags, given_runs
from t2t_ext.bin._flags import Flag, FlagParser, FlagTable
from t2t_ext.bin._run_text import run_texts
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
    "Pairs": {
        "data_dir=DIR": "The run's data, where they have moved since training.",
        "max_examples": Flag("Of more training examples, so many are counted, evenly spaced.", 500_000, minimum=1),
    },
    "Candidates": {
        "frequent": Flag(
            "The most frequent target subwords that are candidates of every sentence.",
            100,
            minimum=0,
            maximum=10_000_000,
        ),
        "candidates": Flag(
            "Candidates of every source subword, the most probable ones.", 50, minimum=1, maximum=10_000
        ),
    },
    "Output": {
        "shortlist_file=FILE": "What the decode hparam shortlist reads; where not given, RUN/shortlist.npz.",
        "vmap_file=FILE": "The same as CTranslate2 reads it, its vmap.txt.",
    },
}


def build_parser() -> FlagParser:
    """Returns the flags of the command."""
    description = (
        "Finds the target subwords that sentences may need, from the run's training data (IBM Model 1), for faster "
        "decoding. It looks at no checkpoint."
    )
    parser = FlagParser(_NAME, description, examples=_EXAMPLES)
    add_run_flags(parser, "their directories")
    parser.add(_FLAGS)
    return parser


def run(flags: argparse.Namespace) -> None:
    """Makes the shortlist."""
    paths = given_runs(flags)
    if len(paths) != 1 or "," in paths[0]:
        raise UserError("A shortlist is made of one run's data: --output_dir=RUN.")
    directory = RunDirectory.open(paths[0])
    directory.require_text(_NAME)
    output = flags.shortlist_file or str(directory.path / "shortlist.npz")
    outputs.check_all([output, flags.vmap_file], [])
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
