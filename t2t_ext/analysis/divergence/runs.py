"""Measures the divergence of local and global attention in runs."""

from collections.abc import Callable, Sequence

from t2t_ext import registry
from t2t_ext.analysis.divergence.measure import check_model, measure, stacks_with_modules
from t2t_ext.analysis.divergence.report import Measured
from t2t_ext.analysis.runs import AnalyzedRun
from t2t_ext.data.text.text_encoder import SubwordEncoder
from t2t_ext.errors import UserError
from t2t_ext.models.seq2seq import Seq2Seq
from t2t_ext.translation.translator import Translator


def check_runs(runs: Sequence[AnalyzedRun], with_references: bool) -> list[str]:
    """Checks, before the models are loaded, that the runs have modules that can be measured.

    Returns notes on what is not measured, such as decoders if there are no references.

    Raises:
      UserError: A run has no such module.
    """
    notes = []
    for run in runs:
        hparams = run.directory.hparams()
        try:
            model_class = registry.model(run.directory.config.model)
            target_sides = model_class.sides(hparams).target_sides
            stacks = stacks_with_modules(hparams, with_references, target_sides)
            check_model(model_class)
        except UserError as error:
            raise UserError(f"{run.directory.path}: {error}") from error
        if getattr(hparams, "dual_decoder_layers", ()) and "decoder" not in stacks:
            why = "the model has two targets" if target_sides > 1 else "give --reference_file, or --split"
            notes.append(f"{run.label}: the modules of its decoder are not measured: {why}")
    return notes


def measure_run(
    run: AnalyzedRun,
    lines: Sequence[str],
    references: Sequence[str] | None,
    heads: str,
    max_subwords: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Measured, list[str]]:
    """Loads a run and measures it; also returns notes on what was left out.

    Without references only the encoder is measured. ``heads`` is a key of ``HEADS``. Empty sentences and those with
    more than ``max_subwords`` subwords on either side are left out. ``progress`` is called with (sentences done,
    sentences in all).

    Raises:
      UserError: No sentence is left, or the model has no such module.
    """
    translator = Translator.load(run.directory.path, run.checkpoint, "precision=float32")
    model = translator.model
    assert isinstance(model, Seq2Seq)  # a single run, not an ensemble
    sides = [_ids(translator.source_encoder, lines)]
    if references is not None:
        targets = _ids(translator.target_encoder, references)
        backward = translator.target_direction == "r2l"
        sides.append([ids[-2::-1] + ids[-1:] if backward else ids for ids in targets])
    kept = usable(sides, max_subwords)
    if not kept:
        raise UserError(
            f"{run.directory.path}: no sentence has from 1 to {max_subwords} subwords (--max_subwords) on every side: "
            "there is nothing to measure on."
        )
    notes = []
    if len(kept) < len(lines):
        notes.append(
            f"{run.label}: {len(lines) - len(kept)} of {len(lines)} sentences are empty or have more than "
            f"{max_subwords} subwords on a side and are left out"
        )
    sources, *targets_kept = ([side[number] for number in kept] for side in sides)
    stacks = measure(model, sources, targets_kept[0] if targets_kept else None, heads, progress)
    kernel_size = run.directory.hparams().dc_kernel_size
    return Measured(run.label, run.directory.path, run.checkpoint.name, kernel_size, stacks), notes


def usable(sides: Sequence[Sequence[Sequence[int]]], most: int) -> list[int]:
    """Returns the numbers, from 0, of the sentences with 1 to ``most`` subwords on every side, given ids with EOS."""
    rows = enumerate(zip(*sides, strict=True))
    return [number for number, row in rows if all(1 <= len(ids) - 1 <= most for ids in row)]


def _ids(encoder: SubwordEncoder, lines: Sequence[str]) -> list[list[int]]:
    return encoder.encode_batch(encoder.prepare(lines), add_eos=True)
