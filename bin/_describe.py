"""``t2t_ext-trainer --describe``: a diagram of the model and a table of its variables."""

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from t2t_ext import registry
from t2t_ext.bin import _flag_groups
from t2t_ext.bin._flags import start_tensorflow
from t2t_ext.config.hyperparameters import HParams
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.data.features.types import Floats
from t2t_ext.errors import UserError
from t2t_ext.io import files, outputs
from t2t_ext.models import families
from t2t_ext.runs.run_directory import RunDirectory

_LEAST_FOLDED = 40  # columns; if the last cell has fewer, its wrapped lines begin near the left margin


def describe(args: argparse.Namespace, hparams: HParams) -> None:
    """Prints the model's diagram and its variables (``--describe``), and draws the diagram (``--describe_svg``)."""
    svg = args.describe_svg
    if svg:
        outputs.check(svg)
    name, arguments = _model_arguments(args)
    if not (args.output_dir and RunDirectory.exists(args.output_dir)):
        families.check_hparams(name, hparams, args.hparams_set)
    start_tensorflow()
    import tensorflow as tf

    from t2t_ext.analysis.diagram.model import diagram_of

    with tf.Graph().as_default():  # weights are declared but never filled, so that no size needs memory
        model = registry.model(name)(hparams, **arguments)
        model.build()
        diagram = diagram_of(model, name)
    if svg:
        from t2t_ext.analysis.diagram.svg import diagram_svg

        files.write_text_atomically(svg, diagram_svg(diagram))
        print(f"diagram: {svg}")
    if args.describe:
        from t2t_ext.analysis.diagram.text import diagram_text

        print(diagram_text(diagram), end="\n\n")
        rows = model.describe()
        count = sum(r.parameters for r in rows)
        print_table(
            [
                ("variable", "part", "shape", "type", "parameters"),
                *((r.path, r.part, " x ".join(map(str, r.shape)), r.dtype, f"{r.parameters:,}") for r in rows),
                ("all", "", "", "", f"{count:,}"),
            ]
        )
        print(f"\nparameters: {count / 1e6:.2f}M")
        print(f"weights that are evaluated, kept as the best and translate: {hparams.weights_for_users}")


def print_table(rows: Iterable[Sequence[Any]]) -> None:
    """Prints rows of cells in columns; on a terminal, lines that are too long are wrapped with an indent."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    before_last = sum(width + 2 for width in widths[:-1])
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    indent = before_last if before_last + _LEAST_FOLDED <= columns else 4
    for row in cells:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        if columns:
            line = textwrap.fill(line, columns, subsequent_indent=" " * indent, break_on_hyphens=False)
        print(line)


def _model_arguments(args: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Returns the model's name and its arguments besides hparams, from the run or from a problem."""
    if args.output_dir and RunDirectory.exists(args.output_dir):
        stored = RunDirectory.open(args.output_dir)
        name, sizes = stored.config.model, [encoder.vocab_size for encoder in stored.text_encoders()]
        joint = len(set(stored.config.vocabularies.values())) == 1
        if args.vocab_size:
            raise UserError(
                f"--vocab_size={args.vocab_size}: the run {stored.path} has its own subwords; leave it out."
            )
        feature_size = stored.config.source_feature_size
    else:
        if not args.model or not (args.problem or args.vocab_size):
            raise UserError(
                "--describe needs --model, and the vocabulary's size: --vocab_size=N or --problem=NAME; or all of it "
                "from a run, --output_dir=RUN."
            )
        if args.vocab_size and args.data_dir:
            raise UserError(
                f"--vocab_size={args.vocab_size} and --data_dir={args.data_dir} both say how many subwords there are: "
                "leave one out."
            )
        name, feature_size, joint = args.model, 0, True
        if args.problem:
            problem = registry.problem(args.problem, **_flag_groups.problem_options(args))
            source = problem.features().get("inputs")
            feature_size, joint = source.depth if isinstance(source, Floats) else 0, problem.joint_vocab
        if args.vocab_size:
            sizes, joint = [args.vocab_size] * 2, joint and not args.separate_vocab
        elif args.data_dir:
            encoders = GeneratedData.open(problem, args.data_dir).text_encoders()
            sizes = [encoder.vocab_size for encoder in encoders]
            joint = encoders[0].sha256 == encoders[1].sha256
        else:
            print(f"No --data_dir: the vocabulary is taken to have {problem.approx_vocab_size:,} subwords.")
            sizes, joint = [problem.approx_vocab_size] * 2, joint and not args.separate_vocab
    return name, {
        "source_vocab_size": sizes[0],
        "target_vocab_size": sizes[1],
        "joint_vocabulary": joint,
        "source_feature_size": feature_size,
    }
