"""Tests that a manifest can name only files in its own directory."""

import json

import pytest

from t2t_ext.data.datasets.manifest import Manifest, SplitSummary
from t2t_ext.errors import UserError

SPLIT = SplitSummary(read=1, samples=1, tokens={}, longest={}, shards=["p-train-00000-of-00001.npz"])
MANIFEST = Manifest(
    problem="p", problem_options={}, source_language="de", target_language="en", settings={}, inputs={},
    vocab={"joint": True, "training": {}, "target": {"file": "v.model", "size": 8, "sha256": "0"}},
    splits={"train": SPLIT}, files={"v.model": {"bytes": 1, "sha256": "0"}}, versions={},
)  # fmt: skip
FLOATS = {"depth": 1, "storage": "float32", "sequences": 1, "vectors": 1, "longest": 1, "files": [], "lengths": "l.npy"}


@pytest.mark.parametrize("name", ["../v.model", "/etc/passwd", "a/b", "..", "", "a\0b"])
@pytest.mark.parametrize("place", ["files", "shards", "texts", "floats", "lengths", "vocab"])
def test_names_stay_in_the_directory(tmp_path, place, name):
    content = json.loads(MANIFEST.to_json())
    path = tmp_path / "p.manifest.json"
    path.write_text(json.dumps(content))
    assert Manifest.load(path) == MANIFEST
    train = content["splits"]["train"]
    match place:
        case "files":
            content["files"][name] = {"bytes": 1, "sha256": "0"}
        case "shards":
            train["shards"].append(name)
        case "texts":
            train["texts"] = {"inputs": ["t.txt", name]}
        case "floats":
            train["floats"] = {"inputs": {**FLOATS, "files": [name]}}
        case "lengths":
            train["floats"] = {"inputs": {**FLOATS, "lengths": name}}
        case "vocab":
            content["vocab"]["target"]["file"] = name
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"manifest\.json is damaged .*is not the name of a file beside it"):
        Manifest.load(path)
