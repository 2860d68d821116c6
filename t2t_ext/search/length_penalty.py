"""Length penalties: a hypothesis's score is its log-probability divided by its penalty."""

import tensorflow as tf

from t2t_ext.errors import UserError

PENALTIES = ("gnmt", "len_power")


def length_penalty(lengths: tf.Tensor, alpha: float, kind: str = "gnmt") -> tf.Tensor:
    """Returns the penalty of each length.

    Args:
      lengths: int [...], tokens of the hypothesis with its EOS.
      alpha: Exponent, >= 0; 0 leaves log-probabilities as they are.
      kind: ``gnmt``: ((5 + length) / 6)^alpha (Wu et al. 2016, eq. 14, as T2T has it);
        ``len_power``: length^alpha (fairseq's).

    Returns:
      float32 [...].

    Raises:
      UserError: For another kind.
    """
    lengths = tf.cast(lengths, tf.float32)
    if kind == "gnmt":
        return tf.pow((5.0 + lengths) / 6.0, alpha)
    if kind == "len_power":
        return tf.pow(tf.maximum(lengths, 1.0), alpha)
    raise UserError(f"length_penalty={kind!r} is unknown; use one of {', '.join(PENALTIES)}.")
