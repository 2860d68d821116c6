"""Who may import whom, and which modules must do without TensorFlow."""

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

# A module imports from its own layer and from lower ones.
LAYERS = (
    (
        "errors",
        "version",
        "registry",
        "hyperparameters",
        "asynchronous_hyperparameters",
        "composed_hyperparameters",
        "dual_context_hyperparameters",
        "dynamic_conv_hyperparameters",
        "layer_coordination_hyperparameters",
        "source_view_hyperparameters",
        "synchronous_hyperparameters",
        "layer_ranges",
        "problem_options",
        "_strict_params",
        "_replaced_hparams",
        "_user_directory",
    ),
    ("data", "layers", "persistence"),
    ("problem", "models", "decoding"),
    ("training", "evaluation", "serving", "analysis"),
    ("experiments",),
    ("problems", "hparams", "recipes"),
    ("bin",),
)
# Within a layer, from -> to; what is not here stays apart.
WITHIN_A_LAYER = {
    ("data", "persistence"),
    ("persistence", "data"),
    ("decoding", "models"),
    ("models", "decoding"),  # asynchronous_transformer's backward decoder searches before the search
    ("training", "evaluation"),
    ("training", "analysis"),
    ("analysis", "evaluation"),
    ("serving", "evaluation"),
}

TENSORFLOW_FREE = (
    "errors",
    "version",
    "registry",
    "hyperparameters",
    "asynchronous_hyperparameters",
    "composed_hyperparameters",
    "dual_context_hyperparameters",
    "dynamic_conv_hyperparameters",
    "layer_coordination_hyperparameters",
    "source_view_hyperparameters",
    "synchronous_hyperparameters",
    "problem",
    "data.text_encoder",
    "data.readers",
    "data.generate",
    "data.generated",
    "data.example_store",
    "data.batching",
    "persistence.files",
    "persistence.run_directory",
    "training.config",
    "training.records",
    "analysis.attention_report",
    "analysis.divergence_report",
    "analysis.gradient_groups",
    "analysis.gradient_report",
    "analysis.probing_report",
    "analysis.senteval",
    "analysis.senteval_build",
    "experiments.recipes",
    "experiments.plan",
    "experiments.stages",
    "experiments.report",
    "experiments.sweep",
    "evaluation.compare",
    "evaluation.compare_html",
    "evaluation.compare_text",
    "evaluation.metrics",
    "evaluation.protocols",
)


def module_files():
    """Returns dotted module -> file of everything in t2t_ext, garden included."""
    files = {}
    for base, prefix in ((ENGINE, "t2t_ext"), *((ROOT / name, f"t2t_ext.{name}") for name in GARDEN)):
        for file in base.rglob("*.py"):
            parts = file.relative_to(base).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            files[".".join([prefix, *parts])] = file
    return files


FILES = module_files()


def imports(module, *, only_at_import_time):
    """Returns the dotted names that a module imports, without those for type checkers only."""
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
    """Returns the name in LAYERS that a module belongs to; None for t2t_ext itself and what is not ours."""
    names = module.split(".")
    return names[1] if names[0] == "t2t_ext" and len(names) > 1 else None


def layer(name):
    return next((number for number, names in enumerate(LAYERS) if name in names), None)


def test_every_module_belongs_to_a_layer():
    unknown = {part(module) for module in FILES if module != "t2t_ext" and layer(part(module)) is None}
    assert not unknown


@pytest.mark.parametrize("name", sorted({name for names in LAYERS for name in names}))
def test_directions(name):
    wrong = []
    for module in FILES:
        if part(module) != name:
            continue
        for imported in imports(module, only_at_import_time=False):
            other = part(imported)
            if other is None or other == name:
                continue
            here, there = layer(name), layer(other)
            same_layer_apart = here == there and here > 0 and (name, other) not in WITHIN_A_LAYER
            if there is None or there > here or same_layer_apart:
                wrong.append(f"{module} imports {imported}")
    assert not wrong


def test_search_knows_models_only_through_its_arguments():
    for module in ("t2t_ext.decoding.beam_search", "t2t_ext.decoding.top_k", "t2t_ext.decoding.length_penalty"):
        assert not {name for name in imports(module, only_at_import_time=False) if part(name) in ("models", "layers")}


def test_commands_are_imported_by_commands_only():
    for module in FILES:
        if part(module) != "bin":
            assert not {name for name in imports(module, only_at_import_time=False) if part(name) == "bin"}, module


def tensorflow_free_modules():
    named = [f"t2t_ext.{name}" for name in TENSORFLOW_FREE]
    return ["t2t_ext", *named, *sorted(module for module in FILES if part(module) in GARDEN)]


def chain_to_tensorflow(module):
    """Returns the imports that lead from a module to TensorFlow when it is imported, or ()."""
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
