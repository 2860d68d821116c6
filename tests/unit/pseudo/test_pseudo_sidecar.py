"""Tests of pseudo references on disk: the chunks during the work, the joined sidecar, and damage to either."""

import collections
import dataclasses
import itertools
import json
import pathlib
import shutil
import types

import numpy as np
import pytest

from t2t_ext import registry
from t2t_ext.config.decode import DecodeHParams
from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.data.datasets.manifest import describe_file, manifest_path
from t2t_ext.data.datasets.pseudo_references import DIRECTIONS, PseudoManifest, SplitPseudo, table
from t2t_ext.data.generation import generate
from t2t_ext.data.generation.workspace import publish
from t2t_ext.errors import UserError
from t2t_ext.pseudo import work as pseudo_work
from t2t_ext.pseudo.generate import PseudoConfig, PseudoDecoding, split_statistics
from t2t_ext.pseudo.translating import in_text_order, why_failed
from t2t_ext.pseudo.work import Chunk, Translations, WorkFolder

NAME = "translate_parallel_text"
SETTINGS = {
    "data": {"digest": "0"},
    "models": {"l2r": [{"run": "a", "weights": "1"}], "r2l": [{"run": "b", "weights": "2"}]},
    "settings": {"decode_hparams": {"beam_size": 4}, "max_length": 64},
}
PAIRS = {"train": 23, "dev": 5}


@pytest.fixture(scope="module")
def made_data(tmp_path_factory, toy_corpus, tiny_encoder):
    """Returns a directory with 23 train pairs in 3 shards and 5 dev pairs, which NAME_rev reads, too."""
    root = tmp_path_factory.mktemp("pseudo_data")
    tiny_encoder.save(root / "subwords.model")
    options = {}
    for split, count in PAIRS.items():
        for number, side in enumerate(("source", "target")):
            options[f"{split}_{side}"] = str(root / f"{split}.{side}")
            lines = [pair[number] + "\n" for pair in getattr(toy_corpus, split)[:count]]
            pathlib.Path(options[f"{split}_{side}"]).write_text("".join(lines), encoding="utf-8")
    generate.generate(
        registry.problem(NAME, **options), root / "data", root, subword_model=str(root / "subwords.model"),
        num_shards=3, num_processes=1, progress=False, say=lambda text: None,
    )  # fmt: skip
    return root / "data"


@pytest.fixture
def data(made_data, tmp_path):
    shutil.copytree(made_data, tmp_path / "data")
    return GeneratedData.open(registry.problem(NAME), tmp_path / "data")


def translations(chunk, first_id=3):
    """Returns made-up translations of a chunk, depending on side and number of each pair; every seventh pair fails."""
    ids, texts, failures = [], [], []
    for n in range(chunk.first, chunk.last):
        length = (n * 5 + len(chunk.split) + (chunk.direction == "r2l")) % 9
        failed = n % 7 == 3
        ids.append([] if failed else [first_id + (n * 31 + i) % 290 for i in range(length)] + [1])
        texts.append("" if failed else f"{chunk.split} {chunk.direction} {n}")
        failures.append(("empty", "repetition")[n % 2] if failed else "")
    return Translations(ids, texts, failures)


def opened(data, settings=SETTINGS, shard=(0, 1), *, overwrite=False, problem=NAME):
    folder = data.data_dir / f".{problem}_synchronous.decoding"
    return WorkFolder.open(folder, settings, overwrite, "these pseudo references", shard)


def make_sidecar(data, problem=NAME, chunk_pairs=4, first_id=3):
    """Makes the sidecar of made-up translations in chunks, as the command does, and returns its problem."""
    name = f"{problem}_synchronous"
    with opened(data, problem=problem) as work:
        chunks = pseudo_work.plan(PAIRS, chunk_pairs)
        for chunk in chunks:
            work.save(chunk, translations(chunk, first_id))
        folder = work.path / "finished"
        folder.mkdir()
        splits = {
            split: pseudo_work.join(
                work, [c for c in chunks if c.split == split], pseudo_work.shard_sizes(data, split), name, split, folder
            )
            for split in PAIRS
        }
        files = [file for split in splits.values() for file in (*split.shards, *split.texts.values())]
        manifest = PseudoManifest(
            problem=name, data={"digest": data.digest()}, models=SETTINGS["models"], settings=SETTINGS["settings"],
            splits=splits, files={file: describe_file(folder / file) for file in files}, versions={},
        )  # fmt: skip
        manifest_path(folder, name).write_text(manifest.to_json(), encoding="utf-8")
        publish(folder, data.data_dir, name)
        work.remove()
    return registry.problem(name)


def sequences(flat, offsets):
    return [flat[first:last].tolist() for first, last in itertools.pairwise(offsets)]


# The work in chunks.


def test_plan_covers_every_pair_of_both_sides_once():
    chunks = pseudo_work.plan({"dev": 5, "train": 9}, 4)
    assert [(c.split, c.direction, c.first, c.last) for c in chunks[:4]] == [
        ("dev", "l2r", 0, 4), ("dev", "l2r", 4, 5), ("dev", "r2l", 0, 4), ("dev", "r2l", 4, 5),
    ]  # fmt: skip
    assert len({chunk.name for chunk in chunks}) == len(chunks) == 10
    covered = sorted((c.split, c.direction, n) for c in chunks for n in range(c.first, c.last))
    assert covered == sorted(
        (s, side, n) for s, count in (("dev", 5), ("train", 9)) for side in DIRECTIONS for n in range(count)
    )
    assert pseudo_work.plan({"dev": 0}, 4) == []


def test_a_chunk_comes_back_as_it_was_kept(data):
    chunk = Chunk("train", "r2l", 2, 8, 12)
    made = Translations([[70_000, 5, 1], [], [1], [7, 1]], ["Über\nzwei", "", "", "\u2028 x\r"], ["", "b", "", ""])
    with opened(data) as work:
        assert not work.is_done(chunk)
        work.save(chunk, made)
        assert work.is_done(chunk)
        found = work.load(chunk)
    assert [ids.tolist() for ids in found.ids] == made.ids
    assert found.texts == ["Über zwei", "", "", "\u2028 x\r"]
    assert found.failures == made.failures


def test_work_done_in_another_way_is_not_gone_on_with(data):
    chunk = Chunk("dev", "l2r", 0, 0, 4)
    other = json.loads(json.dumps(SETTINGS))
    other["models"]["r2l"][0]["weights"] = "3"
    other["settings"]["decode_hparams"]["beam_size"] = 5
    with opened(data) as work:
        work.save(chunk, translations(chunk))
    wrong = 'models r2l weights was "2", now "3"; settings decode_hparams beam_size was 4, now 5.*--overwrite'
    with pytest.raises(UserError, match=wrong), opened(data, other):
        pass
    moved = json.loads(json.dumps(SETTINGS))
    moved["models"]["l2r"][0]["run"] = "elsewhere"
    with opened(data, moved, overwrite=True) as work:
        assert work.is_done(chunk)  # the path of a run does not count, and --overwrite keeps work that fits
    with opened(data, other, overwrite=True) as work:
        assert not work.is_done(chunk)


def test_a_chunk_from_elsewhere_is_found(data, tmp_path):
    chunk = Chunk("dev", "l2r", 0, 0, 4)
    with opened(data, {**SETTINGS, "chunk_pairs": 3}) as work:
        work.save(chunk, translations(chunk))
        shutil.copy(work.path / chunk.name, tmp_path / "copy")
    with opened(data, overwrite=True) as work:
        shutil.copy(tmp_path / "copy", work.path / chunk.name)
        with pytest.raises(UserError, match=r"dev\.l2r\.000000\.npz was made with other models, settings or data"):
            work.is_done(chunk)


@pytest.mark.parametrize("damage", ["cut", "empty", "no archive"])
def test_a_damaged_chunk_is_named(data, damage):
    chunk = Chunk("dev", "l2r", 0, 0, 4)
    with opened(data) as work:
        work.save(chunk, translations(chunk))
        path = work.path / chunk.name
        content = path.read_bytes()
        path.write_bytes({"cut": content[:-30], "empty": b"", "no archive": b"x" * 200}[damage])
        for read in (work.is_done, work.load):
            with pytest.raises(UserError, match=r"dev\.l2r\.000000\.npz is damaged .*Remove that file"):
                read(chunk)
        work.save(chunk, translations(chunk))
        with pytest.raises(UserError, match="instead of 5"):
            work.is_done(Chunk("dev", "l2r", 0, 0, 5))


def test_one_process_for_each_part(data):
    refused = pytest.raises(UserError, match=r"Another process is making these.*--shard=1/2")
    with opened(data, shard=(0, 2)), opened(data, shard=(1, 2)):
        with refused, opened(data, shard=(1, 2)):
            pass
        with refused, opened(data):
            pass
    with opened(data), refused, opened(data, shard=(0, 2)):
        pass


def test_settings_that_are_damaged_are_not_trusted(data):
    with opened(data) as work:
        work.save(Chunk("dev", "l2r", 0, 0, 1), Translations([[1]], [""], [""]))
        (work.path / "settings.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match=r"settings\.json is missing or damaged"), opened(data):
        pass


# The sidecar.


def test_pseudo_references_stand_in_the_order_of_the_pairs(data):
    problem = make_sidecar(data)
    found = GeneratedData.open(problem, data.data_dir)
    assert found.digest() != data.digest()
    plain = ExampleStore.load(data, "train")
    assert plain.pseudo is None
    for split, count in PAIRS.items():
        store = ExampleStore.load(found, split)
        assert store.num_examples == count
        expected = [translations(Chunk(split, side, 0, 0, count)) for side in DIRECTIONS]
        assert [sequences(*each) for each in store.pseudo] == [list(made.ids) for made in expected]
        assert [np.diff(offsets).tolist() for _, offsets in store.pseudo] == [
            [len(ids) for ids in made.ids] for made in expected
        ]
        assert found.pseudo.texts(split) == tuple(list(made.texts) for made in expected)
        failures = collections.Counter(filter(None, expected[0].failures))
        assert found.pseudo.manifest.splits[split].failures["l2r"] == dict(failures)
    assert np.array_equal(ExampleStore.load(found, "train").targets, plain.targets)
    sizes = [np.load(path)["l2r_lengths"].size for path in found.pseudo.shard_paths("train")]
    assert sizes == pseudo_work.shard_sizes(data, "train")
    assert len(sizes) == 3


def test_sidecar_does_not_depend_on_the_chunks(data):
    def files():
        return {path.name: path.read_bytes() for path in data.data_dir.iterdir()}

    make_sidecar(data, chunk_pairs=1)
    before = files()
    make_sidecar(data, chunk_pairs=100)
    assert files() == before


def test_large_ids_are_32_bit(data):
    store = ExampleStore.load(GeneratedData.open(make_sidecar(data, first_id=70_000), data.data_dir), "train")
    assert [ids.dtype for ids, _ in store.pseudo] == [np.int32, np.int32]
    assert sequences(*store.pseudo[0]) == translations(Chunk("train", "l2r", 0, 0, PAIRS["train"]), 70_000).ids


def test_a_problem_the_other_way_round_has_its_own(data):
    turned = GeneratedData.open(registry.problem(f"{NAME}_rev"), data.data_dir)
    problem = make_sidecar(turned, f"{NAME}_rev")
    assert (problem.name, problem.data_name) == (f"{NAME}_rev_synchronous", f"{NAME}_rev")
    store = ExampleStore.load(GeneratedData.open(problem, data.data_dir), "dev")
    plain = ExampleStore.load(data, "dev")
    assert np.array_equal(store.inputs, plain.targets)
    assert store.pseudo is not None
    with pytest.raises(UserError, match=f"no pseudo references of {NAME} in .*--problem={NAME} --l2r=RUN --r2l=RUN"):
        GeneratedData.open(registry.problem(f"{NAME}_synchronous"), data.data_dir)


def test_data_that_have_changed_since_are_refused(data):
    problem = make_sidecar(data)
    before = data.digest()
    path = manifest_path(data.data_dir, NAME)
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=f"{before[:16]}.*then and has {data.digest()[:16]}.*now.*Run: .*--overwrite"):
        GeneratedData.open(problem, data.data_dir)


def test_what_is_damaged_is_named(data):
    problem = make_sidecar(data)
    name = f"{NAME}_synchronous-train-00001-of-00003.npz"
    path = data.data_dir / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        UserError, match=rf"{name} is damaged.*t2t_ext-pseudo-references --problem={NAME} .*--overwrite"
    ):
        ExampleStore.load(GeneratedData.open(problem, data.data_dir), "train")
    path.unlink()
    with pytest.raises(UserError, match=rf"missing or have another size: {name}\. Run: .*--overwrite"):
        GeneratedData.open(problem, data.data_dir)
    side = manifest_path(data.data_dir, f"{NAME}_synchronous")
    side.write_text(side.read_text(encoding="utf-8").replace('"format_version": 1', '"format_version": 9'))
    with pytest.raises(UserError, match=r"has format 9, but this t2t_ext reads formats up to 1"):
        GeneratedData.open(problem, data.data_dir)
    side.write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match=r"manifest\.json is damaged"):
        GeneratedData.open(problem, data.data_dir)


def test_too_few_pseudo_references_are_refused(data):
    problem = make_sidecar(data)
    found = GeneratedData.open(problem, data.data_dir)
    split = found.pseudo.manifest.splits["train"]
    two_of_three = dataclasses.replace(split, shards=split.shards[:2])
    found.pseudo.manifest.splits["train"] = two_of_three
    left = sum(pseudo_work.shard_sizes(data, "train")[:2])
    with pytest.raises(UserError, match=f"has {left} pseudo references for the 23 pairs of the train split"):
        ExampleStore.load(found, "train")


def test_table_for_people():
    numbers = {
        "made": 900, "mean_length": 20.25, "mean_gold_length": 21.0, "identical_to_gold": 90, "bleu": 31.234,
        "bleu_pairs": 1000, "bleu_signature": "sig",
    }  # fmt: skip
    split = SplitPseudo(
        pairs=1000, shards=[], texts={}, failures={"l2r": {"empty": 100}, "r2l": {}},
        statistics={"l2r": numbers, "r2l": numbers},
    )  # fmt: skip
    lines = table(types.SimpleNamespace(splits={"train": split}))
    assert lines[0].split() == ["split", "direction", "pairs", "made", "BLEU", "tokens", "reference", "identical"]
    assert lines[1].split() == ["train", "l2r", "1,000", "900", "31.23", "20.2", "21.0", "10.0%"]
    assert lines[3] == "train, l2r: 100 without a pseudo reference: empty"


# Models that fail on some or all pairs.


def joined(data, failing):
    """Joins translations whose first pairs failed, as the command does, and returns its messages."""
    said = []
    teachers = types.SimpleNamespace(
        described=lambda: {"l2r": [{"run": "a", "step": 20}], "r2l": [{"run": "b", "step": 30}]}
    )
    config = PseudoConfig(decode_hparams=DecodeHParams(), max_length=64, chunk_pairs=4, join=True)
    decoding = PseudoDecoding(data, NAME, teachers, config, said.append)
    with opened(data, {**decoding._settings, "chunk_pairs": 4}) as work:
        for chunk in pseudo_work.plan(PAIRS, 4):
            ids, texts, failures = [], [], []
            for number in range(chunk.first, chunk.last):
                failed = number < failing.get((chunk.split, chunk.direction), 0)
                ids.append([] if failed else [40, 41, 1])
                texts.append("" if failed else "x")
                failures.append("empty" if failed else "")
            work.save(chunk, Translations(ids, texts, failures))
    assert decoding.run() == ""
    return said


def test_a_shortlist_that_was_made_anew_is_another_search(data, tmp_path):
    def settings(**decode):
        config = PseudoConfig(decode_hparams=DecodeHParams(**decode), max_length=64)
        teachers = types.SimpleNamespace(described=dict)
        return PseudoDecoding(data, NAME, teachers, config, print)._settings["settings"]

    path = tmp_path / "shortlist.npz"
    path.write_bytes(b"first")
    first = settings(shortlist=str(path))
    assert settings(shortlist=str(path)) == first
    path.write_bytes(b"second")
    assert settings(shortlist=str(path)) != first
    # Without a shortlist, the settings equal those of work begun with earlier versions.
    assert settings() == {"decode_hparams": {"beam_size": 4, "alpha": 0.6}, "max_length": 64}


def test_a_model_that_fails_too_often_is_named_at_the_end(data):
    *_, where, first, second = joined(data, {("train", "r2l"): 12, ("dev", "l2r"): 5, ("train", "l2r"): 11})
    assert "train with --problem=" in where
    assert first.startswith(
        "warning: the r2l model (b, step 30) failed on 12 of 23 train pairs (empty), which training"
    )
    assert second.startswith("warning: the l2r model (a, step 20) failed on 5 of 5 dev pairs")
    assert "Train that model longer" in first


def test_models_that_seldom_fail_are_not_warned_of(data):
    assert not [line for line in joined(data, {("train", "r2l"): 11, ("dev", "l2r"): 2}) if "WARNING" in line]


def test_of_a_model_that_always_fails_nothing_is_published(data):
    told = (
        r"The l2r model \(a, step 20\) failed on all 23 training pairs \(empty\), so .*_synchronous cannot be trained"
    )
    with pytest.raises(UserError, match=told):
        joined(data, {("train", "l2r"): 23})
    assert not [path for path in data.data_dir.glob("*_synchronous*") if not path.name.startswith(".")]


# The names of problems with pseudo references.


def test_names():
    problem = registry.problem("translate_ende_cldr_synchronous")
    assert (problem.name, problem.data_name, problem.base_name) == (
        "translate_ende_cldr_synchronous", "translate_ende_cldr", "translate_ende_cldr",
    )  # fmt: skip
    turned = registry.problem("translate_ende_cldr_rev_synchronous")
    assert (turned.name, turned.was_reversed, turned.source_language) == (
        "translate_ende_cldr_rev_synchronous", True, "de",
    )  # fmt: skip
    assert turned.base().name == "translate_ende_cldr"
    assert turned.base().source_language == "en"
    assert registry.problem("translate_parallel_text_synchronous", train_source="a").options["train_source"] == "a"
    assert not registry.problem("translate_ende_cldr").with_pseudo_references


def test_names_that_do_not_exist():
    with pytest.raises(UserError, match="Did you mean 'translate_ende_cldr_synchronous'"):
        registry.problem("translate_ende_cldr_synchronus")
    with pytest.raises(UserError, match="Did you mean 'translate_ende_cldr_rev_synchronous'"):
        registry.problem("translate_ende_cldr_synchronous_rev")
    with pytest.raises(UserError, match=r"may not end in _synchronous: .*pseudo references"):
        registry.register_problem("translate_mine_synchronous")(object)


# Which translations are kept.


def hypothesis(ids, text="x", *, finished=True, direction="l2r"):
    return types.SimpleNamespace(ids=tuple(ids), text=text, length=len(ids), finished=finished, direction=direction)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (hypothesis([5, 6, 1]), ""),
        (hypothesis([1], ""), "empty"),
        (hypothesis([9, 1], " "), "empty"),
        (hypothesis([], "", finished=False), "no translation"),
        (hypothesis([5] * 9, finished=False), "ended by the length limit"),
        (hypothesis([*range(5, 25), 1]), "longer than 20 tokens"),
        (hypothesis([*range(5, 24), 1]), ""),
        (hypothesis([5, 6] * 8 + [1]), "repetition"),
        (hypothesis([5, 6] * 5 + [1]), ""),  # short translations may repeat, such as "no, no, no"
    ],
)
def test_why_a_translation_is_no_pseudo_reference(found, expected):
    assert why_failed(found, max_length=20) == expected


def test_translations_are_turned_to_text_order():
    assert in_text_order(hypothesis([5, 6, 7, 1])) == (5, 6, 7, 1)
    assert in_text_order(hypothesis([7, 6, 5, 1], direction="r2l")) == (5, 6, 7, 1)
    assert in_text_order(hypothesis([1], direction="r2l")) == (1,)


def test_statistics_of_a_split(data):
    problem = make_sidecar(data)
    gold = ExampleStore.load(data, "dev")
    found = GeneratedData.open(problem, data.data_dir)
    # Both sides equal the gold targets, except for one failed pair and one pair that differs in a token on one side.
    made = [gold.example(number)[1].tolist() for number in range(gold.num_examples)]
    other = [list(ids) for ids in made]
    other[1], other[3][0] = [], 300
    store = ExampleStore.from_sequences([gold.example(n)[0] for n in range(len(made))], made, (made, other))
    statistics = split_statistics(store, found)
    assert statistics["l2r"]["identical_to_gold"] == statistics["l2r"]["made"] == len(made)
    assert statistics["l2r"]["bleu"] == pytest.approx(100)
    assert (statistics["r2l"]["identical_to_gold"], statistics["r2l"]["made"]) == (len(made) - 2, len(made) - 1)
    assert statistics["r2l"]["bleu"] < 100
    lengths = [len(ids) for ids in other if ids]
    assert statistics["r2l"]["mean_length"] == pytest.approx(sum(lengths) / len(lengths), abs=1e-3)
