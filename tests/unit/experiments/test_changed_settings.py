"""Tests of what counts as a changed setting or text since a result was made, and of what --redo leaves alone."""

import os
import time

import pytest

from t2t_ext import registry
from t2t_ext.bin import experiment
from t2t_ext.data.datasets.manifest import manifest_path
from t2t_ext.errors import UserError
from t2t_ext.experiments.plan import Options, plan
from t2t_ext.experiments.recipes import RecipeBook
from t2t_ext.experiments.stages import State, _write_marker, check_unchanged, run_stage, state_of
from t2t_ext.runs.run_directory import RunDirectory
from tests.unit.runs.test_run_directory import FakeEncoder, make_config

BOOK = experiment.recipe_book()
RECIPE = """
[papers.p]
citation = "A."
short = "A"

[mine]
paper = "p"
table = "T"
row = "R"
problem = "translate_parallel_text"
model = "transformer"
hparams_set = "transformer_tiny"
train = { train_steps = 5 }
seeds = 1
scoring = "sacrebleu"
checkpoint = "latest"
"""

SCHEDULE = {"learning_rate_schedule": "constant*linear_warmup*single_cycle_cos_decay"}


def book(tmp_path, more=""):
    (tmp_path / "mine.toml").write_text(RECIPE + more)
    return RecipeBook([tmp_path])


def stage_of(kind, recipe, tmp_path, *, of=BOOK, **changes):
    stages = plan(of.recipe(recipe), of, Options(work_dir=tmp_path / "W", **changes))
    found = next(stage for stage in stages if stage.kind == kind)
    found.folder.mkdir(parents=True, exist_ok=True)
    return found


def trained(stage, **changes):
    """Makes a run with the hparams of its stage and some changes; the value None removes an hparam."""
    hparams = registry.resolve_hparams(stage.flags["hparams_set"], stage.flags.get("hparams", "")).to_dict() | changes
    hparams = {name: value for name, value in hparams.items() if value is not None}
    origins = {"parallel_slices": "flag", "batch_size": "auto: probed"}
    RunDirectory.create(
        stage.output, make_config(hparams=hparams, origins=origins), FakeEncoder(b"x"), FakeEncoder(b"x")
    )
    _write_marker(stage, "begun")


@pytest.mark.parametrize(
    ("changes", "differences"),
    [
        ({}, ()),
        ({"label_smoothing_of_a_former_version": 3}, ()),
        ({"r_drop_alpha": None}, ()),  # added since; its default keeps the earlier behavior
        ({"parallel_slices": 4}, ()),  # as if the user had resumed it elsewhere
        ({"hidden_size": 99}, ("hidden_size of transformer_tiny: 99 was used, 16 is asked for",)),
    ],
)
def test_an_edited_set_is_noticed(tmp_path, changes, differences):
    stage = stage_of("train", "mine", tmp_path, of=book(tmp_path))
    size = registry.hparams("transformer_tiny").hidden_size
    differences = tuple(each.replace("16", str(size)) for each in differences)
    trained(stage, **changes)
    assert state_of(stage) == (State("changed", differences) if differences else State("begun"))


@pytest.mark.parametrize(
    ("before", "now", "word"),
    [
        ({}, {"train_steps": 6}, "begun"),
        ({}, {"train_steps": 4}, "changed"),
        ({}, {"train_steps": 6, "train": {"local_eval_frequency": "2"}}, "changed"),
        ({}, {"train_steps": 6, "hparams": {"relu_dropout": "0.3"}}, "changed"),
        ({"hparams": SCHEDULE}, {"train_steps": 6, "hparams": SCHEDULE}, "changed"),
        ({"train_steps": 7}, {"train_steps": 9}, "changed"),  # it is evaluated and saved at step 7
        ({"train_steps": 5, "train": {}}, {"train_steps": 7, "train": {}}, "changed"),  # likewise, every 5 and 7 steps
        ({}, {"train_steps": 6, "datagen": {"vocab_size": "300"}}, "changed"),
    ],
)
@pytest.mark.parametrize("status", ["begun", "done"])
def test_a_longer_training_goes_on(tmp_path, status, before, now, word):
    """Only --train_steps may be larger, and the learning rate must not depend on it; what used the run is changed."""
    more = '[after]\nextends = "mine"\nrow = "A"\nwarm_start = "mine"\n'
    found = book(tmp_path, more)
    changes = [{"train": {"local_eval_frequency": "5"}, **each} for each in (before, now)]
    first, wanted = (stage_of("train", "mine", tmp_path, of=found, **each) for each in changes)
    assert first.marker == wanted.marker
    trained(first)
    _write_marker(first, status)
    assert state_of(first).word == "begun"  # an empty run is not complete
    assert state_of(wanted).word == word
    if word == "changed":
        return
    stages = [plan(found.recipe("after"), found, Options(work_dir=tmp_path / "W", **each)) for each in changes]
    own, later = (next(stage for stage in each if stage.kind == "train" and not stage.owner) for each in stages)
    own.folder.mkdir(parents=True)
    trained(own)
    assert state_of(own).word == "begun"
    assert state_of(later) == State("changed", ("--train_steps: '5' was used, '6' is asked for",))
    with pytest.raises(UserError, match="was made with other settings or text"):
        check_unchanged([later], [])


def test_a_batch_size_that_was_probed_is_that_of_the_set(tmp_path):
    stage = stage_of("train", "mine", tmp_path, of=book(tmp_path), hparams={"batch_size": "auto"})
    trained(stage, batch_size=1234)
    assert state_of(stage).word == "begun"


@pytest.mark.parametrize("folder", ["", "~"])
def test_text_that_is_translated_back_is_compared(tmp_path, monkeypatch, folder):
    monkeypatch.setenv("HOME", str(tmp_path))
    text = tmp_path / "text"
    text.write_text("a\nb\n")
    given = os.path.join(folder or tmp_path, "text")
    stage = stage_of("pseudo", "back_translation", tmp_path, augment={"target_text": given})
    assert stage.command == "augment"
    stage.output.parent.mkdir(parents=True)
    stage.output.write_text("{}")
    _write_marker(stage, "done")
    later = time.time() + 10
    os.utime(text, (later, later))  # rewritten with the same content
    assert state_of(stage).word == "done"
    text.write_text("a\nc\n")
    os.utime(text, (later, later))
    assert state_of(stage) == State("changed", (f"{text} is not the text that '{stage.name}' was made from",))
    with pytest.raises(UserError, match="is not the text that"):
        check_unchanged([stage], [])
    text.unlink()  # a finished stage does not need the text any more
    assert state_of(stage).word == "done"


def options_of_tags(tmp_path):
    """Returns the problem options of two tagged corpora."""
    return {
        "train_source": "a.de,b.de", "train_target": "a.en,b.en", "train_tags": "<a>,<b>", "default_tag": "<a>",
        "dev_source": "d.de", "dev_target": "d.en",
    }  # fmt: skip


def test_a_direction_with_data_of_its_own_has_a_data_stage_of_its_own(tmp_path):
    found, tagged = book(tmp_path), options_of_tags(tmp_path)
    plain = {name: value for name, value in tagged.items() if "tag" not in name}
    for options, shared in ((tagged, False), (plain, True)):
        one, other = (
            stage_of("data", "mine", tmp_path, of=found, problem=problem, problem_options=options)
            for problem in ("translate_parallel_text", "translate_parallel_text_rev")
        )
        assert (one.output == other.output) == (one.key == other.key) == shared
    _write_marker(other, "done")
    manifest = manifest_path(other.output, "translate_parallel_text")
    manifest.parent.mkdir(parents=True)
    manifest_path(other.output, "another_problem").write_text("{}")
    assert state_of(other).word == "begun"
    manifest.write_text("{}")
    assert state_of(other).word == "done"


def test_augmented_data_are_looked_for_under_the_name_of_their_problem(tmp_path):
    more = '[both]\nextends = "mine"\nrow = "B"\naugment = { method = "distillation", forward = "mine" }\n'
    stage = stage_of(
        "pseudo", "both", tmp_path, of=book(tmp_path, more), problem="translate_parallel_text_rev",
        problem_options=options_of_tags(tmp_path),
    )  # fmt: skip
    assert stage.output.name == manifest_path(tmp_path, "translate_parallel_text_rev").name


def test_a_split_that_the_problem_does_not_have_is_found_before_the_training(tmp_path):
    found = book(tmp_path, '[other]\nextends = "mine"\nrow = "x"\nsplits = ["tset"]')
    stages = plan(found.recipe("other"), found, Options(work_dir=tmp_path, problem="translate_ende_cldr"))
    with pytest.raises(UserError, match=r"_cldr has no split 'tset'\. Did you mean 'test'\? It has train"):
        experiment.check_commands(stages)


@pytest.mark.parametrize(
    ("train", "told"),
    [
        ({"decode_hparams": "beam_size=x"}, "beam_size is an integer"),
        ({"decode_hparams": "beam_size=4,extra_length=50"}, "extra_length=50 is for length_limit=extra"),
        ({"xla_compile": "true"}, "--xla_compile needs batches of few shapes"),
        ({"tpu": "local"}, "--tpu=local is not used with --distribution=auto"),
    ],
)
def test_settings_of_the_training_are_checked_before_it(tmp_path, train, told):
    found = book(tmp_path)
    stages = plan(found.recipe("mine"), found, Options(work_dir=tmp_path, train=train))
    told += ".* --dry_run without them shows"  # with them, it ends here, too
    with pytest.raises(UserError, match=f"The command of 'train, seed 1' is invalid: .*{told}"):
        experiment.check_commands([stage for stage in stages if stage.kind == "train"])


def test_a_warm_up_of_none_stays_none_where_steps_are_scaled(tmp_path):
    found = book(tmp_path, '[other]\nextends = "mine"\nrow = "x"\nhparams = { learning_rate_warmup_steps = 0 }')
    assert registry.hparams("transformer_tiny").learning_rate_warmup_steps
    train = stage_of("train", "other", tmp_path, of=found, scale=0.5)
    assert train.flags["hparams"] == "learning_rate_warmup_steps=0"


def test_data_that_are_made_again_leave_what_others_made_of_them(tmp_path, monkeypatch):
    stage = stage_of("data", "cldr_ende_transformer_tiny", tmp_path)
    manifest = manifest_path(stage.output, "translate_ende_cldr")
    others = manifest_path(stage.output, "translate_ende_cldr_synchronous")
    stage.output.mkdir(parents=True)
    for path in (manifest, others):
        path.write_text("{}")
    _write_marker(stage, "done")

    def make(stage, say):
        assert not manifest.exists()
        manifest.write_text("{}")
        return 0, ""

    monkeypatch.setattr("t2t_ext.experiments.stages._run", make)
    assert run_stage(stage, "1/1", print, redo=True)
    assert others.exists()


@pytest.mark.parametrize("search", [{"batch_size": "8"}, {"batch_size": "8", "alpha": "0.8"}])
def test_the_batches_of_a_search_do_not_count(tmp_path, search):
    found = book(tmp_path)
    kept = {name: value for name, value in search.items() if name != "batch_size"}
    with_it, without = (stage_of("score", "mine", tmp_path, of=found, decode=each) for each in (search, kept))
    assert with_it.key == without.key
    assert "batch_size=8" in with_it.command_line
    assert not any("batch_size" in each for each in Options(work_dir=tmp_path, decode=search).changes())
