"""Imports the modules of a user's directory, with errors that name file and line; handles its copies in runs."""

import functools
import hashlib
import importlib
import importlib.machinery
import importlib.util
import os
import pathlib
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator

from t2t_ext.config.strict_params import changed_in_place
from t2t_ext.errors import UserError

COPIES_NAME = "t2t_usr_dir"  # of the folder in a run that holds the copy
_LEFT_OUT = ("setup.py", "conftest.py")
_MOST_BYTES = 1 << 20  # maximum size of other files that are copied with the modules
_MOST_DEPTH = 4  # of folders without modules that are searched for some; a loop of links ends there, too
_OF_OTHER_USE = ("config.json", "pyvenv.cfg", "conda-meta")  # what a run and an installation of Python have
_loaded: list[str] = []
_copies: dict[str, pathlib.Path] = {}  # digest -> a loaded copy from a run
_modules_as_loaded: dict[str, str] = {}  # loaded directory -> digest of its modules


def loaded() -> list[str]:
    """Returns the absolute paths of the directories loaded so far, in order."""
    return list(_loaded)


def named() -> bool:
    """Returns whether a directory was loaded because the user named it, not as a copy from a run."""
    return len(_loaded) > len(_copies)


def load_copy(path: pathlib.Path, digest: str, load_directory: Callable[[str], object]) -> None:
    """Loads a copy made by ``copy``, unless it is loaded already, after checking that nothing in it has changed.

    Args:
      path: The copy.
      digest: The digest that ``copy`` returned.
      load_directory: Function that loads and registers a directory.

    Raises:
      UserError: The copy has been changed or has links, another run's copy differs but has the same module names, or a
        module fails.
    """
    if digest in _copies:
        return
    entries = sorted(each for each in path.rglob("*") if not each.is_dir() or each.is_symlink())
    links = [each for each in (path, *entries) if each.is_symlink()]
    if links or _digest(path, entries) != digest:
        what = f"{links[0]} is a link" if links else "its SHA-256 is another one"
        if more := [each for each in entries if "__pycache__" in each.parts or each.name.startswith(".")]:
            what += f" (remove {more[0]}, which something else has put there)"
        raise UserError(
            f"{path} is not the copy of your modules that the run was trained with: {what}. Name the folder of your "
            "modules to use that one: --t2t_usr_dir=DIR."
        )
    _check_same_version(path)
    sys.dont_write_bytecode = True  # the copy must stay as its digest says, without cached bytecode
    _copies[digest] = path  # before it is loaded: its names may be those of installed packages
    try:
        load_directory(str(path))
    except BaseException as error:
        del _copies[digest]
        if not isinstance(error, UserError):
            raise
        why = str(error).removeprefix(f"--t2t_usr_dir={path}: ")
        raise UserError(
            f"The copy of your modules in the run {path.parents[1]} cannot be used here: {why} If the folder that it "
            "was made of still works, name that one: --t2t_usr_dir=DIR."
        ) from error


def _check_same_version(path: pathlib.Path) -> None:
    """Refuses a copy whose modules have the same names as those of another copy that is in use."""
    for other in _copies.values():
        if alike := sorted({*_module_names(str(path))} & {*_module_names(str(other))}):
            raise UserError(
                f"The runs {other.parents[1]} and {path.parents[1]} were trained with different versions of your "
                f"modules ({', '.join(alike)}), and one process can use one. Name the folder of those to use with "
                "all of them: --t2t_usr_dir=DIR."
            )


def copy(directory: str, target: pathlib.Path) -> str:
    """Copies a directory's modules, packages and the small files beside them; returns the digest of the copy."""
    source, copied = pathlib.Path(directory), []
    for file in _copied_files(source):
        copied.append(target / file.relative_to(source))
        copied[-1].parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copied[-1])
    return _digest(target, sorted(copied))


def digest_of_copy(directory: str) -> str:
    """Returns the digest that ``copy`` would return."""
    source = pathlib.Path(directory)
    return _digest(source, sorted(_copied_files(source)))


def _copied_files(folder: pathlib.Path, above: tuple[pathlib.Path, ...] = ()) -> Iterator[pathlib.Path]:
    """Yields the files of a folder that a run needs, and those of its subfolders that hold modules.

    Subfolders may be links, and need no ``__init__.py``: Python imports from them, too. Of those without it only the
    modules are yielded, because a folder of data may hold a script. A run in the folder is left out, since it has a
    copy of its own. ``above`` are the resolved folders that the folder is in, since a link may lead back to one of
    them.
    """
    with_others = not above or (folder / "__init__.py").is_file()
    has_own = not above or any(folder.glob("*.py"))
    above = (*above, folder.resolve())
    for entry in folder.iterdir():
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            named = has_own or entry.name.isidentifier()
            if named and entry.resolve() not in above and _has_modules(entry):
                yield from _copied_files(entry, above)
        elif entry.is_file() and (entry.suffix == ".py" or (with_others and entry.stat().st_size <= _MOST_BYTES)):
            yield entry


def _has_modules(folder: pathlib.Path, depth: int = _MOST_DEPTH) -> bool:
    """Returns whether a folder has modules, or Python could import some from a folder in it."""
    if any(folder.glob("*.py")):
        return True
    if not depth or not folder.name.isidentifier() or any((folder / name).exists() for name in _OF_OTHER_USE):
        return False
    inner = (entry for entry in folder.glob("*") if entry.is_dir() and entry.name.isidentifier())
    return any(_has_modules(entry, depth - 1) for entry in inner)


def _digest(directory: pathlib.Path, entries: Iterable[pathlib.Path]) -> str:
    """Returns the SHA-256 of the contents and names of files."""
    found = hashlib.sha256()
    for entry in entries:
        content = hashlib.sha256(entry.read_bytes()).hexdigest()
        found.update(f"{content}  {entry.relative_to(directory).as_posix()}\n".encode("utf-8", "surrogateescape"))
    return found.hexdigest()


def absolute(path: str) -> str:
    """Returns a directory's absolute path with links and ``~`` resolved."""
    return os.path.realpath(os.path.expanduser(path))


def load(path: str) -> tuple[str, list[str] | None]:
    """Imports every module of a package or plain folder.

    Args:
      path: The directory.

    Returns:
      The directory's absolute path without links, and the dotted names of its modules (None if already loaded).

    Raises:
      UserError: The directory does not exist or has no module, a module's name is taken, or a module fails.
    """
    directory = absolute(path)
    if directory in _loaded:
        return directory, None
    if _is_in_a_run(directory):
        sys.dont_write_bytecode = True  # as for load_copy
    if not os.path.exists(directory):
        raise UserError(f"--t2t_usr_dir={path}: no such directory. Give the folder that holds your Python modules.")
    if not os.path.isdir(directory):
        raise UserError(f"--t2t_usr_dir={path} is a file. Give the folder that holds it: {os.path.dirname(directory)}")
    children = _children(directory)
    if dotted := [child for child in children if "." in child]:
        raise UserError(
            f"--t2t_usr_dir={path}: Python cannot import {os.path.join(directory, dotted[0])}.py, because of the dot "
            "in its name. Rename it, or move it out of the folder."
        )
    as_loaded = _digest_of_modules(directory)
    if os.path.isfile(os.path.join(directory, "__init__.py")):
        modules = _load_package(path, directory, children)
    elif children:
        modules = _load_folder(path, directory, children)
    else:
        raise UserError(f"--t2t_usr_dir={path}: there is no Python module (*.py) directly in this folder.")
    _loaded.append(directory)
    _modules_as_loaded[directory] = as_loaded
    return directory, modules


def is_as_loaded(directory: str) -> bool:
    """Returns whether the modules of a loaded directory are still those that were imported."""
    return _modules_as_loaded.get(directory) in (None, _digest_of_modules(directory))


def _digest_of_modules(directory: str) -> str:
    """Returns a digest of the modules alone: other files there, such as a log, may change."""
    folder = pathlib.Path(directory)
    return _digest(folder, sorted(each for each in _copied_files(folder) if each.suffix == ".py"))


def _is_in_a_run(directory: str) -> bool:
    """Returns whether a directory is the copy in a run."""
    folder = os.path.dirname(directory)
    return os.path.basename(folder) == COPIES_NAME and os.path.isfile(os.path.join(folder, "..", "config.json"))


def unload(directory: str, modules: Iterable[str]) -> None:
    """Undoes ``load``, whose results are given, so that a corrected version can be loaded."""
    _loaded.remove(directory)
    if directory in sys.path:
        sys.path.remove(directory)
    for name in modules:
        _forget(name)


def missing_place(error: UserError, directories: Iterable[str] | None = None) -> str:
    """Returns what ``place_of`` returns, but "" if the error's message begins with that file already."""
    place = place_of(error) if directories is None else _place_in(directories, error)
    return "" if str(error).startswith(place.rpartition(":")[0]) else place


def place_of(error: BaseException) -> str:
    """Returns the last ``file:line`` in a user's modules that an error came through; "" if there is none."""
    return _place_in(_loaded, error)


def _place_in(directories: Iterable[str], error: BaseException) -> str:
    place = ""
    below = tuple(directory + os.sep for directory in directories)
    for frame in traceback.extract_tb(error.__traceback__):
        # A module may be behind a link in the directory, or be imported by a path with links to the directory.
        if frame.filename.startswith(below) or os.path.realpath(frame.filename).startswith(below):
            place = f"{frame.filename}:{frame.lineno}"
    return place


def _children(directory: str) -> list[str]:
    """Returns the names of the modules and packages directly in a directory, sorted."""
    names = []
    for entry in sorted(os.listdir(directory)):
        full = os.path.join(directory, entry)
        stem, extension = os.path.splitext(entry)
        if extension == ".py" and os.path.isfile(full):
            if entry not in _LEFT_OUT and stem != "__init__" and not stem.startswith((".", "test_")):
                names.append(stem)
        elif entry.isidentifier() and os.path.isfile(os.path.join(full, "__init__.py")):
            names.append(entry)
    return names


def _module_names(directory: str) -> list[str]:
    """Returns the names that a directory is imported under: its package, or the modules of a plain folder."""
    if os.path.isfile(os.path.join(directory, "__init__.py")):
        return [_package_name(directory)]
    return _children(directory)


def _package_name(directory: str) -> str:
    return os.path.basename(directory).replace(".", "_")


def _load_package(path: str, directory: str, children: list[str]) -> list[str]:
    """Imports a package and all its modules under the name of its folder."""
    name = _package_name(directory)
    init = os.path.join(directory, "__init__.py")
    _check_name_is_free(path, name, init, "folder")
    # Processes started by datagen unpickle by module name; they inherit sys.path.
    sys.path.append(os.path.dirname(directory))
    spec = importlib.util.spec_from_file_location(name, init, submodule_search_locations=[directory])
    assert spec is not None  # as for any given file
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        _import(path, directory, functools.partial(spec.loader.exec_module, module))
        for child in children:
            _import(path, directory, functools.partial(importlib.import_module, f"{name}.{child}"))
    except BaseException:
        _forget(name)
        raise
    return [name, *(f"{name}.{child}" for child in children)]


def _load_folder(path: str, directory: str, children: list[str]) -> list[str]:
    """Imports the modules of a plain folder, which can import each other by their bare names."""
    for child in children:
        file = os.path.join(directory, f"{child}.py")
        if not os.path.isfile(file):
            file = os.path.join(directory, child, "__init__.py")
        _check_name_is_free(path, child, file, "file")
    sys.path.insert(0, directory)
    importlib.invalidate_caches()
    try:
        for child in children:
            _import(path, directory, functools.partial(importlib.import_module, child))
    except BaseException:
        sys.path.remove(directory)
        for child in children:
            _forget(child)
        raise
    return children


def _check_name_is_free(path: str, name: str, file: str, what: str) -> None:
    """Refuses a module name that would hide, or be hidden by, another module."""
    taken = ""
    if name in sys.stdlib_module_names or name in sys.builtin_module_names:
        taken = "Python's standard library"
    elif name in sys.modules:
        taken = getattr(sys.modules[name], "__file__", None) or "a module already imported"
    elif not _in_a_copy(file):  # a copy may be of a package that is installed as well
        spec = importlib.machinery.PathFinder.find_spec(name)
        origin = (spec.origin if spec else None) or ""
        if "site-packages" in origin or "dist-packages" in origin:
            taken = origin
    if not taken or os.path.realpath(taken) == os.path.realpath(file):
        return
    if _in_a_copy(os.path.realpath(taken)):
        raise UserError(
            f"--t2t_usr_dir={path}: the module name {name!r} is in use for {taken}, a run's copy of your modules. Name "
            "the folder before a run is opened: start again, and load it first."
        )
    raise UserError(f"--t2t_usr_dir={path}: the module name {name!r} is taken by {taken}. Rename the {what} {file}.")


def _in_a_copy(file: str) -> bool:
    """Returns whether a file is in a copy from a run."""
    return any(file.startswith(os.path.realpath(path) + os.sep) for path in _copies.values())


def _forget(name: str) -> None:
    """Removes a module and its submodules from sys.modules, so that a corrected version can be imported."""
    for imported in list(sys.modules):
        if imported == name or imported.startswith(f"{name}."):
            del sys.modules[imported]


def _import(path: str, directory: str, run: Callable[[], object]) -> None:
    """Imports the user's code by calling ``run``; turns its errors into ``UserError`` with file and line."""
    try:
        run()
    except KeyboardInterrupt:
        raise
    except UserError as error:
        if place := missing_place(error, [directory]):
            raise UserError(f"--t2t_usr_dir={path}: {place}: {error}") from error
        raise
    except SyntaxError as error:
        raise UserError(f"--t2t_usr_dir={path}: {error.filename}:{error.lineno}: {error.msg}.") from error
    except BaseException as error:
        place = _place_in([directory], error) or directory
        text = f"{type(error).__name__}: {error}".replace("\n", " ")
        if found := changed_in_place(error):
            text = f"{found[1]}."
        if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == "tensor2tensor":
            text += " (t2t_ext is not tensor2tensor: import `registry` and `TranslationProblem` from t2t_ext.)"
        raise UserError(f"--t2t_usr_dir={path}: {place}: {text}") from error
