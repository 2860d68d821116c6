"""t2t_ext: a model garden for neural machine translation on TensorFlow and Keras 3."""

from t2t_ext.version import __version__

__all__ = ["__version__"]
