import json
import shutil

import pytest

from t2t_ext.errors import UserError
from t2t_ext.serving import exported_files
from t2t_ext.serving.served_text import FILE_NAMES, ServedText

NAMES = ("saved_model.pb", "variables/variables.index", FILE_NAMES["source"], FILE_NAMES["target"])


@pytest.fixture
def version(tmp_path):
    path = tmp_path / "export" / "7"
    for name in NAMES:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(f"contents of {name}".encode())
    note(path, {"step": 7, "files": exported_files.record(path)})
    return path


def note(path, description):
    (path / "export.json").write_text(json.dumps(description))


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def turn_into_a_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (truncate, "were written"),
        (flip, "SHA-256"),
        (lambda path: path.unlink(), "is missing"),
        (turn_into_a_folder, "is missing"),
    ],
)
def test_a_damaged_file_is_named(version, name, damage, said):
    exported_files.check(version)
    damage(version / name)
    with pytest.raises(UserError, match=f"is damaged: {name} .*({said}).*export it again"):
        exported_files.check(version)
    exported_files.check(version, [other for other in NAMES if other != name])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "it is empty"),
        ("[]", "it is a list"),
        ('{"files": []}', "files is a list"),
        ('{"files": {"saved_model.pb": 3}}', "files.saved_model.pb is 3"),
        ('{"files": {"saved_model.pb": {"bytes": 3}}}', "lacks 'sha256'"),
    ],
)
def test_a_damaged_description_is_named(version, content, said):
    (version / "export.json").write_text(content)
    with pytest.raises(UserError, match=f"export.json is damaged .*{said}"):
        exported_files.check(version)


def test_exports_of_earlier_versions_are_not_checked(version):
    note(version, {"step": 7})
    flip(version / NAMES[0])
    exported_files.check(version)
    (version / "export.json").unlink()
    exported_files.check(version)


def test_encoders_that_are_gone_are_not_raw_text(version):
    shutil.rmtree(version / "assets.extra")
    with pytest.raises(UserError, match=r"text_encoder\.source\.model is missing"):
        ServedText.of_export(version.parent)
