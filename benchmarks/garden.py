"""Compares the speed of the garden's models with a Transformer of 6+6 layers at equal parameters, in one run.

    python benchmarks/garden.py                                       # all models
    python benchmarks/garden.py --models=layer_coordination           # one model and the Transformer, about 3 minutes
    python benchmarks/garden.py --models=cross_view,dynamic_conv --parts=decode --precision=mixed_bfloat16 --rounds=15
    python benchmarks/garden.py --table=W --tmp_dir=RAW               # trains all of them, some hours, for the table
    python benchmarks/garden.py --table=W --recipe=garden_dual_context --tmp_dir=RAW      # another table of recipes/

All models have the sizes of ``--hparams_set``, random weights, and equally many parameters except for those that a
model itself adds; layer-wise coordination has 14 layers in place of 6+6. They take turns (A B C A B C ...) in many
short rounds; a ratio is the median over the rounds of the ratio in a round. If others use the machine as well, the
ratios of CPU time (of all threads) are more meaningful than those of wall-clock time.

train   Sentences per second in whole training steps (gradients and update), with equally many sentences per batch.
decode  Sentences per second in the search of a batch, with equal beams and numbers of steps: EOS is banned.

"Arithmetic" is the ratio of the model's multiplications in matrix products to the Transformer's, counted from the
sizes. "Of what follows" is the measured ratio of speeds divided by the expected one, the reciprocal of "arithmetic".
Goals: layer-wise coordination at least 0.95 of what follows, in both; cross-view decoding (gca, soft) at least 0.95 of
the Transformer's speed in training and 0.97 in decoding; dynamic convolution 0.85 in both; dual contextual modules in
the encoder or in both stacks 0.95 of what follows in training, in the encoder 0.95 of the Transformer's speed in
decoding. The other models have no goals.

``--table`` makes a table of all models with BLEU: t2t_ext-experiment carries out ``recipes/garden_table.toml`` (its
flags ``--problem``, ``--train_steps``, ``--hparams``, ... may follow), then the speeds of the runs are measured in
turns. ``--recipe`` names another recipe that has other rows beside it. ``comparison.py`` makes the table of tuned and
converged models.
"""

import argparse
import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import _arithmetic
import _garden_table
import _report
import _speed

_BASELINE = "transformer"
_PARTS = ("train", "decode")
_OF_A_TABLE = ("table", "recipe", "batches", "lines")  # flags that only --table reads
_ALWAYS = ("rounds", "intra_op_parallelism_threads", "inter_op_parallelism_threads")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A model of the benchmark.

    Attributes:
      model: Its registered name.
      changes: Hparams that differ from ``--hparams_set``.
      goals: Part (train, decode) -> the ratio of speeds that it should reach.
      of_arithmetic: Parts whose goal is relative to the ratio that follows from the arithmetic.
    """

    model: str
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    goals: Mapping[str, float] = dataclasses.field(default_factory=dict)
    of_arithmetic: frozenset[str] = frozenset()


ENTRIES = {
    _BASELINE: Entry("transformer"),
    "layer_coordination": Entry(
        "layer_coordination", {"num_hidden_layers": 14}, {"train": 0.95, "decode": 0.95}, frozenset(_PARTS)
    ),
    "cross_view": Entry(
        "cross_view_transformer", {"source_view": "gca", "integration": "soft"}, {"train": 0.95, "decode": 0.97}
    ),
    "dynamic_conv": Entry("dynamic_conv", {}, {"train": 0.85, "decode": 0.85}),
    "context_gate": Entry("context_gate_transformer"),
    "enc_dc": Entry(
        "dual_context_transformer", {"dc_encoder_layers": "all"}, {"train": 0.95, "decode": 0.95}, frozenset({"train"})
    ),
    "dec_dc": Entry("dual_context_transformer", {"dc_decoder_layers": "all"}),
    "full_dc": Entry(
        "dual_context_transformer",
        {"dc_encoder_layers": "all", "dc_decoder_layers": "all"},
        {"train": 0.95},
        frozenset({"train"}),
    ),
}


def main() -> None:
    """Measures, prints the results and stores them."""
    parser = _parser()
    args, others = parser.parse_known_args()
    _check_effect({name: value for name, value in vars(args).items() if value != parser.get_default(name)})
    if args.table:
        _garden_table.make(args, others)
        return
    if others:
        raise SystemExit(f"unknown: {' '.join(others)}; flags of t2t_ext-experiment go with --table")
    names = list(dict.fromkeys([_BASELINE, *filter(None, args.models.split(","))]))
    for flag, given, known in (("models", names, ENTRIES), ("parts", args.parts.split(","), _PARTS)):
        unknown = [name for name in given if name not in known]
        if unknown:
            raise SystemExit(f"--{flag}={getattr(args, flag)}: {unknown[0]!r} is none of {', '.join(known)}")
    _speed.run(args, lambda part, precision: _measure(part, names, args, precision), _print)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    others, count = [name for name in ENTRIES if name != _BASELINE], _report.whole_number()
    parser.add_argument("--models", default=",".join(others), help="which of them, beside the Transformer")
    parser.add_argument("--parts", default=",".join(_PARTS), help=f"which of {', '.join(_PARTS)}")
    parser.add_argument("--hparams_set", default="transformer_iwslt_small", help="a set of the Transformer: the sizes")
    parser.add_argument("--vocab_size", type=count, default=8000)
    parser.add_argument("--precision", default="float32", help="A,B: several")
    parser.add_argument("--sentences", type=count, default=32, help="of a batch that is decoded")
    parser.add_argument("--source_length", type=count, default=16, help="tokens of every source sentence")
    parser.add_argument("--steps", type=count, default=20, help="tokens of every translation that is searched")
    parser.add_argument("--beam_size", type=count, default=4)
    parser.add_argument("--train_sentences", type=count, default=64, help="of a batch that is trained on")
    parser.add_argument("--target_length", type=count, default=16, help="tokens of every target that is trained on")
    parser.add_argument("--parallel_slices", type=count, default=1, help="as the hparam")
    parser.add_argument("--rounds", type=count, default=15)
    parser.add_argument("--table", type=pathlib.Path, metavar="W", help="make the table of all models in this folder")
    parser.add_argument("--recipe", default="garden_table", help="of the table's rows")
    parser.add_argument("--batches", type=count, default=4, help="that a measured round of the table trains on")
    parser.add_argument("--lines", type=count, default=200, help="that a measured round of the table translates")
    parser.add_argument("--intra_op_parallelism_threads", type=int, default=1)
    parser.add_argument("--inter_op_parallelism_threads", type=int, default=0, help="[TensorFlow's choice]")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("garden.json"), help="the report")
    return parser


def _check_effect(given: Mapping[str, Any]) -> None:
    """Refuses flags that have no effect with ``--table``, or without it."""
    for name in given:
        if "table" in given and name not in (*_OF_A_TABLE, *_ALWAYS):
            raise SystemExit(f"--{name} has no effect with --table, whose runs are as t2t_ext-experiment's flags say.")
        if "table" not in given and name in _OF_A_TABLE:
            raise SystemExit(f"--{name} has no effect without --table=W, which makes the table of all models.")


def hparams_of(name: str, hparams_set: str, precision: str, **changes: Any) -> Any:
    """Returns the hparams of an entry with the sizes of a Transformer's hparams set."""
    entry = ENTRIES[name]
    return _speed.sized(entry.model, hparams_set, precision, **entry.changes, **changes)


def arithmetic(part: str, name: str, hparams: Any, args: argparse.Namespace) -> dict[str, float]:
    """Returns part of the model -> millions of multiplications of an entry for one sentence."""
    model = ENTRIES[name].model
    if part == "train":
        return _arithmetic.training(hparams, args.vocab_size, args.source_length, args.target_length, model)
    return _arithmetic.decoding(hparams, args.vocab_size, args.source_length, args.steps, args.beam_size, model)


def _measure(part: str, names: list[str], args: argparse.Namespace, precision: str) -> dict[str, Any]:
    """Times a part (training or decoding) of all models and counts their multiplications."""
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
    """Returns the function of a model that is timed."""
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
    for name, rate in found["per_second"].items():
        columns = ("ratios", "cpu_ratios", "arithmetic", "ratios_of_what_follows", "cpu_ratios_of_what_follows")
        rows.append((name, found["parameters"][name], rate, *(f"{found[column][name]:.3f}" for column in columns)))
    _report.print_table(rows)
    if part == "decode":
        squares = ", ".join(f"{name} {count:.0f}" for name, count in found["decoding_step_in_squares"].items())
        print(f"projections and feed-forward layers of a step, in squares of the hidden size: {squares}")
    for name in found["ratios"]:
        goal = ENTRIES[name].goals.get(part)
        if goal:
            ending = "_of_what_follows" if part in ENTRIES[name].of_arithmetic else ""
            clock, cpu = (found[f"{kind}{ending}"][name] for kind in ("ratios", "cpu_ratios"))
            what = "of what follows from its arithmetic" if ending else "of the Transformer's speed"
            print(f"{name}: {clock:.3f} ({cpu:.3f} by processor time) {what}; the goal is at least {goal}")


if __name__ == "__main__":
    main()
