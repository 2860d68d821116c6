"""A Translator as a SavedModel for TensorFlow Serving: strings in, strings out, everything inside that a graph can do.

EXPORT/500/                                    one directory a version, as TF Serving wants
  saved_model.pb, variables/                   text encoders and search as a graph, weights
  assets.extra/tf_serving_warmup_requests      requests that the server answers before it says it is ready
  assets.extra/text_encoder.{source,target}.model
                                               what happens to text before and after the graph, where anything does
  export.json                                  what the model was made from
"""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from t2t_ext.io import files
from t2t_ext.serving.served_text import SIDES, SIGNATURE, ServedText
from t2t_ext.serving.versions import check_destination
from t2t_ext.version import __version__

DESCRIPTION_NAME = "export.json"
WARMUP_NAME = os.path.join("assets.extra", "tf_serving_warmup_requests")
# Byte fallback makes any text a fair request for any vocabulary; names and numbers are the least foreign to all.
WARMUP_LINES = ("1 2 3", "A. B. 2.0 (C)", "", "Maria, Anna and Peter 1 2 3 4 5 6 7 8 9 10 Maria, Anna and Peter")

# Ops that call back into the Python process that made them: no server can run them.
_PYTHON_OPS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
_TEXT_OPS_PREFIX = "Sentencepiece"  # tensorflow-text's; TF Serving links them in


class ServedTranslator(tf.Module):
    """The signatures of an exported Translator, each a ``tf.function`` of strings [N], UTF-8, for any N.

    Of a model that reads feature vectors, ``inputs`` is float32 [N, regions, F], for any number of regions; vectors of
    zeros alone are padding.

    Attributes:
      serving_default: ``inputs`` -> the best translation ``outputs`` string [N] and its penalised score ``scores``
        float32 [N].
      nbest: ``inputs`` -> the K translations kept by the search, best first: ``outputs`` string, ``scores`` float32
        (penalised), ``log_probs`` float32 (raw, natural logarithm), ``lengths`` int32 (tokens) and ``finished`` bool
        (False: the length limit ended it), each [N, K].
      score: ``inputs``, ``targets`` -> ``scores``, ``log_probs`` float32 [N] and ``lengths`` int32 [N] of given
        translations. A model that writes in two directions takes ``partners``, too: what the right-to-left side writes
        beside each target, in text order.
      translate_with_prefix: ``inputs``, ``prefixes`` -> ``outputs``, ``scores`` of translations that begin with the
        prefixes. Not there for models that write right to left.
      translate_with_constraints: ``inputs``, ``constraints`` (phrases separated by tabs) -> ``outputs``, ``scores`` of
        translations that hold the phrases, and ``unmet_constraints`` int32 [N], how many are missing. Not there where
        the decode hparams sample or ask for diverse groups.
      sample: ``inputs``, ``seeds`` int64 [N] -> ``outputs``, ``scores``, ``log_probs`` of a sample of each line. Only
        with sampling_method=random; then the other signatures sample, too.
      align: ``inputs``, ``targets`` -> ``alignments`` string [N], source-target pairs of words, ``0-0 2-1 1-2``. Not
        there where the model has no attention that can be read so.
      text_encoders: ``sides`` string [N], ``source`` or ``target``, -> ``files`` string [N], the files of the text
        encoders in base64. Only where the graph does not take text as people write it: all other signatures' strings
        are then segmented texts (``t2t_ext.data.text.text_encoder``).
    """

    def __init__(self, translator: Any) -> None:
        """Wraps a translator.

        Args:
          translator: Has the graph functions ``translate_batch``, ``nbest_batch`` and ``score_batch``
            (``t2t_ext.translation.translator.Translator``), and ``align_batch`` where ``can_align`` is true; its
            variables are those of ``translator.model``.
        """
        super().__init__()
        # What is saved with the functions. The model itself is not: of a Keras variable (Keras 3.15) a copy is saved
        # that no function reads, and loaders outside Python restore only the copy.
        self.modules = [part for part in vars(translator).values() if isinstance(part, tf.Module)]
        self.weights = list(translator.model.named_variables().values())

        inputs, targets = (tf.TensorSpec([None], tf.string, name=name) for name in ("inputs", "targets"))
        inputs = getattr(translator, "source_spec", inputs)
        self.serving_default = tf.function(
            lambda inputs: _pick(translator.translate_batch(inputs), ("outputs", "scores")),
            input_signature=[inputs],
            autograph=False,
        )
        self.nbest = tf.function(
            lambda inputs: dict(translator.nbest_batch(inputs)), input_signature=[inputs], autograph=False
        )
        self.score = _score_function(translator, inputs, targets)
        if getattr(translator, "can_force_prefix", False):
            prefixes = tf.TensorSpec([None], tf.string, name="prefixes")
            self.translate_with_prefix = tf.function(
                lambda inputs, prefixes: dict(translator.translate_with_prefix_batch(inputs, prefixes)),
                input_signature=[inputs, prefixes],
                autograph=False,
            )
        if getattr(translator, "can_constrain", False):
            constraints = tf.TensorSpec([None], tf.string, name="constraints")
            self.translate_with_constraints = tf.function(
                lambda inputs, constraints: dict(translator.translate_with_constraints_batch(inputs, constraints)),
                input_signature=[inputs, constraints],
                autograph=False,
            )
        if getattr(translator, "samples", False):
            seeds = tf.TensorSpec([None], tf.int64, name="seeds")
            self.sample = tf.function(
                lambda inputs, seeds: dict(translator.sample_batch(inputs, seeds)),
                input_signature=[inputs, seeds],
                autograph=False,
            )
        if getattr(translator, "can_align", False):
            self.align = tf.function(
                lambda inputs, targets: dict(translator.align_batch(inputs, targets)),
                input_signature=[inputs, targets],
                autograph=False,
            )
        text = served_text(translator)
        if text is not None:
            encoders = text.wire()
            self.text_encoders = tf.function(
                lambda sides: {"files": tf.gather(encoders, tf.cast(tf.not_equal(sides, "source"), tf.int32))},
                input_signature=[tf.TensorSpec([None], tf.string, name="sides")],
                autograph=False,
            )


def _score_function(translator: Any, inputs: tf.TensorSpec, targets: tf.TensorSpec) -> Any:
    names = ("scores", "log_probs", "lengths")
    if not getattr(translator, "two_sided", False):
        return tf.function(
            lambda inputs, targets: _pick(translator.score_batch(inputs, targets), names),
            input_signature=[inputs, targets],
            autograph=False,
        )

    def score(inputs: tf.Tensor, targets: tf.Tensor, partners: tf.Tensor) -> dict[str, tf.Tensor]:
        right_to_left = tf.zeros(tf.shape(targets), tf.bool)
        return _pick(translator.score_sides_batch(inputs, targets, partners, right_to_left), names)

    partners = tf.TensorSpec([None], tf.string, name="partners")
    return tf.function(score, input_signature=[inputs, targets, partners], autograph=False)


def served_text(translator: Any) -> ServedText | None:
    """Returns the text encoders of a translator whose graph does not take text as people write it, else None."""
    encoders = [getattr(translator, f"{side}_encoder", None) for side in ("source", "target")]
    if any(encoder is None for encoder in encoders) or all(encoder.takes_raw_text for encoder in encoders):
        return None
    return ServedText(*encoders)


def export(
    translator: Any,
    export_dir: files.PathLike,
    *,
    version: int = 1,
    made_from: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    warmup_lines: Sequence[str] = WARMUP_LINES,
) -> pathlib.Path:
    """Writes a translator as one version of a servable model.

    The SavedModel is loaded again and compared with the translator on the warm-up lines before it gets its name.

    Args:
      translator: As for ``ServedTranslator``.
      export_dir: TF Serving's model base path; made where it is missing.
      version: Name of the sub-directory, a positive integer such as the checkpoint's step. TF Serving serves the
        highest.
      made_from: JSON values for ``export.json`` (run, step, problem, model, ...).
      overwrite: Whether a version that exists is replaced.
      warmup_lines: Raw sentences of the warm-up requests: one request of the first alone, one of all together.

    Returns:
      The version's directory.

    Raises:
      UserError: The version exists, or the disk is full or not writable. Nothing half-written is left.
      ValueError: The graph holds operations that no server knows.
      RuntimeError: The SavedModel translates otherwise than the translator.
    """
    final = check_destination(export_dir, version, overwrite=overwrite)
    module = ServedTranslator(translator)
    names = (
        "serving_default",
        "nbest",
        "score",
        "translate_with_prefix",
        "translate_with_constraints",
        "sample",
        "align",
        SIGNATURE,
    )
    text = served_text(translator)
    signatures = {name: getattr(module, name) for name in names if hasattr(module, name)}
    description = {"t2t_ext": __version__, "tensorflow": tf.__version__, **(made_from or {})}
    if text is not None:
        description["text"] = {side: text.side(side).record() for side in SIDES}
    requests = _warmup_requests(translator, text, warmup_lines)
    with files.atomic_directory(final) as temporary:
        with _quiet_saving():
            tf.saved_model.save(module, str(temporary), signatures=signatures)
        _check_ops(temporary)
        _check_outputs(temporary, translator, requests[-1])
        _write_warmup_requests(temporary, requests)
        if text is not None:
            text.write(temporary)
        content = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
        (temporary / DESCRIPTION_NAME).write_text(content, encoding="utf-8")
    return final


def saved_model_ops(directory: files.PathLike) -> dict[str, int]:
    """Counts the operations of a SavedModel, in its graph and in all its functions.

    Args:
      directory: The SavedModel, such as ``EXPORT/500``.

    Returns:
      Name of the operation -> number of nodes, in alphabetical order.
    """
    counts: dict[str, int] = {}
    for meta_graph in _read_saved_model(directory).meta_graphs:
        graph = meta_graph.graph_def
        for node in _all_nodes(graph):
            counts[node.op] = counts.get(node.op, 0) + 1
    return dict(sorted(counts.items()))


def signature_tensors(directory: files.PathLike, signature: str = "serving_default") -> dict[str, str]:
    """Returns the graph's tensor names of a signature's inputs and outputs, as loaders outside Python need them.

    Args:
      directory: The SavedModel, such as ``EXPORT/500``.
      signature: Name of the signature.

    Returns:
      ``{"inputs": "serving_default_inputs:0", "outputs": "StatefulPartitionedCall:0", ...}``.
    """
    definition = _read_saved_model(directory).meta_graphs[0].signature_def[signature]
    return {name: info.name for group in (definition.inputs, definition.outputs) for name, info in group.items()}


def _pick(results: Mapping[str, tf.Tensor], names: Iterable[str]) -> dict[str, tf.Tensor]:
    return {name: results[name] for name in names}


def _all_nodes(graph: Any) -> Iterator[Any]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def _read_saved_model(directory: files.PathLike) -> Any:
    from tensorflow.core.protobuf import saved_model_pb2

    return saved_model_pb2.SavedModel.FromString((pathlib.Path(directory) / "saved_model.pb").read_bytes())


def _check_ops(directory: pathlib.Path) -> None:
    foreign = [
        name
        for name in saved_model_ops(directory)
        if name in _PYTHON_OPS or not (hasattr(tf.raw_ops, name) or name.startswith(_TEXT_OPS_PREFIX))
    ]
    if foreign:
        raise ValueError(
            f"The graph holds operations that TF Serving does not know: {', '.join(foreign)}. "
            "Models for export must be made of TensorFlow's and tensorflow-text's operations."
        )


def _warmup_requests(translator: Any, text: ServedText | None, lines: Sequence[str]) -> list[tf.Tensor]:
    """Returns the sources of the warm-up requests as the graph takes them: first one, then several."""
    if hasattr(translator, "warmup_inputs"):
        return [tf.constant(sources) for sources in translator.warmup_inputs()]
    lines = list(lines) if text is None else text.to_graph("source", lines)
    return [tf.constant(batch, tf.string) for batch in _warmup_batches(lines)]


def _check_outputs(directory: pathlib.Path, translator: Any, inputs: tf.Tensor) -> None:
    expected = translator.translate_batch(inputs)
    found = tf.saved_model.load(str(directory)).signatures["serving_default"](inputs=inputs)
    for number, (left, right) in enumerate(zip(expected["outputs"].numpy(), found["outputs"].numpy(), strict=True)):
        if left != right:
            source = repr(inputs[number].numpy()) if inputs.dtype == tf.string else f"warm-up source {number + 1}"
            raise RuntimeError(f"The SavedModel translates {source} as {right!r}, the translator as {left!r}.")


def _write_warmup_requests(directory: pathlib.Path, requests: Sequence[tf.Tensor]) -> None:
    """Writes requests, as TF Serving replays them when it loads a model (a TFRecord of PredictionLog)."""
    from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2

    path = directory / WARMUP_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for sources in requests:
            request = predict_pb2.PredictRequest(
                model_spec=model_pb2.ModelSpec(name="t2t_ext", signature_name="serving_default"),
                inputs={"inputs": tf.make_tensor_proto(sources.numpy(), dtype=sources.dtype)},
            )
            log = prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))
            writer.write(log.SerializeToString())


def _warmup_batches(lines: Sequence[str]) -> Iterable[list[str]]:
    yield [lines[0]]
    if len(lines) > 1:
        yield list(lines)


@contextlib.contextmanager
def _quiet_saving() -> Iterator[None]:
    """Keeps back TensorFlow's information about functions that are saved without traces; none is called later."""
    from absl import logging as absl_logging

    level = absl_logging.get_verbosity()
    absl_logging.set_verbosity(absl_logging.ERROR)
    try:
        yield
    finally:
        absl_logging.set_verbosity(level)
