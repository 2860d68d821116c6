"""The Translator of models whose source is feature vectors: what it writes of an image, for example.

translator = Translator.load("RUN")                  # is a FeatureTranslator where the run reads features
translator([np.load("image.npy")])                   # float [regions, F] each, or FeatureSource

Everything but the source is ``Translator``'s: the same searches, rules, scores and options.

Legend: B sources, S regions, F size of a feature vector.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from t2t_ext.data.features.float_files import padded
from t2t_ext.data.features.sources import FeatureSource
from t2t_ext.errors import UserError
from t2t_ext.layers.masks import real_positions
from t2t_ext.models.ensemble import Ensemble
from t2t_ext.models.seq2seq import Seq2Seq
from t2t_ext.search.beam_search import at_least_wide
from t2t_ext.translation.graph_translator import GraphTranslator
from t2t_ext.translation.translator import Hypothesis, Progress, Translator, _Read

Sources = Sequence[FeatureSource | np.ndarray]
_FEATURES = tf.TensorSpec([None, None, None], tf.float32)


def translator_for(model: Seq2Seq | Ensemble, *args: Any, **options: Any) -> Translator:
    """Returns the Translator for a model; arguments as of ``Translator``."""
    return (FeatureTranslator if model.source_feature_size else Translator)(model, *args, **options)


def _of_features(function: Any) -> Any:
    """Returns a graph function whose first argument is features float32 [B, S, F] instead of strings [B]."""
    signature = [_FEATURES, *function.input_signature[1:]]
    return tf.function(function.python_function, input_signature=signature, autograph=False)


class FeatureTranslator(Translator):
    """Writes texts for lists of arrays.

    Wherever ``Translator`` has strings, the sources are ``FeatureSource``s or arrays float [regions, F], in graph
    functions float32 [B, S, F] whose vectors of zeros alone are padding. A source without regions has nothing to be
    written of. Word alignments there are none.
    """

    positions = "feature vectors"
    translate_batch = _of_features(GraphTranslator.translate_batch)
    nbest_batch = _of_features(GraphTranslator.nbest_batch)
    search_batch = _of_features(GraphTranslator.search_batch)
    search_with_prefix_batch = _of_features(GraphTranslator.search_with_prefix_batch)
    translate_with_prefix_batch = _of_features(GraphTranslator.translate_with_prefix_batch)
    search_with_constraints_batch = _of_features(GraphTranslator.search_with_constraints_batch)
    search_with_constraints_and_prefix_batch = _of_features(GraphTranslator.search_with_constraints_and_prefix_batch)
    translate_with_constraints_batch = _of_features(GraphTranslator.translate_with_constraints_batch)
    sample_batch = _of_features(GraphTranslator.sample_batch)
    score_batch = _of_features(GraphTranslator.score_batch)
    score_sides_batch = _of_features(GraphTranslator.score_sides_batch)
    score_ids_batch = _of_features(GraphTranslator.score_ids_batch)
    score_sides_ids_batch = _of_features(GraphTranslator.score_sides_ids_batch)

    @property
    def source_spec(self) -> tf.TensorSpec:
        """What graph functions take as sources, F known."""
        return tf.TensorSpec([None, None, self.model.source_feature_size], tf.float32, name="inputs")

    def warmup_inputs(self) -> list[np.ndarray]:
        """Returns sources float32 [B, S, F] to try an exported model on: one, then several with padding."""
        size = self.model.source_feature_size
        pattern = np.sin(np.arange(4 * 6 * size, dtype=np.float32)).reshape(4, 6, size)
        pattern[1, 2:] = 0.0
        pattern[2] = 0.0
        return [pattern[:1], pattern]

    def translate(
        self,
        lines: Sources,
        progress: Progress | None = None,
        *,
        prefixes: Sequence[str] | None = None,
        constraints: Sequence[Sequence[str]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Returns the ``num_hypotheses`` best texts for every source; as ``Translator.translate``."""
        return super().translate(lines, progress, prefixes=prefixes, constraints=constraints)

    def translate_ids(self, sources: Sources, progress: Progress | None = None) -> list[list[Hypothesis]]:
        """Returns what ``translate`` does: there are no ids."""
        return self.translate(sources, progress)

    def align_hypotheses(self, lines: Any, hypotheses: Any, progress: Any = None) -> NoReturn:
        """Refuses; see ``check_alignment``."""
        del lines, hypotheses, progress
        self._refuse_alignment()

    def check_alignment(self, *, with_partners: bool = False) -> NoReturn:
        """Refuses.

        Raises:
          UserError: Always: feature vectors are no words.
        """
        del with_partners
        self._refuse_alignment()

    # === Parts ===

    def _refuse_alignment(self) -> NoReturn:
        raise UserError(
            "There is no word alignment with a source of feature vectors, which has no words: leave the alignments "
            "out. Which regions a word looks at is in the model's attention_weights."
        )

    def _blank(self, inputs: tf.Tensor) -> tf.Tensor:
        return ~tf.reduce_any(real_positions(inputs), axis=1)

    def _source_lengths(self, ids: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.cast(real_positions(ids), tf.int32), axis=1)

    def _source_ids(self, lines: tf.Tensor) -> tf.Tensor:
        """Cuts features float32 [B, S, F] at max_input_length regions and checks F."""
        features = tf.ensure_shape(lines, [None, None, self.model.source_feature_size])
        return at_least_wide(features[:, : self.decode_hparams.max_input_length])

    def _marked_source_ids(self, lines: tf.Tensor) -> NoReturn:
        del lines
        self._refuse_alignment()

    def _read_sources(self, sources: list) -> _Read:
        """Checks arrays; what is read are they.

        Raises:
          UserError: A source is no array of feature vectors of the model's size.
        """
        size = self.model.source_feature_size
        arrays = []
        for number, source in enumerate(sources, 1):
            rows = source.rows if isinstance(source, FeatureSource) else source
            shape = getattr(rows, "shape", None)
            if shape is None or len(shape) != 2 or shape[1] != size:
                what = f"{type(rows).__name__} {rows!r:.60}" if shape is None else f"an array of shape {list(shape)}"
                raise UserError(
                    f"Source {number} is {what}, but this model reads feature vectors: float [regions, {size}]."
                )
            arrays.append(rows)
        return _Read(arrays, np.array([len(rows) for rows in arrays], np.int64))

    def _inputs(self, source: _Read, numbers: Iterable[int]) -> tf.Tensor:
        limit = self.decode_hparams.max_input_length
        arrays = [source.graph[i][:limit] for i in numbers]
        width = max(map(len, arrays))
        return tf.constant(padded(arrays, width, self.model.source_feature_size, np.float32))
