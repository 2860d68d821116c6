"""Tests of data sets that are named as in tensorflow-datasets, made by its own builders from local files."""

import pytest

from t2t_ext import registry
from t2t_ext.errors import UserError

PAIRS = [(f"gato {i}", f"cat {i}") for i in range(20)]


@pytest.fixture(scope="module")
def tfds():
    """Returns tensorflow-datasets, with a builder of its own class registered for made-up data sets."""
    import tensorflow_datasets as tfds

    features = tfds.features

    class T2tToyTexts(tfds.core.GeneratorBasedBuilder):
        """Makes sentence pairs or summaries; in the configuration `many`, an example may lack a language."""

        VERSION = tfds.core.Version("1.0.0")
        BUILDER_CONFIGS = tuple(
            tfds.core.BuilderConfig(name=name) for name in ("pt_to_en", "many", "summaries", "within")
        )

        def _info(self):
            found = {
                "pt_to_en": features.Translation(languages=["pt", "en"]),
                "many": features.FeaturesDict(
                    {"id": features.Text(), "talks": features.TranslationVariableLanguages(languages=["pt", "en"])}
                ),
                "within": features.FeaturesDict(
                    {"id": features.Text(), "translation": features.Translation(languages=["pt", "en"])}
                ),
                "summaries": features.FeaturesDict({"document": features.Text(), "summary": features.Text()}),
            }
            return tfds.core.DatasetInfo(builder=self, features=found[self.builder_config.name])

        def _split_generators(self, dl_manager):
            names = ("train", "validation", "test") if self.builder_config.name == "pt_to_en" else ("train",)
            return {name: self._generate_examples() for name in names}

        def _generate_examples(self):
            for number, (source, target) in enumerate(PAIRS):
                if self.builder_config.name == "summaries":
                    yield number, {"document": f"{source}\n{source} more", "summary": f"{target}\nthe end"}
                elif self.builder_config.name == "within":
                    yield number, {"id": str(number), "translation": {"pt": source, "en": target}}
                elif self.builder_config.name == "many":
                    talks = {"pt": source} if number == 3 else {"pt": source, "en": target}
                    yield number, {"id": str(number), "talks": talks}
                else:
                    yield number, {"pt": source, "en": "" if number == 3 else target}

    return tfds


def problem(name="translate_tfds", **options):
    return registry.problem(name, **{"dataset": "t2t_toy_texts/pt_to_en", "source": "pt", "target": "en", **options})


@pytest.fixture(scope="module")
def place(tfds, tmp_path_factory):
    return tmp_path_factory.mktemp("tfds")


def pairs(made, split, place):
    return [tuple(sample.values()) for sample in made.samples(split, place)]


def test_a_data_set_is_prepared_and_read(place):
    made = problem()
    made.prepare(place)
    assert made.languages == ("pt", "en")
    assert made.count("train", place) == 20
    assert all(path.is_file() for path in made.source_files("test", place))
    found = pairs(made, "test", place)
    assert sorted(found) == sorted(pair for pair in PAIRS if pair != PAIRS[3])
    assert dict(made.reading.drops) == {"empty": 1}
    assert problem(name="translate_tfds_rev").languages == ("en", "pt")


def test_parts_of_splits(place):
    splits = {"train_split": "train[5:]+test", "dev_split": "train[:5]", "test_split": "none"}
    made = problem(**splits)
    made.prepare(place)
    assert made.splits == ("train", "dev")
    everything, train, dev = (
        pairs(each, split, place) for each, split in ((problem(), "train"), (made, "train"), (made, "dev"))
    )
    assert made.count("dev", place) == 5
    assert sorted(dev + train) == sorted(2 * everything)
    assert set(dev) <= set(everything)


def test_languages_of_an_example(place):
    made = problem(
        dataset="t2t_toy_texts/many:1.0.0", source="talks/en", target="pt", dev_split="train[:2]", test_split="none"
    )
    made.prepare(place)
    found = sorted(pairs(made, "train", place))
    assert found == sorted((target, source) for source, target in PAIRS if source != "gato 3")
    assert made.languages == ("en", "pt")


def test_texts_within_another_feature(place):
    found = {"dataset": "t2t_toy_texts/within", "dev_split": "train[:2]", "test_split": "none"}
    for names in ({"source": "translation/pt", "target": "translation/en"}, {"source": "pt", "target": "en"}):
        made = problem(**found, **names)
        made.prepare(place)
        assert sorted(pairs(made, "train", place)) == sorted(PAIRS)
    with pytest.raises(
        UserError, match=r"source=fr: .* has no such text. It has: id, translation/en, translation/pt\."
    ):
        problem(**found, source="fr").prepare(place)


def test_summaries(place):
    options = {"dataset": "t2t_toy_texts/summaries", "source": "document", "target": "summary"}
    options |= {"dev_split": "train[:2]", "test_split": "none", "source_words": 3}
    made = problem("summarize_tfds", **options)
    made.prepare(place)
    train, dev = (sorted(pairs(made, split, place)) for split in ("train", "dev"))
    assert train[0] == ("gato 0 gato", "<t> cat 0 </t> <t> the end </t>")
    assert all(text.endswith(" more") for text, _ in dev)
    assert made.languages == ("", "")
    assert made.scoring == "rouge"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": ""}, r"translate_tfds needs source: --problem_options=\"dataset=ted_hrlr_translate/pt_to_en,"),
        ({"dataset": "t2t_toy_text/pt_to_en"}, r"has none of that name. Did you mean 't2t_toy_texts'"),
        ({"dataset": "t2t_toy_texts"}, r"give one of its configurations, as in dataset=t2t_toy_texts/pt_to_en"),
        ({"dataset": "t2t_toy_texts/pt_to_n"}, r"Did you mean 'pt_to_en'"),
        ({"dev_split": "val"}, r"has no val split; it has: .*Say which are meant, such as train_split=train\[2000:\]"),
        ({"target": "fr"}, r"target=fr: t2t_toy_texts/pt_to_en has no such text. It has: en, pt\."),
        ({"dataset": "a b"}, r"dataset=a b: give NAME"),
        (
            {"train_split": "train[:20"},
            r"the split 'train\[:20' cannot be read \(Error parsing .*Examples there: train 20",
        ),
        ({"train_split": "train[5000:]"}, r"the split 'train\[5000:\]' cannot be read"),
        ({"data_set": "a"}, r"does not take data_set. Did you mean 'dataset'"),
    ],
)
def test_what_is_wrong_is_said(place, options, message):
    with pytest.raises(UserError, match=message):
        problem(**options).prepare(place)
