"""How fast the garden's models are beside the Transformer of 6+6 layers at equal parameters, in one run.

    python benchmarks/garden.py                                       # all of them
    python benchmarks/garden.py --models=layer_coordination           # one beside the Transformer, about 3 minutes
    python benchmarks/garden.py --models=cross_view,dynamic_conv --parts=decode --precision=mixed_bfloat16 --rounds=15

All have the sizes of ``--hparams_set``, random weights, and as many parameters but for what the model itself adds:
layer-wise coordination has 14 layers in place of 6+6. They take turns (A B C A B C ...) in many short rounds; a ratio
is the median over the rounds of the ratio in a round. Where others use the machine, too, the ratios of processor time
(of all threads) say more than those of the clock.

train   Sentences a second of whole training steps (gradients and update), at equal sentences a batch.
decode  Sentences a second of the search of a batch, at equal beam and number of steps: EOS is banned.

"Arithmetic" is the model's multiplications of matrix products over the Transformer's, counted from the sizes; "of what
follows" is the measured ratio over the one that follows from the arithmetic (its reciprocal). Goals: layer-wise
coordination at least 0.95 of what follows, in both; cross-view decoding (gca, soft) at least 0.95 of the Transformer's
speed in training and 0.97 in decoding; dynamic convolution 0.85 in both. The context gate has none.
"""

import argparse
import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import _arithmetic
import _report
import _speed

_BASELINE = "transformer"
_PARTS = ("train", "decode")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A model of the benchmark.

    Attributes:
      model: Its registered name.
      changes: What differs from the sizes of ``--hparams_set``.
      goals: Part -> the ratio it is to reach; of what follows from the arithmetic where ``of_arithmetic``.
      of_arithmetic: See ``goals``.
    """

    model: str
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    goals: Mapping[str, float] = dataclasses.field(default_factory=dict)
    of_arithmetic: bool = False


ENTRIES = {
    _BASELINE: Entry("transformer"),
    "layer_coordination": Entry(
        "layer_coordination", {"num_hidden_layers": 14}, {"train": 0.95, "decode": 0.95}, of_arithmetic=True
    ),
    "cross_view": Entry(
        "cross_view_transformer", {"source_view": "gca", "integration": "soft"}, {"train": 0.95, "decode": 0.97}
    ),
    "dynamic_conv": Entry("dynamic_conv", {}, {"train": 0.85, "decode": 0.85}),
    "context_gate": Entry("context_gate_transformer"),
}


def main() -> None:
    """Measures, prints and stores."""
    args = _parser().parse_args()
    names = list(dict.fromkeys([_BASELINE, *filter(None, args.models.split(","))]))
    for flag, given, known in (("models", names, ENTRIES), ("parts", args.parts.split(","), _PARTS)):
        unknown = [name for name in given if name not in known]
        if unknown:
            raise SystemExit(f"--{flag}={getattr(args, flag)}: {unknown[0]!r} is none of {', '.join(known)}")
    from t2t_ext.bin._flags import start_tensorflow

    start_tensorflow(args.inter_op_parallelism_threads, args.intra_op_parallelism_threads)
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")  # many graphs of one function are meant here
    stored: dict[str, Any] = {}
    for precision in args.precision.split(","):
        for part in args.parts.split(","):
            print(f"{part} {precision}", flush=True)
            found = _measure(part, names, args, precision)
            _print(part, found)
            stored[f"{part} {precision}"] = found
    _report.write_report(args.out, _report.report({"configurations": stored}))
    print(f"written to {args.out}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    others = [name for name in ENTRIES if name != _BASELINE]
    parser.add_argument("--models", default=",".join(others), help="which of them, beside the Transformer")
    parser.add_argument("--parts", default=",".join(_PARTS), help=f"which of {', '.join(_PARTS)}")
    parser.add_argument("--hparams_set", default="transformer_iwslt_small", help="a set of the Transformer: the sizes")
    parser.add_argument("--vocab_size", type=int, default=8000)
    parser.add_argument("--precision", default="float32", help="A,B: several")
    parser.add_argument("--sentences", type=int, default=32, help="of a batch that is decoded")
    parser.add_argument("--source_length", type=int, default=16, help="tokens of every source sentence")
    parser.add_argument("--steps", type=int, default=20, help="tokens of every translation that is searched")
    parser.add_argument("--beam_size", type=int, default=4)
    parser.add_argument("--train_sentences", type=int, default=64, help="of a batch that is trained on")
    parser.add_argument("--target_length", type=int, default=16, help="tokens of every target that is trained on")
    parser.add_argument("--parallel_slices", type=int, default=1, help="as the hparam")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--intra_op_parallelism_threads", type=int, default=1)
    parser.add_argument("--inter_op_parallelism_threads", type=int, default=0, help="[TensorFlow's choice]")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("garden.json"), help="the report")
    return parser


def hparams_of(name: str, hparams_set: str, precision: str, **changes: Any) -> Any:
    """Returns the hparams of an entry with the sizes of a set of the Transformer."""
    entry = ENTRIES[name]
    return _speed.sized(entry.model, hparams_set, precision, **entry.changes, **changes)


def arithmetic(part: str, name: str, hparams: Any, args: argparse.Namespace) -> dict[str, float]:
    """Returns an entry's millions of multiplications by part of the model, for one sentence."""
    model = ENTRIES[name].model
    if part == "train":
        return _arithmetic.training(hparams, args.vocab_size, args.source_length, args.target_length, model)
    return _arithmetic.decoding(hparams, args.vocab_size, args.source_length, args.steps, args.beam_size, model)


def _measure(part: str, names: list[str], args: argparse.Namespace, precision: str) -> dict[str, Any]:
    """Times a part of all models, and counts what they multiply."""
    work, millions, parameters, squares = {}, {}, {}, {}
    for name in names:
        hparams = hparams_of(name, args.hparams_set, precision, parallel_slices=args.parallel_slices)
        model = _speed.build(ENTRIES[name].model, hparams, args.vocab_size)
        work[name] = _call(part, model, args)
        millions[name] = arithmetic(part, name, hparams, args)
        parameters[name] = model.count_params()
        squares[name] = _arithmetic.decoding_step_in_squares(hparams, ENTRIES[name].model)
    sentences = args.train_sentences if part == "train" else args.sentences
    found = _speed.take_turns(work, sentences, args.rounds)
    totals = {name: math.fsum(parts.values()) for name, parts in millions.items()}
    found["parameters"] = parameters
    found["million_multiplications"] = millions
    found["decoding_step_in_squares"] = squares
    found["arithmetic"] = {name: total / totals[_BASELINE] for name, total in totals.items()}
    for kind in ("ratios", "cpu_ratios"):
        found[f"{kind}_of_what_follows"] = {name: found[kind][name] * found["arithmetic"][name] for name in names}
    return found


def _call(part: str, model: Any, args: argparse.Namespace) -> Callable[[], Any]:
    """Returns what is timed of a model."""
    if part == "train":
        lengths = {"inputs": args.source_length, "targets": args.target_length}
        batch = {
            side: _speed.words(args.train_sentences, length, args.vocab_size, seed)
            for seed, (side, length) in enumerate(lengths.items())
        }
        return _speed.trainer(model, batch)
    inputs = _speed.words(args.sentences, args.source_length, args.vocab_size, seed=1)
    search = _speed.searcher(model, args.beam_size, 1, args.steps)
    return lambda: search(inputs).numpy()


def _print(part: str, found: Mapping[str, Any]) -> None:
    """Prints the figures of a part."""
    headings = ("", "parameters", "sentences/s", "ratio", "of CPU time", "arithmetic", "of what follows", "of CPU time")
    rows: list[tuple[Any, ...]] = [headings]
    for name, rate in found["sentences_per_second"].items():
        columns = ("ratios", "cpu_ratios", "arithmetic", "ratios_of_what_follows", "cpu_ratios_of_what_follows")
        rows.append((name, found["parameters"][name], rate, *(f"{found[column][name]:.3f}" for column in columns)))
    _report.print_table(rows)
    if part == "decode":
        squares = ", ".join(f"{name} {count:.0f}" for name, count in found["decoding_step_in_squares"].items())
        print(f"projections and feed-forward layers of a step, in squares of the hidden size: {squares}")
    for name in found["ratios"]:
        goal = ENTRIES[name].goals.get(part)
        if goal:
            ending = "_of_what_follows" if ENTRIES[name].of_arithmetic else ""
            clock, cpu = (found[f"{kind}{ending}"][name] for kind in ("ratios", "cpu_ratios"))
            what = "of what follows from its arithmetic" if ending else "of the Transformer's speed"
            print(f"{name}: {clock:.3f} ({cpu:.3f} by processor time) {what}; the goal is at least {goal}")


if __name__ == "__main__":
    main()
