"""t2t_ext-analyze: shows what a trained model does inside. Each analysis is a module with its own flags."""

import importlib
import sys
from collections.abc import Mapping, Sequence

from t2t_ext.bin._flags import FlagParser, run_main
from t2t_ext.errors import UserError, suggest

# Name -> module of t2t_ext.bin with ``build_parser`` and ``run``, and what it shows.
ANALYSES: Mapping[str, tuple[str, str]] = {
    "attention": ("_analyze_attention", "attention in a sentence, as pictures, tables and one page"),
    "grad_norms": ("_analyze_grad_norms", "gradient norms of the layers of runs, during training or at a checkpoint"),
    "probing": ("_analyze_probing", "what encoder states reveal about a sentence: SentEval's ten probing tasks"),
    "divergence": ("_analyze_divergence", "how much local and global attention of dual contextual modules differ"),
    "shortlist": ("_analyze_shortlist", "which target subwords a sentence may need, as a file for faster decoding"),
}
_EXAMPLES = """\
  t2t_ext-analyze attention --output_dir=RUN --sentence="Ein Mann schläft ."
  t2t_ext-analyze grad_norms --output_dir=BASELINE --output_dir=CROSS_VIEW
  t2t_ext-analyze probing --output_dir=BASELINE --output_dir=ENC_DC --probing_dir=senteval/probing
  t2t_ext-analyze divergence --output_dir=F2,F3,F5,F8 --split=test
  t2t_ext-analyze shortlist --output_dir=RUN
  t2t_ext-analyze attention --help
"""


def build_parser(analysis: str = "") -> FlagParser:
    """Returns the flags of an analysis, or of the command itself if no analysis is given."""
    if analysis:
        return importlib.import_module(f"t2t_ext.bin.{ANALYSES[analysis][0]}").build_parser()
    listed = "".join(f"\n  {name}: {words}" for name, (_, words) in ANALYSES.items())
    parser = FlagParser("t2t_ext-analyze", "Shows what a trained model does inside.", examples=_EXAMPLES)
    parser.take_arguments(
        "analysis",
        f"what to analyze; each analysis has its own flags, see ANALYSIS --help.{listed}",
        metavar="ANALYSIS",
    )
    parser.usage = "t2t_ext-analyze ANALYSIS --flag=value ..."  # the analysis comes first
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_main(lambda: _main(sys.argv[1:] if argv is None else list(argv)), is_process=argv is None)


def _main(argv: list[str]) -> None:
    if not argv or argv[0] in ("--help", "-h", "--version"):
        build_parser().parse_args(argv)
    listed = ", ".join(ANALYSES)
    if not argv or argv[0].startswith("-"):
        raise UserError(f"The analysis comes first: t2t_ext-analyze NAME --flag=value ..., NAME being one of {listed}.")
    name = argv[0].replace("-", "_")
    if name not in ANALYSES:
        raise UserError(f"There is no analysis {argv[0]!r}; there are {listed}.{suggest(name, ANALYSES)}")
    module = importlib.import_module(f"t2t_ext.bin.{ANALYSES[name][0]}")
    module.run(module.build_parser().parse_args(argv[1:]))


if __name__ == "__main__":
    raise SystemExit(main())
