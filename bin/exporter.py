"""t2t_ext-exporter: writes a trained run as a SavedModel for TensorFlow Serving, or as a preset for KerasHub."""

import argparse
import pathlib
from collections.abc import Sequence
from typing import Any

from t2t_ext.bin._flag_groups import ALIGNMENT_FLAGS, DECODE_FLAGS, RUN_FLAGS, alignment_settings
from t2t_ext.bin._flags import Flag, FlagParser, FlagTable, command, start_tensorflow
from t2t_ext.bin._run_text import keep_runs
from t2t_ext.errors import UserError, require_package
from t2t_ext.io import log
from t2t_ext.pages import page

_EXAMPLES = """\
  t2t_ext-exporter --output_dir=RUN --export_dir=EXPORT
  t2t_ext-exporter --output_dir=RUN --export_dir=EXPORT --checkpoint_path=averaged --decode_hparams="beam_size=4"
  t2t_ext-exporter --output_dir=RUN,OTHER --export_dir=EXPORT
  t2t_ext-exporter --output_dir=RUN --export_dir=PRESET --format=keras_hub
"""
SAVED_MODEL, KERAS_HUB = FORMATS = ("saved_model", "keras_hub")
_FLAGS: FlagTable = {
    "Output": {
        "export_dir=EXPORT": "Model base path for TensorFlow Serving; the SavedModel is written to a subdirectory "
        "named after its version. Default: RUN/export, for a preset RUN/keras_hub.",
        "export_version": Flag(
            "Version, at least 1; default: the checkpoint's step.", None, minimum=1, maximum=2**63 - 1
        ),
        "overwrite": "Replace this version, or preset folder, if it exists.",
        "format": Flag(
            "What to write: a SavedModel (saved_model), or a preset folder for KerasHub's Seq2SeqLM.from_preset, in "
            "export_dir itself (keras_hub).",
            SAVED_MODEL,
            choices=FORMATS,
        ),
    },
}


def build_parser() -> FlagParser:
    """Returns the command's flags."""
    description = "Writes a trained run as a SavedModel for TensorFlow Serving, or as a preset for KerasHub."
    tables = RUN_FLAGS, _FLAGS, DECODE_FLAGS, ALIGNMENT_FLAGS
    return FlagParser("t2t_ext-exporter", description, *tables, examples=_EXAMPLES)


@command(build_parser)
def main(flags: argparse.Namespace) -> None:
    """Exports as the flags say."""
    from t2t_ext.config.decode import resolve_decode_hparams
    from t2t_ext.runs import checkpoints
    from t2t_ext.runs.chosen_runs import choose_runs, normalized_weights
    from t2t_ext.search.directions import check_directions, directions_of
    from t2t_ext.serving.served_text import check_destination

    decode_hparams = resolve_decode_hparams(flags.decode_hparams)
    if idle := _idle(flags, decode_hparams):
        log.warning(f"{' and '.join(idle)} of --decode_hparams change nothing in an export")
    chosen = choose_runs(flags.output_dir, flags.checkpoint_path or None, warn=log.warning)
    check_directions(decode_hparams, directions_of(chosen[0].run.hparams()))
    weights = normalized_weights(flags.ensemble_weights or None, len(chosen))
    alignment = alignment_settings(flags)
    if not flags.export_dir and len({each.run.path for each in chosen}) > 1:
        raise UserError("Several runs are exported together: say where to, --export_dir=EXPORT.")
    steps = [checkpoints.read_info(each.checkpoint).step for each in chosen]
    names = ", ".join(f"step {step} of {each.run.path}" for each, step in zip(chosen, steps, strict=True))
    keep_runs([each.run for each in chosen], [str(flags.export_dir or "")])
    if flags.format == KERAS_HUB:
        path = _write_preset(flags, chosen, weights, decode_hparams)
        print(f"Exported {names} to {path}; for loading it in KerasHub see {page('keras')}.")
        return
    export_dir = flags.export_dir or chosen[0].run.path / "export"
    version = flags.export_version or max(*steps, 1)
    check_destination(export_dir, version, overwrite=flags.overwrite)

    log.info(f"Exporting {names} to {export_dir}/{version}: making a graph of each signature takes up to some minutes")
    start_tensorflow()
    from t2t_ext.serving.export import export
    from t2t_ext.translation.alignment import AlignmentConfig
    from t2t_ext.translation.translator import Translator

    translator = Translator.of_runs(
        chosen, decode_hparams, ensemble_weights=weights, alignment=AlignmentConfig(**alignment)
    )
    if {"alignment_layer", "alignment_heads"} & set(flags.given):
        translator.check_alignment()
    members = [_description(each, step) for each, step in zip(chosen, steps, strict=True)]
    made_from = {**members[0], "decode_hparams": decode_hparams.to_dict(), "alignment": alignment}
    if len(members) > 1:
        made_from["ensemble"] = [{**member, "weight": weight} for member, weight in zip(members, weights, strict=True)]
    path = export(translator, export_dir, version=version, made_from=made_from, overwrite=flags.overwrite)
    print(f"Exported {names} to {path}; for serving it see {page('serving')}.")


def _idle(flags: argparse.Namespace, decode_hparams: Any) -> list[str]:
    """Returns the decode hparams that are set but have no effect on what is exported.

    A SavedModel takes batches as they come. Its ``nbest`` gives the whole beam, or ``num_hypotheses`` samples.
    """
    names = ["return_beams", "write_beam_scores"]
    names += ["batch_size"] if flags.format == SAVED_MODEL else []
    names += [] if flags.format == SAVED_MODEL and decode_hparams.sampling_method == "random" else ["num_hypotheses"]
    return list(decode_hparams.changed(*names))


def _write_preset(flags: argparse.Namespace, chosen: Sequence[Any], weights: Any, decode_hparams: Any) -> pathlib.Path:
    """Writes the preset folder for KerasHub and returns it."""
    require_package("keras_hub", "keras-hub", f"--format={KERAS_HUB}")
    folder = pathlib.Path(flags.export_dir or chosen[0].run.path / "keras_hub")
    for name in sorted({"alignment_heads", "alignment_layer", "export_version"} & flags.given):
        raise UserError(f"--{name} has no effect on a preset folder: leave it out, or --format={KERAS_HUB}.")
    if decode_hparams.shortlist:
        raise UserError(
            f"shortlist={decode_hparams.shortlist}: a preset folder holds no shortlist and would look for that file "
            f"wherever it is used. Leave it out; or leave out --format={KERAS_HUB}, as a SavedModel holds it."
        )
    if folder.exists() and (folder.is_file() or any(folder.iterdir())):
        if not (folder / "task.json").is_file():
            raise UserError(f"{folder} holds something else than a preset: give another --export_dir.")
        if not flags.overwrite:
            raise UserError(f"{folder} exists already. Give --overwrite to replace it, or another --export_dir.")
    start_tensorflow()
    from t2t_ext.keras_hub import write_preset
    from t2t_ext.translation.translator import Translator

    translator = Translator.of_runs(chosen, decode_hparams, ensemble_weights=weights, for_training=True)
    write_preset(translator, chosen[0].run.config.model, folder)
    return folder


def _description(chosen: Any, step: int) -> dict[str, Any]:
    """Returns the entries of ``export.json`` about a run and its checkpoint."""
    config = chosen.run.config
    return {
        "run": str(chosen.run.path),
        "checkpoint": chosen.checkpoint.name,
        "step": step,
        "problem": config.problem,
        "model": config.model,
        "hparams_set": config.hparams_set,
        "vocabularies": config.vocabularies,
        **({"source_feature_size": config.source_feature_size} if config.source_feature_size else {}),
    }


if __name__ == "__main__":
    raise SystemExit(main())
