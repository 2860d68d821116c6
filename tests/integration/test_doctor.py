"""Tests of the command t2t_ext-doctor on small corpora with known faults, and of data generation on Apache Beam."""

import gzip
import json

import pytest

from t2t_ext.bin import datagen, doctor

SENTENCES = [
    ("Das alte Haus steht am Fluss .", "The old house stands by the river ."),
    ("Die Katze schläft den ganzen Tag .", "The cat sleeps all day long ."),
    ("Morgen fahren wir nach Berlin .", "Tomorrow we are going to Berlin ."),
    ("Er liest jeden Abend ein Buch .", "He reads a book every evening ."),
]
ODD = [
    ("Das ist schÃ¶n .", "That is nice ."),  # encoding
    ("Ja .", "Yes , and here is a lot of text that nobody said in the other language ."),  # ratio
    ("gleich und gleich", "gleich und gleich"),  # identical
    ("Привет , как дела ?", "Hello , how are you ?"),  # script
    ("Wir sind 5 Leute .", "There are 6 of us ."),  # numbers
    ("", "Nothing ."),  # empty
    ("haus am FLUSS", "house by the river"),  # occurs in dev, apart from case
]
DEV = [("Haus am Fluss .", "House by the river ."), ("Ein neuer Satz .", "A new sentence .")]


def corpus():
    """Returns 120 good pairs, then the pairs of ODD, then repetitions of the first 10 good pairs."""
    good = [(f"{number} {s}", f"{number} {t}") for number in range(30) for s, t in SENTENCES]
    return good + ODD + good[:10]


def write(directory, pairs, split, opened=open, suffix=""):
    flags = []
    for side, name in enumerate(("source", "target")):
        path = directory / f"{split}.{name}{suffix}"
        with opened(path, "wt", encoding="utf-8") as file:
            file.write("".join(pair[side] + "\n" for pair in pairs))
        flags.append(f"--{split}_{name}={path}")
    return flags


@pytest.fixture
def flags(tmp_path):
    languages = ["--source_language=de", "--target_language=en"]
    train = write(tmp_path, corpus(), "train", gzip.open, ".gz")
    return [*train, *write(tmp_path, DEV, "dev"), *languages, "--vocab_size=350", "--num_processes=1"]


@pytest.fixture
def run(capsys):
    """Returns t2t_ext-doctor as a function (flags...) -> (exit status, standard output, standard error)."""

    def call(*flags):
        status = doctor.main([*flags])
        output = capsys.readouterr()
        return status, output.out, output.err

    return call


def test_the_whole_picture(run, flags, tmp_path):
    status, output, _ = run(*flags, f"--report={tmp_path / 'report'}")
    assert status == 0
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert report["splits"]["train"]["pairs"] == 137
    alone = {row["reason"]: row["alone"] for row in report["filters"]}
    assert {reason: count for reason, count in alone.items() if count} == {
        "empty": 1, "encoding": 1, "too_few_words": 1, "word_ratio": 2, "identical": 1, "script": 1, "numbers": 1,
        "test_overlap": 1, "length_ratio": alone["length_ratio"], "duplicate": 10,
    }  # fmt: skip
    in_order = {row["reason"]: row["in_order"] for row in report["filters"]}
    assert in_order["too_few_words"] == 0  # the only one is empty, so another filter drops it first
    assert report["left"] == 137 - sum(in_order.values()) == 120
    assert report["repeated"] == {"pair": 10, "source": 10, "target": 10}
    assert report["splits"]["dev"]["found_in_train"]["normalized pair"] == 1
    assert report["splits"]["dev"]["found_in_train"]["exact source"] == 0
    scripts = report["splits"]["train"]["sides"]["source"]["letters_by_script"]
    assert scripts["Cyrl"] == 13
    assert "damaged characters (encoding): train.source.gz:121: Das ist schÃ¶n . ||| That is nice ." in output
    assert "10, 7.30% (first: train.source.gz:128 repeats train.source.gz:1)" in output
    assert "--cleaning=duplicates=true" in output
    page = (tmp_path / "report" / "report.html").read_text()
    assert page.count("<svg") == 2
    assert "http" not in page
    assert (tmp_path / "report" / "lengths.png").read_bytes().startswith(b"\x89PNG")


def test_it_says_what_generation_drops(run, flags, tmp_path, capsys):
    cleaning = "--cleaning=encoding=true,duplicates=true,test_overlap=true,max_word_ratio=3"
    run(*flags, cleaning, f"--report={tmp_path / 'report'}")
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    expected = {row["reason"]: row["in_order"] for row in report["filters"] if row["in_order"]}
    assert datagen.main(["--problem=translate_parallel_text", *flags, cleaning, f"--data_dir={tmp_path / 'data'}"]) == 0
    assert "cleaning: encoding=True, max_word_ratio=3.0" in capsys.readouterr().out
    manifest = json.loads((tmp_path / "data" / "translate_parallel_text.manifest.json").read_text())
    train = manifest["splits"]["train"]
    assert train["drops"] == expected
    assert train["samples"] == report["left"]
    assert train["first"]["duplicate"] == "train.source.gz:128 repeats train.source.gz:1"
    # If the data exist, the doctor uses their subword model.
    assert "that of the data in" in run(*flags, f"--data_dir={tmp_path / 'data'}")[1]


def test_other_settings_than_those_of_existing_data_count_as_in_generation(run, flags, tmp_path, capsys):
    data = f"--data_dir={tmp_path / 'data'}"
    assert datagen.main(["--problem=translate_parallel_text", *flags, data]) == 0
    capsys.readouterr()
    flags = [*flags, "--source_steps=moses_tokenize"]
    outputs = [run(*flags)[1], run(*flags, data)[1]]
    assert outputs[0] == outputs[1]
    assert "for these figures only" in outputs[1]
    for wrong, message in (
        ("--source_steps=lowercas", "Did you mean 'lowercase'"),
        (f"--subword_model={tmp_path / 'data' / 'vocab.translate_parallel_text.350.model'}", "leave them out"),
    ):
        status, _, error = run(*flags, data, wrong)
        assert (status, message in error) == (2, True), error
    models = f"--subword_model={tmp_path / 'data' / 'vocab.translate_parallel_text.350.model'}"
    without_size = [flag for flag in flags if not flag.startswith("--vocab_size")]
    status, _, error = run("--problem=translate_parallel_text_rev", *without_size, models)
    assert (status, "--source_steps says how text is prepared, but a model is given" in error) == (2, True)
    status, _, error = run("--train_source=nope", "--train_target=nope", f"--report={tmp_path / 'new' / 'report'}")
    assert status == 2
    assert not (tmp_path / "new").exists()


def test_tags_tell_pairs_apart_and_are_subwords_as_in_generation(run, tmp_path):
    pairs = [(f"{number} {s}", f"{number} {t}") for number in range(20) for s, t in SENTENCES]
    train = write(tmp_path, pairs, "train")
    flags = [f"{flag},{flag.partition('=')[2]}" for flag in train]  # the same file under two tags
    flags += [*write(tmp_path, DEV, "dev"), "--train_tags=<news>,<web>", "--vocab_size=350", "--num_processes=1"]
    data, cleaning = f"--data_dir={tmp_path / 'data'}", "--cleaning=duplicates=true,max_subwords=25,min_words=8"
    assert datagen.main(["--problem=translate_parallel_text", *flags, cleaning, data]) == 0
    manifest = json.loads((tmp_path / "data" / "translate_parallel_text.manifest.json").read_text())
    assert run(*flags, cleaning, data, f"--report={tmp_path / 'report'}")[0] == 0
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    found = {row["reason"]: row["in_order"] for row in report["filters"] if row["in_order"]}
    assert found == manifest["splits"]["train"]["drops"]
    assert found.keys() == {"too_few_words", "too_long"}
    assert report["repeated"] == {"pair": 0, "source": 0, "target": 80}


@pytest.mark.slow
def test_the_same_picture_on_two_processes(run, flags, monkeypatch):
    from t2t_ext.data.doctor import diagnosis as examining

    one = run(*flags)[1]
    monkeypatch.setattr(examining, "PAIRS_PER_CHUNK", 50)
    assert run(*flags[:-1], "--num_processes=2")[1] == one


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--train_source="], "says what to examine"),
        (["--train_source=/no/such/file"], "No such file"),
        (["--cleaning=max_word=3"], "Did you mean"),
        (["--report=/proc/no/such"], "--report=/proc/no/such: the directory cannot be written to"),
        (["--problem=translate_ende_cldrr"], "Did you mean"),
        (["--cleaning=none,max_words=1"], "no training pair is left"),
    ],
)
def test_mistakes_end_with_status_2(run, flags, change, message):
    status, _, error = run(*[flag for flag in flags if not flag.startswith(change[0].split("=")[0] + "=")], *change)
    assert status == 2
    assert message in error
    assert "Traceback" not in error


def test_of_a_reversed_problem_the_flags_are_turned_round(run, tmp_path, flags):
    """With a problem NAME_rev, source and target flags mean the sides of NAME_rev, as in data generation."""
    steps = ["--source_steps=lowercase", "--target_steps=none"]
    reversed_flags = ["--problem=translate_parallel_text_rev", *flags, *steps]
    assert run(*reversed_flags, f"--report={tmp_path / 'report'}")[0] == 0
    straight = ["--problem=translate_parallel_text", *flags, "--source_steps=none", "--target_steps=lowercase"]
    assert run(*straight, f"--report={tmp_path / 'straight'}")[0] == 0
    found, expected = (json.loads((tmp_path / name / "report.json").read_text()) for name in ("report", "straight"))
    assert found == expected


def test_merges_that_nobody_learns_are_refused(run, flags):
    status, _, error = run(*flags, "--num_merges=60")
    assert (status, "--num_merges=60 goes with --subwords=subword_nmt, not with sentencepiece" in error) == (2, True)


def test_unequal_numbers_of_references_are_a_fault(run, flags, tmp_path):
    files = {"source": [], "target": []}
    for number, references in enumerate((1, 2)):
        for side, systems in (("source", 1), ("target", references)):
            kind = "srcset" if side == "source" else "refset"
            segment = f'<seg id="1">text {side}</seg>'
            documents = [f'<doc docid="{number}" sysid="{each}">{segment}</doc>' for each in range(systems)]
            path = tmp_path / f"{number}.{side}.sgm"
            path.write_text(f'<{kind} srclang="de" trglang="en">{"".join(documents)}</{kind}>')
            files[side].append(str(path))
    dev = [f"--dev_{side}={','.join(paths)}" for side, paths in files.items()]
    status, _, error = run(*(flag for flag in flags if not flag.startswith("--dev")), *dev)
    assert status == 2
    assert "dev: sources have 1 to 2 references, but every one needs the same number" in error


def test_lines_that_generation_refuses_are_named(run, flags, tmp_path):
    (tmp_path / "dev.source").write_bytes(b"\xc3(\nEin neuer Satz .\n")
    status, output, error = run(*flags)
    assert status == 2
    assert "dev: 1 unusable line(s), invalid UTF-8 (first:" in error
    assert "Must be fixed" in output


def test_lines_that_generation_leaves_out_of_a_held_out_set_are_no_fault(run, tmp_path):
    flags = write(tmp_path, [*corpus(), *[("", "empty")] * 60], "train")
    (tmp_path / "train.source").write_bytes((tmp_path / "train.source").read_bytes().replace(b"Er liest", b"\xff"))
    status, output, _ = run(*flags, "--vocab_size=350", "--num_processes=1")
    assert status == 0
    assert "left out while reading" in output
    assert "Must be fixed" not in output


def test_beam_writes_the_same_bytes(flags, tmp_path, monkeypatch):
    pytest.importorskip("apache_beam")
    from t2t_ext.data.generation import raw_samples

    monkeypatch.setattr(raw_samples, "SAMPLES_PER_CHUNK", 20)
    common = ["--problem=translate_parallel_text", *flags[:-1], "--cleaning=duplicates=true", "--num_shards=3"]
    assert datagen.main([*common, f"--data_dir={tmp_path / 'local'}", "--num_processes=1"]) == 0
    assert datagen.main([*common, f"--data_dir={tmp_path / 'beam'}", "--runner=beam"]) == 0
    local, beam = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("local", "beam"))
    assert local == beam
    assert len(local) == 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--runner=beam", "--num_processes=2"], "--num_processes is for --runner=local"),
        (["--beam_options=--runner=DirectRunner"], "needs --runner=beam"),
        (["--runner=beam", "--beam_options=--runner=NoSuchRunner"], "are no options of Apache Beam"),
        (["--runner=dataflow"], "one of 'local', 'beam'"),
    ],
)
def test_mistakes_with_beam(flags, tmp_path, capsys, options, message):
    pytest.importorskip("apache_beam")
    command = ["--problem=translate_parallel_text", *flags[:-1], f"--data_dir={tmp_path / 'data'}", *options]
    assert datagen.main(command) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_without_beam(flags, tmp_path, capsys, without_package):
    without_package("apache_beam")
    command = ["--problem=translate_parallel_text", *flags[:-1], f"--data_dir={tmp_path / 'data'}", "--runner=beam"]
    assert datagen.main(command) == 2
    assert "pip install 't2t_ext[beam]'" in capsys.readouterr().err


def test_repetitions_of_either_side(run, flags, tmp_path):
    with (
        gzip.open(tmp_path / "train.source.gz", "at") as source,
        gzip.open(tmp_path / "train.target.gz", "at") as target,
    ):
        source.write("0 Das alte Haus steht am Fluss .\nEtwas ganz anderes ist hier .\n")
        target.write("Something else is here now .\n0 The old house stands by the river .\n")
    run(*flags, "--cleaning=duplicates=either", f"--report={tmp_path / 'report'}")
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert report["repeated"] == {"pair": 10, "source": 11, "target": 11}
    assert {row["alone"] for row in report["filters"] if row["reason"] == "duplicate"} == {12}
    assert report["left"] == 139 - 12 - 2  # one pair is empty, one too short for its other side
