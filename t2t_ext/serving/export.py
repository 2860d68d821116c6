"""Exports a Translator as a SavedModel for TensorFlow Serving: strings in, strings out.

Everything that a graph can do is inside the SavedModel.

EXPORT/500/                                    one directory per version, as TF Serving expects
  saved_model.pb, variables/                   text encoders and search as a graph, weights
  assets.extra/tf_serving_warmup_requests      requests that the server answers before it reports that it is ready
  assets.extra/text_encoder.{source,target}.model
                                               text encoders, if text must be processed before and after the graph
  export.json                                  the model's origin; sizes and SHA-256 of all other files
"""

import collections
import contextlib
import errno
import itertools
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from t2t_ext.errors import UserError
from t2t_ext.io import chatter, files, locks
from t2t_ext.serving import exported_files, protocol
from t2t_ext.serving.exported_files import DESCRIPTION_NAME
from t2t_ext.serving.served_text import SIDES, SIGNATURE, ServedText, check_destination, version_directory
from t2t_ext.translation.codec import TextCodec
from t2t_ext.version import __version__

if TYPE_CHECKING:
    from t2t_ext.translation.translator import Translator

WARMUP_NAME = os.path.join("assets.extra", "tf_serving_warmup_requests")
# With byte fallback any text suits any vocabulary; names and numbers are the least foreign to all languages.
WARMUP_LINES = ("1 2 3", "A. B. 2.0 (C)", "", "Maria, Anna and Peter 1 2 3 4 5 6 7 8 9 10 Maria, Anna and Peter")

# Operations that call back into the Python process that made them; no server can run them.
_PYTHON_OPS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
# Prefixes of the tensorflow-text operations that tokenizers use; TF Serving links these operations.
_TEXT_OPS = ("Sentencepiece", "FastWordpiece", "Wordpiece", "CaseFoldUTF8", "NormalizeUTF8", "RegexSplit")


class ServedTranslator(tf.Module):
    """The signatures of an exported Translator, each a concrete function of strings [N] in UTF-8, for any N.

    If the model reads feature vectors, ``inputs`` is float32 [N, regions, F], for any number of regions; zero vectors
    are padding.

    Attributes:
      serving_default: ``inputs`` -> the best translation ``outputs`` string [N] and its penalized score ``scores``
        float32 [N].
      nbest: ``inputs`` -> the K translations that the search keeps, best first: ``outputs`` string, ``scores`` float32
        (penalized), ``log_probs`` float32 (raw, natural logarithm), ``lengths`` int32 (tokens) and ``finished`` bool
        (False: truncated at the length limit), each [N, K]. If the rules leave fewer than K, the last have a
        log-probability of about -1e9 and length 0; an empty line has one translation.
      score: ``inputs``, ``targets`` -> ``scores``, ``log_probs`` float32 [N] and ``lengths`` int32 [N] of given
        translations. A model of two directions also takes ``partners``: what the right-to-left direction generates
        alongside each target, in text order.
      translate_with_prefix: ``inputs``, ``prefixes`` -> ``outputs``, ``scores`` of translations that begin with the
        prefixes. Only for models that generate left to right in a single direction.
      translate_with_constraints: ``inputs``, ``constraints`` (phrases separated by tabs) -> ``outputs``, ``scores`` of
        translations that contain the phrases, and ``unmet_constraints`` int32 [N], the number of missing phrases.
        Absent if the decode hparams exclude phrases: sampling, diverse groups, ``beam_extends=top``.
      sample: ``inputs``, ``seeds`` int64 [N] -> ``outputs``, ``scores``, ``log_probs`` of a sample of each line. Only
        with sampling_method=random; the other signatures then sample as well.
      align: ``inputs``, ``targets`` -> ``alignments`` string [N], source-target pairs of words, ``0-0 2-1 1-2``. Absent
        if the model has no attention that can be read as an alignment.
      text_encoders: ``sides`` string [N], ``source`` or ``target``, -> ``files`` string [N], the files of the text
        encoders in base64. Only if the graph does not take raw text; the strings of all other signatures are then
        segmented texts (``t2t_ext.data.text.text_encoder``).
    """

    def __init__(self, translator: "Translator") -> None:
        """Wraps a translator; the variables are those of its model."""
        super().__init__()
        # These are saved with the functions, but not the model itself: for a Keras variable, Keras 3.15 saves a copy
        # that no function reads, and loaders outside Python restore only the copy.
        self.modules = [codec.graph for codec in (translator.source, translator.target) if isinstance(codec, TextCodec)]
        self.weights = list(translator.model.named_variables().values())
        self.shortlist = translator.shortlist

        search, hparams = translator.search_batch, translator.decode_hparams
        inputs = translator.source.spec
        self.serving_default = _signature(lambda inputs: _best(search(inputs, num_hypotheses=1)), inputs)
        kept = hparams.num_hypotheses if translator.samples else hparams.beam_size
        self.nbest = _signature(
            lambda inputs: _pick(
                search(inputs, num_hypotheses=kept), ("outputs", "scores", "log_probs", "lengths", "finished")
            ),
            inputs,
        )
        self.score = _score_signature(translator)
        self._add_guided_searches(translator)
        if translator.can_align:
            self.align = _signature(
                lambda inputs, targets: dict(translator.align_batch(inputs, targets)), inputs, _strings("targets")
            )
        text = served_text(translator)
        if text is not None:
            self.text_encoders = _text_encoders_signature(text)

    def _add_guided_searches(self, translator: "Translator") -> None:
        """Adds the signatures with prefixes, constraints and seeds that the translator can search with."""
        search, inputs = translator.search_batch, translator.source.spec
        if translator.can_force_prefix:
            self.translate_with_prefix = _signature(
                lambda inputs, prefixes: _best(search(inputs, num_hypotheses=1, prefixes=prefixes)),
                *(inputs, _strings("prefixes")),
            )
        if translator.can_constrain:
            self.translate_with_constraints = _signature(
                lambda inputs, constraints: _best(
                    search(inputs, num_hypotheses=1, constraints=constraints), "unmet_constraints"
                ),
                *(inputs, _strings("constraints")),
            )
        if translator.samples:
            self.sample = _signature(
                lambda inputs, seeds: _best(search(inputs, num_hypotheses=1, seeds=seeds), "log_probs"),
                *(inputs, tf.TensorSpec([None], tf.int64, name="seeds")),
            )


def _score_signature(translator: "Translator") -> Any:
    """Returns the signature that scores given targets, of a two-sided model with the partners of each."""
    inputs, targets, names = translator.source.spec, _strings("targets"), ("scores", "log_probs", "lengths")
    if translator.two_sided:
        return _signature(
            lambda inputs, targets, partners: _pick(translator.score_batch(inputs, targets, partners), names),
            *(inputs, targets, _strings("partners")),
        )
    return _signature(lambda inputs, targets: _pick(translator.score_batch(inputs, targets), names), inputs, targets)


def _text_encoders_signature(text: ServedText) -> Any:
    """Returns the signature that gives clients the files of the text encoders."""
    encoders = text.wire()
    return _signature(
        lambda sides: {"files": tf.gather(encoders, tf.cast(tf.not_equal(sides, "source"), tf.int32))},
        _strings("sides"),
    )


def _strings(name: str) -> tf.TensorSpec:
    return tf.TensorSpec([None], tf.string, name=name)


def _signature(function: Callable[..., dict[str, tf.Tensor]], *specs: tf.TensorSpec) -> Any:
    names = [spec.name for spec in specs]

    def checked(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        first, count = names[0], tf.shape(tensors[0])[0]
        checks = [
            tf.debugging.assert_equal(tf.shape(tensor)[0], count, f"{name} and {first} must be as many")
            for name, tensor in zip(names[1:], tensors[1:], strict=True)
        ]
        with tf.control_dependencies(checks):
            return function(*map(tf.identity, tensors))

    # Traced here, because traces that TensorFlow makes during saving are not reused elsewhere, as by the checks.
    whole = function if len(specs) == 1 else checked
    return tf.function(whole, input_signature=specs, autograph=False).get_concrete_function()


def _pick(results: Mapping[str, tf.Tensor], names: Iterable[str]) -> dict[str, tf.Tensor]:
    return {name: results[name] for name in names}


def _best(found: Mapping[str, tf.Tensor], *more: str) -> dict[str, tf.Tensor]:
    """Returns ``outputs``, ``scores`` and the tensors named in ``more``, [N], from a search with results [N, 1]."""
    return {name: found[name][:, 0] for name in ("outputs", "scores", *more)}


def served_text(translator: "Translator") -> ServedText | None:
    """Returns the text encoders of a translator whose graph does not take raw text, otherwise None."""
    encoders = (translator.source_encoder, translator.target_encoder)
    return None if all(encoder.takes_raw_text for encoder in encoders) else ServedText(*encoders)


def export(
    translator: "Translator",
    export_dir: files.PathLike,
    *,
    version: int = 1,
    made_from: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    warmup_lines: Sequence[str] = WARMUP_LINES,
) -> pathlib.Path:
    """Writes a translator as one version of a servable model.

    Before the SavedModel gets its name, it is loaded again and compared with the translator on the warm-up lines.

    Args:
      translator: The translator to export.
      export_dir: TF Serving's model base path; created if it is missing.
      version: Name of the subdirectory, a positive integer such as the checkpoint's step. TF Serving serves the
        highest one.
      made_from: JSON values for ``export.json`` (run, step, problem, model, ...).
      overwrite: Whether an existing version is replaced.
      warmup_lines: Raw sentences for two warm-up requests, one with the first sentence and one with all of them.

    Returns:
      The version's directory.

    Raises:
      UserError: The translator is a path, the version is not positive or exists, another process is writing it, or the
        disk is full or not writable. Nothing half-written is left behind.
      ValueError: The graph contains operations that no server knows.
      RuntimeError: The SavedModel and the translator give different translations.
    """
    if isinstance(translator, str | os.PathLike):
        raise UserError(
            f"export needs a Translator, not a path: export(Translator.load({os.fspath(translator)!r}), ...); or use "
            "the command t2t_ext-exporter."
        )
    base = pathlib.Path(export_dir)
    final = check_destination(base, version, overwrite=overwrite)
    with locks.held(base / f".{version}.lock", f"is exporting version {version} to {base}", make_directory=True):
        check_destination(base, version, overwrite=overwrite)  # another process may have made it meanwhile
        _write(translator, final, made_from or {}, warmup_lines)
        files.remove_leftovers(base)  # of exports that were killed; one may have been replacing this version
    return final


def _write(
    translator: "Translator", final: pathlib.Path, made_from: Mapping[str, Any], warmup_lines: Sequence[str]
) -> None:
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
    description = {"t2t_ext": __version__, "tensorflow": tf.__version__, **made_from}
    if text is not None:
        description["text"] = {side: text.side(side).record() for side in SIDES}
    requests = translator.source.trial_batches(warmup_lines)
    with files.atomic_directory(final) as temporary:
        try:
            with _quiet_saving(), files.without_pattern(temporary) as directory:
                tf.saved_model.save(module, str(directory), signatures=signatures)
            _check_ops(temporary)
            _check_outputs(temporary, module, requests[-1])
            _write_warmup_requests(temporary, requests)
        except (tf.errors.ResourceExhaustedError, tf.errors.OutOfRangeError) as error:  # a full disk, a file size limit
            raise OSError(errno.ENOSPC, "No space left on device") from error
        if text is not None:
            text.write(temporary)
        description["files"] = exported_files.record(temporary)
        content = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
        (temporary / DESCRIPTION_NAME).write_text(content, encoding="utf-8")


def load(export_dir: files.PathLike) -> Any:
    """Loads an exported model after checking that its files are as they were written.

    Args:
      export_dir: A version's directory, or the directory of all versions, of which the highest is loaded.

    Returns:
      The result of ``tf.saved_model.load``; its ``signatures`` are those of ``ServedTranslator``.

    Raises:
      UserError: There is no export, or a file of it is damaged; the message names it.
    """
    import tensorflow_text  # noqa: F401  # registers the operations of the text encoders

    path = version_directory(export_dir)
    exported_files.check(path)
    _read_saved_model(path)
    try:
        with chatter.left_out(), files.without_pattern(path) as directory:
            return tf.saved_model.load(str(directory))
    except (tf.errors.OpError, OSError, ValueError, KeyError) as error:
        said = str(error).partition("\n")[0][:200]
        raise UserError(f"The exported model {path} cannot be loaded: {said}. {exported_files.ADVICE}") from error


def saved_model_ops(directory: files.PathLike) -> dict[str, int]:
    """Counts the operations of a SavedModel such as ``EXPORT/500``, in its graph and in all its functions.

    Returns:
      Name of the operation -> number of nodes, in alphabetical order.
    """
    graphs = [meta_graph.graph_def for meta_graph in _read_saved_model(directory).meta_graphs]
    nodes = [graph.node for graph in graphs]
    nodes += [function.node_def for graph in graphs for function in graph.library.function]
    counts = collections.Counter(node.op for node in itertools.chain(*nodes))
    return dict(sorted(counts.items()))


def signature_tensors(directory: files.PathLike, signature: str = "serving_default") -> dict[str, str]:
    """Returns the names in the graph of a signature's input and output tensors, which loaders outside Python need.

    Returns:
      ``{"inputs": "serving_default_inputs:0", "outputs": "StatefulPartitionedCall:0", ...}``.
    """
    definition = _read_saved_model(directory).meta_graphs[0].signature_def[signature]
    return {name: info.name for group in (definition.inputs, definition.outputs) for name, info in group.items()}


def _read_saved_model(directory: files.PathLike) -> Any:
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    path = pathlib.Path(directory) / "saved_model.pb"
    try:
        return saved_model_pb2.SavedModel.FromString(path.read_bytes())
    except DecodeError as error:
        raise UserError(f"{path} is damaged ({error}). {exported_files.ADVICE}") from error


def _check_ops(directory: pathlib.Path) -> None:
    foreign = [
        name
        for name in saved_model_ops(directory)
        if name in _PYTHON_OPS or not (hasattr(tf.raw_ops, name) or name.startswith(_TEXT_OPS))
    ]
    if foreign:
        raise ValueError(
            f"The graph holds operations that TF Serving does not know: {', '.join(foreign)}. "
            "Models for export must be made of TensorFlow's and tensorflow-text's operations."
        )


def _check_outputs(directory: pathlib.Path, module: ServedTranslator, inputs: tf.Tensor) -> None:
    expected = module.serving_default(inputs)
    # The output left out here is tensorflow-text's, about the subword model in the SavedModel.
    with chatter.left_out(), files.without_pattern(directory) as readable:
        found = tf.saved_model.load(str(readable)).signatures["serving_default"](inputs=inputs)
    for number, (left, right) in enumerate(zip(expected["outputs"].numpy(), found["outputs"].numpy(), strict=True)):
        if left != right:
            source = repr(inputs[number].numpy()) if inputs.dtype == tf.string else f"warm-up source {number + 1}"
            raise RuntimeError(f"The SavedModel translates {source} as {right!r}, the translator as {left!r}.")


def _write_warmup_requests(directory: pathlib.Path, requests: Sequence[tf.Tensor]) -> None:
    """Writes requests that TF Serving replays when it loads a model, as a TFRecord of PredictionLog."""
    path = directory / WARMUP_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for sources in requests:
            values = sources.numpy()
            if sources.dtype == tf.string:
                values = [text.decode() for text in values]
            request = protocol.predict_request("t2t_ext", "serving_default", {"inputs": values})
            writer.write(protocol.prediction_log(request))


@contextlib.contextmanager
def _quiet_saving() -> Iterator[None]:
    """Suppresses TensorFlow's messages about functions saved without traces, none of which is called later."""
    from absl import logging as absl_logging

    level = absl_logging.get_verbosity()
    absl_logging.set_verbosity(absl_logging.ERROR)
    try:
        yield
    finally:
        absl_logging.set_verbosity(level)
