"""What writing in both directions at once costs: speed of synchronous_transformer against the Transformer, in one run.

    python benchmarks/synchronous.py                                        # about 4 minutes
    python benchmarks/synchronous.py --precision=float32,mixed_bfloat16     # both, one after the other
    python benchmarks/synchronous.py --parts=train --hparams_set=transformer_base --rounds=5

All models have the sizes of one hparams set of the Transformer, and random weights. They take turns (A B C A B C ...),
so that whatever else the machine does falls on all of them; ratios are of medians. Where others use the machine, too,
the ratios of processor time (of all threads) say more than those of the clock.

decode  Sentences a second of the search of a batch, at equal beam, greatest length and number of steps: EOS is banned,
        so that every search takes ``--steps`` steps for every sentence, and the asynchronous model's backward search
        as many. ``rerank`` is what t2t_ext-rerank does: the k-best lists of two Transformers (k = beam = 10, left to
        right and right to left), and the score of each list by the other model, token by token as the tool has it.
train   Sentences a second of whole training steps (gradients and update), at equal sentences a batch. The arithmetic
        ratio is the Transformer's multiplications over the other model's, counted from the sizes.
graph   Operations of one decoding step: nodes that compute something, before TensorFlow optimises the graph.

Zhou et al. (2019), table 6, on GPUs: decoding 0.895 of the Transformer's speed and 2.7 times Rerank-NMT's; training
0.61.
"""

import argparse
import dataclasses
import math
import pathlib
import statistics
import time
import types
from collections.abc import Callable, Mapping
from typing import Any

import _report

_PARTS = ("graph", "decode", "train")
_SYNCHRONOUS, _ASYNCHRONOUS, _TRANSFORMER = "synchronous_transformer", "asynchronous_transformer", "transformer"
_MODELS = (_TRANSFORMER, _SYNCHRONOUS, _ASYNCHRONOUS)
# What holds tensors, moves them about without work, or is the frame of a graph.
_NO_WORK = {"Const", "Placeholder", "Identity", "NoOp", "ReadVariableOp", "Shape", "Pack", "StridedSlice"}
_FIRST_TEXT_ID = 9


def main() -> None:
    """Measures, prints and stores."""
    args = _parser().parse_args()
    from t2t_ext.bin._flags import start_tensorflow

    start_tensorflow(args.inter_op_parallelism_threads, args.intra_op_parallelism_threads)
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")  # many graphs of one function are meant here
    stored: dict[str, Any] = {}
    for precision in args.precision.split(","):
        for part in args.parts.split(","):
            print(f"{part} {precision}", flush=True)
            found = _MEASURES[part](args, precision)
            _print(found)
            stored[f"{part} {precision}"] = found
    _report.write_report(args.out, _report.report({"configurations": stored}))
    print(f"written to {args.out}")


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


def sized(model: str, hparams_set: str, precision: str, **changes: Any) -> Any:
    """Returns hparams of a model's family with the sizes of a set of the Transformer."""
    from t2t_ext import registry

    sizes = registry.hparams(hparams_set)
    family = registry.model(model).hparams_class
    fields = {field.name: getattr(sizes, field.name) for field in dataclasses.fields(sizes) if field.name != "pseudo"}
    return family(**fields).replace(precision=precision, **changes)


def _build(model: str, args: argparse.Namespace, precision: str) -> Any:
    """Returns a model of random weights whose backward decoder, if it has one, writes ``--steps`` tokens."""
    import keras

    from t2t_ext import registry

    backward = {"backward_length_ratio": 0.0, "backward_length_offset": args.steps} if model == _ASYNCHRONOUS else {}
    keras.utils.set_random_seed(1)
    built = registry.model(model)(
        sized(model, args.hparams_set, precision, parallel_slices=args.parallel_slices, **backward),
        source_vocab_size=args.vocab_size,
        target_vocab_size=args.vocab_size,
    )
    built.build()
    matrix = built.softmax.matrix.numpy().copy()
    matrix[1] = 0  # EOS is never the best
    built.softmax.matrix.assign(matrix)
    return built


def _words(rows: int, length: int, args: argparse.Namespace, seed: int) -> Any:
    """Returns random sentences int32 [rows, length], EOS at the end."""
    import numpy as np

    ids = np.random.default_rng(seed).integers(_FIRST_TEXT_ID, args.vocab_size, [rows, length]).astype(np.int32)
    ids[:, -1] = 1
    return ids


# === Decoding ===


def _searcher(model: Any, beam_size: int, num_hypotheses: int, steps: int) -> Callable[[Any], Any]:
    """Returns a function of int32 [B, S] that searches translations of exactly ``steps`` tokens."""
    import tensorflow as tf

    from t2t_ext.decoding.beam_search import beam_search
    from t2t_ext.decoding.search_state import SearchConfig

    config = SearchConfig(
        beam_size=beam_size, num_hypotheses=num_hypotheses, directions=model.directions, banned=(0, 1)
    )

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def search(inputs: tf.Tensor) -> tf.Tensor:
        limits = tf.fill([tf.shape(inputs)[0]], steps)
        return beam_search(model.step, model.start(inputs), limits, config).ids

    return search


def _reranker(args: argparse.Namespace, precision: str) -> Callable[[Any], Any]:
    """Returns a function of int32 [B, S] that does the work of reranking, of two Transformers."""
    import numpy as np
    import tensorflow as tf

    from t2t_ext.decoding.forced_decoding import ForcedDecoder
    from t2t_ext.hyperparameters import DecodeHParams

    k = args.rerank_k
    models = [_build(_TRANSFORMER, args, precision) for _ in range(2)]
    searches = [_searcher(model, k, k, args.steps) for model in models]

    def scorer(model: Any) -> Callable[..., Any]:
        parts = types.SimpleNamespace(model=model, decode_hparams=DecodeHParams())

        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2, autograph=False)
        def score(inputs: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
            lengths = tf.fill([tf.shape(ids)[0]], args.steps)
            return ForcedDecoder._score(parts, inputs, ids, lengths)["log_probs"]

        return score

    scorers = [scorer(model) for model in models]

    def rerank(inputs: Any) -> Any:
        lists = [search(inputs).numpy().reshape(-1, args.steps) for search in searches]
        sources = np.repeat(inputs, k, axis=0)
        size = len(inputs)  # pairs are scored in batches of as many as sentences are searched
        for score, found in zip(scorers, reversed(lists), strict=True):
            for start in range(0, len(found), size):
                score(sources[start : start + size], found[start : start + size]).numpy()

    return rerank


def _decode(args: argparse.Namespace, precision: str) -> dict[str, Any]:
    """Times the searches."""
    inputs = _words(args.sentences, args.source_length, args, seed=1)

    def timed(search: Callable[[Any], Any]) -> Callable[[], Any]:
        return lambda: search(inputs).numpy()

    work = {name: timed(_searcher(_build(name, args, precision), args.beam_size, 1, args.steps)) for name in _MODELS}
    if args.rerank_k:
        rerank = _reranker(args, precision)
        work["rerank"] = lambda: rerank(inputs)
    found = _take_turns(work, args.sentences, args.rounds)
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


def multiplications(hparams: Any, vocab_size: int, source: int, target: int, model: str) -> dict[str, float]:
    """Counts the multiplications of matrix products for one sentence, forwards.

    Those of the gradients are twice as many, in every part alike.

    Args:
      hparams: With the sizes.
      vocab_size: V.
      source: Source tokens.
      target: Tokens of each target.
      model: Which; the synchronous one decodes two targets and attends to both, the asynchronous one has two decoders.

    Returns:
      Millions by part: encoder, decoder, softmax.
    """
    d, f = hparams.hidden_size, hparams.filter_size
    keys, values = hparams.attention_key_channels or d, hparams.attention_value_channels or d
    feed_forward = (3 if hparams.ffn_activation in ("glu", "geglu", "swiglu") else 2) * d * f
    sides = 1 if model == _TRANSFORMER else 2

    def attention(queries: float, memory: float, looks: int = 1) -> float:
        """Projections of the queries and of the memory, and the products of every look at it."""
        return queries * d * (keys + values) + memory * d * (keys + values) + looks * queries * memory * (keys + values)

    encoder = hparams.encoder_layers * (attention(source, source) + source * feed_forward)
    own = attention(target, target, looks=2 if model == _SYNCHRONOUS else 1)
    side = own + attention(target, source) + target * feed_forward
    decoder = sides * side
    if model == _SYNCHRONOUS:
        decoder -= source * d * (keys + values)  # both sides attend to one projection of the source
    elif model == _ASYNCHRONOUS:
        decoder += attention(target, target)
    softmax = sides * target * d * vocab_size
    parts = {"encoder": encoder, "decoder": hparams.decoder_layers * decoder, "softmax": softmax}
    return {name: count / 1e6 for name, count in parts.items()}


def _trainer(model: Any, batch: Mapping[str, Any]) -> Callable[[], Any]:
    """Returns a function that updates the model from the batch."""
    import tensorflow as tf

    from t2t_ext.training.optimizers import make_optimizer
    from t2t_ext.training.schedules import Schedule
    from t2t_ext.training.state import TrainingState
    from t2t_ext.training.step import TrainStep

    hparams, variables = model.hparams, model.named_variables()
    optimizer = make_optimizer(hparams, variables)
    step = TrainStep(
        model,
        optimizer=optimizer,
        schedule=Schedule(hparams, 1000),
        state=TrainingState(hparams, variables, optimizer),
        hparams=hparams,
        strategy=tf.distribute.get_strategy(),
        random_seed=1,
    )
    batch = {name: tf.constant(ids) for name, ids in batch.items()}

    def train() -> Any:
        return step.run(batch)["loss"].numpy()

    return train


def _train(args: argparse.Namespace, precision: str) -> dict[str, Any]:
    """Times training steps, and counts what they multiply."""
    import numpy as np

    inputs = _words(args.train_sentences, args.source_length, args, seed=1)
    targets = _words(args.train_sentences, args.target_length, args, seed=2)
    two = np.stack([targets, np.roll(targets, 1, axis=0)], axis=1)
    work, millions = {}, {}
    for name in _MODELS:
        model = _build(name, args, precision)
        work[name] = _trainer(model, {"inputs": inputs, "targets": targets if name == _TRANSFORMER else two})
        millions[name] = multiplications(model.hparams, args.vocab_size, args.source_length, args.target_length, name)
    found = _take_turns(work, args.train_sentences, args.rounds)
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
    """Returns how many operations a step has, by kind, most frequent first."""
    import collections

    import tensorflow as tf

    directions, hypotheses = model.directions, args.beam_size // model.directions
    shape = [None, directions, hypotheses]
    state = tf.function(model.start, autograph=False).get_concrete_function(tf.TensorSpec([None, None], tf.int32))
    specs = tf.nest.map_structure(lambda part: tf.TensorSpec(part.shape, part.dtype), state.structured_outputs)

    def step(ids: tf.Tensor, visible: tf.Tensor, parents: tf.Tensor, state: Any) -> Any:
        return model.step(ids, visible, tf.reverse(visible, [1]) if directions == 2 else None, parents, state)

    # Memories grow: their length is not known.
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


# === Time ===


def _take_turns(work: Mapping[str, Callable[[], Any]], sentences: int, rounds: int) -> dict[str, Any]:
    """Runs all of them in turns, after two unmeasured rounds each.

    Args:
      work: What to measure, by name; the first is what the others are compared with.
      sentences: That one call works on.
      rounds: How many are measured.

    Returns:
      ``seconds`` and ``cpu_seconds`` of every call, ``sentences_per_second`` (medians), and ``ratios`` and
      ``cpu_ratios`` of speeds to the first's.
    """
    for call in work.values():
        call(), call()
    seconds: dict[str, list[float]] = {name: [] for name in work}
    cpu_seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, call in work.items():
            started, cpu_started = time.perf_counter(), time.process_time()
            call()
            seconds[name].append(time.perf_counter() - started)
            cpu_seconds[name].append(time.process_time() - cpu_started)
    return {
        "sentences_per_second": {name: sentences / statistics.median(times) for name, times in seconds.items()},
        "ratios": ratios(seconds),
        "cpu_ratios": ratios(cpu_seconds),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
    }


def ratios(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """Returns how fast each is, by its median time, beside the first."""
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    first = next(iter(medians.values()))
    return {name: first / median for name, median in medians.items()}


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
    for name, rate in found["sentences_per_second"].items():
        arithmetic = found.get("arithmetic_ratios", {}).get(name)
        shown = [found["ratios"][name], found["cpu_ratios"][name], *([] if arithmetic is None else [arithmetic])]
        rows.append((name, rate, *(f"{ratio:.3f}" for ratio in shown)))
    _report.print_table(rows)
    for name, each in found["goals"].items():
        goal = f"; the goal is at least {each['goal']}" if each["goal"] else ""
        print(f"{name}: {each['ratio']:.3f} ({each['cpu_ratio']:.3f} by processor time){goal}")


if __name__ == "__main__":
    main()
