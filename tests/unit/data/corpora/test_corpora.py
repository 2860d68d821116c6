"""Tests of several corpora: their weights and tags, and both in the reversed problem NAME_rev."""

import dataclasses
import json

import pytest

from t2t_ext import registry
from t2t_ext.data.corpora import weighting as corpora
from t2t_ext.data.corpora.readers import PairFiles, ReadReport
from t2t_ext.data.corpora.weighting import CorpusSource, ReversedPairs
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.data.generation.generate import generate
from t2t_ext.errors import UserError

SIZE = 4000


@pytest.fixture
def files(tmp_path):
    """Returns a corpus of 4,000 pairs in two files."""
    paths = [tmp_path / f"train.{language}" for language in ("de", "en")]
    for path in paths:
        path.write_text("".join(f"{path.suffix[1:]} {number}\n" for number in range(SIZE)))
    return PairFiles(*paths)


def occurring(files, weight, **fields):
    """Returns the pairs (source, target), repeated as often as they occur, and the counts of the corpus."""
    report = ReadReport()
    source = CorpusSource(name="web", files=(files,), weight=weight, **fields)
    rows = [row for row in source.read(report) for _ in range(getattr(row, "times", 1))]
    return rows, report.corpora["web"]


@pytest.mark.parametrize("weight", [0, 0.25, 1, 1.5, 3, 3.9])
def test_a_weight_is_how_often_a_pair_occurs_on_average(files, weight):
    rows, counted = occurring(files, weight)
    deviation = 4 * (SIZE * (weight % 1) * (1 - weight % 1)) ** 0.5  # 4 standard deviations (binomial)
    assert abs(len(rows) - SIZE * weight) <= deviation
    assert counted == {"weight": weight, "tag": "", "pairs": SIZE, "occurrences": len(rows)}
    times = [rows.count(row) for row in dict.fromkeys(rows[:200])]
    assert all(abs(count - weight) < 1 for count in times)


def test_which_pairs_occur_depends_on_the_pairs_alone(files):
    rows, _ = occurring(files, 0.5)
    assert occurring(files, 0.5)[0] == rows
    assert [(target, source) for source, target in occurring(ReversedPairs(files), 0.5)[0]] == rows
    more = set(occurring(files, 0.7)[0])
    assert set(rows) < more  # a larger weight keeps the pairs of a smaller one
    assert len({number // 100 for number in (int(source.split()[1]) for source, _ in rows)}) == SIZE // 100


def test_tags_stand_before_the_source_whichever_side_that_is(files):
    assert occurring(files, 1, tag="<web>")[0][7] == ("<web> de 7", "en 7")
    assert occurring(ReversedPairs(files), 1, tag="<web>")[0][7] == ("<web> en 7", "de 7")


def test_lines_are_numbered_through_the_files_of_a_corpus(files):
    twice = CorpusSource(name="web", files=(files, files), tag="<a>")
    assert list(twice.read(ReadReport(), lambda number: number == SIZE + 3)) == [("<a> de 2", "en 2")]
    assert twice.count() == 2 * SIZE
    assert twice.paths == files.paths * 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: corpora.checked_tag("2de", "--train_tags"), "--train_tags: the tag '2de' must be one word in angle"),
        (lambda: corpora.checked_tag("<2 de>", "tags"), "must be one word"),
        (lambda: corpora.checked_tag("<l2r>", "tags"), "tags: <l2r> has a meaning of its own in vocabularies"),
        (lambda: corpora.checked_tag("</s>", "tags"), "has a meaning of its own"),
        (lambda: corpora.checked_tag("<t>", "tags"), "has a meaning of its own"),
        (lambda: corpora.checked_tag("<0x4a>", "tags"), "has a meaning of its own"),
        (lambda: corpora.checked_weight("often", "--train_weights"), "'often' must be a number from 0 to 1,000"),
        (lambda: corpora.checked_weight("-1", "weights"), "'-1' must be a number"),
        (lambda: corpora.checked_weight("nan", "weights"), "'nan' must be a number"),
        (lambda: corpora.listed("1,2,3", 2, "--train_weights"), r"has 3 value\(s\), but there are 2 training corpora"),
        (lambda: corpora.named("paracraw:2", ["paracrawl"], "weights"), "Did you mean 'paracrawl'"),
        (lambda: corpora.named("a:1,a:2", ["a"], "weights"), "a is named twice"),
        (lambda: corpora.named("a,b", ["a", "b"], "weights"), "say NAME:VALUE for a"),
    ],
)
def test_mistakes_are_explained(call, message):
    with pytest.raises(UserError, match=message):
        call()


def test_values_by_name():
    assert corpora.named("", ["a", "b"], "weights") == {}
    assert corpora.named("2", ["a", "b"], "weights") == {"a": "2", "b": "2"}
    assert corpora.named("b:<x:y>, a:1", ["a", "b"], "tags") == {"b": "<x:y>", "a": "1"}


@pytest.fixture
def mixed(files, tmp_path, monkeypatch):
    """Returns a function (name ending, options) -> problem of two corpora, the second one small."""
    for language in ("de", "en"):
        (tmp_path / f"small.{language}").write_text("".join(f"klein {language} {number}\n" for number in range(40)))
        (tmp_path / f"dev.{language}").write_text({"de": "eins 1\nzwei 2\n", "en": "one 1\ntwo 2\n"}[language])
    monkeypatch.chdir(tmp_path)

    def make(ending="", **options):
        files = {"train_source": "train.de,small.de", "train_target": "train.en,small.en"}
        files |= {"dev_source": "dev.de", "dev_target": "dev.en", "source_language": "de", "target_language": "en"}
        return registry.problem(f"translate_parallel_text{ending}", **files | options)

    return make


def generated(problem, tmp_path, **settings):
    said = []
    quietly = {"num_processes": 1, "progress": False, "say": said.append}
    generate(problem, tmp_path / "data", tmp_path, vocab_size=330, **quietly, **settings)
    return GeneratedData.open(problem, tmp_path / "data"), "\n".join(said)


def texts(data, split):
    """Returns the (source, target) pairs of a split as sorted text."""
    import numpy as np

    pairs = []
    encoders = data.text_encoders()
    names = ("targets", "inputs") if data.was_reversed else ("inputs", "targets")
    for path in data.shard_paths(split):
        with np.load(path) as arrays:
            columns = []
            for name, encoder in zip(names, encoders, strict=True):
                ends = np.cumsum(arrays[f"{name}_lengths"])[:-1]
                columns.append([encoder.decode(ids) for ids in np.split(arrays[name], ends)])
            pairs.extend(zip(*columns, strict=True))
    return sorted(pairs)


def test_weights_and_counts_reach_the_data(mixed, tmp_path):
    problem = mixed(train_weights="0.1,2.5")
    data, said = generated(problem, tmp_path)
    summary = data.manifest.splits["train"]
    web, small = summary.corpora["train.de"], summary.corpora["small.de"]
    assert (web["pairs"], small["pairs"], small["weight"]) == (SIZE, 40, 2.5)
    assert summary.samples == web["occurrences"] + small["occurrences"]
    assert f"small.de: 40 pairs, weight 2.5: {small['occurrences']}" in said
    rows = texts(data, "train")
    assert {rows.count((f"klein de {number}", f"klein en {number}")) for number in range(40)} == {2, 3}
    assert problem.options["train_weights"] == "0.1,2.5"
    with pytest.raises(UserError, match=r"train_weights was '0.1,2.5', now '1,1'"):
        generated(mixed(train_weights="1,1"), tmp_path)


def test_duplicates_are_taken_out_before_weights_repeat_pairs(mixed, tmp_path):
    (tmp_path / "small.de").write_text("gleich de\n" * 40)
    (tmp_path / "small.en").write_text("gleich en\n" * 40)
    data, _ = generated(mixed(train_weights="1,3"), tmp_path, cleaning="duplicates=true")
    assert texts(data, "train").count(("gleich de", "gleich en")) == 3
    assert data.manifest.splits["train"].drops["duplicate"] == 39


def test_tags_stand_on_what_is_the_source(mixed, tmp_path):
    forward, _ = generated(mixed(train_tags=",<2x>", default_tag="<2x>"), tmp_path)
    backward, said = generated(mixed("_rev", train_tags="<web>,<2x>", default_tag="<web>"), tmp_path)
    assert ("<2x> klein de 3", "klein en 3") in texts(forward, "train")
    assert ("de 3", "en 3") in texts(forward, "train")
    assert ("<2x> klein en 3", "klein de 3") in texts(backward, "train")
    assert ("<web> en 3", "de 3") in texts(backward, "train")
    assert forward.texts("dev")[0] == ["<2x> eins 1", "<2x> zwei 2"]
    assert backward.texts("dev") == (["<web> one 1", "<web> two 2"], [["eins 1", "zwei 2"]])
    assert (backward.source_language, backward.target_language, backward.was_reversed) == ("en", "de", False)
    assert "translate_parallel_text_rev in" in said
    encoder = forward.text_encoders()[0]
    assert len(encoder.encode_batch(encoder.prepare(["<2x>"]))[0]) <= 2  # the tag, and at most one space before it


def test_a_run_does_not_take_other_options_than_its_data(mixed, tmp_path):
    from t2t_ext.config.training import TrainConfig
    from t2t_ext.training import setup_run

    generated(mixed(train_weights="1,3"), tmp_path)
    given = {"problem": "translate_parallel_text", "model": "transformer", "hparams_set": "transformer_tiny"}
    given |= {"data_dir": str(tmp_path / "data"), "output_dir": str(tmp_path / "run"), "train_steps": 1}
    same = setup_run.resolve(TrainConfig(problem_options={"train_weights": "1,3"}, **given))
    assert same.config.problem_options["train_weights"] == "1,3"
    for option, value, message in (
        ("train_weights", "1,1", "train_weights was '1,3', now '1,1'"),
        ("source_language", "nl", "source_language was 'de', now 'nl'"),
        ("encodings", "gb18030", "encodings was not given, now 'gb18030'"),
    ):
        with pytest.raises(UserError, match=f"{message}. Leave the options out"):
            setup_run.resolve(TrainConfig(problem_options={option: value}, **given))


@pytest.mark.parametrize("steps", ["none", "moses_tokenize"])
@pytest.mark.parametrize(("limit", "dropped"), [("max_words=3", {}), ("min_words=3", {"too_few_words": SIZE})])
def test_tags_are_no_words_to_cleaning(mixed, tmp_path, steps, limit, dropped):
    problem = mixed(train_tags="<web>,<2x>")  # "<web> de 7", "<2x> klein de 7"
    data, _ = generated(problem, tmp_path, cleaning=limit, source_steps=steps, target_steps=steps)
    assert data.manifest.splits["train"].drops == dropped
    assert data.manifest.vocab["training"]["samples_used"] == 40 + (0 if dropped else SIZE)


def test_the_summary_says_that_drops_are_pairs_where_weights_repeat_them(mixed, tmp_path):
    _, said = generated(mixed(train_weights="1,3"), tmp_path, cleaning="min_words=3")
    assert f"dropped {SIZE:,} pairs: too few words" in said
    assert "train: 120 samples" in said


@pytest.mark.parametrize("steps", ["none", "moses_tokenize"])
@pytest.mark.parametrize("subwords", ["sentencepiece", "subword_nmt"])
def test_a_model_that_was_made_without_the_tags(mixed, tmp_path, steps, subwords):
    """Tags may be split into several subwords if this loses nothing; otherwise the given model is refused."""
    ways = {"subwords": subwords, "source_steps": steps, "target_steps": steps}
    ways |= {"num_merges": 300} if subwords == "subword_nmt" else {}
    for name, options in (("without", {}), ("with", {"train_tags": "<web>,<klein>", "default_tag": "<web>"})):
        generated(mixed(**options), tmp_path / name, **ways)
    models = {name: str(next((tmp_path / name / "data").glob("*.model"))) for name in ("without", "with")}
    tagged = mixed(train_tags="<klein>,<web>", default_tag="<web>")

    def again(model):
        said = []
        settings = {"num_processes": 1, "progress": False, "say": said.append, "subword_model": models[model]}
        generate(tagged, tmp_path / f"again_{model}", tmp_path, **settings)
        return "\n".join(said)

    assert "several subwords" not in again("with")
    if (steps, subwords) == ("none", "sentencepiece"):
        assert "Note: <klein>, <web> are spelt in several subwords, as the source's subword model was" in again(
            "without"
        )
        return
    with pytest.raises(UserError, match=r"given was made without the tag <(klein|web)>: "):
        again("without")


def test_weights_that_choose_no_pair(mixed, tmp_path):
    with pytest.raises(UserError, match=r"no usable sample \(there is none\)\. The weights of its corpora choose none"):
        generated(mixed(train_weights="0,1e-9"), tmp_path)


def test_data_of_the_reverse_are_found_without_the_options(mixed, tmp_path):
    generated(mixed("_rev", train_tags="<web>,<2x>"), tmp_path)
    data = GeneratedData.open(registry.problem("translate_parallel_text_rev"), tmp_path / "data")
    assert data.manifest.problem == "translate_parallel_text_rev"
    assert data.source_language == "en"
    without_tags = registry.problem("translate_parallel_text_rev", train_weights="1")
    assert (without_tags.base_name, without_tags.was_reversed) == ("translate_parallel_text", True)


def test_held_out_lines_without_text_have_no_tag_alone(tmp_path):
    (tmp_path / "a").write_text("\n" * 20 + "s\n" * 20)
    options = {"train_source": str(tmp_path / "a"), "train_target": str(tmp_path / "a"), "dev_lines": 39}
    problem = registry.problem("translate_parallel_text", **options, train_tags="<2x>")
    dev = list(problem.samples("dev", tmp_path))
    assert {sample["inputs"] for sample in dev} == {"<2x> s"}
    assert len(dev) + problem.reading.drops["empty"] == 39


def test_held_out_lines_keep_their_files_tag_and_occur_once(mixed, tmp_path):
    problem = mixed(dev_source="", dev_target="", dev_lines=500, train_tags=",<2x>", train_weights="1,3")
    dev = list(problem.samples("dev", tmp_path))
    assert len(dev) == 500
    tagged = [sample["inputs"] for sample in dev if "klein" in sample["inputs"]]
    assert tagged
    assert all(source.startswith("<2x> klein de") for source in tagged)
    held_out = {sample["inputs"] for sample in dev}
    assert not held_out & {sample["inputs"] for sample in problem.samples("train", tmp_path)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_weights": "1"}, r"--train_weights=1 has 1 value\(s\), but there are 2 training corpora"),
        ({"train_weights": "0,0"}, "leaves no training text"),
        ({"train_tags": "<a>,b"}, "the tag 'b' must be one word in angle brackets"),
        ({"train_tags": "<web>,", "default_tag": "<wep>"}, "Did you mean '<web>'"),
        ({"default_tag": "<web>"}, "is not one of --train_tags: none is given"),
    ],
)
def test_mistakes_in_the_options(mixed, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        mixed(**options).prepare(tmp_path)


def test_files_of_the_same_name_are_told_apart(mixed, tmp_path):
    (tmp_path / "more").mkdir()
    for language in ("de", "en"):
        (tmp_path / f"small.{language}").rename(tmp_path / "more" / f"train.{language}")
    problem = mixed(train_source="train.de,more/train.de,train.de", train_target="train.en,more/train.en,train.en")
    assert [corpus.name for corpus in problem.pair_files("train", "")] == [
        "train.de (1)", "more/train.de", "train.de (2)",
    ]  # fmt: skip
    problem = mixed(train_source=f"{tmp_path}/train.de,more/train.de", train_target="train.en,more/train.en")
    assert [corpus.name for corpus in problem.pair_files("train", "")] == [f"{tmp_path.name}/train.de", "more/train.de"]


def test_a_weight_of_zero_leaves_a_file_out(mixed, tmp_path):
    (tmp_path / "small.de").unlink()
    problem = mixed(train_weights="1,0")
    problem.prepare(tmp_path)
    assert len(list(problem.samples("train", tmp_path))) == SIZE
    assert list(problem.reading.corpora) == ["train.de"]


def test_manifests_without_corpora_are_read(mixed, tmp_path):
    data, _ = generated(mixed(), tmp_path)
    path = tmp_path / "data" / "translate_parallel_text.manifest.json"
    content = json.loads(path.read_text())
    for split in content["splits"].values():
        del split["corpora"]
    path.write_text(json.dumps(content))
    again = GeneratedData.open(mixed(), tmp_path / "data")
    assert again.manifest.splits["train"].corpora == {}
    assert dataclasses.replace(data.manifest.splits["train"], corpora={}) == again.manifest.splits["train"]


TAGS = ("<web>", "<news>")


def test_lines_to_translate_get_the_tag_that_they_lack():
    lines = ["Hallo Welt", "<web> Hallo", "", " ", "<web>", "<other> x"]
    assert corpora.tagged(lines, TAGS) == lines
    assert corpora.tagged(lines, TAGS, default_tag="<news>") == [
        "<news> Hallo Welt", "<web> Hallo", "", " ", "<web>", "<news> <other> x",
    ]  # fmt: skip
    assert corpora.tagged(lines[:3], TAGS, tag="<news>", default_tag="<web>") == [
        "<news> Hallo Welt",
        "<news> Hallo",
        "",
    ]
    with pytest.raises(UserError, match=r"--source_tag=<wep>.*Did you mean '<web>'\? Its tags are: <web>, <news>"):
        corpora.tagged(lines, TAGS, tag="<wep>")
    with pytest.raises(UserError, match="Its tags are: none"):
        corpora.tagged(lines, (), tag="<web>")


def test_tagged_data_are_not_read_the_other_way_round(mixed, tmp_path):
    generated(mixed(train_tags=",<2x>"), tmp_path)
    reverse = registry.problem("translate_parallel_text_rev")
    needed = r"begin with tags \(<2x>\).*translate_parallel_text_rev needs data of its own.*--problem=\w+_rev"
    with pytest.raises(UserError, match=needed):
        GeneratedData.open(reverse, tmp_path / "data")
    with pytest.raises(UserError, match=needed):  # not: there is nothing to do
        generate(reverse, tmp_path / "data", tmp_path, progress=False)


def test_a_new_run_has_the_options_of_its_data(mixed, tmp_path):
    from t2t_ext.config.training import TrainConfig
    from t2t_ext.training import setup_run

    generated(mixed(train_tags=",<2x>", default_tag="<2x>"), tmp_path)
    config = TrainConfig(
        output_dir=str(tmp_path / "run"), problem="translate_parallel_text", model="transformer",
        hparams_set="transformer_test", data_dir=str(tmp_path / "data"),
    )  # fmt: skip
    run = setup_run.resolve(config)
    assert run.config.problem_options["train_tags"] == ",<2x>"
    assert setup_run.make_problem(run).default_tag == "<2x>"
    other = config.replace(problem="translate_parallel_text_rev")
    with pytest.raises(UserError, match="There are no data of translate_parallel_text_rev"):
        GeneratedData.open(setup_run.make_problem(setup_run.resolve(other)), tmp_path / "data")
