"""Tests of problems on the user's files: which belong together, what is held out, how missing files are reported."""

import gzip
import json
import zipfile

import pytest

from t2t_ext import registry
from t2t_ext.data.corpora.readers import ReadReport
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.data.generation.generate import generate
from t2t_ext.errors import UserError


def parallel_text(**options):
    return registry.problem("translate_parallel_text", **{name: str(value) for name, value in options.items()})


@pytest.fixture
def lines(tmp_path):
    """Returns a function (name, count or lines) -> path of a file with these lines, or `NAME 1`, `NAME 2`, ..."""

    def write(name, content):
        if isinstance(content, int):
            content = [f"{name} {i}" for i in range(1, content + 1)]
        path = tmp_path / name
        path.write_text("".join(f"{line}\n" for line in content), encoding="utf-8")
        return path

    return write


def pairs(problem, split):
    problem.prepare(".")
    problem.reading = ReadReport(strict=split != "train")
    found = [(sample["inputs"], sample["targets"]) for sample in problem.checked_samples(split, ".")]
    assert problem.count(split, ".") == len(found)
    return found


def test_files_by_options(lines):
    problem = parallel_text(
        train_source=lines("a", 3), train_target=lines("b", 3), dev_source=lines("c", 2), dev_target=lines("d", 2),
        test_source=lines("e", 1), test_target=lines("f", 1), source_language="de", target_language="en",
    )  # fmt: skip
    assert list(problem.splits) == ["train", "dev", "test"]
    assert pairs(problem, "train") == [("a 1", "b 1"), ("a 2", "b 2"), ("a 3", "b 3")]
    assert pairs(problem, "dev") == [("c 1", "d 1"), ("c 2", "d 2")]
    assert pairs(problem, "test") == [("e 1", "f 1")]
    assert (problem.source_language, problem.target_language) == ("de", "en")


def test_a_path_with_a_comma_is_explained(lines):
    with pytest.raises(UserError, match=r"--train_source=.*a, b: commas separate files here"):
        parallel_text(train_source=lines("a, b", 3), train_target=lines("c", 3))


def test_several_training_files_of_several_kinds(lines, tmp_path):
    zipped = tmp_path / "z.gz"
    zipped.write_bytes(gzip.compress("ä 1\nä 2\n".encode()))
    problem = parallel_text(
        train_source=f"{lines('a', 1)},{zipped}",
        train_target=f"{lines('b', 1)},{lines('c', 2)}",
        dev_source=lines("x.tsv", ["s\tt"]),
    )
    assert list(problem.splits) == ["train", "dev"]
    assert pairs(problem, "train") == [("a 1", "b 1"), ("ä 1", "c 1"), ("ä 2", "c 2")]
    assert pairs(problem, "dev") == [("s", "t")]


def test_several_references(lines, tmp_path):
    problem = parallel_text(
        train_source=lines("a", 30), train_target=lines("b", 30),
        dev_source=lines("c", 2), dev_target=f"{lines('d', 2)},{lines('e', 2)}",
    )  # fmt: skip
    assert pairs(problem, "dev") == [("c 1", ["d 1", "e 1"]), ("c 2", ["d 2", "e 2"])]
    generate(problem, tmp_path / "data", tmp_path, vocab_size=400, num_processes=1, progress=False)
    assert GeneratedData.open(problem, tmp_path / "data").texts("dev") == (
        ["c 1", "c 2"],
        [["d 1", "d 2"], ["e 1", "e 2"]],
    )


def test_a_dev_set_is_held_out_where_none_is_given(lines):
    files = {
        "train_source": f"{lines('a', 60)},{lines('c', 40)}",
        "train_target": f"{lines('b', 60)},{lines('d', 40)}",
    }
    every = [(f"a {i}", f"b {i}") for i in range(1, 61)] + [(f"c {i}", f"d {i}") for i in range(1, 41)]
    problem = parallel_text(**files)
    train, dev = pairs(problem, "train"), pairs(problem, "dev")
    assert len(dev) == 5
    assert not set(dev) & set(train)
    assert sorted(dev + train) == sorted(every)
    assert pairs(parallel_text(**files), "dev") == dev
    assert len(pairs(registry.problem("translate_parallel_text", **files, dev_lines=30), "train")) == 70


def test_held_out_lines_that_are_unusable_are_left_out(tmp_path, lines):
    bad = tmp_path / "bad"
    bad.write_bytes(b"\xff\n" * 50)
    tsv = lines("x.tsv", ["only one column", "\tno source"] * 25)
    problem = parallel_text(train_source=bad, train_target=lines("b", 50))
    assert problem.count("dev", ".") == 2
    problem.reading = ReadReport(strict=True)
    assert list(problem.samples("dev", ".")) == []
    assert problem.reading.drops == {"invalid_utf8": 2}
    problem = registry.problem("translate_parallel_text", train_source=str(tsv), dev_lines=20)
    problem.reading = ReadReport(strict=True)
    assert list(problem.samples("dev", ".")) == []
    assert set(problem.reading.drops) == {"wrong_columns", "empty"}
    assert problem.reading.drops.total() == 20


def test_too_few_lines_to_hold_any_out(lines):
    problem = parallel_text(train_source=lines("a", 1), train_target=lines("b", 1))
    with pytest.raises(UserError, match="--dev_source=FILE --dev_target=FILE"):
        problem.count("train", ".")


def test_an_empty_training_file_is_called_empty(lines):
    problem = parallel_text(train_source=lines("a", 0), train_target=lines("b", 0))
    with pytest.raises(UserError, match=r"The training text is empty \(.*/a, .*/b\)"):
        problem.count("train", ".")


def test_plain_text_without_its_translation_names_the_flag(lines, tmp_path):
    call = {"num_processes": 1, "progress": False}
    problem = parallel_text(train_source=lines("a", 500))
    with pytest.raises(UserError, match=r"/a has no tabs in its first 100 lines: give --train_target=FILE"):
        generate(problem, tmp_path / "data", tmp_path, **call)
    some = lines("some", ["b\tc", *["", "b"] * 4])
    with pytest.raises(UserError, match=r"/some has a tab in only 1 of its first 5 lines: give --train_target=FILE"):
        generate(parallel_text(train_source=some), tmp_path / "data", tmp_path, **call)
    problem = parallel_text(train_source=lines("a", 50), train_target=lines("b", 50), dev_source=lines("c", 5))
    with pytest.raises(UserError, match=r"/c has no tabs in its first 5 lines: give --dev_target=FILE"):
        generate(problem, tmp_path / "data", tmp_path, **call)
    problem = parallel_text(train_source=lines("wide", ["b\tc\td"] * 50), dev_source=lines("tsv", ["b\tc"]))
    with pytest.raises(UserError, match=r"\(wrong number of columns: 50\).*/wide:1: 3 tab-separated"):
        generate(problem, tmp_path / "data", tmp_path, **call)


def test_a_bad_byte_in_dev_is_found_before_the_vocabulary_is_trained(lines, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "t2t_ext.data.generation.vocabulary.train_vocabulary", lambda *args, **more: pytest.fail("trained")
    )
    (tmp_path / "c").write_bytes(b"good\n\xff\n")
    problem = parallel_text(
        train_source=lines("a", 9), train_target=lines("b", 9), dev_source=tmp_path / "c", dev_target=lines("d", 2)
    )
    with pytest.raises(UserError, match="/c, line 2: invalid UTF-8"):
        generate(problem, tmp_path / "new" / "data", tmp_path, num_processes=1, progress=False)
    assert not (tmp_path / "new").exists()


def test_unequal_lines(lines, tmp_path):
    problem = parallel_text(train_source=lines("a", 3), train_target=lines("b", 2))
    with pytest.raises(UserError, match=rf"{tmp_path}/a: 3, {tmp_path}/b: 2"):
        generate(problem, tmp_path / "data", tmp_path, num_processes=1, progress=False)
    assert not (tmp_path / "data").exists()


def test_all_missing_files_are_listed(lines, tmp_path):
    problem = parallel_text(train_source=tmp_path / "no", train_target=lines("b", 2), test_source=tmp_path / "nor.tsv")
    with pytest.raises(UserError, match=rf"No such file: {tmp_path}/no, {tmp_path}/nor\.tsv\."):
        problem.prepare(".")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_target": "b"}, "--train_target is given without --train_source"),
        ({"train_source": "a,b", "train_target": "c"}, r"names 2 file\(s\) and --train_target 1"),
        ({"test_source": "a,b", "test_target": "c"}, r"--test_source names 2"),
        ({"train_source": "a", "dev_source": "b", "dev_lines": 5}, "leave it or --dev_source out"),
    ],
)
def test_options_that_do_not_go_together(options, message):
    with pytest.raises(UserError, match=message):
        registry.problem("translate_parallel_text", **options)


def test_columns_of_files_without_any(lines):
    problem = parallel_text(train_source=lines("a", 9), train_target=lines("b", 9), columns="2,1")
    with pytest.raises(UserError, match=r"columns=2,1 says which columns .* no file that is named has columns"):
        problem.prepare(".")


def test_what_is_held_out_keeps_its_references(lines):
    table = lines("t.tsv", [f"a {i}\tb {i}\tc {i}" for i in range(60)])
    problem = parallel_text(train_source=table, columns="1,2,3", dev_lines=3)
    assert problem.multiple_references
    (source, targets), *_ = pairs(problem, "dev")
    assert targets == [source.replace("a", "b"), source.replace("a", "c")]


def test_dropped_pairs_are_named_by_file_and_line(lines, tmp_path):
    texts = {side: [f"{side} {i}" for i in range(1, 61)] for side in ("a", "b")}
    files = {"train_source": f"{lines('a', 60)},{lines('c', 9)}", "train_target": f"{lines('b', 60)},{lines('d', 9)}"}
    problem = parallel_text(**files, dev_lines=20)
    held_out = problem._held_out_lines()
    unreadable, first, again, empty = [line for line in range(20, 61) if line not in held_out][-4:]
    assert min(held_out) < unreadable
    for side, column in texts.items():
        column[again - 1] = column[first - 1]
        column[empty - 1] = " " if side == "b" else "text"
        column[held_out[1] - 1] = " "
        lines(side, column)
    path = tmp_path / "a"
    path.write_bytes(path.read_bytes().replace(f"a {unreadable}\n".encode(), b"\xff\n"))
    call = {"vocab_size": 350, "num_processes": 1, "progress": False, "cleaning": "duplicates=true"}
    manifest = generate(problem, tmp_path / "data", tmp_path, **call)
    assert manifest.splits["train"].first == {
        "invalid_utf8": f"{path}:{unreadable}",
        "duplicate": f"a:{again} repeats a:{first}",
        "empty": f"a:{empty}: text ||| ",
    }
    assert manifest.splits["dev"].first == {"empty": f"{path}:{held_out[1]}"}


def test_a_changed_line_is_counted_in_the_split_that_has_it(lines, tmp_path):
    source, target = lines("a", 60), lines("b", 60)
    source.write_bytes(b"\xef\xbb\xbf" + source.read_bytes().replace(b"\n", b"\r\n"))
    problem = parallel_text(train_source=source, train_target=target, dev_lines=20)
    call = {"vocab_size": 350, "num_processes": 1, "progress": False}
    splits = generate(problem, tmp_path / "data", tmp_path, **call).splits
    assert {name: split.notes["carriage_returns"] for name, split in splits.items()} == {"train": 40, "dev": 20}
    assert sum(split.notes.get("byte_order_mark", 0) for split in splits.values()) == 1
    assert splits["dev"].first["carriage_returns"] == f"{source}:{problem._held_out_lines()[0]}"


def test_a_text_is_not_its_own_translation(lines, tmp_path):
    text, other = lines("a", 9), lines("b", 9)
    copied, link = lines("copy", [f"a {i}" for i in range(1, 10)]), tmp_path / "link"
    link.symlink_to(text)
    for target, said in ((text, "are the same file"), (link, "are the same file"), (copied, "copies of the same text")):
        with pytest.raises(UserError, match=rf"--train_source.*{said}.*name the translation with --train_target"):
            parallel_text(train_source=text, train_target=target).prepare(".")
    dev = {"dev_source": other, "dev_target": other}
    with pytest.raises(UserError, match="--dev_source and --dev_target are the same file"):
        parallel_text(train_source=text, train_target=other, **dev).prepare(".")
    archive = tmp_path / "both.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(text, "a")
        file.write(other, "b")
    parallel_text(train_source=f"{archive}:a", train_target=f"{archive}:b").prepare(".")
    with pytest.raises(UserError, match=r"are the same file, .*both\.zip:a"):
        parallel_text(train_source=f"{archive}:a", train_target=f"{archive}:a").prepare(".")


def test_another_file_of_the_same_archive_is_another_text(tmp_path):
    archive = tmp_path / "c.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("a.de", "a.en", "b.de", "b.en", "d.de", "d.en"):
            file.writestr(name, "".join(f"{name} {number}\n" for number in range(40)))

    def options(train, **more):
        return {"train_source": f"{archive}:{train}.de", "train_target": f"{archive}:{train}.en", **more}

    call = {"num_processes": 1, "progress": False}
    manifest = generate(parallel_text(**options("a")), tmp_path / "data", tmp_path, vocab_size=350, **call)
    assert generate(parallel_text(**options("a")), tmp_path / "data", tmp_path, **call) == manifest
    moved = archive.rename(tmp_path / "moved.zip")
    assert generate(parallel_text(train_source=f"{moved}:a.de"), tmp_path / "data", tmp_path, **call) == manifest
    moved.rename(archive)
    with pytest.raises(UserError, match=r"train_target was '.*c\.zip:a\.en', now '.*c\.zip:b\.en'"):
        generate(parallel_text(**options("b")), tmp_path / "data", tmp_path, **call)
    dev = {"dev_source": f"{archive}:d.de", "dev_target": f"{archive}:d.en"}
    with pytest.raises(UserError, match="dev was held out of the training text, now --dev_source is given"):
        generate(parallel_text(**options("a", **dev)), tmp_path / "data", tmp_path, **call)
    generate(parallel_text(**options("a", **dev)), tmp_path / "named", tmp_path, vocab_size=350, **call)
    with pytest.raises(UserError, match=r"dev was made from c\.zip, now --dev_source is not given"):
        generate(parallel_text(**options("a")), tmp_path / "named", tmp_path, **call)
    # Simulate a manifest of an earlier version, which did not record where the files are.
    path = tmp_path / "data" / "translate_parallel_text.manifest.json"
    content = json.loads(path.read_text())
    content["problem_options"] = {}
    path.write_text(json.dumps(content))
    assert generate(parallel_text(**options("b")), tmp_path / "data", tmp_path, **call).problem_options == {}


def test_without_any_file(lines, tmp_path):
    with pytest.raises(UserError, match="--train_source=FILE --train_target=FILE"):
        generate(parallel_text(), tmp_path / "data", tmp_path, progress=False)


def test_generated_data_need_no_files_any_more(lines, tmp_path):
    paths = {"train_source": lines("a", 50), "train_target": lines("b", 50)}
    dev = {"dev_source": lines("c", 3), "dev_target": lines("d", 3)}
    made = parallel_text(**paths, source_language="de", target_language="en")
    call = {"num_processes": 1, "progress": False}
    manifest = generate(made, tmp_path / "data", tmp_path, vocab_size=400, **call)
    assert generate(parallel_text(), tmp_path / "data", tmp_path, **call) == manifest
    data = GeneratedData.open(registry.problem("translate_parallel_text_rev"), tmp_path / "data")
    assert (data.source_language, data.target_language) == ("en", "de")
    # the same content under another name is the same data; other content is refused
    moved = {"train_source": lines("a2", [f"a {i}" for i in range(1, 51)]), "train_target": paths["train_target"]}
    assert generate(parallel_text(**moved), tmp_path / "data", tmp_path, **call) == manifest
    lines("a2", 50)
    with pytest.raises(UserError, match="a2 is not the a that train was made from"):
        generate(parallel_text(**moved), tmp_path / "data", tmp_path, **call)
    with pytest.raises(UserError, match="way: dev was held out of the training text, now --dev_source is given"):
        generate(parallel_text(**paths, **dev), tmp_path / "data", tmp_path, **call)
    generate(parallel_text(**paths, **dev), tmp_path / "named", tmp_path, vocab_size=400, **call)
    with pytest.raises(UserError, match="way: dev was made from c and d, now --dev_source is not given, which would"):
        generate(parallel_text(**paths), tmp_path / "named", tmp_path, **call)
    with pytest.raises(UserError, match="target_language was 'en', now 'fr'"):
        generate(parallel_text(target_language="fr"), tmp_path / "data", tmp_path, **call)
