"""Tests of user code: a run imports its own copy or a directory that the user names, but no path in config.json."""

import json
import shutil
import sys
import textwrap

import pytest

from t2t_ext import registry
from t2t_ext.config import user_directory
from t2t_ext.errors import UserError
from t2t_ext.runs import run_directory
from t2t_ext.runs.run_directory import RunDirectory
from tests.unit.runs.test_run_directory import FakeEncoder, make_config

MODULE = """
    import dataclasses, pathlib
    from t2t_ext import registry
    from t2t_ext.config.hyperparameters import HParams, hparam

    (pathlib.Path(__file__).parent / "imported").touch()

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class MineHParams(HParams):
        window: int = hparam(5, "Window.", minimum=1)

    @registry.register_hparams
    def mine_base():
        return MineHParams(window=int((pathlib.Path(__file__).parent / "window.txt").read_text()))
"""


@pytest.fixture
def fresh(monkeypatch):
    """Puts the process into the state before any user directory was loaded; returns a function that does so again."""

    def start_again():
        for name in [name for name in sys.modules if name.startswith("my_trusted_modules")]:
            del sys.modules[name]
        monkeypatch.setattr(user_directory, "_loaded", [])
        monkeypatch.setattr(user_directory, "_copies", {})
        for kind in registry._ALL:
            monkeypatch.setattr(kind, "_entries", dict(entries[kind.kind]))

    entries = {kind.kind: dict(kind._entries) for kind in registry._ALL}
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    start_again()
    yield start_again
    start_again()


@pytest.fixture
def modules(tmp_path):
    folder = tmp_path / "my_trusted_modules"
    (folder / "corpus").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "sets.py").write_text(textwrap.dedent(MODULE))
    (folder / "window.txt").write_text("7")
    (folder / "corpus" / "train.txt").write_text("no part of a package")
    (folder / "large.bin").write_bytes(bytes((1 << 20) + 1))
    return folder


@pytest.fixture
def run(tmp_path, modules, fresh):
    """Returns a run trained with the user's modules, opened in a fresh state after the originals were removed."""
    registry.load_user_directory(str(modules))
    (modules / "imported").unlink()
    hparams = registry.hparams("mine_base")
    config = make_config(
        t2t_usr_dir=str(modules), hparams_class=run_directory.class_name(hparams), hparams=hparams.to_dict()
    )
    made = RunDirectory.create(tmp_path / "run", config, FakeEncoder(b"x"), FakeEncoder(b"x"))
    shutil.rmtree(modules)
    fresh()
    return RunDirectory.open(made.path)


def test_the_copy_in_the_run_is_imported(run, fresh):
    copy = run.path / "t2t_usr_dir" / "my_trusted_modules"
    assert sorted(entry.name for entry in copy.iterdir()) == ["__init__.py", "sets.py", "window.txt"]
    assert run.holds(copy / "out.txt")  # one more file, and it would not be the copy any more
    assert run.hparams().window == 7
    assert registry.hparams("mine_base").window == 7
    assert not user_directory.named()
    (copy / "imported").unlink()
    again = RunDirectory.open(shutil.copytree(run.path, run.path.with_name("ensemble")))
    assert again.hparams().window == 7  # both runs have the same modules, which are loaded once
    fresh()
    moved = RunDirectory.open(again.path)
    assert moved.hparams().window == 7


def test_the_copy_may_be_named(run, fresh, monkeypatch):
    copy = run.path / "t2t_usr_dir" / "my_trusted_modules"
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    registry.load_user_directory(str(copy))
    assert sys.dont_write_bytecode  # else the copy would have more files than its digest says
    (copy / "imported").unlink()
    fresh()
    assert RunDirectory.open(run.path).hparams().window == 7
    fresh()
    (copy / "imported").unlink()
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "sets.pyc").touch()
    with pytest.raises(UserError, match=r"is another one \(remove .*__pycache__/sets\.pyc, which something else"):
        RunDirectory.open(run.path).hparams()


def test_modules_that_were_edited_after_they_were_loaded_are_not_stored(tmp_path, modules, fresh):
    registry.load_user_directory(str(modules))
    config = make_config(t2t_usr_dir=str(modules))
    (modules / "log.txt").write_text("a file that is no module may change")
    made = RunDirectory.create(tmp_path / "first", config, FakeEncoder(b"x"), FakeEncoder(b"x"))
    assert made.config.t2t_usr_dir_sha256
    (modules / "sets.py").write_text("# edited\n")
    with pytest.raises(UserError, match=r"were changed after this command loaded them.*Start the command again"):
        RunDirectory.create(tmp_path / "second", config, FakeEncoder(b"x"), FakeEncoder(b"x"))


def test_a_package_that_is_named_by_a_link_is_read_under_its_own_name(tmp_path, modules, fresh):
    link = tmp_path / "link"
    link.symlink_to(modules)
    registry.load_user_directory(str(link))
    hparams = registry.hparams("mine_base")
    config = make_config(
        t2t_usr_dir=str(link), hparams_class=run_directory.class_name(hparams), hparams=hparams.to_dict()
    )
    made = RunDirectory.create(tmp_path / "run", config, FakeEncoder(b"x"), FakeEncoder(b"x"))
    assert made.config.t2t_usr_dir == str(modules)
    link.unlink()
    fresh()
    assert RunDirectory.open(made.path).hparams().window == 7


@pytest.mark.parametrize("kind", ["link", "no_init", "nested"])
def test_the_copy_has_all_that_python_imports_from(tmp_path, modules, fresh, kind):
    name = "inner/deep" if kind == "nested" else "inner"  # the outer one has no module itself
    inner = tmp_path / "elsewhere" if kind == "link" else modules / name
    inner.mkdir(parents=True)
    in_run = modules / "runs" / "a" / "t2t_usr_dir"
    in_run.mkdir(parents=True)
    (in_run / "old.py").write_text("WINDOW = 6")
    (in_run.parent / "config.json").write_text("{}")
    outer = "inner" if kind == "nested" else "outer"
    # Python cannot import from these, or need not.
    for other in (f"{outer}/of-no-use", "venv/lib/python3.11", "conda/lib"):
        (modules / other).mkdir(parents=True, exist_ok=True)
        (modules / other / "setup.py").write_text("")
    for marker in ("venv/pyvenv.cfg", "conda/conda-meta"):
        (modules / marker).write_text("")
    (inner / "more.py").write_text("WINDOW = 7")
    (inner / "list.txt").write_text("of a package, or data")
    if kind == "link":
        (inner / "__init__.py").write_text("")
        (modules / "inner").symlink_to(inner)
        (inner / "around").symlink_to(modules)
    with open(modules / "sets.py", "a") as file:
        file.write(f"from my_trusted_modules.{name.replace('/', '.')}.more import WINDOW\n")
    registry.load_user_directory(str(modules))
    (modules / "imported").unlink()
    config = make_config(t2t_usr_dir=str(modules))
    made = RunDirectory.create(tmp_path / "run", config, FakeEncoder(b"x"), FakeEncoder(b"x"))
    assert made.config.t2t_usr_dir_sha256 == user_directory.digest_of_copy(str(modules))
    copy = made.path / "t2t_usr_dir" / modules.name
    assert (copy / name / "list.txt").exists() == (kind == "link")
    assert sorted(path.name for path in copy.iterdir() if path.is_dir()) == ["inner"]
    if kind == "nested":
        assert [path.name for path in (copy / "inner").iterdir()] == ["deep"]
    shutil.rmtree(modules)
    fresh()
    RunDirectory.open(made.path).load_user_code()
    assert registry.hparams("mine_base").window == 7


def test_the_copy_of_an_installed_package_is_imported(run, modules, tmp_path, monkeypatch):
    installed = tmp_path / "site-packages"
    shutil.copytree(run.path / "t2t_usr_dir" / modules.name, installed / modules.name)
    (installed / modules.name / "window.txt").write_text("9")
    monkeypatch.syspath_prepend(str(installed))
    run.load_user_code()
    assert registry.hparams("mine_base").window == 7


def test_a_copy_that_cannot_be_imported_is_explained(run, monkeypatch):
    message = rf"The copy of your modules in the run {run.path} cannot be used here: .*sets.py:\d+: ModuleNotFoundError"
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "dataclasses", None)
        with pytest.raises(UserError, match=message + r".*name that one: --t2t_usr_dir=DIR"):
            run.load_user_code()
    assert not user_directory.named()
    run.load_user_code()
    assert registry.hparams("mine_base").window == 7


@pytest.mark.parametrize("kind", ["package", "folder"])
def test_runs_of_different_versions_of_modules_are_told_apart(tmp_path, modules, fresh, kind):
    runs = []
    if kind == "folder":
        (modules / "__init__.py").unlink()
        (modules / "sets.py").rename(modules / "my_trusted_modules_sets.py")
    for number in (1, 2):
        (modules / "window.txt").write_text(str(number))
        fresh()
        registry.load_user_directory(str(modules))
        hparams = registry.hparams("mine_base")
        config = make_config(
            t2t_usr_dir=str(modules), hparams_class=run_directory.class_name(hparams), hparams=hparams.to_dict()
        )
        runs.append(RunDirectory.create(tmp_path / f"run{number}", config, FakeEncoder(b"x"), FakeEncoder(b"x")).path)
    fresh()
    assert RunDirectory.open(runs[0]).hparams().window == 1
    message = rf"The runs {runs[0]} and {runs[1]} were trained with different versions of your modules \(my_trusted_mod"
    with pytest.raises(UserError, match=message + r".*--t2t_usr_dir=DIR"):
        RunDirectory.open(runs[1]).hparams()
    fresh()
    registry.load_user_directory(str(modules))
    assert [RunDirectory.open(run).hparams().window for run in runs] == [1, 2]  # the stored values


@pytest.mark.parametrize("change", ["module", "compiled", "data", "link"])
def test_a_changed_copy_is_not_imported(run, change):
    copy = run.path / "t2t_usr_dir" / "my_trusted_modules"
    if change == "link":
        shutil.move(copy, run.path.with_name("elsewhere"))
        copy.symlink_to(run.path.with_name("elsewhere"))
    else:
        name = {"module": "sets.py", "compiled": "evil.pyc", "data": "window.txt"}[change]
        with open(copy / name, "a") as file:
            file.write("\n")
    with pytest.raises(UserError, match=r"is not the copy of your modules.*--t2t_usr_dir=DIR"):
        run.hparams()
    assert not (copy / "imported").exists()


def test_a_named_directory_takes_the_place_of_the_copy(run, modules):
    shutil.copytree(run.path / "t2t_usr_dir" / "my_trusted_modules", modules)
    (modules / "window.txt").write_text("9")
    registry.load_user_directory(str(modules))
    assert run.hparams().window == 7  # the stored value
    assert registry.hparams("mine_base").window == 9
    digest = run.config.t2t_usr_dir_sha256
    run.update(run.config)
    assert RunDirectory.open(run.path).config.t2t_usr_dir_sha256 not in ("", digest)


def test_a_named_directory_without_the_runs_class(run, modules):
    shutil.copytree(run.path / "t2t_usr_dir" / modules.name, modules)
    registry.load_user_directory(str(modules))
    before = RunDirectory(run.path, run.config.replace(hparams_class="my_former_modules.sets:MineHParams"))
    with pytest.raises(UserError, match=r"my_former_modules\.sets:MineHParams.*leave --t2t_usr_dir out to use these"):
        before.hparams()


def test_a_directory_that_is_named_after_its_copy_is_in_use(run, modules):
    run.load_user_code()
    shutil.copytree(run.path / "t2t_usr_dir" / modules.name, modules)
    with pytest.raises(UserError, match=rf"is in use for {run.path}.*, a run's copy of your modules.*load it first"):
        registry.load_user_directory(str(modules))


def test_nothing_is_imported_because_a_configuration_says_so(tmp_path, modules, fresh, monkeypatch):
    modules = modules.rename(tmp_path / "my_hostile_modules")
    config = make_config(t2t_usr_dir=str(modules), hparams_class="my_hostile_modules.sets:MineHParams")
    run = RunDirectory.create(tmp_path / "run", config, FakeEncoder(b"x"), FakeEncoder(b"x"))
    with pytest.raises(UserError, match=rf"holds no copy of them.*--t2t_usr_dir={modules}"):
        run.hparams()
    monkeypatch.syspath_prepend(str(tmp_path))
    content = json.loads((run.path / "config.json").read_text())
    for hparams_class in ("my_hostile_modules.sets:MineHParams", "my_hostile_modules.sets:pathlib", "os:system"):
        changed = {**content, "t2t_usr_dir": "", "hparams_class": hparams_class}
        (run.path / "config.json").write_text(json.dumps(changed))
        with pytest.raises(UserError, match="that is loaded"):
            RunDirectory.open(run.path).hparams()
    for outside in ("..", "/", "../..", "."):
        changed = {**content, "t2t_usr_dir": outside, "t2t_usr_dir_sha256": "0" * 64}
        (run.path / "config.json").write_text(json.dumps(changed))
        with pytest.raises(UserError, match=r"holds no copy of them|is not the copy"):
            RunDirectory.open(run.path).hparams()
    assert not (modules / "imported").exists()
