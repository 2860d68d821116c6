"""Tests of the command t2t_ext-pseudo-references: translations of two runs, kills, mistakes, and training on them."""

import itertools
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from test_kills import Server, files_below

from t2t_ext import registry
from t2t_ext.bin import datagen, decoder, doctor, exporter, pseudo_references, trainer
from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.data.datasets.generated import GeneratedData

NAME = "translate_parallel_text"
TRAIN, DEV = 60, 7
CHUNK = 25
# The steps before which the joining process is killed.
_WORK = f".{NAME}_synchronous.decoding"
FATAL_STEPS = [
    f"os.mkdir {_WORK}/finished",
    f"open {_WORK}/finished/.{NAME}_synchronous-train-N-of-N.npz.tmp",
    f"os.rename {_WORK}/finished/.{NAME}_synchronous-dev.rNl.txt.tmp",
    f"os.rename {_WORK}/finished/.{NAME}_synchronous.manifest.json.tmp",
    f"os.rename {_WORK}/finished/{NAME}_synchronous-train-N-of-N.npz",
    f"os.rename {_WORK}/finished/{NAME}_synchronous.manifest.json",
    f"os.rename {_WORK}",
    f"shutil.rmtree .{_WORK}.tmp",
]
RANDOM_KILLS = 4


@pytest.fixture(scope="module")
def runs(tmp_path_factory, toy_corpus, tiny_encoder, tiny_run):
    """Returns a folder with small data in the tiny run's subwords, and two copies of the run, ``l2r`` and ``r2l``.

    The copies have the same weights; they differ in ``target_direction``.
    """
    root = tmp_path_factory.mktemp("pseudo")
    tiny_encoder.save(root / "subwords.model")
    flags = [f"--problem={NAME}", f"--data_dir={root / 'data'}", f"--subword_model={root / 'subwords.model'}"]
    for split, count in (("train", TRAIN), ("dev", DEV)):
        for number, side in enumerate(("source", "target")):
            lines = [pair[number] + "\n" for pair in getattr(toy_corpus, split)[:count]]
            (root / f"{split}.{side}").write_text("".join(lines), encoding="utf-8")
            flags.append(f"--{split}_{side}={root / f'{split}.{side}'}")
    languages = ["--source_language=en", "--target_language=de"]
    assert datagen.main([*flags, *languages, "--num_shards=2", "--num_processes=1"]) == 0
    digest = GeneratedData.open(registry.problem(NAME), root / "data").digest()
    for side in ("l2r", "r2l"):
        shutil.copytree(tiny_run.path, root / side)
        config = json.loads((root / side / "config.json").read_text(encoding="utf-8"))
        config["hparams"]["target_direction"] = side
        config["data_digest"] = digest
        (root / side / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return root


def flags(runs, data_dir, *more):
    paths = [f"--l2r={runs / 'l2r'}", f"--r2l={runs / 'r2l'}", f"--data_dir={data_dir}"]
    return [f"--problem={NAME}", *paths, f"--chunk_pairs={CHUNK}", *more]


@pytest.fixture(scope="module")
def halves(runs, tmp_path_factory):
    """Returns a copy of the data with all translations, made in two shards that are not joined yet."""
    directory = tmp_path_factory.mktemp("halves") / "data"
    shutil.copytree(runs / "data", directory)
    for part in ("2/2", "1/2"):
        assert pseudo_references.main(flags(runs, directory, f"--shard={part}")) == 0
    return directory


@pytest.fixture(scope="module")
def finished(runs, halves, tmp_path_factory):
    """Returns a copy of the data with pseudo references."""
    directory = tmp_path_factory.mktemp("finished") / "data"
    shutil.copytree(halves, directory)
    assert pseudo_references.main(flags(runs, directory, "--join")) == 0
    return directory


@pytest.fixture
def copy(runs, tmp_path):
    """Returns a copy of the data without any translations."""
    shutil.copytree(runs / "data", tmp_path / "data")
    return tmp_path / "data"


def sidecar(directory):
    return {name: content for name, content in files_below(directory).items() if "_synchronous" in name}


def test_pseudo_references_are_what_the_runs_translate(tiny_run, finished):
    data = GeneratedData.open(registry.problem(f"{NAME}_synchronous"), finished)
    for split, count in (("train", TRAIN), ("dev", DEV)):
        store = ExampleStore.load(data, split)
        encoder = data.text_encoders()[0]
        sources = [encoder.decode(store.example(number)[0]) for number in range(count)]
        kept = [
            [ids[first:last].tolist() for first, last in itertools.pairwise(offsets)] for ids, offsets in store.pseudo
        ]
        texts = data.pseudo.texts(split)
        for number, (found,) in enumerate(tiny_run.translator.translate(sources)):
            # Both runs have the same weights: the r2l run writes the tokens of the l2r run from right to left.
            if kept[0][number]:
                assert kept[0][number] == list(found.ids)
                assert kept[1][number] == [*found.ids[-2::-1], 1]
                assert texts[0][number] == found.text
                assert texts[1][number] == encoder.restore([encoder.decode(kept[1][number])])[0]
            else:
                assert kept[1][number] == []
                assert texts[0][number] == texts[1][number] == ""
        summary = data.pseudo.manifest.splits[split]
        missing = sum(not ids for ids in kept[0])
        assert [sum(summary.failures[side].values()) for side in ("l2r", "r2l")] == [missing, missing]
        assert summary.statistics["r2l"]["made"] == count - missing
    assert 0 < missing + summary.statistics["l2r"]["made"] == DEV


def test_joining_may_be_killed_at_any_step(runs, halves, finished, tmp_path):
    expected, copy = files_below(finished), tmp_path / "data"
    shutil.copytree(halves, copy)
    with Server(tmp_path, "datagen_only") as server:
        for step in FATAL_STEPS:
            if f"{NAME}_synchronous.manifest.json" in files_below(copy):  # killed while it was cleaning up
                assert sidecar(copy).items() >= sidecar(finished).items()
                shutil.rmtree(copy)
                shutil.copytree(halves, copy)
            died, _, steps = server.run("pseudo_references", flags(runs, copy, "--join"), copy, kill_at=(step, 1))
            assert died, f"{step} is not among {steps}"
        assert not server.run("pseudo_references", flags(runs, copy, "--join"), copy)[0]
    assert files_below(copy) == expected
    assert list(copy.glob(".*")) == []


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_with_the_same_bytes(runs, copy, finished, tmp_path):
    rng = random.Random(7)
    with Server(tmp_path) as server:
        given = flags(runs, copy)
        _, seconds, _ = server.run("pseudo_references", flags(runs, copy), copy)
        assert files_below(copy) == files_below(finished)
        for name in sidecar(copy):
            (copy / name).unlink()
        kills = [{"kill_after": rng.uniform(0, seconds)} for _ in range(RANDOM_KILLS)]
        kills += [
            {"kill_at": (f"os.rename {_WORK}/.{split}.{side}.N.npz.tmp", 1)}
            for split, side in (("dev", "rNl"), ("train", "lNr"))
        ]
        died = [server.run("pseudo_references", given, copy, **kill)[0] for kill in kills]
        assert sum(died) >= len(kills) - 1
        assert not server.run("pseudo_references", given, copy)[0]
    assert files_below(copy) == files_below(finished)


def test_what_is_missing_is_not_joined(runs, halves, copy, tmp_path, capsys):
    assert pseudo_references.main(flags(runs, copy, "--join")) == 2
    assert "8 of 8 chunks are missing" in capsys.readouterr().err
    shutil.copytree(halves, tmp_path / "halves")
    (chunk,) = (tmp_path / "halves").glob(f"{_WORK}/train.r2l.000002.npz")
    content = chunk.read_bytes()
    chunk.unlink()
    assert pseudo_references.main(flags(runs, tmp_path / "halves", "--join")) == 2
    assert "1 of 8 chunks are missing" in capsys.readouterr().err
    chunk.write_bytes(content[:-9])
    assert pseudo_references.main(flags(runs, tmp_path / "halves", "--join")) == 2
    assert "train.r2l.000002.npz is damaged" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_end_it_with_a_word_how_to_resume(runs, copy, number, status):
    command = [sys.executable, "-u", "-m", "t2t_ext.bin.pseudo_references", *flags(runs, copy, "--chunk_pairs=2")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    work = copy / _WORK
    deadline = time.monotonic() + 120
    while not list(work.glob("dev.l2r.*.npz")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    assert process.wait(timeout=60) == status
    said = process.stdout.read()
    assert f"Stopped by {number.name}: " in said
    assert "Run the same command again to resume" in said
    assert [path for path in work.iterdir() if ".tmp-" in path.name] == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (["--l2r=R2L", "--r2l=L2R"], r"--l2r and --r2l are swapped: .*Give --l2r=.*l2r --r2l=.*r2l\."),
        (
            ["--r2l=L2R"],
            r"--r2l=.*l2r generates left to right \(target_direction=l2r\)\. Give a run that generates right to",
        ),
        (["--r2l="], r"--r2l=RUN is needed: .*--hparams=target_direction=r2l"),
        (["--l2r=L2R/nothing"], r"--l2r=.*There is no run directory"),
        (["--problem=translate_parallel_text_rev"], r"was trained on translate_parallel_text, not on .*_rev"),
        (["--problem=translate_paralel_text"], r"Did you mean 'translate_parallel_text'"),
        (["--checkpoint_path=best"], r"--l2r=.*There is no checkpoint 'best'"),
        (["--r2l_checkpoint_path=7"], r"--r2l=.*7"),
        (["--shard=3/2"], r"--shard=3/2: write i/n"),
        (["--shard=1/2", "--join"], r"--shard and --join exclude each other"),
        (["--decode_hparams=sb_pairing=best"], r"this model generates in one direction"),
        (["--decode_hparams=sampling_method=random"], r"sampling_method=random draws"),
        (["--data_dir=L2R"], r"There are no data of translate_parallel_text in .*Run: t2t_ext-datagen"),
        (["--max_length=-1"], r"--max_length must be at least 0"),
    ],
)
def test_mistakes_are_found_before_the_work(runs, change, expected, capsys):
    change = [flag.replace("L2R", str(runs / "l2r")).replace("R2L", str(runs / "r2l")) for flag in change]
    before = files_below(runs)
    assert pseudo_references.main([*flags(runs, runs / "data"), *change]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert re.search(expected, line), line
    assert files_below(runs) == before


def test_what_is_there_is_never_mixed_with_other_work(runs, finished, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "data")
    given = flags(runs, tmp_path / "data")
    assert pseudo_references.main(given) == 0
    assert "are in " in capsys.readouterr().out
    assert pseudo_references.main([*given, "--decode_hparams=beam_size=3"]) == 2
    assert "beam_size was 4, now 3" in capsys.readouterr().err
    assert pseudo_references.main([*given, "--max_length=9"]) == 2
    assert "max_length was 256, now 9" in capsys.readouterr().err
    assert files_below(tmp_path / "data") == files_below(finished)


@pytest.mark.slow
def test_overwriting_mends_and_replaces(runs, finished, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "data")
    shard = tmp_path / "data" / f"{NAME}_synchronous-train-00000-of-00002.npz"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    given = flags(runs, tmp_path / "data", "--overwrite")
    assert pseudo_references.main(given) == 0
    assert files_below(tmp_path / "data") == files_below(finished)
    assert pseudo_references.main([*given, "--max_length=9"]) == 0
    assert "longer than 9 tokens" in capsys.readouterr().out
    data = GeneratedData.open(registry.problem(f"{NAME}_synchronous"), tmp_path / "data")
    for ids, offsets in ExampleStore.load(data, "train").pseudo:
        assert all(len(ids[a:b]) <= 9 for a, b in itertools.pairwise(offsets))


def test_ids_that_mean_something_else_are_refused(runs, tmp_path, capsys):
    assert datagen.main([f"--problem={NAME}", f"--data_dir={tmp_path}", *own_text(runs), "--vocab_size=300"]) == 0
    assert pseudo_references.main(flags(runs, tmp_path)) == 2
    assert "mean something else than those of the data" in capsys.readouterr().err


def own_text(runs):
    return [
        f"--{split}_{side}={runs / f'{split}.{side}'}" for split in ("train", "dev") for side in ("source", "target")
    ]


def test_datagen_and_doctor_know_the_problem(runs, finished, tmp_path, capsys):
    name, new = f"{NAME}_synchronous", tmp_path / "new"
    model = [f"--subword_model={runs / 'subwords.model'}"]
    assert datagen.main([f"--problem={name}", f"--data_dir={new}", *own_text(runs), *model]) == 0
    assert f"t2t_ext-pseudo-references --problem={NAME} --l2r=RUN --r2l=RUN --data_dir={new}" in capsys.readouterr().out
    heading = "split  direction  pairs  made"
    for directory, expected in ((finished, heading), (new, "There are no pseudo references of")):
        given = [f"--problem={name}", f"--data_dir={directory}", *own_text(runs), "--num_processes=1"]
        assert doctor.main(given) == 0
        assert expected in capsys.readouterr().out


@pytest.mark.slow
def test_training_and_what_follows_know_the_problem(runs, finished, tmp_path, capsys):
    given = ["--model=transformer", "--hparams_set=transformer_test", "--train_steps=2", "--eval_bleu_sentences=-1"]
    given += ["--hparams=pseudo=both,num_hidden_layers=1,batch_size=256", f"--output_dir={tmp_path / 'run'}"]
    given += [f"--problem={NAME}_synchronous", "--best_checkpoint_metric=loss"]
    assert trainer.main([f"--data_dir={runs / 'data'}", *given]) == 2
    assert f"There are no pseudo references of {NAME} in {runs / 'data'}" in capsys.readouterr().err
    assert trainer.main([f"--data_dir={finished}", *given]) == 0
    run = f"--output_dir={tmp_path / 'run'}"
    assert decoder.main([run, "--split=dev", f"--decode_to_file={tmp_path / 'out'}"]) == 0
    assert len((tmp_path / "out").read_text(encoding="utf-8").splitlines()) == DEV
    assert exporter.main([run, f"--export_dir={tmp_path / 'export'}"]) == 0
