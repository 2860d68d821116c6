"""Tests of captioning: Karpathy's split with tables or files of features, the user's files, missing or damaged data."""

import json
import os

import numpy as np
import pytest
from caption_files import SIZE, images, karpathy, table_line, write_coco

from t2t_ext import registry
from t2t_ext.data.features.sources import FeatureIndex, read_sources
from t2t_ext.data.features.types import Lazy
from t2t_ext.data.generation.generate import generate
from t2t_ext.data.text import sentencepiece_model
from t2t_ext.errors import UserError


def coco(**options):
    return registry.problem("caption_coco", feature_size=SIZE, **options)


def make(problem, directory, **settings):
    lines = []
    settings = {"vocab_size": 320, "num_processes": 1, **settings}
    manifest = generate(problem, directory / "data", directory, progress=False, say=lines.append, **settings)
    return manifest, "\n".join(lines)


def told(problem, split, directory):
    problem.prepare(directory)
    return [
        (sample["inputs"].key, sample["inputs"].read(), sample["targets"])
        for sample in problem.samples(split, directory)
    ]


@pytest.mark.parametrize("table", [True, False])
def test_restval_joins_train_and_captions_have_their_features(tmp_path, table):
    entries = write_coco(tmp_path, train=2, restval=1, dev=1, test=1, table=table)
    train = told(coco(), "train", tmp_path)
    assert [(name, texts) for name, _, texts in train] == [
        (str(image), [text]) for image, _, captions in entries[:3] for text in captions
    ]
    for split, (image, features, captions) in (("dev", entries[3]), ("test", entries[4])):
        ((name, rows, texts),) = told(coco(), split, tmp_path)
        assert (name, texts) == (str(image), captions)
        np.testing.assert_array_equal(rows, features)
    assert coco().count("train", tmp_path) == 15
    assert coco().count("dev", tmp_path) == 1


def test_captions_raw_or_as_tokens(tmp_path):
    write_coco(tmp_path, train=1, restval=0, dev=1, test=1)
    assert told(coco(), "train", tmp_path)[2][2][0].startswith("there is a")
    assert told(coco(text="raw"), "train", tmp_path)[2][2][0].startswith("There is a")


def test_images_with_more_captions_than_others(tmp_path):
    """Every set of references has one line per image, and missing captions become empty lines."""
    entries = write_coco(tmp_path, train=1, restval=0, dev=2, test=1)
    content = karpathy(entries, ["train", "val", "val", "test"])
    content["images"][2]["sentences"].append({"tokens": ["a", "sixth"], "raw": "A sixth."})
    (tmp_path / "dataset_coco.json").write_text(json.dumps(content))
    assert [len(texts) for _, _, texts in told(coco(), "dev", tmp_path)] == [6, 6]
    assert told(coco(), "dev", tmp_path)[0][2][5] == ""
    _, _ = make(coco(), tmp_path)
    data = tmp_path / "data"
    assert (data / "caption_coco-dev.targets.5.txt").read_text() == "\na sixth\n"


def test_what_is_missing_or_damaged_is_counted(tmp_path):
    entries = list(images(9))
    content = karpathy(entries, ["train"] * 5 + ["val"] * 2 + ["test"] * 2)
    content["images"][4]["sentences"] = []
    (tmp_path / "dataset_coco.json").write_text(json.dumps(content))
    rows = [table_line(image, features) for image, features, _ in entries if image != 1001]
    rows[1] = rows[1][:-30] + "\n"  # image 1002
    (tmp_path / "part.tsv.0").write_text("".join(rows[:4]))
    (tmp_path / "part.tsv.1").write_text("".join(rows[4:]))
    manifest, lines = make(coco(), tmp_path)
    split = manifest.splits["train"]
    assert split.drops == {"damaged_features": 5, "missing_features": 5, "no_caption": 1}
    assert split.first["missing_features"] == "image 1001"
    assert (split.samples, split.read) == (10, 21)
    assert split.floats["inputs"]["sequences"] == 2
    assert "dropped 5: no features (first: image 1001)" in lines
    assert "dropped 1: no caption (first: image 1004)" in lines
    assert "vectors of 12 x float16 in 2 sequences" in lines


def test_evaluation_sets_are_complete_or_the_user_says_so(tmp_path):
    entries = write_coco(tmp_path, train=2, restval=0, dev=3, test=1, table=False)
    (tmp_path / "cocobu_att" / f"{entries[3][0]}.npz").unlink()
    with pytest.raises(UserError, match=r"1 of the 3 images of caption_coco's dev split have no features, .* 1003"):
        coco().prepare(tmp_path)
    manifest, _ = make(coco(missing="drop"), tmp_path)
    assert manifest.splits["dev"].samples == 2
    assert manifest.splits["dev"].drops == {"missing_features": 1}
    for image, *_ in (entries[0], entries[1], entries[4]):  # of train, too: dev is looked at first
        (tmp_path / "cocobu_att" / f"{image}.npz").write_bytes(b"PK")
    with pytest.raises(UserError, match=r"1004.*Samples of dev and test sets are never dropped"):
        make(coco(), tmp_path, overwrite=True) if (
            np.savez(tmp_path / "cocobu_att" / f"{entries[3][0]}.npz", feat=entries[3][1]) is None
        ) else None


def test_only_the_target_has_a_subword_model(tmp_path):
    write_coco(tmp_path)
    made, _ = make(coco(), tmp_path, joint_vocab=False)
    assert made.vocab["source"] == made.vocab["target"]
    (tmp_path / "other.model").write_bytes(sentencepiece_model.train(["other text"] * 9, 320))
    models = [str(tmp_path / "other.model"), str(tmp_path / "data" / made.vocab["target"]["file"])]
    given = {"vocab_size": None, "subword_model": ",".join(models)}
    again, _ = make(coco(), tmp_path, overwrite=True, **given)
    assert again.vocab["source"] == again.vocab["target"] == made.vocab["target"]
    assert "nothing that was given now differs" in make(coco(), tmp_path, **given)[1]


def test_mistakes_are_explained(tmp_path):
    with pytest.raises(UserError, match=r"No features of images are in"):
        coco().feature_paths("train", tmp_path)
    write_coco(tmp_path)
    with pytest.raises(UserError, match=r"have 12 numbers a region, not 2,048. Say so: .*feature_size=12"):
        registry.problem("caption_coco").prepare(tmp_path)
    with pytest.raises(UserError, match="has no text=token"):
        coco(text="token")
    with pytest.raises(UserError, match="has no storage=float8"):
        coco(storage="float8")
    for setting in ("duplicates=true", "identical=true", "numbers=true", "language=true", "max_word_ratio=2"):
        with pytest.raises(UserError, match=f"--cleaning: {setting.partition('=')[0]} compares pairs of texts"):
            make(coco(), tmp_path, cleaning=setting)
    with pytest.raises(UserError, match="not a translation problem"):
        registry.problem("caption_coco_rev")
    (tmp_path / "dataset_coco.json").write_text('{"images": [{"split": "trian", "cocoid": 1, "sentences": []}]}')
    with pytest.raises(UserError, match="image 1 is of the split 'trian'; known are train, restval"):
        coco().prepare(tmp_path)
    (tmp_path / "dataset_coco.json").write_text("[1, 2]")
    with pytest.raises(UserError, match="not in the format of Karpathy"):
        coco().prepare(tmp_path)
    (tmp_path / "dataset_coco.json").unlink()
    with pytest.raises(UserError, match=r"No such file: .*dataset_coco.json.*docs/captioning.md"):
        coco().prepare(tmp_path)


def test_features_of_other_images(tmp_path):
    write_coco(tmp_path)
    other = tmp_path / "other.tsv"
    other.write_text(table_line("x7", np.ones([2, SIZE])))
    with pytest.raises(UserError, match=r"None of the 10 images .* called 1000, 1001, 1002, ..., the features x7"):
        coco(features=str(other)).prepare(tmp_path)


def test_own_files(tmp_path):
    entries = list(images(6))
    np.savez(tmp_path / "all.npz", **{f"img{image}": features for image, features, _ in entries})
    for split, part in (("train", entries[:4]), ("dev", entries[4:])):
        lines = [f"img{image}\t{text}\n" for image, _, captions in part for text in captions[: 1 + image % 3]]
        (tmp_path / f"{split}.txt").write_text("".join(lines))
    options = {"train": str(tmp_path / "train.txt"), "dev": str(tmp_path / "dev.txt"), "feature_size": SIZE}
    problem = registry.problem("caption_features", **options, features=str(tmp_path / "all.npz"))
    manifest, _ = make(problem, tmp_path)
    assert {name: split.samples for name, split in manifest.splits.items()} == {"train": 8, "dev": 2}
    assert manifest.splits["train"].floats["inputs"]["storage"] == "float32"
    with pytest.raises(UserError, match=r"not given: train, dev, features"):
        registry.problem("caption_features").prepare(tmp_path)
    (tmp_path / "dev.txt").write_bytes(b"img1004\tok\nimg1004\tcaf\xe9\n")
    with pytest.raises(UserError, match=r"dev.txt, line 2: not UTF-8"):
        registry.problem("caption_features", **options, features=str(tmp_path / "all.npz")).prepare(tmp_path)
    (tmp_path / "dev.txt").write_text("img1004 without a tab\n")
    with pytest.raises(UserError, match=r"dev.txt, line 1: not 'name TAB text'"):
        registry.problem("caption_features", **options, features=str(tmp_path / "all.npz")).prepare(tmp_path)


def test_other_features_are_noticed(tmp_path):
    """Another folder of features, or other files in the same folder, are noticed like any other raw file."""
    entries = list(images(6))
    for folder, factor in (("one", 1.0), ("two", 100.0)):
        (tmp_path / folder).mkdir()
        for image, features, _ in entries:
            np.savez(tmp_path / folder / f"img{image}.npz", feat=factor * features)
    for split, part in (("train", entries[:4]), ("dev", entries[4:])):
        (tmp_path / f"{split}.txt").write_text("".join(f"img{image}\t{texts[0]}\n" for image, _, texts in part))
    options = {"train": str(tmp_path / "train.txt"), "dev": str(tmp_path / "dev.txt"), "feature_size": SIZE}

    def made(folder, **settings):
        problem = registry.problem("caption_features", **options, features=str(tmp_path / folder))
        return make(problem, tmp_path, **settings)[1]

    made("one", target_steps="none")
    assert "nothing to do" in made("one")
    (tmp_path / "copy").symlink_to(tmp_path / "one")
    assert "nothing to do" in made("copy")
    with pytest.raises(UserError, match=r"two is not the one that train was made from"):
        made("two")
    (tmp_path / "one" / f"img{entries[0][0]}.npz").unlink()
    with pytest.raises(UserError, match=r"one is not the one that train was made from"):
        made("one")


def test_a_truecaser_learns_from_captions_alone(tmp_path):
    write_coco(tmp_path)
    _, said = make(coco(), tmp_path, source_steps="moses_tokenize,truecase", target_steps="moses_tokenize,truecase")
    assert "target text: moses_tokenize,truecase" in said


def test_nothing_is_read_for_the_vocabulary(tmp_path, monkeypatch):
    """The features of each image are read only once, independent of the numbers of passes and captions."""
    write_coco(tmp_path, train=3, restval=0, dev=1, test=1)
    reads = []
    init = Lazy.__init__

    def counting(self, key, read):
        init(self, key, lambda: (reads.append(key), read())[1])

    monkeypatch.setattr(Lazy, "__init__", counting)
    make(coco(), tmp_path)
    assert sorted(reads) == ["1000", "1001", "1002", "1003", "1004"]


# --- files to decode ---


def test_sources_of_every_kind_of_file(tmp_path):
    entries = list(images(3))
    expected = [(str(image), features) for image, features, _ in entries]
    (tmp_path / "a.tsv").write_text("".join(table_line(image, features) for image, features, _ in entries))
    np.savez(tmp_path / "b.npz", **dict(expected))
    (tmp_path / "c").mkdir()
    for name, features in expected:
        np.savez(tmp_path / "c" / f"{name}.npz", feat=features)
    spaced = (tmp_path / "a.tsv").read_text().replace("\t", " \t", 1)
    (tmp_path / "spaced.tsv").write_text(spaced)
    index = FeatureIndex.of([tmp_path / "spaced.tsv"])
    np.testing.assert_array_equal(index.reader(expected[0][0])(), expected[0][1])
    for place in ("a.tsv", "spaced.tsv", "b.npz", "c"):
        found = read_sources(tmp_path / place, SIZE)
        assert [str(source) for source in found] == [name for name, _ in expected]
        for source, (_, features) in zip(found, expected, strict=True):
            np.testing.assert_array_equal(source.rows, features)
    together = np.zeros([2, 9, SIZE], np.float32)
    together[0, :3], together[1] = 1.0, 2.0
    np.save(tmp_path / "d.npy", together)
    assert [source.rows.shape for source in read_sources(tmp_path / "d.npy", SIZE)] == [(3, SIZE), (9, SIZE)]
    np.save(tmp_path / "e.npy", together[0, :3])
    assert [str(source) for source in read_sources(tmp_path / "e.npy")] == ["e"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"a dog\n", "no file of features: the run reads feature vectors, not lines of text"),
        ("a.tsv", b"1\t2\t3\n", "line 1: 3 tab-separated columns where image_id"),
        ("a.tsv", b"7\t1\t1\t1\t\t!!!!\n", "line 1: the features of 7 are damaged"),
        ("a.npz", b"PK\x03\x04", "cannot be read as NumPy's .npz"),
        ("a.npy", b"", "cannot be read as NumPy's .npy"),
    ],
)
def test_damaged_sources(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_sources(tmp_path / name, SIZE)


def test_an_archive_of_many_sources_is_opened_once(tmp_path, monkeypatch):
    opened, load = [], np.load
    monkeypatch.setattr(np, "load", lambda path, **options: (opened.append(path), load(path, **options))[1])
    for value in (1, 2):  # the file changes
        np.savez(tmp_path / "a.npz", **{str(rows): np.full([rows, SIZE], value, np.float32) for rows in range(1, 5)})
        os.utime(tmp_path / "a.npz", ns=(value, value))
        index = FeatureIndex.of([tmp_path / "a.npz"])
        del opened[:]
        assert [index.reader(name)().sum() for name in "4132"] == [value * SIZE * rows for rows in (4, 1, 3, 2)]
        assert len(opened) == 1


def test_sources_of_another_size(tmp_path):
    np.save(tmp_path / "a.npy", np.ones([2, 7], np.float32))
    with pytest.raises(UserError, match=r"a is float32 of shape \[2, 7\], but float \[regions, 12\] is wanted"):
        read_sources(tmp_path / "a.npy", SIZE)
    with pytest.raises(UserError, match="No such file"):
        read_sources(tmp_path / "b.npy", SIZE)
    np.save(tmp_path / "number.npy", np.float32(3))
    with pytest.raises(UserError, match=r"float32 of shape \[\], but float \[regions, F\] is wanted"):
        read_sources(tmp_path / "number.npy")


# --- scores ---


def test_cider_and_rouge_are_the_librarys():
    cider = pytest.importorskip("pycocoevalcap.cider.cider")
    from pycocoevalcap.rouge.rouge import Rouge

    from t2t_ext.evaluation import protocols

    captions = [texts for _, _, texts in images(12)]
    hypotheses = [texts[index % 5] for index, texts in enumerate(captions[1:] + captions[:1])]
    hypotheses[:4] = [texts[4] for texts in captions[:4]]
    references = [list(each) for each in zip(*(texts[:4] for texts in captions), strict=True)]
    references[3][5] = ""  # one image with one reference less than the others
    kept = {number: [text for text in texts[:4]] for number, texts in enumerate(captions)}
    kept[5] = kept[5][:3]
    given = {number: [text] for number, text in enumerate(hypotheses)}
    found = {score.name: score.value for score in protocols.score("coco", hypotheses, references)}
    assert found["CIDEr"] == pytest.approx(100 * cider.Cider().compute_score(kept, given)[0])
    assert found["COCO-ROUGE-L"] == pytest.approx(100 * Rouge().compute_score(kept, given)[0])
    shouted = [f"{text.capitalize()} ." for text in hypotheses]
    again = {score.name: score.value for score in protocols.score("coco", shouted, references)}
    assert again == pytest.approx(found)
