"""t2t_ext-exporter: writes a trained run as a SavedModel for TensorFlow Serving."""

import argparse
import pathlib
from collections.abc import Sequence

from t2t_ext.bin._flag_groups import add_decode_flags, add_run_flags
from t2t_ext.bin._flags import FlagParser, add_flag, at_least, run_main, start_tensorflow
from t2t_ext.bin._text_lines import warn

_EXAMPLES = """\
  t2t_ext-exporter --output_dir=RUN --export_dir=EXPORT
  t2t_ext-exporter --output_dir=RUN --export_dir=EXPORT --checkpoint_path=averaged --decode_hparams="beam_size=4"
"""


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    parser = FlagParser(
        "t2t_ext-exporter", "Writes a trained run as a SavedModel for TensorFlow Serving.", examples=_EXAMPLES
    )
    add_run_flags(parser)
    group = parser.group("Output")
    add_flag(
        group,
        "export_dir",
        "",
        "TF Serving's model base path; the SavedModel is written to a directory in it, named by its version. Where not "
        "given, RUN/export.",
        metavar="EXPORT",
    )
    add_flag(
        group,
        "export_version",
        None,
        "The version, at least 1; where not given, the checkpoint's step.",
        kind=at_least(1),
        metavar="N",
    )
    add_flag(group, "overwrite", False, "Replace this version if it exists.")
    add_decode_flags(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    return run_main(lambda: _main(build_parser().parse_args(argv)))


def _main(flags: argparse.Namespace) -> None:
    from t2t_ext.hyperparameters import resolve_decode_hparams
    from t2t_ext.persistence import checkpoints
    from t2t_ext.persistence.run_directory import RunDirectory
    from t2t_ext.serving.versions import check_destination

    decode_hparams = resolve_decode_hparams(flags.decode_hparams)
    config = RunDirectory.open(flags.output_dir).config
    checkpoint = checkpoints.resolve_checkpoint(flags.output_dir, flags.checkpoint_path or None, warn=warn)
    step = checkpoints.read_info(checkpoint).step
    export_dir = flags.export_dir or pathlib.Path(flags.output_dir, "export")
    version = flags.export_version or max(step, 1)
    check_destination(export_dir, version, overwrite=flags.overwrite)

    start_tensorflow()
    from t2t_ext.decoding.translator import Translator
    from t2t_ext.serving.export import export

    translator = Translator.load(flags.output_dir, checkpoint, decode_hparams)
    made_from = {
        "run": str(flags.output_dir),
        "checkpoint": checkpoint.name,
        "step": step,
        "problem": config.problem,
        "model": config.model,
        "hparams_set": config.hparams_set,
        "vocabularies": config.vocabularies,
        "decode_hparams": decode_hparams.to_dict(),
    }
    path = export(translator, export_dir, version=version, made_from=made_from, overwrite=flags.overwrite)
    print(f"Exported step {step} of {flags.output_dir} to {path}; docs/serving.md says how to serve it.")


if __name__ == "__main__":
    raise SystemExit(main())
