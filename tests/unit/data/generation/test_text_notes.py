"""Notes that data generation prints about languages that are not given, empty references and tabs in sources."""

import pytest

from t2t_ext import registry
from t2t_ext.data.generation.generate import generate

NAME = "translate_parallel_text"
CHINESE = "\u6211\u559c\u6b22\u82b1" * 3


@pytest.fixture
def notes(tmp_path, capsys):
    """Function (lines of source and target, options, settings) -> what generation says, and warns of, in lines."""

    def call(source, target, options=(), dev_target=None, **settings):
        paths = {}
        for split, count in (("train", 80), ("dev", 4)):
            for side, line in (("source", source), ("target", target)):
                path = tmp_path / f"{split}.{side}"
                path.write_text("".join(f"{line} {number}\n" for number in range(count)), encoding="utf-8")
                paths[f"{split}_{side}"] = str(path)
        if dev_target is not None:
            (tmp_path / "dev.target").write_text("".join(f"{line}\n" for line in dev_target))
        said = []
        problem = registry.problem(NAME, **paths, **dict(options))
        generate(
            problem, tmp_path / "data", tmp_path, say=said.append, progress=False, num_processes=1, vocab_size=330,
            **settings,
        )  # fmt: skip
        return [line for line in said if line.startswith("Note")], capsys.readouterr().err

    return call


@pytest.mark.parametrize("target", [CHINESE, "\u308f\u305f\u3057\u306e\u3044\u306c", "\u0e09\u0e31\u0e19" * 3])
def test_a_target_without_spaces_needs_its_language(notes, target):
    assert "BLEU then takes a whole sentence as one word" in notes("I like flowers", target)[0][0]


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("\u6211\u559c\u6b22\u82b1", {"target_language": "zh"}),
        ("Ich mag Blumen", {}),
        ("\u6211", {"target_language": "ja"}),
    ],
)
def test_other_targets_need_none(notes, target, options):
    assert notes("I like flowers", target, options) == ([], "")


@pytest.mark.parametrize(
    ("options", "sides"),
    [({}, ["source", "target"]), ({"source_language": "fr"}, ["target"]), ({"target_language": "en"}, ["source"])],
)
def test_steps_that_assume_english_say_so(notes, options, sides):
    steps = {"source_steps": "moses_tokenize,lowercase", "target_steps": "moses_tokenize"}
    found, _ = notes("l'homme", "the man", options, **steps)
    assert found == [
        f"Note: moses_tokenize of the {side}: the rules are those of English, as the {side}'s language is not given "
        f"(--{side}_language=TAG)."
        for side in sides
    ]


def test_empty_references_are_counted(notes):
    found, _ = notes("one dog", "ein Hund", dev_target=["ein Hund 0", "", "ein Hund 2", " "])
    assert found == [
        "Note: of the samples of dev are 2 with empty targets (first: 2). They are kept and count in the scores."
    ]


def test_a_source_with_both_sides_is_told(notes):
    _, warned = notes("one dog\tein Hund", "ein Hund")
    assert "train.source: 80 of its first 80 lines have a tab" in warned
    assert "leave --train_target out" in warned
