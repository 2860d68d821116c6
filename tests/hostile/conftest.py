"""Provides the folder of stored files that the tests damage, and stops commands where TensorFlow would start."""

import importlib

import pytest
from hostile_world import World

from t2t_ext.errors import UserError

REACHED = "the model would be loaded now"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Yields the world; a command that would load a model ends before that with status 2 and the message REACHED."""

    def stop(*_):
        raise UserError(REACHED)

    with pytest.MonkeyPatch.context() as patch:
        for command in ("decoder", "translate_all", "rerank", "exporter", "pseudo_references"):
            patch.setattr(importlib.import_module(f"t2t_ext.bin.{command}"), "start_tensorflow", stop)
        patch.setattr(importlib.import_module("t2t_ext.bin.trainer"), "_start_tensorflow", stop)
        yield World(tmp_path_factory.mktemp("world"))
