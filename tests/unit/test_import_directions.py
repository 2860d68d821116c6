"""Tests of the import rules: which package may import which, and which modules must not load TensorFlow."""

import ast
import pathlib
import subprocess
import sys

import pytest

import t2t_ext

ENGINE = pathlib.Path(t2t_ext.__file__).parent
ROOT = ENGINE.parent
GARDEN = ("problems", "hparams", "recipes", "bin")
HEAVY = ("tensorflow", "keras", "tensorflow_text", "tensorboard")

# Packages (and top-level modules) from the bottom up: a module may import from its own package and from lower ones,
# at import time or inside a function. Packages on the same line do not import each other.
FLOORS = (
    ("errors", "pages", "version", "index", "compat"),
    ("io", "config"),
    ("registry", "reporting", "data.text"),
    ("data.corpora",),
    ("data.features",),
    ("problem",),
    ("data.datasets",),
    ("data.generation",),
    ("data.doctor", "runs", "layers"),
    ("search", "analysis.runs"),
    ("models",),
    ("translation",),
    ("evaluation", "keras_hub"),
    ("evaluation.comparison", "analysis.attention", "analysis.gradients"),
    ("analysis.diagram", "analysis.divergence", "analysis.probing"),
    ("training",),
    ("pseudo", "serving", "experiments", "analysis.checkpoint_gradients"),
    ("problems", "hparams", "recipes"),
    ("bin",),
)

TENSORFLOW_FREE = (
    "errors",
    "version",
    "index",
    "registry",
    "config.hyperparameters",
    "config.asynchronous",
    "config.context_gate",
    "config.decode",
    "config.dynamic_conv",
    "config.layer_coordination",
    "config.synchronous",
    "config.variants.dual_context",
    "config.variants.source_views",
    "config.variants.synchronous",
    "problem",
    "data.text.text_encoder",
    "data.corpora.readers",
    "data.generation.generate",
    "data.datasets.generated",
    "data.datasets.example_store",
    "data.datasets.shortlist",
    "data.datasets.batching",
    "io.files",
    "runs.run_directory",
    "config.generation",
    "config.training",
    "training.dev_metrics",
    "training.records",
    "analysis.runs",
    "analysis.attention.report",
    "analysis.divergence.report",
    "analysis.gradients.groups",
    "analysis.gradients.report",
    "analysis.probing.report",
    "analysis.probing.senteval",
    "analysis.probing.senteval_build",
    "experiments.recipes",
    "experiments.plan",
    "experiments.stages",
    "experiments.report",
    "experiments.conduct",
    "experiments.listing",
    "experiments.sweep",
    "evaluation.scored_files",
    "evaluation.score_table",
    "evaluation.comparison.comparison",
    "evaluation.comparison.report",
    "evaluation.metrics",
    "evaluation.protocols",
)


def module_files():
    """Returns dotted name -> file for every module of t2t_ext, including problems, hparams, recipes and bin."""
    files = {}
    for base, prefix in ((ENGINE, "t2t_ext"), *((ROOT / name, f"t2t_ext.{name}") for name in GARDEN)):
        for file in base.rglob("*.py"):  # rglob does not follow the symbolic links in t2t_ext to the GARDEN folders
            parts = file.relative_to(base).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            files[".".join([prefix, *parts])] = file
    return files


FILES = module_files()


def imports(module, *, only_at_import_time):
    """Returns the dotted names that a module imports, except those that it imports for type checkers only."""
    found = set()

    def visit(node):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            children = node.orelse
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and only_at_import_time:
            children = []
        else:
            children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".") if FILES[module].name == "__init__.py" else module.split(".")[:-1]
                base = ".".join(package[: len(package) - node.level + 1] + ([base] if base else []))
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in FILES else base)
        for child in children:
            visit(child)

    visit(ast.parse(FILES[module].read_text(encoding="utf-8")))
    return found


def part(module):
    """Returns the entry of FLOORS that a module belongs to, or None for parent packages and modules outside t2t_ext."""
    names = module.split(".")[1:]
    known = {name for floor in FLOORS for name in floor}
    for length in (2, 1):
        if ".".join(names[:length]) in known:
            return ".".join(names[:length])
    return None


def floor(name):
    return next(number for number, names in enumerate(FLOORS) if name in names)


GRAPH = {module: imports(module, only_at_import_time=False) & FILES.keys() - {module} for module in FILES}


def test_every_module_belongs_to_a_floor():
    homeless = {module for module in FILES if part(module) is None}
    assert homeless == {"t2t_ext", "t2t_ext.analysis", "t2t_ext.data"}


@pytest.mark.parametrize("name", sorted({name for names in FLOORS for name in names}))
def test_directions(name):
    upward = []
    for module in FILES:
        if part(module) != name:
            continue
        for imported in GRAPH[module]:
            other = part(imported)
            if other is not None and other != name and floor(other) >= floor(name):
                upward.append(f"{module} imports {imported}")
    assert not upward


def test_nothing_below_imports_the_public_names():
    """Only users import the names of ``t2t_ext/__init__.py``; the toolkit imports from the defining modules."""
    names = set(t2t_ext.__all__) - {"registry", "__version__"}
    for module, file in FILES.items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "t2t_ext":
                assert not names & {alias.name for alias in node.names}, module


def circles(graph):
    """Returns the import cycles: the strongly connected components with more than one module (Tarjan 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in index:
                visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == index[module]:
            component = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(component) > 1:
                found.append(sorted(component))

    for module in graph:
        if module not in index:
            visit(module)
    return found


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def test_no_circle_of_files():
    assert not circles(GRAPH)


def test_search_knows_models_only_through_its_arguments():
    for module in FILES:
        if part(module) != "search":
            continue
        assert not {name for name in imports(module, only_at_import_time=False) if part(name) == "models"}


def test_commands_are_imported_by_commands_only():
    for module in FILES:
        if part(module) != "bin":
            assert not {name for name in imports(module, only_at_import_time=False) if part(name) == "bin"}, module


def tensorflow_free_modules():
    named = [f"t2t_ext.{name}" for name in TENSORFLOW_FREE]
    return ["t2t_ext", *named, *sorted(module for module in FILES if part(module) in GARDEN)]


def chain_to_tensorflow(module):
    """Returns the chain of imports from a module to TensorFlow at import time, or () if there is none."""
    waiting, seen = [(module,)], set()
    while waiting:
        chain = waiting.pop(0)
        current = chain[-1]
        if current.split(".")[0] in HEAVY:
            return chain
        if current in seen or current not in FILES:
            continue
        seen.add(current)
        # Importing a.b.c imports a and a.b first.
        names = current.split(".")
        parents = {".".join(names[:length]) for length in range(1, len(names))}
        waiting.extend((*chain, name) for name in sorted(imports(current, only_at_import_time=True) | parents))
    return ()


@pytest.mark.parametrize("module", tensorflow_free_modules())
def test_module_reaches_no_tensorflow(module):
    assert module in FILES
    assert not chain_to_tensorflow(module)


def test_importing_them_loads_no_tensorflow():
    code = (
        "import importlib, sys\n"
        f"for module in {tensorflow_free_modules()!r}:\n"
        "    importlib.import_module(module)\n"
        f"    assert not set({HEAVY!r}) & set(sys.modules), module\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_public_names_are_there():
    for name in t2t_ext.__all__:
        assert getattr(t2t_ext, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = t2t_ext.nonsense


def test_unit_tests_mirror_the_packages():
    """The folders of ``tests/unit`` mirror the packages: ``data/text`` has the tests of ``t2t_ext/data/text``."""
    here = pathlib.Path(__file__).parent
    folders = {file.parent.relative_to(here) for file in here.rglob("test_*.py")}
    strangers = {str(folder) for folder in folders if not (ENGINE / folder).is_dir()}
    assert strangers <= {"benchmarks"}
