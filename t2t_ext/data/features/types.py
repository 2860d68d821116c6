"""Defines the types of features in samples: text, ids, float arrays."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

SOURCE = "source"
TARGET = "target"
STORAGES = ("float32", "float16")


class UnusableValue(Exception):
    """Raised for a value that makes a sample unusable.

    Attributes:
      reason: A short key under which such samples are counted.
      explanation: The error message for people.
    """

    def __init__(self, reason: str, explanation: str) -> None:
        super().__init__(explanation)
        self.reason, self.explanation = reason, explanation


@dataclasses.dataclass(frozen=True)
class Lazy:
    """A value of a ``Floats`` feature that is read only when needed; if equal values are shared, once per key.

    Attributes:
      key: The name of the value, such as the number of an image; values of a split with equal keys must be equal.
      read: A function that returns the array; may raise ``UnusableValue``.
    """

    key: str
    read: Callable[[], np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Feature:
    """The declared type of one named feature, which every sample has."""

    def complaint(self, value: Any) -> str:
        """Returns what is wrong with a value of this feature, or an empty string."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Text(Feature):
    """A sentence, stored as subword ids that end with EOS.

    Attributes:
      side: The side whose subword model encodes the text, ``SOURCE`` or ``TARGET`` (a joint model serves both sides).
      multiple: Whether a value is a non-empty list of equally good texts (reference translations) instead of one text.
        The first text is stored as ids; for development and test sets, all texts are written to text files.
    """

    side: str = SOURCE
    multiple: bool = False

    def complaint(self, value: Any) -> str:
        """Returns what is wrong with a value of this feature, or an empty string."""
        texts = value if self.multiple else [value]
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            return f"expected a {'non-empty list of str' if self.multiple else 'str'}, got {_described(value)}"
        try:
            "".join(texts).encode()
        except UnicodeEncodeError:
            return f"half of a character (U+D800 to U+DFFF) in {_described(value)}"
        return ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ids(Feature):
    """Integer ids, which are stored unchanged.

    Attributes:
      size: The number of possible ids; all ids are from 0 to size - 1.
    """

    size: int

    def complaint(self, value: Any) -> str:
        """Returns what is wrong with a value of this feature, or an empty string."""
        array = np.asarray(value)
        if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
            return f"expected a flat sequence of int, got {_described(value)}"
        if array.size and (array.min() < 0 or array.max() >= self.size):
            return f"expected ids from 0 to {self.size - 1}, got {array.min()} to {array.max()}"
        return ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Floats(Feature):
    """A sequence of float vectors, such as the features of the regions of an image.

    A value is an array, or ``Lazy`` if it should be read only when needed. Values are stored in separate files next to
    the shards (``t2t_ext.data.features.float_files``). In the training set, equal values are stored only once.

    Attributes:
      depth: The length of each vector; a value has the shape [any number, depth].
      storage: The dtype of stored vectors: ``float32``, or ``float16`` for half the space.
    """

    depth: int
    storage: str = "float32"

    def complaint(self, value: Any) -> str:
        """Returns what is wrong with a value of this feature, or an empty string; lazy values are not checked."""
        if isinstance(value, Lazy):
            return ""
        array = np.asarray(value)
        if array.ndim != 2 or array.shape[1] != self.depth or not np.issubdtype(array.dtype, np.floating):
            return f"expected floats of shape [any, {self.depth}], got {array.dtype} of shape {list(array.shape)}"
        return ""


def text_features(features: Mapping[str, Feature]) -> dict[str, Text]:
    """Returns the text features by name, with those of the source side first."""
    texts = [(name, feature) for name, feature in features.items() if isinstance(feature, Text)]
    return dict(sorted(texts, key=lambda item: item[1].side == TARGET))


def complaint(declared: dict[str, Feature], sample: Any) -> str:
    """Returns how a sample differs from the declared features, or an empty string."""
    if not isinstance(sample, dict):
        return f"expected a dict with the features {_names(declared)}, got {_described(sample)}"
    if sample.keys() != declared.keys():
        return f"expected the features {_names(declared)}, got {_names(sample)}"
    for name, feature in declared.items():
        error = feature.complaint(sample[name])
        if error:
            return f"feature {name!r}: {error}"
    return ""


def _names(features: dict[str, Any]) -> str:
    return ", ".join(sorted(map(str, features))) or "none"


def _described(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
