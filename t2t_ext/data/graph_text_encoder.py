"""The text encoder inside the TensorFlow graph: strings to ids and back, on any server."""

import tensorflow as tf
import tensorflow_text as tf_text

from t2t_ext.data.text_encoder import EOS_ID


class GraphSubwordEncoder(tf.Module):
    """A SentencePiece model as graph operations; agrees with SubwordEncoder of the same model."""

    def __init__(self, model_bytes: bytes, name: str | None = None) -> None:
        """Initialises the encoder from a serialised SentencePiece model."""
        super().__init__(name=name)
        self._tokenizer = tf_text.SentencepieceTokenizer(model=model_bytes, out_type=tf.int32, add_eos=False)

    def encode(self, strings: tf.Tensor, max_length: int | None = None) -> tf.RaggedTensor:
        """Encodes strings [N] as ragged int32 [N, (T)], at most ``max_length`` subwords each, then EOS."""
        ids = self._tokenizer.tokenize(strings)[:, :max_length]
        eos = tf.fill([tf.shape(strings)[0], 1], EOS_ID)
        return tf.concat([ids, tf.RaggedTensor.from_tensor(eos)], axis=1)

    def decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Decodes ragged int32 [N, (T)] without EOS to strings [N]."""
        return self._tokenizer.detokenize(ids)
