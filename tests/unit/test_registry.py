"""Tests of the registry: names, duplicates, lookups, names read from the sources, and user directories."""

import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
import traceback

import pytest

from t2t_ext import index, registry
from t2t_ext.bin._flags import run_main
from t2t_ext.config import user_directory as _user_directory
from t2t_ext.config.hyperparameters import HParams, TransformerHParams
from t2t_ext.errors import UserError
from t2t_ext.problem import TranslationProblem


@pytest.fixture(autouse=True)
def _isolated(monkeypatch, tmp_path):
    """Undoes what a test registers, imports or adds to the path, but keeps the modules of t2t_ext."""
    kinds = (registry._problems, registry._models, registry._hparams)
    before = [(set(kind._entries), set(kind._families)) for kind in kinds]
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(_user_directory, "_loaded", [])
    yield
    for kind, (entries, families) in zip(kinds, before, strict=True):
        for registered, kept in ((kind._entries, entries), (kind._families, families)):
            for name, entry in list(registered.items()):
                if name not in kept and not entry.module.startswith("t2t_ext."):
                    del registered[name]
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


class FakeProblem:
    reversible = True

    def __init__(self, *, name, was_reversed=False, train_source=""):
        self.name, self.was_reversed, self.train_source = name, was_reversed, train_source


def write(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    return str(folder)


A_SET = """
    from t2t_ext import registry
    from t2t_ext.config.hyperparameters import HParams

    @registry.register_hparams
    def {name}():
        return HParams(batch_size={size})
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Transformer", "transformer"),
        ("TranslateEndeCldr", "translate_ende_cldr"),
        ("TranslateDeenMulti30k", "translate_deen_multi30k"),
        ("transformer_base_v1", "transformer_base_v1"),
        ("HTTPModel", "http_model"),
    ],
)
def test_snake_case(name, expected):
    assert registry.snake_case(name) == expected


def test_decorators_bare_called_and_named():
    @registry.register_model
    class MyModel:
        pass

    @registry.register_model()
    class OtherModel:
        pass

    @registry.register_model("third")
    class Third:
        pass

    assert registry.model("my_model") is MyModel
    assert registry.model("other_model") is OtherModel
    assert registry.model("third") is Third
    assert {"my_model", "other_model", "third", "transformer"} <= set(registry.model_names())


def test_duplicate_names_both_places():
    def first():
        @registry.register_model("twice")
        class One:
            pass

    def second():
        @registry.register_model("twice")
        class Two:
            pass

    first()
    with pytest.raises(UserError) as raised:
        second()
    line = inspect.getsourcelines(first)[1] + 1
    assert f"{__file__}:{line}" in str(raised.value)
    assert f"{__file__}:{inspect.getsourcelines(second)[1] + 1}" in str(raised.value)
    assert "'twice'" in str(raised.value)


def test_duplicate_of_an_indexed_name_is_found_without_importing_it():
    with pytest.raises(UserError, match=r"test_registry\.py:\d+.*'transformer'.*models/transformer\.py:\d+"):
        registry.register_model("transformer")(FakeProblem)
    with pytest.raises(UserError, match=r"hparams/transformer\.py:\d+"):
        registry.register_hparams("transformer_base")(lambda: None)


def test_name_of_a_family_is_taken():
    with pytest.raises(UserError, match=r"problems/cldr\.py.*family"):
        registry.register_problem("translate_nlde_cldr")(FakeProblem)


def test_rev_names_cannot_be_registered():
    with pytest.raises(UserError, match="may not end in _rev"):
        registry.register_problem("translate_mine_rev")(FakeProblem)
    registry.register_model("model_rev")(FakeProblem)  # only problems can be reversed


@pytest.mark.parametrize("name", ["Translate", "translate-ende", "1problem", "a b"])
def test_names_are_snake_case(name):
    with pytest.raises(UserError, match="not snake_case"):
        registry.register_problem(name)(FakeProblem)


@pytest.mark.parametrize(
    ("look_up", "name", "close"),
    [
        (registry.problem, "translate_ende_cldrr", "translate_ende_cldr"),
        (registry.problem, "translate_deen_multi30_rev", "translate_deen_multi30k_rev"),
        (registry.model, "transfomer", "transformer"),
        (registry.hparams, "transformer_bass", "transformer_base"),
    ],
)
def test_unknown_names_suggest(look_up, name, close):
    with pytest.raises(UserError, match=f"'{close}'.*--registry_help lists all"):
        look_up(name)


def test_problem_rev_and_options():
    registry.register_problem("fake")(FakeProblem)
    plain, turned = registry.problem("fake"), registry.problem("fake_rev", train_source="a.txt")
    assert (plain.name, plain.was_reversed) == ("fake", False)
    assert (turned.name, turned.was_reversed, turned.train_source) == ("fake", True, "a.txt")
    assert "fake_rev" not in registry.problem_names()
    with pytest.raises(UserError, match=r"does not take train_sourc.*Did you mean 'train_source'.*Its options"):
        registry.problem("fake", train_sourc="x")


def test_options_of_a_class_that_passes_others_on():
    @registry.register_problem
    class FakeWithMore(TranslationProblem):
        def __init__(self, *, size: int = 3, share: float | None = None, **others):
            super().__init__(**others)
            self.size, self.share = size, share

    made = registry.problem("fake_with_more_rev", size="5", share="0.5", source_language="de")
    assert (made.size, made.share, made.languages) == (5, 0.5, ("", "de"))
    assert dict(made.options) == dict(made.base().options) == {"size": 5, "share": 0.5, "source_language": "de"}
    assert not registry.problem("fake_with_more", size=3).options  # as if it were not given
    with pytest.raises(UserError, match=r"does not take siz\. Did you mean 'size'\? Its options: share, size, source_"):
        registry.problem("fake_with_more", siz="5")


def test_a_class_that_records_its_options_itself():
    @registry.register_problem
    class FakeRecording(TranslationProblem):
        def __init__(self, *, name=None, was_reversed=False, corpus="a"):
            super().__init__(name=name, was_reversed=was_reversed)
            self._options = {"corpus": corpus.upper()}

    assert registry.problem("fake_recording", corpus="b").options == {"corpus": "B"}


def test_a_problem_that_does_not_take_its_name():
    @registry.register_problem
    class FakeWithoutName(TranslationProblem):
        def __init__(self):
            super().__init__()

    message = r"test_registry\.py:\d+: the problem 'fake_without_name' cannot be made: .* take name and was_reversed"
    with pytest.raises(UserError, match=message):
        registry.problem("fake_without_name")


def test_rev_of_what_is_no_translation():
    class Fixed(FakeProblem):
        reversible = False

    registry.register_problem("fixed")(Fixed)
    with pytest.raises(UserError, match="'fixed' is not a translation problem"):
        registry.problem("fixed_rev")


def test_family_makes_problems_by_pattern():
    registry.register_problem_family(r"fake_\d+_family")(FakeProblem)
    assert registry.problem("fake_12_family").name == "fake_12_family"
    assert registry.problem("fake_12_family_rev").was_reversed
    assert r"fake_\d+_family" in registry.problem_families()
    with pytest.raises(UserError, match="Unknown problem"):
        registry.problem("fake_x_family")


# The problem names of tensor2tensor 1.15.
_ENDE = "wmt32k wmt8k wmt32k_packed wmt8k_packed wmt_clean32k wmt_characters wmt_multi64k wmt_multi64k_packed1k"
_PARACRAWL = "pc32k pc_clean32k wmt_pc32k wmt_clean_pc32k wmt_pc_clean32k wmt_clean_pc_clean32k"
_ENFR = (
    "wmt32k wmt8k wmt32k_packed wmt_small8k wmt_small32k wmt_characters wmt_small_characters wmt_multi64k "
    "wmt_multi64k_packed1k wmt32k_with_backtranslate_fr wmt32k_with_backtranslate_en"
)
_ENRO = "wmt8k wmt32k wmt_characters wmt_multi64k wmt_multi_small64k wmt_multi_tiny64k wmt_multi_tiny64k_packed1k"
_OTHERS = {
    "ende": f"{_ENDE} {_PARACRAWL} wmt_bpe32k", "enfr": _ENFR, "enro": _ENRO,
    "enes": "wmt32k wmt8k wmt32k_packed wmt8k_packed wmt_clean32k wmt_characters",
    "encs": "wmt32k wmt_characters cubbitt", "enet": "wmt32k wmt_characters", "enid": "iwslt32k",
    "enmk": "setimes32k setimes_characters", "entn": "rma", "envi": "iwslt32k", "enzh": "wmt32k wmt8k",
    "ende2018": "wmt32k",
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [f"translate_{pair}_{each}" for pair, names in _OTHERS.items() for each in names.split()]
    + ["text2text_tmpdir", "text2text_tmpdir_tokens"],
)
def test_problems_of_tensor2tensor_are_answered(name):
    for typed in (name, f"{name}_rev"):
        with pytest.raises(UserError, match=f"'{typed}' of tensor2tensor is not here: ") as raised:
            registry.problem(typed)
        named = re.findall(r"\btranslate_\w+", str(raised.value).partition("not here")[2])
        assert named
        assert set(named) <= set(registry.problem_names())


def test_a_problem_that_is_misspelt_is_named_as_it_was_typed():
    with pytest.raises(UserError, match=r"Unknown problem 'translate_ende_cldr_rev_rev'\. Did you mean 'translate_"):
        registry.problem("translate_ende_cldr_rev_rev")
    with pytest.raises(UserError, match=r"'translate_ende_clrd_rev'\. Did you mean 'translate_ende_cldr_rev'"):
        registry.problem("translate_ende_clrd_rev")


def test_set_that_returns_nothing():
    @registry.register_hparams
    def forgetful():
        HParams()

    with pytest.raises(UserError, match=r"test_registry.py:\d+.*'forgetful' returned NoneType.*return"):
        registry.hparams("forgetful")


def test_registering_the_same_again_at_the_same_place_is_a_reload():
    for _ in range(2):

        @registry.register_model
        class Reloaded:
            pass

    assert registry.model("reloaded") is Reloaded


# Names that are read from the sources without importing them.


@pytest.mark.parametrize("names", [registry._problems, registry._models, registry._hparams])
def test_what_is_read_from_the_sources_is_what_the_decorators_register(names):
    for each in (*names.index.values(), *names.families.values()):
        importlib.import_module(each.module)
    for read, registered in ((names.index, names._entries), (names.families, names._families)):
        ours = {name: (entry.module, entry.place) for name, entry in registered.items() if "t2t_ext." in entry.module}
        assert {name: (each.module, each.place) for name, each in read.items()} == ours
        assert ours or read is names.families


def test_names_are_read_from_all_forms_of_a_decorator(tmp_path, monkeypatch):
    (tmp_path / "some_names").mkdir()
    (tmp_path / "some_names" / "one.py").write_text(
        "@register_model\nclass BareName: pass\n\n@registry.register_model()\ndef called(): pass\n\n"
        "@a.b.register_model('given')\n@other\nclass X: pass\n\n@registry.register_problem_family(r'x+', example='xx')"
        "\nclass Y: pass\n"
    )
    (tmp_path / "some_names" / "two.py").write_text("raise RuntimeError('was imported')  # register_model\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = index.registrations("some_names")
    assert [(each.decorator, each.name, each.example) for each in found] == [
        ("register_model", "bare_name", ""),
        ("register_model", "called", ""),
        ("register_model", "given", ""),
        ("register_problem_family", "x+", "xx"),
    ]
    assert [each.place.rpartition(":")[2] for each in found] == ["1", "4", "7", "11"]
    assert {each.module for each in found} == {"some_names.one"}


def test_every_problem_can_be_made():
    for name in registry._problems.index:
        made = registry.problem(name)
        assert made.name == name
        if made.reversible:
            assert registry.problem(f"{name}_rev").name == f"{name}_rev"
        else:
            with pytest.raises(UserError, match="not a translation problem"):
                registry.problem(f"{name}_rev")


def test_every_set_is_valid():
    for name in registry._hparams.index:
        assert isinstance(registry.hparams(name), HParams)


def test_names_are_listed_without_importing_their_modules():
    code = """
        import sys
        from t2t_ext import registry
        assert registry.problem_names() and registry.model_names() and registry.hparams_names()
        unwanted = ("tensorflow", "keras", "t2t_ext.models.", "t2t_ext.hparams.", "t2t_ext.problems.")
        loaded = [module for module in sys.modules if module.startswith(unwanted)]
        assert not loaded, loaded
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)


# User directories.


def test_plain_folder(tmp_path):
    folder = write(
        tmp_path / "mine",
        helper="SIZE = 77",
        sets="from helper import SIZE\n" + textwrap.dedent(A_SET.format(name="user_plain", size="SIZE")),
        test_sets="raise RuntimeError('tests are left out')",
    )
    assert registry.load_user_directory(folder) == {"hparams set": ["user_plain"]}
    assert registry.hparams("user_plain").batch_size == 77
    assert "user_plain" in registry.hparams_names()
    assert registry.load_user_directory(folder) == {"hparams set": ["user_plain"]}  # loading it again changes nothing
    assert registry.loaded_user_directories() == [str(tmp_path / "mine")]


def test_package_that_imports_its_modules(tmp_path):
    folder = write(
        tmp_path / "my_package", __init__="from . import sets", sets=A_SET.format(name="user_package", size=78)
    )
    registry.load_user_directory(folder)
    assert registry.hparams("user_package").batch_size == 78


def test_package_whose_init_imports_nothing(tmp_path):
    folder = write(
        tmp_path / "my_lazy_package",
        __init__="",
        sizes="SIZE = 79",
        sets="from my_lazy_package.sizes import SIZE\n" + textwrap.dedent(A_SET.format(name="user_lazy", size="SIZE")),
    )
    registry.load_user_directory(folder + "/")
    assert registry.hparams("user_lazy").batch_size == 79


def test_user_module_can_subclass_and_add_fields(tmp_path):
    folder = write(
        tmp_path / "my_fields",
        my_model_family="""
            import dataclasses
            from t2t_ext import registry
            from t2t_ext.config.hyperparameters import TransformerHParams, hparam

            @dataclasses.dataclass(frozen=True, kw_only=True)
            class WindowHParams(TransformerHParams):
                window: int = hparam(5, "Window.", unit="tokens", minimum=1)

            @registry.register_hparams
            def window_base():
                return WindowHParams().replace(window=7)
        """,
    )
    registry.load_user_directory(folder)
    hparams = registry.hparams("window_base").override("window=9,num_heads=4")
    assert hparams.window == 9
    stored = hparams.to_dict()
    assert TransformerHParams.from_dict(stored) == hparams


def test_missing_directory(tmp_path):
    with pytest.raises(UserError, match="no such directory"):
        registry.load_user_directory(str(tmp_path / "nowhere"))


def test_a_file_is_no_directory(tmp_path):
    write(tmp_path / "mine", sets="")
    with pytest.raises(UserError, match=f"is a file. Give the folder that holds it: {tmp_path}/mine"):
        registry.load_user_directory(str(tmp_path / "mine" / "sets.py"))


def test_folder_without_modules(tmp_path):
    with pytest.raises(UserError, match="no Python module"):
        registry.load_user_directory(str(tmp_path))


def test_modules_that_register_nothing(tmp_path):
    with pytest.raises(UserError, match=r"\(nothing_here\) register no problem.*@registry.register_problem"):
        registry.load_user_directory(write(tmp_path / "mine", nothing_here="x = 1"))


def test_modules_that_registered_nothing_are_loaded_again(tmp_path):
    folder = write(tmp_path / "mine", nothing_yet="x = 1")
    with pytest.raises(UserError, match="register no problem"):
        registry.load_user_directory(folder)
    write(tmp_path / "mine", nothing_yet="y = 2\n" + textwrap.dedent(A_SET.format(name="user_later", size=83)))
    assert registry.load_user_directory(folder) == {"hparams set": ["user_later"]}


@pytest.mark.parametrize("init", [{}, {"__init__": ""}])
def test_a_dot_in_the_name_of_a_module(tmp_path, init):
    folder = write(tmp_path / "mine", **{"my_sets.orig": "", **init})
    with pytest.raises(UserError, match=rf"cannot import {folder}/my_sets\.orig\.py, because of the dot .* Rename it"):
        registry.load_user_directory(folder)


def test_a_wrong_value_in_a_set_has_a_place(tmp_path):
    body = """
        from t2t_ext import registry

        @registry.register_hparams
        def user_wrong():
            return registry.hparams("transformer_test").replace(hiden_size=3)

        @registry.register_hparams
        def user_on_wrong():
            return registry.hparams("user_wrong")
    """
    registry.load_user_directory(write(tmp_path / "mine", sets=body))
    for name in ("user_wrong", "user_on_wrong"):
        with pytest.raises(UserError) as raised:
            registry.hparams(name)
        assert str(raised.value).startswith(f"{tmp_path}/mine/sets.py:6: unknown key 'hiden_size'. Did you mean")


def test_a_class_that_is_no_model(tmp_path):
    body = "from t2t_ext import registry\n@registry.register_model\nclass UserNoModel:\n    pass\n"
    registry.load_user_directory(write(tmp_path / "mine", models_of_mine=body))
    with pytest.raises(UserError, match=r"models_of_mine\.py:2: the model 'user_no_model' is no Seq2Seq"):
        registry.model_attributes("user_no_model")


@pytest.mark.parametrize("init", [{}, {"__init__": ""}, {"__init__": "from . import broken"}])
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x = 1\ndef f(:\n", r"broken\.py:2: "),
        ("x = 1\n\nimport no_such_module_here\n", r"broken\.py:3: ModuleNotFoundError.*no_such_module_here"),
        ("def f():\n    return undefined\nf()\n", r"broken\.py:2: NameError"),
        ("import sys\nsys.exit('bye')\n", r"broken\.py:2: SystemExit"),
        ("from tensor2tensor.utils import registry\n", r"broken\.py:1: .*from t2t_ext"),
        ("from t2t_ext import registry\nregistry.hparams('transformer_bas')", r"broken\.py:2: Unknown hparams set"),
    ],
)
def test_errors_name_file_and_line(tmp_path, init, body, expected):
    folder = write(tmp_path / "mine", broken=body, **init)
    with pytest.raises(UserError, match=expected) as raised:
        registry.load_user_directory(folder)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("hparams.hidden_size = 3", "return hparams.replace(hidden_size=3)."),
        ("hparams.pos = 'none'", "return hparams.replace(pos='none')."),
        ("hparams.mine = 1.5", "return hparams.replace(mine=1.5)."),
        ("del hparams.pos", "return hparams.replace(pos=...)."),
    ],
)
def test_hparams_that_are_changed_in_place(tmp_path, change, told):
    body = f"""
        from t2t_ext import registry

        @registry.register_hparams
        def user_in_place():
            hparams = registry.hparams("transformer_test")
            {change}
            return hparams
    """
    registry.load_user_directory(write(tmp_path / "mine", sets=body))
    with pytest.raises(UserError) as raised:
        registry.hparams("user_in_place")
    assert str(raised.value) == f"{tmp_path}/mine/sets.py:7: hparams sets cannot be changed in place: {told}"


@pytest.mark.parametrize("call", ["add_hparam('mine', 3)", "set_hparam('pos', 'none')", "del_hparam('pos')"])
@pytest.mark.parametrize("at_import", [True, False])
def test_methods_of_tensor2tensors_hparams_that_change_them(tmp_path, call, at_import):
    body = f"""
        from t2t_ext import registry

        @registry.register_hparams
        def user_with_more():
            hparams = registry.hparams("transformer_test")
            hparams.{call}
            return hparams
    """
    folder = write(tmp_path / "mine", sets=textwrap.dedent(body) + ("\nuser_with_more()\n" if at_import else ""))
    if not at_import:
        registry.load_user_directory(folder)
    fails, given = (registry.load_user_directory, folder) if at_import else (registry.hparams, "user_with_more")
    with pytest.raises(UserError) as raised:
        fails(given)
    method = call.split("(")[0]
    assert f"{tmp_path}/mine/sets.py:7: hparams sets have fixed fields, and no {method}(): " in str(raised.value)
    assert "hparams.replace(NAME=VALUE)" in str(raised.value)


def test_other_attributes_that_hparams_lack_are_what_they_were(tmp_path):
    body = """
        from t2t_ext import registry

        @registry.register_hparams
        def user_misspelt():
            return registry.hparams("transformer_test").add_hparams
    """
    registry.load_user_directory(write(tmp_path / "mine", sets=body))
    with pytest.raises(AttributeError, match="add_hparams"):
        registry.hparams("user_misspelt")


def test_hparams_that_are_changed_in_place_at_import(tmp_path):
    body = 'from t2t_ext import registry\nregistry.hparams("transformer_test").pos = "none"\n'
    with pytest.raises(UserError, match=r"sets\.py:2: hparams sets .*: return hparams\.replace\(pos='none'\)\.$"):
        registry.load_user_directory(write(tmp_path / "mine", sets=body))


def test_the_traceback_of_a_model_that_fails_ends_with_its_name_file_and_line(tmp_path):
    body = """
        from t2t_ext import registry

        class Layer:
            def call(self, x):
                return x.nosuch

        @registry.register_model
        class UserBroken:
            def encode(self, x):
                return Layer().call(x)

        def helper():
            raise ValueError("what is wrong\\nand more")
    """
    registry.load_user_directory(write(tmp_path / "mine", models_of_mine=body))
    module = sys.modules["models_of_mine"]
    with pytest.raises(AttributeError) as raised:
        run_main(lambda: registry.model("user_broken")().encode(3))
    place = f"{tmp_path}/mine/models_of_mine.py"
    told = f"user_broken ({place}:6): AttributeError: 'int' object has no attribute 'nosuch'"
    assert traceback.format_exception(raised.value)[-1] == f"{told}\n"
    with pytest.raises(ValueError, match="what is wrong") as raised:
        run_main(module.helper)
    assert raised.value.__notes__ == [f"{place}:14: ValueError: what is wrong"]
    with pytest.raises(ZeroDivisionError) as raised:
        run_main(lambda: 1 // 0)
    assert not hasattr(raised.value, "__notes__")


def test_a_problem_that_fails_as_it_is_read_names_file_line_and_sample(tmp_path):
    body = """
        from t2t_ext import registry
        from t2t_ext.problem import TranslationProblem

        @registry.register_problem
        class UserFailing(TranslationProblem):
            def samples(self, split, tmp_dir):
                for line in ("a b", "c d", "e f g"):
                    source, target = line.split()
                    yield {"inputs": source, "targets": target}
    """
    registry.load_user_directory(write(tmp_path / "mine", problems_of_mine=body))
    problem, found = registry.problem("user_failing"), []
    with pytest.raises(UserError) as raised:
        found += problem.checked_samples("train", tmp_path)
    assert str(raised.value) == (
        f"{tmp_path}/mine/problems_of_mine.py:9: ValueError: {raised.value.__cause__} (sample 3 of user_failing's "
        "train split). Correct samples() of UserFailing, or the text that it reads."
    )


def test_an_error_in_a_linked_package_of_a_user_directory_has_a_place(tmp_path):
    folder = write(tmp_path / "mine", uses_linked="import linked_package_of_mine")
    write(tmp_path / "elsewhere", __init__="x = 1\n1 / 0")
    (tmp_path / "mine" / "linked_package_of_mine").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"mine/linked_package_of_mine/__init__.py:2: ZeroDivisionError"):
        registry.load_user_directory(folder)


def test_a_failure_outside_of_the_users_modules_stays_what_it_is(tmp_path):
    class Failing(TranslationProblem):
        def samples(self, split, tmp_dir):
            yield {"inputs": "a", "targets": "b"}
            raise ZeroDivisionError

    samples = Failing(name="failing").checked_samples("train", tmp_path)
    next(samples)
    with pytest.raises(ZeroDivisionError):
        next(samples)


def test_a_frozen_object_of_the_user_is_no_hparams_set(tmp_path):
    body = """
        import dataclasses
        from t2t_ext import registry

        @dataclasses.dataclass(frozen=True)
        class Mine:
            size: int = 1

        @registry.register_hparams
        def user_frozen():
            Mine().size = 3
    """
    registry.load_user_directory(write(tmp_path / "mine", sets=body))
    with pytest.raises(dataclasses.FrozenInstanceError):
        registry.hparams("user_frozen")


def test_a_repaired_directory_can_be_loaded(tmp_path):
    folder = write(tmp_path / "mine", a_set=A_SET.format(name="user_repaired", size=80), broken="1/0")
    with pytest.raises(UserError, match="ZeroDivisionError"):
        registry.load_user_directory(folder)
    assert "user_repaired" not in registry.hparams_names()
    write(tmp_path / "mine", a_set="\n\n" + A_SET.format(name="user_repaired", size=81), broken="x = 1")
    registry.load_user_directory(folder)
    assert registry.hparams("user_repaired").batch_size == 81


def test_duplicate_in_a_user_directory(tmp_path):
    folder = write(tmp_path / "mine", sets=A_SET.format(name="transformer_tiny", size=1))
    with pytest.raises(UserError, match=r"mine/sets\.py:5.*'transformer_tiny'.*hparams/transformer\.py:\d+"):
        registry.load_user_directory(folder)


@pytest.mark.parametrize("name", ["json", "numpy", "pytest"])
def test_module_names_that_are_taken(tmp_path, name):
    with pytest.raises(UserError, match=f"'{name}' is taken by .* Rename the file .*{name}.py"):
        registry.load_user_directory(write(tmp_path / "mine", **{name: "x = 1"}))


def test_a_link_to_an_installed_package_is_that_package(tmp_path, monkeypatch):
    installed = tmp_path / "site-packages"
    installed.mkdir()
    write(installed / "installed_sets_of_mine", __init__=A_SET.format(name="user_installed", size=82))
    monkeypatch.syspath_prepend(str(installed))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "installed_sets_of_mine").symlink_to(installed / "installed_sets_of_mine")
    registry.load_user_directory(str(tmp_path / "mine"))
    assert registry.hparams("user_installed").batch_size == 82


def test_two_plain_folders_with_a_module_of_the_same_name(tmp_path):
    registry.load_user_directory(write(tmp_path / "one", my_sets=A_SET.format(name="user_one", size=1)))
    with pytest.raises(UserError, match=r"'my_sets' is taken by .*one/my_sets.py"):
        registry.load_user_directory(write(tmp_path / "two", my_sets=A_SET.format(name="user_two", size=1)))


def test_a_set_is_made_once_and_again_where_it_failed():
    made = []

    @registry.register_hparams
    def made_once():
        made.append(len(made))
        return HParams().replace(random_word=1) if made == [0] else HParams()

    with pytest.raises(UserError, match="random_word"):
        registry.hparams("made_once")
    assert registry.hparams("made_once") == registry.hparams("made_once") == HParams()
    assert made == [0, 1]
