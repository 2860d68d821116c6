"""Data generation for NAME_rev, and with a run of the other direction: which side flags, messages and models mean."""

import json

import pytest

from t2t_ext import registry
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.data.generation.generate import generate
from t2t_ext.data.generation.vocabulary import reused_vocabulary
from t2t_ext.data.text import sentencepiece_model
from t2t_ext.data.text.text_encoder import SubwordEncoder
from t2t_ext.data.text.text_steps import TextSteps
from t2t_ext.errors import UserError

LANGUAGES = {"source_language": "de", "target_language": "en"}
PARALLEL = "translate_parallel_text"


@pytest.fixture
def make(tmp_path):
    """Function (problem's name, folder, languages, settings) that makes the data of a small corpus."""
    words = {"de": "der Hund und die Katze", "en": "a dog with a cat"}
    options = {}
    for split, side, language in (("train", "source", "de"), ("train", "target", "en"), ("dev", "source", "de"),
                                  ("dev", "target", "en")):  # fmt: skip
        path = tmp_path / f"{split}.{language}"
        path.write_text("".join(f"{words[language]} {number}\n" for number in range(90 if split == "train" else 5)))
        options[f"{split}_{side}"] = str(path)

    def call(name, data_dir, languages=LANGUAGES, **settings):
        problem = registry.problem(name, **options, **languages)
        generate(problem, data_dir, tmp_path, progress=False, say=lambda line: None, num_processes=1, **settings)
        return GeneratedData.open(problem, data_dir).text_encoders()

    return call


@pytest.fixture
def run(tmp_path):
    """Function (content of config.json) -> a run and its two text encoders."""
    model = sentencepiece_model.SentencePieceModel(sentencepiece_model.train(["a dog with a cat"] * 9, 330), "new")
    encoders = [SubwordEncoder.make(TextSteps(("lowercase",), language), model) for language in ("de", "en")]

    def write(config):
        folder = tmp_path / "run"
        folder.mkdir()
        for side, encoder in zip(("source", "target"), encoders, strict=True):
            encoder.save(folder / f"vocab.{side}.model")
        (folder / "config.json").write_text(config)
        return str(folder), tuple(encoders)

    return write


@pytest.mark.parametrize("languages", [LANGUAGES, {}])
@pytest.mark.parametrize("trained_on", [PARALLEL, f"{PARALLEL}_rev", f"{PARALLEL}_rev_synchronous"])
@pytest.mark.parametrize("name", [PARALLEL, f"{PARALLEL}_rev"])
def test_models_of_a_run_stay_with_their_languages(run, languages, trained_on, name):
    folder, encoders = run(json.dumps({"problem": trained_on, "problem_options": languages}))
    found = reused_vocabulary("", folder, registry.problem(name, **languages))  # in the base problem's direction
    assert (found.source, found.target) == (encoders if trained_on == PARALLEL else encoders[::-1])


@pytest.mark.parametrize(
    "config",
    [
        '{"problem": "of_a_module_that_is_not_loaded", "problem_options": {}}',
        '{"problem": "translate_enfr_multi30k", "problem_options": {}}',
        '{"problem": 1}',
        "damaged",
    ],
)
def test_a_run_of_other_or_unknown_languages_keeps_its_sides(run, config):
    folder, encoders = run(config)
    found = reused_vocabulary("", folder, registry.problem(PARALLEL, **LANGUAGES))
    assert (found.source, found.target) == encoders


def test_messages_name_the_flags_that_were_given(make, tmp_path):
    name = f"{PARALLEL}_rev"
    for steps, message in (
        ("truecase", "--source_steps=truecase: truecase needs words"),
        ("jieba", "--source_steps=jieba for the language en: jieba is for Chinese only"),
    ):
        with pytest.raises(UserError, match=message):
            make(name, tmp_path / "data", source_steps=steps)
    make(PARALLEL, tmp_path / "data", vocab_size=330, joint_vocab=False)
    with pytest.raises(UserError, match="in another way: source_steps was none, now lowercase"):
        make(name, tmp_path / "data", source_steps="lowercase")
    models = [str(tmp_path / "data" / f"vocab.{PARALLEL}.330.{side}.model") for side in ("target", "source")]
    make(name, tmp_path / "data", subword_model=",".join(models))
    with pytest.raises(UserError, match="in another way: another source subword model was used"):
        make(name, tmp_path / "data", subword_model=models[1] + "," + models[1])
    with pytest.raises(UserError, match="--source_steps says how text is prepared, but a model is given"):
        make(name, tmp_path / "other", subword_model=",".join(models), source_steps="lowercase")


@pytest.mark.parametrize("tags", [{}, {"train_tags": "<a>", "default_tag": "<a>"}])
@pytest.mark.parametrize(("kind", "dropped"), [("source", 40), ("target", 0)])
def test_cleaning_means_the_sides_of_the_unreversed_problem(tmp_path, tags, kind, dropped):
    """Also if NAME_rev has data of its own, as with tags."""
    sides = {"source": [f"das Wort {n // 2}" for n in range(80)], "target": [f"the word {n}" for n in range(80)]}
    options = dict(LANGUAGES)
    for side, lines in sides.items():
        (tmp_path / side).write_text("".join(f"{line}\n" for line in lines))
        options |= {f"{split}_{side}": str(tmp_path / side) for split in ("train", "dev")}
    problem = registry.problem(f"{PARALLEL}_rev", **options, **tags)
    made = generate(
        problem, tmp_path / "data", tmp_path, progress=False, say=lambda line: None, num_processes=1, vocab_size=300,
        joint_vocab=False, cleaning=f"duplicates={kind}",
    )  # fmt: skip
    assert made.splits["train"].drops.get("duplicate", 0) == dropped
    assert made.settings["cleaning"] == {"duplicates": kind}
