"""Flags of the commands: ``--name=value`` in groups, with answers for flags that users know from tensor2tensor.

A command is a function of its flags, and its flags are tables::

    _FLAGS: FlagTable = {
        "Input": {
            "translation=FILE": "The translation.",
            "n_bootstrap": Flag("Samples for confidence intervals; 0 = none.", 0, minimum=0),
            "fast": "Whether to hurry.",
        },
    }

    def build_parser() -> FlagParser:
        return FlagParser("t2t_ext-bleu", "Scores a translation.", _FLAGS)

    @command(build_parser)
    def main(flags: argparse.Namespace) -> None:
        ...

Neither this module nor anything that runs before the flags are parsed imports TensorFlow.
"""

import argparse
import dataclasses
import functools
import gc
import io
import itertools
import math
import os
import re
import shutil
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from absl import flags
from absl.flags import argparse_flags

from t2t_ext import registry
from t2t_ext.bin import _process, _unknown_flags
from t2t_ext.config.strict_params import StrictParams, broken_rule
from t2t_ext.errors import UserError, shortened
from t2t_ext.io import inputs, log
from t2t_ext.version import __version__

_TRUE = ("true", "t", "1", "yes")
_FALSE = ("false", "f", "0", "no")
_HP_PREFIX = "hp_"
_LONG_WORD = re.compile(r"(\S{200})\S{200,}(\S{50})")  # a word that would bury the rest of the message
_PATHS = re.compile("DIR|FILE|RUN|EXPORT|PRESET")  # in the metavars of flags whose values are paths
_ASSIGNMENTS = '"A='  # how metavars of flags such as --hparams begin
_ASSIGNED = re.compile(r"(?:^|,)\s*(\w+)\s*=")  # the names in the value of such a flag
_BETWEEN = re.compile(r",(?=\s*\w+\s*=)")
_MOST = 10**9  # maximum of a number that has no other limit
_LOGGING = (
    "Flags of the absl library. --flagfile=FILE: read flags from a file, one per line. --verbosity=N: log errors (-2), "
    "also warnings (-1), also messages (0, the default) or more (1). --log_dir=DIR: also write the log to a file in "
    "this folder, unless --logtostderr is given."
)


class _Formatter(argparse.HelpFormatter):
    """Shows ``--name=VALUE``, ``--[no]name`` and defaults."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size((100, 24)).columns, 120)
        super().__init__(prog, max_help_position=32, width=width)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        name = action.option_strings[-1]
        if isinstance(action, _BoolAction):
            return f"--[no]{name.removeprefix('--')}"
        if action.nargs == 0:
            return ", ".join(action.option_strings)
        return f"{name}={self._format_args(action, self._get_default_metavar_for_optional(action))}"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Wraps each line separately; argparse would join all lines into one paragraph."""
        lines = [(line, indent + " " * (len(line) - len(line.lstrip()))) for line in text.splitlines()]
        return "\n".join(super(_Formatter, self)._fill_text(line, width, lead) for line, lead in lines)

    def _get_help_string(self, action: argparse.Action) -> str:
        text = f"{action.help or ''}{' (required)' if action.required else ''}"
        if action.nargs == 0 or action.default in (None, "", argparse.SUPPRESS):
            return text
        default = str(action.default).lower() if isinstance(action.default, bool) else action.default
        return f"{text} [{default}]".replace("%", "%%")


class _BoolAction(argparse.Action):
    """A flag that is true or false."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None) -> None:
        if values.lower() not in _TRUE + _FALSE:
            raise argparse.ArgumentError(self, f"expects true or false, not {values!r}")
        setattr(namespace, self.dest, values.lower() in _TRUE)


class Flag(NamedTuple):
    """A flag other than a plain text or a switch that is off by default.

    Attributes:
      help: What the flag does; ``--help`` appends the default.
      default: The value if the flag is not given.
      minimum: The least value of a number, which is an integer unless ``kind`` says otherwise.
      maximum: The greatest value of a number, which must also be finite.
      kind: The type, if neither default nor minimum determines it.
      many: Whether the value is a tuple of numbers of this kind, given separated by commas; the default is such a text.
      choices: The values allowed.
      required: Whether the flag must be given.
      broken_rule: Function from a value to the rule that it breaks, or "".
      information: Whether the flag takes no value and makes the command only print information.
    """

    help: str
    default: Any = ""
    minimum: float | None = None
    maximum: float = _MOST
    kind: type | None = None
    many: bool = False
    choices: Sequence[Any] = ()
    required: bool = False
    broken_rule: Callable[[Any], str] | None = None
    information: bool = False


Main = Callable[..., int]
say = functools.partial(print, flush=True)
# Group -> NAME or NAME=METAVAR -> Flag, or only the help for a text flag (NAME=METAVAR) or a switch (NAME).
FlagTable = Mapping[str, Mapping[str, str | Flag]]


class FlagParser(argparse_flags.ArgumentParser):
    """An argparse parser that accepts flags as T2T's commands do, including absl's for logging and ``--flagfile``.

    Values are written ``--name=value`` or ``--name value``; booleans ``--name``, ``--noname`` or ``--name=true``.
    ``--help`` and ``--version`` print and exit with 0. Wrong flags raise ``UserError``. In the result of
    ``parse_args``, ``given`` holds the names of the flags that were given.
    """

    def __init__(self, command: str, description: str, *tables: FlagTable, examples: str = "") -> None:
        """Makes a parser.

        Args:
          command: The command, such as ``t2t_ext-trainer``; it selects the tables of other toolkits' flags to answer.
          description: What the command does, in a sentence.
          *tables: Its flags.
          examples: Command lines that are printed after the flags.
        """
        super().__init__(
            prog=command,
            usage=f"{command} --flag=value ...",
            description=description,
            epilog=f"Examples:\n{examples}" if examples else None,
            formatter_class=_Formatter,
            allow_abbrev=False,
            add_help=False,
            inherited_absl_flags=_absl_flags(),
        )
        self._arguments = ""
        self._information = self.add_argument_group("Information")
        self._information.add_argument("--help", "-h", action="help", help="Print this and exit.")
        self._information.add_argument(
            "--version", action="version", version=f"{command} {__version__}", help="Print the version and exit."
        )
        self.add_argument_group("Logging", _LOGGING)
        self.add(*tables)

    def group(self, title: str, description: str | None = None) -> argparse._ArgumentGroup:
        """Returns the group of flags with this title, creating it if necessary."""
        if title == self._information.title:
            return self._information
        for group in self._action_groups:
            if group.title == title:
                return group
        return self.add_argument_group(title, description)

    def add(self, *tables: FlagTable) -> None:
        """Adds flags to their groups."""
        for title, flags_of_group in itertools.chain.from_iterable(table.items() for table in tables):
            for spec, flag in flags_of_group.items():
                name, equals, metavar = spec.partition("=")
                declared = flag if isinstance(flag, Flag) else Flag(flag, "" if equals else False)
                self._add_flag(self.group(title), f"--{name}", metavar, declared)

    def _add_flag(self, group: argparse._ArgumentGroup, name: str, metavar: str, flag: Flag) -> None:
        kind = flag.kind or (int if flag.minimum is not None else type(flag.default))
        if flag.information:
            group.add_argument(name, action="store_true", help=flag.help)
        elif kind is bool:
            group.add_argument(name, action=_BoolAction, default=flag.default, help=flag.help)
        else:
            shown = "|".join(map(str, flag.choices)) or ("N" if kind is int else "X")
            group.add_argument(
                name,
                type=_number(kind, flag) if kind in (int, float) else expand_home if _PATHS.search(metavar) else kind,
                default=flag.default,
                help=flag.help,
                choices=flag.choices or None,
                metavar=metavar or shown,
                required=flag.required,
            )

    def take_arguments(self, name: str, help: str, *, metavar: str) -> None:
        """Makes the command accept arguments without dashes, anywhere among its flags, as a list ``name``."""
        self._arguments = name
        self.usage = f"{self.prog} --flag=value ... {metavar} ..."
        self.add_argument_group("Arguments", f"{metavar}: {help}")

    def names(self) -> list[str]:
        """Returns the names of all flags, without dashes."""
        return sorted(name.removeprefix("--") for name in self._option_string_actions if name.startswith("--"))

    def replaced(self) -> Mapping[str, str]:
        """Returns other toolkits' flags that this command answers: name -> what replaces it."""
        return _unknown_flags.replaced(self.prog, self.names())

    def format_help(self) -> str:
        """Returns the text of ``--help``, with logging and information last."""
        last = ("Logging", "Information")
        self._action_groups.sort(key=lambda group: last.index(group.title) if group.title in last else -1)
        text = super().format_help()
        if self.epilog:
            # The formatter would wrap the lines of the examples.
            text = text[: text.rindex("Examples:")] + self.epilog.rstrip() + "\n"
        return text

    def parse_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        """Parses the command line.

        Args:
          args: The arguments; default: those of the process.
          namespace: Where to put the values; default: a new namespace.

        Returns:
          The values, including ``given`` (the set of flags given) and ``command_line`` (``args``). If the parser has
          ``--t2t_usr_dir`` and it is given, the directory has been loaded. In paths ``~`` is the home directory.

        Raises:
          UserError: Unknown flags, flags of other toolkits, or wrong values.
        """
        args = sys.argv[1:] if args is None else list(args)
        command_line = tuple(args)
        try:
            args = flags.FLAGS.read_flags_from_files(args, force_gnu=True)
        except flags.Error as error:
            raise UserError(f"--flagfile: {error}") from None
        except UnicodeDecodeError as error:
            raise UserError(f"--flagfile: the file is not UTF-8 ({error.reason}); write it as text.") from None
        if "--help" in args or "-h" in args:
            self.print_help()
            self.exit()
        given = list(self._split(args))
        arguments = [value for name, value in given if not name]
        given = [(name, value) for name, value in given if name]
        pairs = self._joined([(name, value) for name, value in given if not name.startswith(_HP_PREFIX)])
        if "registry_help" in dict(pairs):
            # Before argparse complains about missing required flags.
            if usr_dir := dict(pairs).get("t2t_usr_dir"):
                registry.load_user_directory(usr_dir)
            print(registry_text())
            self.exit()
        for name in log.FLAG_NAMES:
            flags.FLAGS[name].unparse()  # resets what an earlier call in this process set
        words = [f"--{name}" if value is None else f"--{name}={value}" for name, value in pairs]
        try:
            result = super().parse_args(words)
        except (flags.IllegalFlagValueError, ValueError) as error:  # absl's flags raise their own errors
            self.error(str(error).removeprefix("flag "))
        flags.FLAGS.mark_as_parsed()
        log.configure(self.prog)
        result.given = frozenset(name for name, _ in pairs)
        result.command_line = command_line
        if self._arguments:
            setattr(result, self._arguments, arguments)
        appended = [f"{name.removeprefix(_HP_PREFIX)}={value}" for name, value in given if name.startswith(_HP_PREFIX)]
        if appended:
            result.hparams = ",".join([*filter(None, [result.hparams]), *appended])
            result.given |= {"hparams"}
        if getattr(result, "t2t_usr_dir", ""):
            registry.load_user_directory(result.t2t_usr_dir)
        if namespace is not None:
            vars(namespace).update(vars(result))
            return namespace
        return result

    def error(self, message: str) -> NoReturn:
        """Raises argparse's complaint as a ``UserError``."""
        message = re.sub(r"^argument ((?:-h/)?--\w+)(?:/-\w)?: ", r"\1 ", message).rstrip(".")
        message = re.sub(r"invalid choice: (.+) \(choose from (.+)\)", r"must be one of \2, not \1", message)
        raise UserError(f"{message}. {self.prog} --help lists all flags.")

    def _split(self, args: list[str]) -> Iterator[tuple[str, str | None]]:
        """Yields (flag, value) pairs: None as value of a flag without one, "" as flag of an argument that is none."""
        wrong = []
        position = 0
        while position < len(args):
            arg = args[position]
            position += 1
            name, equals, value = arg.lstrip("-").partition("=")
            name = "verbosity" if name == "v" else name  # as in absl
            if not _is_flag(arg) and self._arguments:
                yield "", arg
                continue
            if not _is_flag(arg):
                wrong.append(_unknown_flags.argument_complaint(arg))
                continue
            follows = position < len(args) and not _is_flag(args[position])
            action = self._option_string_actions.get(f"--{name}")
            negated = self._option_string_actions.get(f"--{name.removeprefix('no')}")
            if isinstance(action, _BoolAction):
                if not equals and follows and args[position].lower() in _TRUE + _FALSE:
                    value, position = args[position], position + 1
                yield name, value if equals or value else "true"
            elif action is None and name.startswith("no") and isinstance(negated, _BoolAction) and not equals:
                yield name.removeprefix("no"), "false"
            elif action is not None and action.nargs == 0:
                if equals:
                    wrong.append(f"--{name} takes no value")
                yield name, None
            else:
                if not equals and follows:
                    value, position, equals = args[position], position + 1, "="
                # argparse takes "--" as the end of the flags, even as a value.
                problem = self._complaint(name, value, has_value=bool(equals) and value != "--")
                wrong.extend(filter(None, [problem]))
                if not problem:
                    yield name, value
        if wrong:
            text = "; ".join(text.rstrip(".") for text in wrong)
            raise UserError(f"{text}{'' if text.endswith('?') else '.'} {self.prog} --help lists all flags.")

    def _joined(self, pairs: list[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
        """Returns flags and values; the assignments of a repeated flag such as ``--hparams`` are joined.

        argparse would keep only the last value. If several values assign the same name, the last one counts, as for any
        flag. If one value assigns a name twice, the flag's own grammar decides what that means.
        """
        texts: dict[str, list[str]] = {}
        for name, value in pairs:
            action = self._option_string_actions.get(f"--{name}")
            if value and action is not None and str(action.metavar).startswith(_ASSIGNMENTS):
                again = set(_ASSIGNED.findall(value))
                before = [each for each in texts.get(name, ()) if not again & set(_ASSIGNED.findall(each))]
                texts[name] = before + _BETWEEN.split(value)
        return [(name, ",".join(texts[name]) if name in texts else value) for name, value in pairs]

    def _complaint(self, name: str, value: str, *, has_value: bool) -> str:
        """Returns why a flag ``--name=value`` is refused, or ""."""
        known = f"--{name}" in self._option_string_actions
        if known or (name.startswith(_HP_PREFIX) and "--hparams" in self._option_string_actions):
            return "" if has_value else f"--{name} needs a value: --{name}=VALUE"
        return _unknown_flags.complaint(self.prog, name, value, self.names())


def _absl_flags() -> flags.FlagValues:
    """Returns only absl's flags for logging: the flags of other libraries are not flags of the commands."""
    values = flags.FlagValues()
    for name in log.FLAG_NAMES:
        values[name] = flags.FLAGS[name]
    return values


def _is_flag(arg: str) -> bool:
    """Returns whether an argument is a flag; a negative number is not."""
    return re.match(r"--?[A-Za-z]", arg) is not None


def add_settings(parser: FlagParser, settings: type[StrictParams], names: Sequence[str] = (), **defaults: Any) -> None:
    """Adds a flag for each setting, in the group that its declaration names.

    Args:
      parser: The command's parser.
      settings: The class whose fields declare name, type, default, limits, unit and help.
      names: The fields; default: all that have a group.
      **defaults: Field -> default, if it differs for this command.
    """
    for name in names or [field.name for field in dataclasses.fields(settings) if field.metadata.get("group")]:
        field = settings.__dataclass_fields__[name]
        declared, unit = field.metadata, field.metadata["unit"]
        declared_type = settings.type_of(name)
        kinds = [kind for kind in (bool, int, float) if kind in (declared_type, *typing.get_args(declared_type))]
        metavar = declared["metavar"] or unit.upper() or ("X" if float in kinds else "N" if kinds else "")
        flag = Flag(
            declared["help"],
            defaults.get(name, field.default),
            kind=[*kinds, str][0],
            choices=declared["choices"],
            broken_rule=functools.partial(broken_rule, field=field),
        )
        parser.add({declared["group"]: {f"{declared['flag'] or name}={metavar}": flag}})


def expand_home(text: str) -> str:
    """Returns comma-separated paths with ``~`` expanded, since shells do not expand it after ``--flag=``."""
    return ",".join(map(os.path.expanduser, text.split(",")))


def _number(kind: type, flag: Flag) -> Callable[[str], Any]:
    """Returns the argparse type of a flag for numbers within limits; its error messages are in plain words."""

    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            words = "an integer" if kind is int else "a number"
            if flag.many:
                words = f"{'whole numbers' if kind is int else 'numbers'} separated by commas"
            raise argparse.ArgumentTypeError(f"expects {words}, not {shortened(text)!r}") from None
        broken = flag.broken_rule(value) if flag.broken_rule else _broken_limit(value, flag)
        if broken:
            raise argparse.ArgumentTypeError(f"{broken}, not {shortened(text)}")
        return value

    return parse if not flag.many else lambda text: tuple(map(parse, text.split(","))) if text else ()


def _broken_limit(value: float, flag: Flag) -> str:
    """Returns which limit of a flag a number breaks, in words, or ""."""
    if isinstance(value, float) and not math.isfinite(value):  # only floats: a whole number may be too large for one
        return "must be finite"
    if flag.minimum is not None and value < flag.minimum:
        return f"must be at least {flag.minimum:,}"
    return "" if abs(value) <= flag.maximum else f"must be at most {flag.maximum:,}"


def registry_text() -> str:
    """Returns the text of ``--registry_help``: all names by kind, with the user's own marked.

    Each model has a line that says what it is. Problems and hparams sets are many, so they are grouped by prefix.
    """
    own = {
        (kind, name)
        for directory in registry.loaded_user_directories()
        for kind, names in registry.user_names(directory).items()
        for name in names
    }
    lines = []
    for kind, names in (
        ("problem", registry.problem_names()),
        ("model", registry.model_names()),
        ("hparams set", registry.hparams_names()),
    ):
        lines.append(f"{kind[0].upper()}{kind[1:]}s ({len(names)}):")
        prefix = ""
        for name in names:
            if kind != "model" and name.split("_")[0] != prefix:
                prefix = name.split("_")[0]
                lines.append(f"  {prefix}")
            lines.append(f"    {name}{'  (--t2t_usr_dir)' if (kind, name) in own else ''}")
            if kind == "model" and (summary := registry.model_summary(name)):
                lines.append(f"        {summary}")
        if kind == "problem":
            lines.extend(f"  {words}" for words in registry.problem_families().values())
            lines.append(f"  any translation problem in the other direction: NAME{registry.REVERSED_SUFFIX}")
            lines.append(
                f"  any translation problem with pseudo references (t2t_ext-pseudo-references): "
                f"NAME{registry.SYNCHRONOUS_SUFFIX}, NAME{registry.REVERSED_SUFFIX}{registry.SYNCHRONOUS_SUFFIX}"
            )
        lines.append("")
    return "\n".join(lines).rstrip()


def configure_threads(inter_op: int, intra_op: int) -> None:
    """Sets the sizes of TensorFlow's thread pools (0 = its own choice); call it before TensorFlow is imported."""
    for variable, value in (
        ("TF_NUM_INTEROP_THREADS", inter_op),
        ("TF_NUM_INTRAOP_THREADS", intra_op),
        ("OMP_NUM_THREADS", intra_op),
    ):
        if value:
            os.environ[variable] = str(value)


def keep_compiled_products() -> None:
    """Lets oneDNN keep the compiled kernels for all batch shapes; call it before TensorFlow computes.

    By default oneDNN keeps 1,024 of them. Training needs more (about 60 products, each in all shapes that batches have)
    and would recompile some of them in every step.
    """
    if not {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY"} & os.environ.keys():
        os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] = "20000"


def start_tensorflow(inter_op: int = 0, intra_op: int = 0) -> None:
    """Sets thread pools as ``configure_threads`` does and imports TensorFlow without its messages about itself.

    The import avoids two delays. If pyplot is installed, Keras would import it for image galleries, which no command
    needs: a third of a second. Garbage collection would take another half second to look at the objects of TensorFlow's
    modules, which stay alive anyway.
    """
    configure_threads(inter_op, intra_op)
    keep_compiled_products()
    if "tensorflow" in sys.modules:
        return
    hides, collects = "matplotlib" not in sys.modules, gc.isenabled()
    if hides:
        sys.modules["matplotlib"] = None  # type: ignore[assignment]  # an import of it fails
    gc.disable()
    try:
        with _process.leaving_at_an_interrupt():
            import tensorflow  # noqa: F401

        gc.freeze()
    finally:
        if collects:
            gc.enable()
        if hides:
            del sys.modules["matplotlib"]


def run_main(main: Callable[[], int | None], *, is_process: bool = False) -> int:
    """Runs a command and turns its errors into an exit status.

    Args:
      main: The command, which parses its own flags.
      is_process: Whether the process exists only for the command and ends with it.

    Returns:
      What ``main`` returned (None counts as 0); 2 (or the status that the ``UserError`` has) after a user's mistake; 2
      if a file or the memory is the problem; 130 after Ctrl-C; 141 if the reader of the output has gone. Mistakes and
      problems are reported on one line. Any other exception is a defect and keeps its traceback, whose last line names
      the user's own module that it came through, if any.
    """
    # Hides TensorFlow's start-up messages, which would bury those of the commands; its warnings and errors stay.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    if is_process:
        _process.own_process()
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # for file names that are not UTF-8
    try:
        try:
            status = main()
            sys.stdout.flush()
            return status or 0
        except UserError as error:
            sys.stdout.flush()
            _complain(" ".join(str(error).split()))
            return error.exit_status
        except KeyboardInterrupt:
            if is_process:
                _process.leave_at_the_next_interrupt()
            print("interrupted", file=sys.stderr)
            return _process.INTERRUPTED
        except Exception as error:
            _process.name_user_code(error)
            raise
    except BrokenPipeError:
        _process.silence(sys.stdout)
        return 141
    except (OSError, ValueError, MemoryError) as error:
        message = _process.explained(error)
        if not message:
            raise
        _complain(message)
        return 2
    finally:
        inputs.forget_pipes()
        if is_process:  # Python's last garbage collection would take half a second for TensorFlow's graphs
            gc.disable()
            gc.freeze()


def _complain(message: str) -> None:
    """Reports a problem on standard error; if that cannot be written to either, only the exit status shows it."""
    try:
        log.error(_LONG_WORD.sub(r"\1...\2", message))
    except OSError:
        _process.silence(sys.stderr)


def command(build_parser: Callable[[], FlagParser]) -> Callable[[Callable[[Any], int | None]], Main]:
    """Returns a decorator that turns a function of flags into ``main`` (arguments -> exit status); see ``run_main``."""

    def decorate(function: Callable[[Any], int | None]) -> Main:
        @functools.wraps(function)
        def main(argv: Sequence[str] | None = None) -> int:
            return run_main(lambda: function(build_parser().parse_args(argv)), is_process=argv is None)

        return main

    return decorate
