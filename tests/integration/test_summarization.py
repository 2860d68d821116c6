"""Tests of summarization from files to ROUGE: CNN/Daily Mail in each published form, and the user's own files."""

import hashlib
import importlib.util
import json
import random

import pytest

from t2t_ext import registry
from t2t_ext.bin import datagen, decoder, trainer
from t2t_ext.data.datasets import manifest
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.errors import UserError

NAME = "summarize_cnn_dailymail"
HOSTS = {"cnn": "http://web.archive.org/web/1id_/http://www.cnn.com/{}.html",
         "dailymail": "http://web.archive.org/web/1id_/http://www.dailymail.co.uk/news/article-{}.html"}  # fmt: skip
SPLITS = {"train": 20, "val": 3, "test": 3}
WORDS = ["the", "police", "in", "London", "said", "that", "a", "man", "won", "why", "it", "isn't"]


def story(seed, words=30):
    """Returns an article's lines and its two highlights, the first without a full stop."""
    rng = random.Random(seed)
    article = [
        "(CNN) -- " + " ".join(rng.choices(WORDS, k=words)) + ".",
        "a caption without a full stop",
        "\u201cNow\u201d",
    ]
    return article, [f"{rng.choice(WORDS).title()} won day {seed} ", "It isn't over!"]


def write_stories(root, *, highlights=True):
    """Writes stories in the published layout and returns {split: story files in the order of its URL list}."""
    paths = {}
    for split, count in SPLITS.items():
        urls = [HOSTS["cnn" if i % 2 else "dailymail"].format(f"{split}-{i}") for i in range(count)]
        paths[split] = []
        for i, url in enumerate(urls):
            folder = root / ("cnn" if "cnn.com" in url else "dailymail") / "stories"
            folder.mkdir(parents=True, exist_ok=True)
            article, summary = story(sum(map(ord, url)) % 1000)
            lines = [*article, *(f"@highlight\n\n{each}" for each in summary if highlights)]
            paths[split].append(folder / f"{hashlib.sha1(url.encode()).hexdigest()}.story")
            paths[split][i].write_text("\n\n".join(lines) + "\n")
        (root / f"all_{split}.txt").write_text("".join(url + "\n" for url in urls))
    return paths


def generate(root, *flags, problem=NAME, status=0):
    given = [f"--problem={problem}", f"--data_dir={root / 'data'}", f"--tmp_dir={root}", "--num_processes=1"]
    assert datagen.main([*given, "--vocab_size=330", *flags]) == status
    return manifest.Manifest.load(manifest.manifest_path(root / "data", problem)) if not status else None


def texts(root, split, problem=NAME):
    sources, (references,) = GeneratedData.open(registry.problem(problem), root / "data").texts(split)
    return sources, references


def written(path):
    """Returns a story file's article and its tagged highlights, one line each, by the rules of See et al."""
    article, *highlights = path.read_text().split("@highlight")
    full = lambda line: line.strip() + ("" if line.strip()[-1] in ".!?'`\")\u2019\u201d" else ".")  # noqa: E731
    return " ".join(map(full, article.split("\n\n")[:-1])), " ".join(f"<t> {full(each)} </t>" for each in highlights)


def test_stories(tmp_path, capsys):
    paths = write_stories(tmp_path)
    paths["train"][3].unlink()
    paths["train"][4].write_text("@highlight\n\nOnly this\n")
    paths["train"][5].write_text("Only an article.\n")
    found = generate(tmp_path, "--problem_options=layout=stories,source_words=12,target_words=5")
    train = found.splits["train"]
    assert train.drops == {"missing_story": 1, "empty_article": 1, "no_highlights": 1}
    assert (train.read, train.samples) == (20, 17)
    assert "dropped 1: a story whose file is not there (first: " in capsys.readouterr().out
    assert texts(tmp_path, "dev") == tuple(map(list, zip(*map(written, paths["val"]), strict=True)))
    assert texts(tmp_path, "test")[1][0].endswith("</t> <t> It isn't over! </t>")
    # Articles are truncated after tokenization; summaries are truncated only in the training split.
    encoder = GeneratedData.open(registry.problem(NAME), tmp_path / "data").text_encoders()
    (article,) = encoder[0].prepare(texts(tmp_path, "dev")[0][:1])
    assert len(article.split()) == 12
    assert article == article.lower()
    (summary,) = encoder[1].prepare(texts(tmp_path, "dev")[1][:1])
    assert summary.endswith(" . </t> <t> it isn &apos;t over ! </t>")
    assert encoder[1].restore([summary])[0].endswith(". it isn't over!")
    problem = registry.problem(NAME, layout="stories", target_words="5")
    cut = next(iter(problem.samples("train", tmp_path)))["targets"]
    assert [len(each.split()) for each in cut.removeprefix("<t> ").removesuffix(" </t>").split(" </t> <t> ")] == [4, 1]


def test_what_is_wrong_with_stories(tmp_path, capsys):
    options = "--problem_options=layout=stories"
    generate(tmp_path, options, status=2)
    assert "There are no stories of cnn" in capsys.readouterr().err
    paths = write_stories(tmp_path)
    (tmp_path / "all_val.txt").rename(tmp_path / "val.txt")
    generate(tmp_path, options, status=2)
    assert "all_val.txt" in capsys.readouterr().err
    (tmp_path / "val.txt").rename(tmp_path / "all_val.txt")
    paths["test"][1].unlink()
    generate(tmp_path, options, status=2)
    assert "all_test.txt, line 2: the story of " in capsys.readouterr().err
    with (tmp_path / "all_test.txt").open("a") as file:
        file.write("no url\n")
    generate(tmp_path, options, status=2)
    assert "'no url' is no URL" in capsys.readouterr().err
    # With one publisher, the URLs of the other are left out.
    found = registry.problem(NAME, layout="stories", publishers="cnn")
    assert found.count("train", tmp_path) == 10
    for given, message in [
        ({"layout": "storys"}, "Did you mean 'stories'"),
        ({"layout": "opennmt", "tokenized": True}, "tokenized goes with"),
        ({"source_words": -1}, "source_words=-1"),
        ({"publishers": "cnm", "layout": "stories"}, "Did you mean 'cnn'"),
    ]:
        with pytest.raises(UserError, match=message):
            registry.problem(NAME, **given)


@pytest.mark.parametrize(
    ("layout", "endings", "summary"),
    [
        ("opennmt", ("txt.src", "txt.tgt.tagged"), "<t> a man {} won . </t> <t> it is n't over . </t>"),
        ("plain", ("source", "target"), "a man {} won .<q>it is n't over ."),
    ],
)
def test_files_line_by_line(tmp_path, layout, endings, summary, capsys):
    generate(tmp_path, f"--problem_options=layout={layout}", status=2)
    assert f"val.{endings[0]}" in capsys.readouterr().err
    for split, count in SPLITS.items():
        (tmp_path / f"{split}.{endings[0]}").write_text(
            "".join(f"-lrb- cnn -rrb- {i} " + "won it " * 300 + "\n" for i in range(count))
        )
        (tmp_path / f"{split}.{endings[1]}").write_text("".join(summary.format(i) + "\n" for i in range(count)))
    more = ",tokenized=true" if layout == "plain" else ""
    found = generate(tmp_path, f"--problem_options=layout={layout}{more}")
    assert found.splits["train"].samples == 20  # no summary is too short for its article
    assert texts(tmp_path, "dev")[1][1] == "<t> a man 1 won . </t> <t> it is n't over . </t>"
    source, target = GeneratedData.open(registry.problem(NAME), tmp_path / "data").text_encoders()
    assert len(source.prepare(texts(tmp_path, "dev")[0][:1])[0].split()) == 400
    assert target.prepare(texts(tmp_path, "dev")[1][1:2]) == texts(tmp_path, "dev")[1][1:2]


@pytest.mark.skipif(not importlib.util.find_spec("tensorflow_datasets"), reason="needs t2t_ext[summarization]")
def test_tensorflow_datasets(tmp_path, monkeypatch, capsys, without_package):
    import tensorflow_datasets as tfds

    paths = write_stories(tmp_path / "raw")
    lists = {f"{split}_urls": str(tmp_path / "raw" / f"all_{split}.txt") for split in SPLITS}
    found = {"cnn_stories": str(tmp_path / "raw"), "dm_stories": str(tmp_path / "raw"), **lists}
    monkeypatch.setattr(tfds.download.DownloadManager, "download_and_extract", lambda self, urls: found)
    generate(tmp_path)
    # TensorFlow Datasets has its own order.
    dev = set(zip(*texts(tmp_path, "dev"), strict=True))
    assert dev == set(map(written, paths["val"]))
    assert "20 samples" in capsys.readouterr().out
    assert (tmp_path / "tensorflow_datasets" / "cnn_dailymail").is_dir()
    without_package("tensorflow_datasets")
    with pytest.raises(UserError, match=r"t2t_ext\[summarization\].*layout=stories"):
        registry.problem(NAME, tfds_dir=str(tmp_path / "elsewhere")).prepare(tmp_path)


def test_from_the_users_files_to_rouge(tmp_path, capsys):
    pytest.importorskip("rouge_score")
    rng = random.Random(1)
    for split, count in SPLITS.items():
        rows = [
            (" ".join(rng.choices(WORDS, k=30)), f"<s> A man won {i} . </s> <s> It is over . </s>")
            for i in range(count)
        ]
        for side, column in (("source", 0), ("target", 1)):
            (tmp_path / f"{split}.{side}").write_text("".join(row[column] + "\n" for row in rows))
    files = [
        f"--{ours}_{side}={tmp_path / f'{theirs}.{side}'}"
        for ours, theirs in (("train", "train"), ("dev", "val"), ("test", "test"))
        for side in ("source", "target")
    ]
    found = generate(
        tmp_path, *files, "--target_language=en", "--problem_options=source_words=9", problem="summarize_text"
    )
    assert found.settings["source_steps"] == "first_9_words"
    common = [f"--output_dir={tmp_path / 'run'}"]
    training = ["--problem=summarize_text", f"--data_dir={tmp_path / 'data'}", "--model=transformer",
                "--hparams_set=transformer_test", "--train_steps=2", "--local_eval_frequency=2",
                "--best_checkpoint_metric=ROUGE-Lsum",
                "--decode_hparams=beam_size=1,max_length_ratio=0,max_length_offset=8"]  # fmt: skip
    assert trainer.main([*common, *training]) == 0
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert {"bleu", "ROUGE-1", "ROUGE-2", "ROUGE-L", "ROUGE-Lsum"} <= set(logged[-1])
    assert ", ROUGE-Lsum " in capsys.readouterr().err
    searching = (
        "beam_size=3,max_length_ratio=0,max_length_offset=12,min_length=4,no_repeat_ngram_size=3,"
        "no_repeat_ngram_unit=words,no_repeat_ngram_ignore=. </t> <t>,coverage_penalty=5,coverage_kind=summary,"
        "stepwise_penalty=true,alpha=0.9"
    )
    output = [f"--decode_to_file={tmp_path / 'out.txt'}", f"--nbest_file={tmp_path / 'out.jsonl'}"]
    assert decoder.main([*common, "--split=test", f"--decode_hparams={searching}", *output]) == 0
    printed = capsys.readouterr().out
    assert printed.count("ROUGE-") == 4
    best = [json.loads(line)["hypotheses"][0] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(best) == 3
    for each in best:
        assert "<t>" not in each["text"]
        assert each["log_prob"] <= 0
        assert each["score"] <= each["log_prob"] / ((5 + each["length"]) / 6) ** 0.9 + 1e-4
