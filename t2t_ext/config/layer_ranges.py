"""Parses settings that name layers of a stack: ``all``, ``1-6``, ``1,3-4``."""

import re

_SEPARATORS = r"[,+]"


def layer_numbers(text: str, layers: int) -> frozenset[int]:
    """Returns the layers that a text names, counted from 0.

    Args:
      text: ``all``, or numbers and ranges counted from 1, joined by ``,`` or (in ``--hparams``, where a comma ends the
        value) ``+``; a range includes both ends. "" names none.
      layers: The number of layers.

    Raises:
      ValueError: The text has another form, or names a missing layer or a layer twice; the message says which.
    """
    if text.strip() == "all":
        return frozenset(range(layers))
    numbers: set[int] = set()
    for part in re.split(_SEPARATORS, text) if text.strip() else ():
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if not match:
            raise ValueError(f"{part.strip()!r} is no layer: write all, 1-6, or 1,3-4 (in --hparams: 1+3-4)")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise ValueError(f"the range {part.strip()} goes backwards: write {last}-{first}")
        if first < 1 or last > layers:
            raise ValueError(f"{part.strip()} is outside of the {layers} layers, which count from 1 to {layers}")
        twice = sorted(number + 1 for number in range(first - 1, last) if number in numbers)
        if twice:
            raise ValueError(f"layer {twice[0]} is named twice: write every layer once")
        numbers.update(range(first - 1, last))
    return frozenset(numbers)
