"""Tests of augmented data: results of each method, resuming after a kill, and mistakes; models only reverse ids."""

import collections
import json
import os
import pathlib
import sys
import threading
import types

import numpy as np
import pytest

from t2t_ext import registry
from t2t_ext.bin import augment as augment_command
from t2t_ext.config.decode import DecodeHParams
from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.data.datasets.manifest import Manifest
from t2t_ext.data.generation import generate
from t2t_ext.errors import UserError
from t2t_ext.io import inputs, locks
from t2t_ext.pseudo import augment
from t2t_ext.pseudo.augment import TAG_ID, Augmentation, AugmentConfig
from t2t_ext.pseudo.work import WorkFolder

NAME = "translate_parallel_text"
REVERSED = f"{NAME}_rev"
PAIRS = {"train": 23, "dev": 5}
Hypothesis = collections.namedtuple("Hypothesis", "ids text length finished direction")


def translatable(ids):
    return sum(ids) % 3 > 0


class Reverser:
    """Reverses every sentence; model "second" also repeats its last word, and every third sentence never ends."""

    decode_hparams = AugmentConfig(method="distillation", output_dir=pathlib.Path()).decode_hparams
    calls = 0

    def __init__(self, number):
        self.number = number

    @classmethod
    def of_runs(cls, runs, decode_hparams):
        return cls(runs[0])

    def translate_ids(self, sources, progress):
        type(self).calls += 1
        if self.calls == 3 and self.number == "killed":
            raise KeyboardInterrupt
        return [[self.hypothesis(ids)] for ids in sources]

    def hypothesis(self, ids):
        words = [*ids[-2::-1], ids[0]] if self.number == "second" else ids[-2::-1]
        return Hypothesis((*words, 1), "text", len(words) + 1, translatable(ids), "l2r")


@pytest.fixture(autouse=True)
def reversers(monkeypatch):
    """Replaces the Translator, which would load TensorFlow, by Reverser."""
    Reverser.calls = 0
    monkeypatch.setitem(sys.modules, "t2t_ext.translation.translator", types.SimpleNamespace(Translator=Reverser))
    monkeypatch.setattr(augment.checks, "described", lambda chosen: {"run": chosen, "weights": len(chosen)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory, toy_corpus, tiny_encoder):
    """Returns a folder: ``data`` has 23 train pairs (3 shards) and 5 dev pairs; ``tagged`` has two vocabularies."""
    root = tmp_path_factory.mktemp("augment")
    tiny_encoder.save(root / "subwords.model")
    options = {"source_language": "en", "target_language": "de"}
    for split, count in PAIRS.items():
        for number, side in enumerate(("source", "target")):
            options[f"{split}_{side}"] = str(root / f"{split}.{side}")
            lines = [pair[number] + "\n" for pair in getattr(toy_corpus, split)[:count]]
            pathlib.Path(options[f"{split}_{side}"]).write_text("".join(lines), encoding="utf-8")
    (root / "text").write_bytes("the cat sees the red lamp .\n\nold \xff\n".encode("latin-1") + b"the door .\n" * 3)
    quiet = {"num_processes": 1, "progress": False, "say": lambda text: None}
    given = {"subword_model": str(root / "subwords.model"), "num_shards": 3}
    generate.generate(registry.problem(NAME, **options), root / "data", root, **given, **quiet)
    tagged = registry.problem(NAME, **options, train_tags="<a>", default_tag="<a>")
    generate.generate(tagged, root / "tagged", root, vocab_size=300, joint_vocab=False, **quiet)
    return root


def augmented(folder, out, method, models=(), *, problem=NAME, say=lambda text: None, data="data", **config):
    """Makes and opens augmented data; ``models`` maps each kind of model to the name of a stand-in."""
    data = GeneratedData.open(registry.problem(problem), folder / data)
    models = {name: [kind] for name, kind in dict(models).items()}
    config = AugmentConfig(method=method, output_dir=out, chunk_pairs=10, **config)
    assert Augmentation(data, problem, models, config, say).run() == ""
    return GeneratedData.open(registry.problem(problem), out)


def pairs(data, split="train"):
    store = ExampleStore.load(data, split)
    return [tuple(map(tuple, (each.tolist() for each in store.example(n)))) for n in range(store.num_examples)]


def backwards(ids):
    return (*ids[-2::-1], 1)


@pytest.fixture(scope="module")
def original(folder):
    return pairs(GeneratedData.open(registry.problem(NAME), folder / "data"))


def test_both_directions(folder, original, tmp_path):
    said = []
    made = augmented(folder, tmp_path / "D", "both_directions", say=said.append)
    assert pairs(made) == original + [(target, source) for source, target in original]
    assert pairs(made, "dev") == pairs(GeneratedData.open(registry.problem(NAME), folder / "data"), "dev")
    assert made.texts("dev") == GeneratedData.open(registry.problem(NAME), folder / "data").texts("dev")
    assert GeneratedData.open(registry.problem(REVERSED), tmp_path / "D").was_reversed  # fits either direction
    assert "has 46 in place of 23" in said[0]
    assert made.manifest.splits["train"].tokens["inputs"] == sum(len(source) for source, _ in pairs(made))
    assert made.text_encoders() == GeneratedData.open(registry.problem(NAME), folder / "data").text_encoders()


def test_distillation_replaces_targets_and_keeps_those_without_translation(folder, original, tmp_path):
    made = augmented(folder, tmp_path / "D", "distillation", {"forward1": "first"})
    expected = [(source, backwards(source) if translatable(source) else target) for source, target in original]
    assert pairs(made) == expected
    failed = sum(not translatable(source) for source, _ in original)
    assert 0 < failed < 23
    assert made.manifest.augmentation["counts"] == {"made": 23 - failed, "ended by the length limit": failed}
    # A second teacher adds its translations; if neither has one, the original target occurs once.
    both = augmented(folder, tmp_path / "E", "distillation", {"forward1": "first", "forward2": "second"})
    assert len(pairs(both)) == 2 * (23 - failed) + failed
    with pytest.raises(UserError, match=f"made by t2t_ext-augment to train {NAME}, .* give --problem={NAME}, or"):
        GeneratedData.open(registry.problem(REVERSED), tmp_path / "D")


@pytest.mark.parametrize("problem", [NAME, REVERSED])
def test_diversification_stands_beside_the_original_pairs(folder, original, tmp_path, problem):
    models = {"forward1": "first", "forward2": "first", "backward1": "first"}
    made = augmented(folder, tmp_path / "D", "diversification", models, problem=problem, original_copies=2)
    gold = original if problem == NAME else [(target, source) for source, target in original]
    expected = []
    for source, target in gold:  # the second forward model makes the same translations, which are dropped
        expected += [(source, backwards(source))] * translatable(source)
        expected += [(backwards(target), target)] * translatable(target)
    assert pairs(made) == gold * 2 + expected
    assert made.manifest.augmentation["counts"]["made"] == len(expected)
    assert made.manifest.augmentation["counts"]["as another pair"] == sum(translatable(source) for source, _ in gold)


@pytest.mark.parametrize("tag", [True, False])
def test_back_translation(folder, original, tmp_path, tag, tiny_encoder):
    text = [folder / "text", folder / "train.target"]
    said = []
    given = {"target_text": text, "tag": tag, "say": said.append}
    made = augmented(folder, tmp_path / "D", "back_translation", {"backward1": "first"}, **given)
    lines = [
        tiny_encoder.encode_batch([line], add_eos=True)[0]
        for line in ["the cat sees the red lamp .", *["the door ."] * 3]
    ]
    ids = [tuple(line) for line in lines] + [target for target in _in_file(folder / "train.target", tiny_encoder)]
    expected = [((TAG_ID,) * tag + backwards(line), line) for line in ids if translatable(line)]
    assert pairs(made) == original + expected
    counts = made.manifest.augmentation["counts"]
    assert (counts["empty source"], counts["not UTF-8"]) == (1, 1)
    assert f"warning: 1 of 29 lines are not UTF-8 (first: {folder / 'text'}:3) and are left out" in said[0]
    assert made.manifest.augmentation["settings"]["tag"] == ("<reserved_0>" if tag else "")
    assert tiny_encoder.decode(pairs(made)[23][0]) == tiny_encoder.decode(expected[0][0][tag:])  # without tag


def test_text_out_of_a_pipe_is_read_once(folder, tmp_path):
    os.mkfifo(tmp_path / "text")
    writer = threading.Thread(target=(tmp_path / "text").write_bytes, args=[(folder / "text").read_bytes()])
    writer.start()
    try:
        found = [
            augmented(folder, tmp_path / name, "back_translation", {"backward1": "first"}, target_text=[path / "text"])
            for name, path in (("D", tmp_path), ("E", folder))
        ]
    finally:
        writer.join()
        inputs.forget_pipes()
    assert pairs(found[0]) == pairs(found[1])
    assert found[0].manifest.augmentation == found[1].manifest.augmentation


def _in_file(path, encoder):
    return [tuple(ids) for ids in encoder.encode_batch(path.read_text(encoding="utf-8").splitlines(), add_eos=True)]


def test_blocks_of_many_pairs(monkeypatch):
    monkeypatch.setattr(augment.augmented, "MOST_PAIRS", 2)
    found = list(
        augment.augmented.blocks([([5, 1], [70_000, 1]), ([6, 1], [7, 1]), ([8, 9, 1], [1])], was_reversed=True)
    )
    assert [each["targets_lengths"].tolist() for each in found] == [[2, 2], [3]]
    assert found[0]["inputs"].dtype == np.int32
    assert found[1]["targets"].dtype == np.uint16


def test_killed_and_started_again_makes_the_same_bytes(folder, tmp_path):
    models = {"forward1": "killed", "backward1": "killed"}
    with pytest.raises(KeyboardInterrupt):
        augmented(folder, tmp_path / "D", "diversification", models)
    with pytest.raises(UserError, match="There are no data"):
        GeneratedData.open(registry.problem(NAME), tmp_path / "D")
    # Work with other settings is not mixed with the unfinished work.
    with pytest.raises(UserError, match=r"unfinished work .* max_length was 256, now 99.* --overwrite to begin again"):
        augmented(folder, tmp_path / "D", "diversification", models, max_length=99)
    said = []
    augmented(folder, tmp_path / "D", "diversification", models, say=said.append)
    assert "20 of them are there already" in said[0]
    assert Reverser.calls == 3 + 4
    Reverser.calls = 9
    augmented(folder, tmp_path / "E", "diversification", models)
    files = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "DE"]
    assert files[0] == files[1]
    said.clear()
    (tmp_path / "D" / f".{NAME}.augmenting").mkdir()  # as if the command was killed while it cleaned up
    augmented(folder, tmp_path / "D", "diversification", models, say=said.append)
    assert not (tmp_path / "D" / f".{NAME}.augmenting").exists()
    assert said == [f"The augmented data of {NAME} are in {tmp_path / 'D'} already; nothing to do."]
    with pytest.raises(UserError, match=r"were made in another way: .*Give --overwrite"):
        augmented(folder, tmp_path / "D", "diversification", {"forward1": "first"})
    made = augmented(folder, tmp_path / "D", "distillation", {"forward1": "first"}, overwrite=True)
    assert made.manifest.augmentation["method"] == "distillation"
    made.shard_paths("train")[0].unlink()
    with pytest.raises(UserError, match=r"missing .* Run: t2t_ext-augment .* --method=distillation .*overwrite"):
        GeneratedData.open(registry.problem(NAME), tmp_path / "D")
    assert Manifest.load(folder / "data" / f"{NAME}.manifest.json").augmentation == {}


@pytest.mark.parametrize(
    ("method", "models", "config", "message"),
    [
        ("both_directions", {"forward1": "a"}, {}, "needs no models"),
        ("distillation", {"backward1": "a"}, {}, "needs --forward=RUN"),
        ("diversification", {}, {}, r"needs --forward=RUN\[,RUN\], --backward"),
        ("back_translation", {"backward1": "a", "backward2": "b"}, {"target_text": ["t"]}, f"one model of {REVERSED}"),
        ("back_translation", {"backward1": "a"}, {}, "needs --target_text=FILE"),
        ("back_translation", {"backward1": "a"}, {"target_text": [pathlib.Path("no/such")]}, "Correct --target_text"),
        ("both_directions", {}, {"original_copies": 2}, "--original_copies=2 does not go with"),
        ("both_directions", {}, {"data": "tagged"}, "vocabulary for each side.* without --separate_vocab"),
        ("diversification", {"backward1": "a"}, {"data": "tagged"}, r"tags on their sources \(<a>\)"),
    ],
)
def test_mistakes(folder, tmp_path, method, models, config, message):
    with pytest.raises(UserError, match=message):
        augmented(folder, tmp_path / "D", method, models, **config)
    assert not (tmp_path / "D").exists()


@pytest.mark.parametrize("name", ["text.tgz", "text.tgz:news.de"])
def test_text_in_an_archive_is_refused(folder, tmp_path, name):
    (tmp_path / "text.tgz").write_bytes(b"anything")
    with pytest.raises(UserError, match=r"text\.tgz is an archive: unpack it, and name the file with the text"):
        augmented(folder, tmp_path / "D", "back_translation", {"backward1": "a"}, target_text=[tmp_path / name])


def test_batches_of_the_search_may_change(folder, tmp_path, monkeypatch):
    """A smaller batch_size (after memory ran out) resumes the work, even if an older version noted the batch_size."""
    decode = DecodeHParams(batch_size=64)
    with monkeypatch.context() as older:
        older.setattr(augment, "NOT_IN_THE_TRANSLATIONS", ())
        with pytest.raises(KeyboardInterrupt):
            augmented(folder, tmp_path / "D", "distillation", {"forward1": "killed"}, decode_hparams=decode)
    assert len(list((tmp_path / "D" / f".{NAME}.augmenting").glob("*.npz"))) == 2
    smaller = DecodeHParams(batch_size=8)
    made = augmented(folder, tmp_path / "D", "distillation", {"forward1": "killed"}, decode_hparams=smaller)
    assert Reverser.calls == 4
    assert made.manifest.augmentation["settings"]["decode_hparams"] == {}
    other = DecodeHParams(alpha=0.9)
    with pytest.raises(UserError, match=r"alpha was null, now 0\.9"):
        augmented(folder, tmp_path / "D", "distillation", {"forward1": "killed"}, decode_hparams=other)


def test_a_shortlist_that_was_made_anew_is_another_search(folder, tmp_path):
    shortlist = tmp_path / "shortlist.npz"
    decode = DecodeHParams(shortlist=str(shortlist))
    with pytest.raises(UserError, match=r"The shortlist .*shortlist\.npz cannot be read: No such file"):
        augmented(folder, tmp_path / "D", "distillation", {"forward1": "killed"}, decode_hparams=decode)
    shortlist.write_bytes(b"first")
    with pytest.raises(KeyboardInterrupt):
        augmented(folder, tmp_path / "D", "distillation", {"forward1": "killed"}, decode_hparams=decode)
    shortlist.write_bytes(b"second")
    with pytest.raises(UserError, match="settings shortlist_sha256 was"):
        augmented(folder, tmp_path / "D", "distillation", {"forward1": "killed"}, decode_hparams=decode)
    shortlist.write_bytes(b"first")
    made = augmented(folder, tmp_path / "D", "distillation", {"forward1": "killed"}, decode_hparams=decode)
    assert len(made.manifest.augmentation["settings"]["shortlist_sha256"]) == 64


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--method=both_directions", "--untagged"], "--untagged has no effect with --method=both_directions"),
        (["--method=both_directions", "--decode_hparams=beam_size=7"], "--decode_hparams has no effect"),
        (["--method=both_directions", "--max_length=3"], "--max_length has no effect"),
        (["--method=both_directions", "--checkpoint_path=nonsense"], "--checkpoint_path has no effect"),
        (["--method=distillation", "--forward=R", "--untagged"], "--untagged has no effect with --method=distillation"),
    ],
)
def test_what_has_no_effect_is_refused(flags, message):
    needed = ["--problem=P", "--data_dir=D", "--output_data_dir=E"]
    with pytest.raises(UserError, match=message):
        augment_command.main.__wrapped__(augment_command.build_parser().parse_args([*needed, *flags]))


def test_names_of_runs_that_have_separators(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("R+1", "S,2", "T"):
        (tmp_path / name).mkdir()
    names = augment_command._names
    assert names("R+1, S,2,T,not_there", ",") == ["R+1", "S,2", "T", "not_there"]
    assert names("R+1", "+") == ["R+1"]
    assert names("T+R+1+not_there", "+") == ["T", "R+1", "not_there"]
    assert names("", ",") == []


def test_one_process_at_a_time(folder, tmp_path):
    work = tmp_path / "D" / f".{NAME}.augmenting"
    refused = pytest.raises(UserError, match=r"making this augmented data in .*Wait .*or choose another directory\.$")
    with locks.held(work / "lock", "is at it", make_directory=True), refused:
        augmented(folder, tmp_path / "D", "both_directions")


def test_models_that_translate_nothing(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "translatable", lambda ids: False)
    with pytest.raises(UserError, match=r"Nothing was made: .* \(46 ended by the length limit\)"):
        augmented(folder, tmp_path / "D", "diversification", {"forward1": "first", "backward1": "first"})
    with pytest.raises(UserError, match="There are no data"):
        GeneratedData.open(registry.problem(NAME), tmp_path / "D")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_damaged_manifest_of_augmented_data(folder, tmp_path, overwrite):
    """t2t_ext-datagen is not the advice: it would put the original data in the place of the augmented ones."""
    manifest = tmp_path / "D" / f"{NAME}.manifest.json"
    augmented(folder, tmp_path / "D", "both_directions")
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[:100])
    with pytest.raises(UserError, match=r"is damaged .*remove this file and run the same command again") as error:
        augmented(folder, tmp_path / "D", "both_directions", overwrite=overwrite)
    assert "datagen" not in str(error.value)
    manifest.unlink()
    augmented(folder, tmp_path / "D", "both_directions")
    assert manifest.read_bytes() == whole


def test_other_data_are_not_overwritten(folder, tmp_path):
    with pytest.raises(UserError, match="holds data of t2t_ext-datagen, which stay"):
        augmented(folder, folder / "data", "both_directions", overwrite=True)
    augmented(folder, tmp_path / "D", "both_directions")
    with pytest.raises(UserError, match="made by t2t_ext-augment themselves"):
        augmented(tmp_path, tmp_path / "E", "both_directions", data="D")


def test_work_that_holds_nothing_is_begun_with_other_settings(tmp_path):
    """Unless other processes share it, which may be at work with the settings that are noted."""

    def begin(settings, shard=None):
        with WorkFolder.open(tmp_path / "work", settings, False, "it", shard):
            return json.loads((tmp_path / "work" / "settings.json").read_text())

    assert begin({"beam": 4}) == {"beam": 4}
    assert begin({"beam": 5}) == {"beam": 5}
    with pytest.raises(UserError, match=r"begun in another way: beam was 5, now 6.*--overwrite to begin again"):
        begin({"beam": 6}, (1, 2))
    assert begin({"beam": 6}, (0, 1)) == {"beam": 6}
    (tmp_path / "work" / "chunk.npz").touch()
    with pytest.raises(UserError, match="begun in another way"):
        begin({"beam": 7})
