"""Measures the cost of decoding in both directions: synchronous_transformer against the Transformer, in one run.

    python benchmarks/synchronous.py                                        # about 4 minutes
    python benchmarks/synchronous.py --precision=float32,mixed_bfloat16     # both, one after the other
    python benchmarks/synchronous.py --parts=train --hparams_set=transformer_base --rounds=5

All models have the sizes of one hparams set of the Transformer, and random weights. They take turns (A B C A B C ...),
so that other work on the machine affects all of them equally; a ratio is the median over the rounds of the ratio in a
round. If others use the machine as well, ratios of CPU time (of all threads) are more meaningful than those of
wall-clock time.

decode  Sentences per second in the search of a batch, with equal beams, maximum lengths and numbers of steps: EOS is
        banned, so that every search takes ``--steps`` steps for every sentence, and so does the asynchronous model's
        backward search. ``rerank`` does what t2t_ext-rerank does: it makes the k-best lists of two Transformers (k =
        beam = 10, left to right and right to left), and scores each list with the other model, token by token like the
        tool.
train   Sentences per second in whole training steps (gradients and update), with equally many sentences per batch. The
        arithmetic ratio is the Transformer's multiplications over the other model's, counted from the sizes.
graph   Operations of one decoding step: nodes that compute something, before TensorFlow optimizes the graph.

Zhou et al. (2019), table 6, on GPUs: decoding 0.895 of the Transformer's speed and 2.7 times Rerank-NMT's; training
0.61.
"""

import argparse
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import _arithmetic
import _report
import _speed
from _speed import sized

_PARTS = ("graph", "decode", "train")
_SYNCHRONOUS, _ASYNCHRONOUS, _TRANSFORMER = "synchronous_transformer", "asynchronous_transformer", "transformer"
_MODELS = (_TRANSFORMER, _SYNCHRONOUS, _ASYNCHRONOUS)
# Operations that hold tensors, move them without computing anything, or frame a graph.
_NO_WORK = {"Const", "Placeholder", "Identity", "NoOp", "ReadVariableOp", "Shape", "Pack", "StridedSlice"}


def main() -> None:
    """Measures, prints the results and stores them."""
    args = _parser().parse_args()
    _report.check_names("--parts", args.parts, _PARTS)
    _speed.run(args, lambda part, precision: _MEASURES[part](args, precision), lambda part, found: _print(found))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(_PARTS), help=f"which of {', '.join(_PARTS)}")
    parser.add_argument("--hparams_set", default="transformer_iwslt_4layer", help="a set of the Transformer: the sizes")
    parser.add_argument("--vocab_size", type=int, default=8000)
    parser.add_argument("--precision", default="float32", help="A,B: several")
    parser.add_argument("--sentences", type=int, default=32, help="of a batch that is decoded")
    parser.add_argument("--source_length", type=int, default=16, help="tokens of every source sentence")
    parser.add_argument("--steps", type=int, default=20, help="tokens of every translation that is searched")
    parser.add_argument("--beam_size", type=int, default=4)
    parser.add_argument(
        "--rerank_k", type=int, default=10, help="length of the lists that are reranked; 0: leave it out"
    )
    parser.add_argument("--train_sentences", type=int, default=64, help="of a batch that is trained on")
    parser.add_argument("--target_length", type=int, default=16, help="tokens of every target that is trained on")
    parser.add_argument("--parallel_slices", type=int, default=1, help="as the hparam")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--intra_op_parallelism_threads", type=int, default=1)
    parser.add_argument("--inter_op_parallelism_threads", type=int, default=0, help="[TensorFlow's choice]")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("synchronous.json"), help="the report")
    return parser


# === Models ===


def _build(model: str, args: argparse.Namespace, precision: str) -> Any:
    """Returns a model with random weights; its backward decoder, if it has one, generates ``--steps`` tokens."""
    backward = {"backward_length_ratio": 0.0, "backward_length_offset": args.steps} if model == _ASYNCHRONOUS else {}
    hparams = sized(model, args.hparams_set, precision, parallel_slices=args.parallel_slices, **backward)
    return _speed.build(model, hparams, args.vocab_size)


# === Decoding ===


def _reranker(args: argparse.Namespace, precision: str) -> Callable[[Any], Any]:
    """Returns a function of int32 [B, S] that does the work of reranking with two Transformers."""
    import numpy as np
    import tensorflow as tf

    from t2t_ext.translation.forced_decoding import token_log_probs

    k = args.rerank_k
    models = [_build(_TRANSFORMER, args, precision) for _ in range(2)]
    searches = [_speed.searcher(model, k, k, args.steps) for model in models]

    def scorer(model: Any) -> Callable[..., Any]:
        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2, autograph=False)
        def score(inputs: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
            lengths = tf.fill([tf.shape(ids)[0]], args.steps)
            return tf.reduce_sum(token_log_probs(model, inputs, ids, lengths), axis=1)

        return score

    scorers = [scorer(model) for model in models]

    def rerank(inputs: Any) -> Any:
        lists = [search(inputs).numpy().reshape(-1, args.steps) for search in searches]
        sources = np.repeat(inputs, k, axis=0)
        size = len(inputs)  # pairs are scored in batches with as many pairs as the search has sentences
        for score, found in zip(scorers, reversed(lists), strict=True):
            for start in range(0, len(found), size):
                score(sources[start : start + size], found[start : start + size]).numpy()

    return rerank


def _decode(args: argparse.Namespace, precision: str) -> dict[str, Any]:
    """Times the searches of all models."""
    inputs = _speed.words(args.sentences, args.source_length, args.vocab_size, seed=1)

    def timed(search: Callable[[Any], Any]) -> Callable[[], Any]:
        return lambda: search(inputs).numpy()

    work = {
        name: timed(_speed.searcher(_build(name, args, precision), args.beam_size, 1, args.steps)) for name in _MODELS
    }
    if args.rerank_k:
        rerank = _reranker(args, precision)
        work["rerank"] = lambda: rerank(inputs)
    found = _speed.take_turns(work, args.sentences, args.rounds)
    goals = [(_TRANSFORMER, 0.95), *([("rerank", 2.5)] if args.rerank_k else [])]
    found["goals"] = {
        f"{_SYNCHRONOUS} / {other}": {
            "ratio": found["ratios"][_SYNCHRONOUS] / found["ratios"][other],
            "cpu_ratio": found["cpu_ratios"][_SYNCHRONOUS] / found["cpu_ratios"][other],
            "goal": goal,
        }
        for other, goal in goals
    }
    return found


# === Training ===


def _train(args: argparse.Namespace, precision: str) -> dict[str, Any]:
    """Times training steps of all models and counts their multiplications."""
    import numpy as np

    inputs = _speed.words(args.train_sentences, args.source_length, args.vocab_size, seed=1)
    targets = _speed.words(args.train_sentences, args.target_length, args.vocab_size, seed=2)
    two = np.stack([targets, np.roll(targets, 1, axis=0)], axis=1)
    work, millions = {}, {}
    for name in _MODELS:
        model = _build(name, args, precision)
        work[name] = _speed.trainer(model, {"inputs": inputs, "targets": targets if name == _TRANSFORMER else two})
        millions[name] = _arithmetic.training(
            model.hparams, args.vocab_size, args.source_length, args.target_length, name
        )
    found = _speed.take_turns(work, args.train_sentences, args.rounds)
    totals = {name: math.fsum(parts.values()) for name, parts in millions.items()}
    found["million_multiplications"] = millions
    found["arithmetic_ratios"] = {name: totals[_TRANSFORMER] / total for name, total in totals.items()}
    found["goals"] = {
        f"{name} / its arithmetic ratio": {
            "ratio": found["ratios"][name] / found["arithmetic_ratios"][name],
            "cpu_ratio": found["cpu_ratios"][name] / found["arithmetic_ratios"][name],
            "goal": 0.95 if name == _SYNCHRONOUS else None,
        }
        for name in (_SYNCHRONOUS, _ASYNCHRONOUS)
    }
    return found


# === Graphs ===


def _graph(args: argparse.Namespace, precision: str) -> dict[str, Any]:
    """Counts the operations of a decoding step of each model."""
    return {"operations": {name: _operations_of_step(_build(name, args, precision), args) for name in _MODELS}}


def _operations_of_step(model: Any, args: argparse.Namespace) -> dict[str, int]:
    """Returns kind of operation -> its number in a step, the most frequent first."""
    import collections

    import tensorflow as tf

    directions, hypotheses = model.directions, args.beam_size // model.directions
    shape = [None, directions, hypotheses]
    state = tf.function(model.start, autograph=False).get_concrete_function(tf.TensorSpec([None, None], tf.int32))
    specs = tf.nest.map_structure(lambda part: tf.TensorSpec(part.shape, part.dtype), state.structured_outputs)

    def step(ids: tf.Tensor, visible: tf.Tensor, parents: tf.Tensor, state: Any) -> Any:
        return model.step(ids, visible, tf.reverse(visible, [1]) if directions == 2 else None, parents, state)

    # Caches grow, so their length is unknown.
    specs["layers"] = tf.nest.map_structure(_growing, specs["layers"])
    graph = (
        tf.function(step, autograph=False)
        .get_concrete_function(
            tf.TensorSpec(shape, tf.int32),
            tf.TensorSpec([*shape, None], tf.bool),
            tf.TensorSpec(shape, tf.int32),
            specs,
        )
        .graph
    )
    kinds = collections.Counter(operation.type for operation in graph.get_operations())
    kinds = collections.Counter({kind: count for kind, count in kinds.items() if kind not in _NO_WORK})
    return {"all": kinds.total(), **dict(kinds.most_common())}


def _growing(spec: Any) -> Any:
    import tensorflow as tf

    shape = spec.shape.as_list()
    shape[3] = None
    return tf.TensorSpec(shape, spec.dtype)


_MEASURES = {"graph": _graph, "decode": _decode, "train": _train}


# === Reports ===


def _print(found: Mapping[str, Any]) -> None:
    """Prints the figures of a part."""
    if "operations" in found:
        kinds = list(dict.fromkeys(kind for counts in found["operations"].values() for kind in counts))[:12]
        _report.print_table(
            [("operations", *found["operations"])]
            + [(kind, *(counts.get(kind, 0) for counts in found["operations"].values())) for kind in kinds]
        )
        return
    headings = ("", "sentences/s", "ratio", "of processor time", "arithmetic ratio")
    rows: list[tuple[Any, ...]] = [headings if "arithmetic_ratios" in found else headings[:-1]]
    for name, rate in found["per_second"].items():
        arithmetic = found.get("arithmetic_ratios", {}).get(name)
        shown = [found["ratios"][name], found["cpu_ratios"][name], *([] if arithmetic is None else [arithmetic])]
        rows.append((name, rate, *(f"{ratio:.3f}" for ratio in shown)))
    _report.print_table(rows)
    for name, each in found["goals"].items():
        goal = f"; the goal is at least {each['goal']}" if each["goal"] else ""
        print(f"{name}: {each['ratio']:.3f} ({each['cpu_ratio']:.3f} by processor time){goal}")


if __name__ == "__main__":
    main()
