"""Tests of the documentation: links and paths exist, registered names are documented, lines are short."""

import ast
import functools
import itertools
import pathlib
import re
import subprocess
import urllib.parse

import pytest

from t2t_ext import pages, registry

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", ".github/**/*.md")
    for path in ROOT.glob(pattern)
    if ".venv" not in path.parts
)
NAMES = [str(path.relative_to(ROOT)) for path in PAGES]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# Paths in code spans: a folder of the repository, followed by at least one more path component.
PATH = re.compile(r"`((?:t2t_ext|problems|hparams|recipes|bin|tests|docs|benchmarks|examples)/[\w./-]*)`")
MODULE = re.compile(r"`(t2t_ext(?:\.\w+)+)(?:\(.*?\))?`")
FILE = re.compile(r"`([\w/]+\.py)`")
SOURCES = ("t2t_ext", "problems", "hparams", "recipes", "bin", "benchmarks", "docs", "tests", "examples")
FOLDERS = ("", "t2t_ext")  # folders that a path in a page may be relative to


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def prose(name):
    """Returns a page without its code blocks."""
    text = re.sub(r"(?ms)^```.*?^```", "", text_of(name))
    return re.sub(r"(?m)(?<=\n\n)(?: {4}.*\n?)+", "\n", text)


@functools.cache
def anchors(path):
    """Returns the anchors of a page's headings in GitHub's form."""
    headings = re.findall(r"(?m)^#+ (.+)$", path.read_text(encoding="utf-8"))
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name):
    broken = []
    for target in LINK.findall(prose(name)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = urllib.parse.unquote(target).partition("#")
        found = (ROOT / name).parent / path if path else ROOT / name
        if not found.exists() or (anchor and anchor not in anchors(found.resolve())):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("name", NAMES)
def test_paths_and_modules_exist(name):
    text = prose(name)
    missing = [path for path in PATH.findall(text) if not any((ROOT / folder / path).exists() for folder in FOLDERS)]
    for module in MODULE.findall(text):
        parts = module.split(".")[1:]
        # The last parts may be a class or function: the longest prefix that is a module must contain the next part.
        for length in range(len(parts), -1, -1):
            base = ROOT.joinpath("t2t_ext", *parts[:length])
            file = base.with_suffix(".py") if base.with_suffix(".py").is_file() else base / "__init__.py"
            if file.is_file():
                rest = parts[length : length + 1]
                if rest and not re.search(rf"\b{rest[0]}\b", file.read_text(encoding="utf-8")):
                    missing.append(module)
                break
    # Files that are named by the end of their path, such as `search/rules.py`.
    files = ["/" + str(path.relative_to(ROOT)) for folder in SOURCES for path in (ROOT / folder).rglob("*.py")]
    for file in set(FILE.findall(text)):
        if file.split("/")[0] not in SOURCES and not any(path.endswith(f"/{file}") for path in files):
            missing.append(file)
    assert not missing


@pytest.mark.parametrize("name", NAMES)
def test_no_line_over_160_characters(name):
    assert not [(number, line) for number, line in enumerate(text_of(name).split("\n"), 1) if len(line) > 160]


def test_every_page_is_in_the_index():
    index = {target.partition("#")[0] for target in LINK.findall(text_of("docs/README.md"))}
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md", "index.md"} <= index
    records = set(LINK.findall(text_of("docs/decisions/README.md")))
    assert {path.name for path in (ROOT / "docs" / "decisions").glob("0*.md")} == records


@pytest.mark.parametrize(
    ("page", "names"),
    [("docs/models.md", registry.model_names), ("docs/hparams_sets.md", registry.hparams_names)],
)
def test_every_registered_name_is_documented(page, names):
    documented = set(re.findall(r"`(\w+)`", text_of(page)))
    assert not set(names()) - documented


def test_the_pages_that_messages_name_exist():
    """The pages that messages name exist under their titles, which users of an installed package can search for."""
    for name, title in pages._TITLES.items():
        assert text_of(f"docs/{name}.md").startswith(f"# {title}\n")
        assert pages.page(name) == f"the documentation's page '{title}' (docs/{name}.md of the sources)"


def test_no_message_names_a_file_of_the_docs_by_its_path_alone():
    """Messages use ``pages.page`` to name a page, since an installed package does not contain the files of docs/."""
    found, used = [], set()
    for folder in ("t2t_ext", "bin", "problems", "hparams", "recipes"):
        for path in (ROOT / folder).rglob("*.py"):
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            comments = {id(each.value) for each in nodes if isinstance(each, ast.Expr)}  # docstrings
            texts = [each for each in nodes if isinstance(each, ast.Constant) and id(each) not in comments]
            found += [(path.name, each.lineno) for each in texts if re.search(r"\bdocs/|\w\.md\b", str(each.value))]
            calls = [each for each in nodes if isinstance(each, ast.Call) and ast.unparse(each.func) == "page"]
            used |= {ast.literal_eval(each.args[0]) for each in calls}
    for path in itertools.chain.from_iterable((ROOT / folder).rglob("*.toml") for folder in ("t2t_ext", "bin")):
        lines = path.read_text(encoding="utf-8").splitlines()
        found += [(path.name, line) for line in lines if re.search(r"\bdocs/", line.split("#")[0])]
    assert {name for name, _ in found} <= {"pages.py"}, found
    assert used == set(pages._TITLES)


def test_the_map_has_every_folder():
    shown = set(re.findall(r"`([\w/]+?)/`", text_of("docs/architecture.md")))
    engine = ROOT / "t2t_ext"
    parts = {path.parent.relative_to(engine).parts for path in engine.rglob("__init__.py")} - {()}
    folders = {"/".join(each) for each in parts if len(each) == 1 or each[0] == "data"}
    assert folders - {"data"} <= shown


def test_example_shell_scripts_parse():
    for script in (ROOT / "examples").glob("*.sh"):
        subprocess.run(["bash", "-n", str(script)], check=True)
