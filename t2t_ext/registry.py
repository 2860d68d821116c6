"""Registers problems, models and hparams sets, and looks them up by name.

Names are tensor2tensor's snake_case names. A decorator registers an object under
its own name in snake_case, or under a given name::

    @registry.register_problem
    class TranslateEndeMine(TranslationProblem): ...      # translate_ende_mine

    @registry.register_hparams("transformer_mine")
    def mine(): return transformer_base().replace(filter_size=4096)

t2t_ext's own names are read from the decorators in the source files of
``t2t_ext.problems``, ``t2t_ext.models`` and ``t2t_ext.hparams`` (``t2t_ext.index``).
Listing names therefore imports neither the modules nor TensorFlow; a module is imported
when one of its names is looked up. ``load_user_directory`` registers what users have
written.
"""

import dataclasses
import difflib
import functools
import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from t2t_ext.config import problem_options, replaced
from t2t_ext.config import user_directory as _user_directory
from t2t_ext.config.hyperparameters import HParams
from t2t_ext.config.strict_params import changed_in_place
from t2t_ext.errors import UserError, suggest
from t2t_ext.index import Registration, class_attributes, registrations, snake_case
from t2t_ext.io import chatter

REVERSED_SUFFIX = "_rev"
SYNCHRONOUS_SUFFIX = "_synchronous"
# Suffixes that may follow the name of a translation problem, in this order -> their meaning.
LOOK_UP_SUFFIXES = {
    REVERSED_SUFFIX: "the same data in the other direction",
    SYNCHRONOUS_SUFFIX: "the same data with pseudo references beside them",
}
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclasses.dataclass(frozen=True)
class _Entry:
    """A registered class or function, and where it was registered: ``file:line`` and dotted module."""

    name: str
    value: Any
    place: str
    module: str


class _Registry:
    """The objects of one kind, registered or indexed."""

    def __init__(self, kind: str, package: str, decorator: str, slot: str = "") -> None:
        """Creates an empty registry.

        Args:
          kind: What is registered, in the singular, for messages.
          package: The package of t2t_ext whose modules register objects of this kind.
          decorator: The decorator's name; with ``_family`` appended, it is the name of the decorator for families.
          slot: The decorator's first argument, if it takes two.
        """
        self.kind = kind
        self._package = package
        self._decorator = decorator
        self._slot = slot
        self._entries: dict[str, _Entry] = {}
        self._families: dict[str, _Entry] = {}

    @functools.cached_property
    def index(self) -> Mapping[str, Registration]:
        """The registrations of t2t_ext itself, by name."""
        return {
            each.name: each
            for each in registrations(self._package)
            if each.decorator == self._decorator and (not self._slot or each.arguments[0] == self._slot)
        }

    @functools.cached_property
    def families(self) -> Mapping[str, Registration]:
        """The families of t2t_ext itself, by the pattern of their names."""
        decorator = f"{self._decorator}_family"
        return {each.name: each for each in registrations(self._package) if each.decorator == decorator}

    def names(self) -> list[str]:
        """Returns every name, indexed or registered, sorted."""
        return sorted({*self.index, *self._entries})

    def of(self, directory: str) -> list[str]:
        """Returns the names and patterns that files under a directory have registered, sorted."""
        entries = [*self._entries.values(), *self._families.values()]
        return sorted(entry.name for entry in entries if _is_under(entry.place, directory))

    def forget(self, directory: str) -> None:
        """Removes everything that files under a directory have registered."""
        for registered in (self._entries, self._families):
            for name, entry in list(registered.items()):
                if _is_under(entry.place, directory):
                    del registered[name]

    def registered_families(self) -> list[str]:
        """Returns the patterns that modules imported so far have registered."""
        return list(self._families)

    def add(self, name: str, value: Any, place: str, module: str) -> None:
        """Registers one object.

        Raises:
          UserError: The name is malformed, ends in a look-up suffix, or is taken (the message then names both places).
        """
        where = f"{place}: the {self.kind} name {name!r}"
        if not _NAME.fullmatch(name):
            raise UserError(f"{where} is not snake_case: lower-case letters, digits and underscores, a letter first.")
        for suffix, meaning in LOOK_UP_SUFFIXES.items() if self.kind == "problem" else ():
            if name.endswith(suffix):
                raise UserError(
                    f"{where} may not end in {suffix}: that ending, after the name of any translation problem, means "
                    f"{meaning}. Choose another name."
                )
        taken_at = self._taken_at(name, value, place, module)
        if taken_at:
            raise UserError(f"{where} is already registered at {taken_at}. Rename one of the two.")
        self._entries[name] = _Entry(name, value, place, module)

    def add_family(self, pattern: str, value: Any, place: str, module: str) -> None:
        """Registers a factory for all names that match a pattern.

        Raises:
          UserError: The same pattern is registered elsewhere.
        """
        old = self._families.get(pattern)
        if old and (old.place, old.module) != (place, module):
            raise UserError(f"{place}: the {self.kind} family {pattern!r} is already registered at {old.place}.")
        self._families[pattern] = _Entry(pattern, value, place, module)

    def find(self, name: str, suffix: str = "") -> _Entry:
        """Returns the entry of a name; imports the module that registers it if needed.

        Args:
          name: The name.
          suffix: The suffix that the user wrote after the name, for the message.

        Raises:
          UserError: No object has this name; the message suggests similar names.
        """
        if name in self._entries:
            return self._entries[name]
        if name in self.index:
            importlib.import_module(self.index[name].module)
            if name in self._entries:
                return self._entries[name]
        for pattern, family in self.families.items():
            if re.fullmatch(pattern, name):
                importlib.import_module(family.module)
        for pattern, entry in self._families.items():
            if re.fullmatch(pattern, name):
                return entry
        names = self.names()
        if self.kind == "problem":
            if answer := replaced.problem_answer(name):
                raise UserError(f"The problem {name + suffix!r} of tensor2tensor is not here: {answer}")
            end = difflib.get_close_matches("_" + name.rpartition("_")[2], LOOK_UP_SUFFIXES, n=1, cutoff=0.7)
            names = [known + (suffix or "".join(end)) for known in names]  # the suffix may be misspelled
        listed = f"Known: {', '.join(names)}" if self._slot else f"--registry_help lists all {self.kind}s"
        what = "function" if self._decorator == "register_hparams" else "class"
        arguments = f'("{self._slot}", NAME)' if self._slot else ""
        raise UserError(
            f"Unknown {self.kind} {name + suffix!r}.{suggest(name + suffix, names)} {listed}; your own {what} is "
            f"registered by @t2t_ext.registry.{self._decorator}{arguments} in a module, given with --t2t_usr_dir."
        )

    def _taken_at(self, name: str, value: Any, place: str, module: str) -> str:
        """Returns the place where a name is already registered, or "" if the name is free."""
        old = self._entries.get(name)
        if old:
            return "" if _is_reloaded(old, value, place, module) else old.place
        indexed = self.index.get(name)
        if indexed and indexed.module != module:
            return indexed.place
        for pattern, family in self.families.items():
            if not indexed and family.module != module and re.fullmatch(pattern, name):
                return f"{family.place} (as one of the family {pattern!r})"
        return ""


def _is_under(place: str, directory: str) -> bool:
    """Returns whether a place (``file:line``) is in a directory."""
    return place.startswith(directory.rstrip("/") + "/")


def _is_reloaded(old: _Entry, value: Any, place: str, module: str) -> bool:
    """Returns whether an object replaces its earlier version, as when a module is reloaded or a notebook cell rerun."""
    if getattr(old.value, "__qualname__", "") != getattr(value, "__qualname__", ""):
        return False
    same_file = old.place.rpartition(":")[0] == place.rpartition(":")[0]
    return old.place == place or (old.module == module == "__main__" and not same_file)


_problems = _Registry("problem", "t2t_ext.problems", "register_problem")
_models = _Registry("model", "t2t_ext.models", "register_model")
_hparams = _Registry("hparams set", "t2t_ext.hparams", "register_hparams")

# A slot of a model -> its registry. A mixer is the sublayer in which the positions of a sequence exchange information.
_LAYERS = {
    slot: _Registry(kind, "t2t_ext.layers", "register_layer", slot)
    for slot, kind in {
        "encoder_mixer": "mixer of an encoder",
        "decoder_mixer": "mixer of a decoder",
        "two_way_mixer": "mixer of a decoder of two directions",
        "shared_mixer": "mixer of layers that source and target share",
        "source_views": "view of the source",
        "target_reading": "way of reading targets",
    }.items()
}
_ALL = (_problems, _models, _hparams, *_LAYERS.values())


def _place() -> tuple[str, str]:
    """Returns ``file:line`` and module of the code that applies a decorator of this module."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    if frame is None:
        raise RuntimeError("no Python code called the registry")
    return f"{frame.f_code.co_filename}:{frame.f_lineno}", frame.f_globals.get("__name__", "")


def _decorator(
    registry: _Registry, name_or_value: Any, wrap: Callable[[str, Any, str], Any] = lambda name, value, place: value
) -> Any:
    """Returns a decorator that can be used without parentheses, with ``()`` or with a name."""

    def register(value: Any, name: str | None = None) -> Any:
        place, module = _place()
        name = name or snake_case(value.__name__)
        wrapped = wrap(name, value, place)
        registry.add(name, wrapped, place, module)
        return wrapped

    if name_or_value is None or isinstance(name_or_value, str):
        return lambda value: register(value, name_or_value)
    return register(name_or_value)


def register_problem(name: Any = None) -> Any:
    """Registers a problem class; used as ``@register_problem`` or ``@register_problem("name")``.

    The class is called as ``cls(name=..., was_reversed=..., **options)``.

    Args:
      name: The name, by default the class's name in snake_case; without parentheses, the class itself.

    Returns:
      The class, unchanged; with parentheses, a decorator.

    Raises:
      UserError: The name is taken, ends in a look-up suffix (``_rev``), or is not snake_case.
    """
    return _decorator(_problems, name)


def register_problem_family(pattern: str, *, example: str = "") -> Callable[[Any], Any]:
    """Registers a factory for all problems whose whole name matches a regular expression.

    The factory is called like a problem class: ``factory(name=..., was_reversed=..., **options)``.

    Args:
      pattern: The regular expression.
      example: What ``--registry_help`` shows for a family of t2t_ext's own, such as one of its names.

    Returns:
      A decorator that returns the factory (a class or a function) unchanged.
    """
    del example  # read from the source

    def register(factory: Any) -> Any:
        _problems.add_family(pattern, factory, *_place())
        return factory

    return register


def reversed_name(problem: str) -> str:
    """Returns NAME_rev for NAME, and NAME for NAME_rev."""
    is_reversed = problem.endswith(REVERSED_SUFFIX)
    return problem.removesuffix(REVERSED_SUFFIX) if is_reversed else problem + REVERSED_SUFFIX


def register_model(name: Any = None) -> Any:
    """Registers a model class (a ``Seq2Seq``); arguments, result and errors are as in ``register_problem``."""
    return _decorator(_models, name)


def register_layer(slot: str, name: str) -> Callable[[Any], Any]:
    """Registers a class that fills a slot of a model if hparams ask for it by name; see ``config.variants``.

    Args:
      slot: ``encoder_mixer``, ``decoder_mixer``, ``two_way_mixer`` (for decoders with two directions), ``shared_mixer``
        (for layers that source and target share), ``source_views`` or ``target_reading``.
      name: The name.

    Returns:
      A decorator that returns the class unchanged.

    Raises:
      UserError: The name is taken or is not snake_case, or there is no such slot.
    """
    return _decorator(_layers_of(slot), name)


def register_hparams(name: Any = None) -> Any:
    """Registers an hparams set: a function without arguments that returns an ``HParams``.

    Args:
      name: The name, by default the function's name; without parentheses, the function itself.

    Returns:
      A function that calls the given one when the set is first requested, and records the set's name as the origin of
      the values that it sets; with parentheses, a decorator.

    Raises:
      UserError: The name is taken or is not snake_case.
    """
    return _decorator(_hparams, name, _noting_origins)


def _noting_origins(name: str, function: Callable[[], Any], place: str) -> Callable[[], Any]:
    """Wraps the function of an hparams set so that each value records which set assigned it."""

    @functools.cache  # sets are immutable, and many build on the same ones
    @functools.wraps(function)
    def hparams_set() -> Any:
        try:
            hparams = function()
        except UserError as error:
            if line := _user_directory.missing_place(error):
                raise UserError(f"{line}: {error}") from error
            raise
        except AttributeError as error:
            if found := changed_in_place(error):
                where, told = found
                raise UserError(f"{where}: {told}.") from error
            raise
        if not hasattr(hparams, "attributed_to"):
            raise UserError(
                f"{place}: the hparams set {name!r} returned {type(hparams).__name__}, not an HParams. "
                f"Is its `return` missing?"
            )
        return hparams.attributed_to(name)

    return hparams_set


def problem(name: str, **options: Any) -> Any:
    """Returns a problem by its name.

    Args:
      name: A registered name or a name of a family. Either may be followed by ``_rev`` (a translation problem in the
        other direction), ``_synchronous`` (the problem with pseudo references) or ``_rev_synchronous``.
      **options: Options of the problem's constructor, such as ``train_source`` of ``translate_parallel_text``. Strings
        become numbers or booleans if the constructor declares these types.

    Returns:
      The ``Problem``.

    Raises:
      UserError: There is no such problem, it has no other direction, or it does not take one of the options.
    """
    plain = name.removesuffix(SYNCHRONOUS_SUFFIX)
    was_reversed, base = plain.endswith(REVERSED_SUFFIX), plain.removesuffix(REVERSED_SUFFIX)
    if base.endswith(SYNCHRONOUS_SUFFIX):
        right = base.removesuffix(SYNCHRONOUS_SUFFIX) + REVERSED_SUFFIX + SYNCHRONOUS_SUFFIX
        raise UserError(f"Unknown problem {name!r}. Did you mean {right!r}? {REVERSED_SUFFIX} stands first.")
    if base.endswith(REVERSED_SUFFIX):
        right = base.removesuffix(REVERSED_SUFFIX)
        raise UserError(f"Unknown problem {name!r}. Did you mean {right!r}? Reversed twice, a problem is what it was.")
    entry = _problems.find(base, name.removeprefix(base))
    factory = entry.value
    converted = problem_options.checked(base, factory, options)
    if was_reversed and not getattr(factory, "reversible", True):
        raise UserError(f"The problem {base!r} is not a translation problem, so {name!r} does not exist. Use {base!r}.")
    made = problem_options.made(base, factory, entry.place, was_reversed, converted)
    if plain != name:
        made.with_pseudo_references = True
    return made


def model(name: str) -> type[Any]:
    """Returns a model class (a ``Seq2Seq``) by its name; imports TensorFlow.

    Raises:
      UserError: No model has this name.
    """
    return _models.find(name).value


def model_attributes(name: str) -> Mapping[str, Any]:
    """Returns the attributes that a model's class defines, and its name as ``title``, without importing TensorFlow.

    The value of an attribute that is a class, such as ``hparams_class``, is the class's name. For a user's model only
    ``title``, ``hparams_class`` and ``target_sides`` are known.

    Raises:
      UserError: No model has this name, or a user's class is no ``Seq2Seq``.
    """
    if name in _models.index:
        definition = _models.index[name].definition
        return {"title": definition, **class_attributes("t2t_ext.models", definition)}
    entry = _models.find(name)
    value = entry.value
    if not hasattr(value, "sides"):
        raise UserError(
            f"{entry.place}: the model {name!r} is no Seq2Seq. Derive it from one, such as "
            "t2t_ext.models.transformer.Transformer."
        )
    family = getattr(value, "hparams_class", HParams)
    title, sides = getattr(value, "__name__", name), getattr(value, "target_sides", 1)
    return {"title": title, "hparams_class": family.__name__, "target_sides": sides}


def model_summary(name: str) -> str:
    """Returns the first line of the docstring of a model's class, without importing TensorFlow.

    Raises:
      UserError: No model has this name.
    """
    if name in _models.index:
        return _models.index[name].summary
    return (_models.find(name).value.__doc__ or "").strip().partition("\n")[0]


def layer(slot: str, name: str) -> type[Any]:
    """Returns the class that fills a slot of a model, by its name; imports TensorFlow.

    Raises:
      UserError: There is no such slot, or no class registered for it has this name.
    """
    return _layers_of(slot).find(name).value


def _layers_of(slot: str) -> _Registry:
    if slot not in _LAYERS:
        raise UserError(f"Models have no slot {slot!r}.{suggest(slot, _LAYERS)} There are {', '.join(_LAYERS)}.")
    return _LAYERS[slot]


def hparams(name: str) -> Any:
    """Returns an hparams set by its name.

    Raises:
      UserError: No hparams set has this name, or it has values that are not allowed.
    """
    return _hparams.find(name).value()


def resolve_hparams(set_name: str, overrides: str = "") -> HParams:
    """Returns an hparams set with overrides.

    Args:
      set_name: The name of a registered hparams set.
      overrides: The value of ``--hparams``, such as ``"a=1,b=x"``.

    Raises:
      UserError: There is no such set; a key is unknown or given twice; a value is empty, of the wrong type or not
        allowed; or a field is set that nothing reads. One message lists everything that is wrong.
    """
    base = hparams(set_name)
    if not isinstance(base, HParams):
        raise UserError(f"The hparams set {set_name!r} returned {type(base).__name__}, not an HParams.")
    resolved = base.override(overrides, flag="--hparams")
    resolved.check_effect("--hparams")
    return resolved


def problem_names() -> list[str]:
    """Returns the names of all problems, sorted, except names with look-up suffixes and names of families."""
    return _problems.names()


def problem_families() -> dict[str, str]:
    """Returns the patterns of all problem families, sorted: pattern -> the text that describes it to users."""
    examples = {pattern: family.example for pattern, family in _problems.families.items()}
    patterns = sorted({*examples, *_problems.registered_families()})
    return {pattern: examples.get(pattern) or f"any name of the form {pattern}" for pattern in patterns}


def model_names() -> list[str]:
    """Returns the names of all models, sorted."""
    return _models.names()


def hparams_names() -> list[str]:
    """Returns the names of all hparams sets, sorted."""
    return _hparams.names()


def load_user_directory(path: str) -> dict[str, list[str]]:
    """Registers a user's own problems, models and hparams sets (``--t2t_usr_dir``).

    The directory is a package (with ``__init__.py``, as in tensor2tensor) or a plain folder. In both cases every module
    and package directly in it is imported, even if ``__init__.py`` does not import it; only ``setup.py``,
    ``conftest.py`` and ``test_*.py`` are skipped. Loading a directory again does nothing.

    Args:
      path: The directory.

    Returns:
      The names that it registers: kind ("problem", "model", "hparams set") -> sorted names.

    Raises:
      UserError: There is no such directory, it contains no module, one of its modules fails (the message gives file and
        line), or none registers anything.
    """
    try:
        with chatter.left_out():  # its modules may import TensorFlow
            directory, modules = _user_directory.load(path)
    except BaseException:
        # Names that were registered before the failure would be in the way when the corrected directory is loaded.
        for kind in _ALL:
            kind.forget(_user_directory.absolute(path))
        raise
    if not user_names(directory):
        _user_directory.unload(directory, modules or ())
        raise UserError(
            f"--t2t_usr_dir={path}: its modules ({', '.join(modules or ())}) register no problem, model or hparams "
            f"set. Decorate your classes with @registry.register_problem or @registry.register_model, your functions "
            f"with @registry.register_hparams (from t2t_ext import registry)."
        )
    return user_names(directory)


def user_names(directory: str) -> dict[str, list[str]]:
    """Returns what modules under a directory have registered: kind -> sorted names; patterns stand for families."""
    found = {registry.kind: registry.of(directory) for registry in _ALL}
    return {kind: names for kind, names in found.items() if names}


def loaded_user_directories() -> list[str]:
    """Returns the absolute paths of the user directories loaded so far, in order."""
    return _user_directory.loaded()
