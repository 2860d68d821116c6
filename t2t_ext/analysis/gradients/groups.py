"""Defines groups of variables whose gradients are measured together: layers and other parts. Imports no TensorFlow."""

import re
from collections.abc import Iterable, Sequence

_LAYER = re.compile(r"layer_(\d+)")
_MOST_PARTS = 2  # of the name of a group that is not a layer


def group_of(name: str) -> str:
    """Returns the group of a variable, derived only from its name as in ``Seq2Seq.named_variables``.

    Every variable in a layer belongs to that layer: ``encoder/layer_3/self_attention/qkv/kernel`` to
    ``encoder/layer_3``, and ``layer_5/...`` of a stack without a name to ``layer_5``. The other groups are the first
    two parts of the name, without the variable's own: ``encoder/final_norm``, ``embedding``.
    """
    parts = name.split("/")
    for count, part in enumerate(parts, 1):
        if _LAYER.fullmatch(part) and count < len(parts):
            return "/".join(parts[:count])
    return "/".join(parts[:-1][:_MOST_PARTS]) or name


def groups_of(names: Iterable[str]) -> dict[str, list[int]]:
    """Returns group -> the indices of its variables among all names; the layers of a stack are in order."""
    found: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        found.setdefault(group_of(name), []).append(place)
    return {group: found[group] for group in in_order(found)}


def in_order(groups: Iterable[str]) -> list[str]:
    """Returns groups in order of first appearance, but with the layers of a stack together and sorted by number."""
    stacks: dict[str, list[tuple[int, str]]] = {}
    for group in dict.fromkeys(groups):
        stack, number = stack_of(group)
        stacks.setdefault(stack, []).append((-1 if number is None else number, group))
    return [group for members in stacks.values() for _, group in sorted(members, key=lambda each: each[0])]


def stack_of(group: str) -> tuple[str, int | None]:
    """Returns a layer's stack and number: ``("encoder", 3)``, or ``("", 5)`` for a stack without a name.

    For a group that is not a layer, returns the group itself and None.
    """
    stack, _, last = group.rpartition("/")
    match = _LAYER.fullmatch(last)
    return (stack, int(match[1])) if match else (group, None)


def title_of(group: str) -> str:
    """Returns the displayed name of a part, in which layers count from 1."""
    stack, number = stack_of(group)
    named = stack.replace("_", " ")
    return named if number is None else f"{named} layer {number + 1}".strip()


def encoder_layers(groups: Sequence[str]) -> list[str]:
    """Returns the layers that encode the source, lowest first: ``encoder/layer_i``, or the layers both sides share."""
    for wanted in ("encoder", ""):
        found = [(number, group) for group in groups for stack, number in (stack_of(group),) if stack == wanted]
        layers = sorted((number, group) for number, group in found if number is not None)
        if layers:
            return [group for _, group in layers]
    return []
