"""Tests of runs whose checkpoint cannot be loaded: each command says which file, why, and what to do."""

import hashlib
import json
import re
import shutil

import numpy as np
import pytest
from hostile_world import RUN, World

from t2t_ext.data.text import sentencepiece_model
from t2t_ext.runs import checkpoints

_STEP = 300
_NAME = checkpoints.checkpoint_name(_STEP)
_EMBEDDINGS = "embeddings"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Returns a world in which commands really load models."""
    return World(tmp_path_factory.mktemp("world"))


def with_arrays(change):
    """Returns a damage function that saves a valid checkpoint whose arrays ``change`` has modified."""

    def damage(run):
        path = run / "checkpoints" / _NAME
        groups = {group: checkpoints.load_arrays(path, group) for group in checkpoints.read_info(path).groups}
        for group in ("model", "ema"):
            if group in groups:
                change(groups[group])
        checkpoints.save_checkpoint(path.parent, _STEP, **groups)

    return damage


def with_wider(arrays):
    name = next(name for name in sorted(arrays) if _EMBEDDINGS in name)
    arrays[name] = np.pad(arrays[name], [(0, 0), (0, 1)])


def with_file(pattern, change, *, honest):
    """Returns a damage function that changes files of the checkpoint and, if ``honest``, their recorded checksums."""

    def damage(run):
        path = run / "checkpoints" / _NAME
        description = json.loads((path / checkpoints.DESCRIPTION_NAME).read_text())
        for file in path.glob(pattern):
            content = change(file.read_bytes())
            file.write_bytes(content)
            if honest:
                entry = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
                description["files"][file.name] = entry
        (path / checkpoints.DESCRIPTION_NAME).write_text(json.dumps(description))

    return damage


def flipped(content):
    return content[: len(content) // 2] + bytes([content[len(content) // 2] ^ 4]) + content[len(content) // 2 + 1 :]


def half(content):
    return content[: len(content) // 2]


def without_a_name(run):
    path = run / "checkpoints" / _NAME / checkpoints.DESCRIPTION_NAME
    description = json.loads(path.read_text())
    for group in description["groups"].values():
        group["unheard/of"] = {"shape": [1], "dtype": "float32"}
    path.write_text(json.dumps(description))


def with_another_vocabulary(run):
    model = sentencepiece_model.train(["ein Satz .", "noch ein Satz und noch einer ."], vocab_size=285)
    config = json.loads((run / "config.json").read_text())
    for side in ("source", "target"):
        (run / f"vocab.{side}.model").write_bytes(model)
        config["vocabularies"][side] = hashlib.sha256(model).hexdigest()
    (run / "config.json").write_text(json.dumps(config))


def with_another_width(run):
    config = json.loads((run / "config.json").read_text())
    config["hparams"]["hidden_size"] *= 2
    (run / "config.json").write_text(json.dumps(config))


DATA_FILES, NOT_OF_THIS_RUN = "*.data-00000-of-00001", "do not fit the model of its run: .*choose another checkpoint"
DAMAGES = {
    "wider": (with_arrays(with_wider), NOT_OF_THIS_RUN),
    "missing": (with_arrays(lambda arrays: arrays.pop(sorted(arrays)[0])), "is missing.*choose another checkpoint"),
    "unknown": (with_arrays(lambda arrays: arrays.update(new=np.zeros(1))), "new is unknown to the model"),
    "vocabulary": (with_another_vocabulary, NOT_OF_THIS_RUN),
    "width": (with_another_width, NOT_OF_THIS_RUN),
    "flipped": (with_file(DATA_FILES, flipped, honest=False), "the SHA-256 of .*data.* Restore it from a backup, or"),
    "cut": (with_file("*.index", half, honest=False), "index has .* bytes instead of .* Restore it from a backup, or"),
    "flipped before": (with_file(DATA_FILES, flipped, honest=True), "is damaged: .* Restore it from a backup, or"),
    "cut before": (with_file("*.index", half, honest=True), "is damaged: .* Restore it from a backup, or"),
    "a name": (without_a_name, "is damaged: .*unheard/of.* Restore it from a backup, or"),
}
WHOLE = ("wider", "missing", "unknown", "vocabulary", "width")  # damages that leave every file as it was written
_TEXT = "--decode_from_file=WORLD/text.txt"
COMMANDS = {
    "decoder": (_TEXT, "--decode_to_file=OUT/out", f"--checkpoint_path={_STEP}"),
    "decoder --score_file": ("--score_file=WORLD/pairs.tsv", f"--checkpoint_path={_STEP}"),
    "translate_all": (_TEXT, "--decode_reference=WORLD/text.txt"),
    "exporter": ("--export_dir=OUT/export", f"--checkpoint_path={_STEP}"),
    "analyze attention": ("--sentence=ein Satz .", "--out_dir=OUT/x", f"--checkpoint_path={_STEP}"),
    "trainer": ("--train_steps=301",),
    "avg_all": ("--n=1",),
}
FAST = [("decoder", damage) for damage in ("wider", "flipped before", "a name")]


@pytest.mark.parametrize(
    ("command", "damage"),
    [
        pytest.param(command, damage, marks=[] if (command, damage) in FAST else pytest.mark.slow)
        for command in COMMANDS
        for damage in DAMAGES
        if (command, damage) != ("trainer", "vocabulary")  # the trainer reads the subwords of its data
    ],
)
def test_what_is_said(world, tmp_path, command, damage):
    spoil, said = DAMAGES[damage]
    shutil.copytree(world.folder / RUN, tmp_path / "run")
    (tmp_path / "pairs.tsv").write_text("ein Satz .\tein Satz .\n")
    spoil(tmp_path / "run")
    name, *words = command.split(" ")
    flags = [flag.replace("WORLD/pairs.tsv", str(tmp_path / "pairs.tsv")) for flag in COMMANDS[command]]
    words = [word for word in words if not word.startswith("--")]
    outcome = world.run(name, *words, f"--output_dir={tmp_path / 'run'}", *flags)
    assert world.fault(outcome) == ""
    # Averaging builds no model, and translate-all skips damaged checkpoints.
    able = {"avg_all": WHOLE, "translate_all": sorted({*DAMAGES} - {*WHOLE})}
    if damage in able.get(command, ()):
        assert outcome.status == 0
        assert command != "translate_all" or "Passed over" in outcome.out
        return
    assert outcome.status == 2
    assert str(tmp_path / "run") in outcome.err
    if command in ("decoder", "decoder --score_file", "exporter"):
        assert re.search(said, outcome.err, re.S), outcome.err
