"""Tests of SIGKILL: a command killed and restarted any number of times gives bit for bit the undisturbed result.

The processes are children of ``kill_program.py``, forked after TensorFlow was imported and before it was used. They
die before chosen steps of their work on the disk: creating a run directory, saving a checkpoint, copying the best,
deleting the oldest, and publishing data. Slow tests kill training at more steps, and at random moments, including
start-up. One test also kills the command as users start it.
"""

import itertools
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

TRAIN_STEPS, EVALUATE_EVERY = 9, 3
SETTINGS = {
    "problem": "translate_parallel_text",
    "model": "transformer",
    "hparams_set": "transformer_test",
    "hparams": "num_hidden_layers=1,batch_size=400,learning_rate_warmup_steps=20,learning_rate_constant=0.5,"
    "ema_decay=0.9,layer_prepostprocess_dropout=0.1",
    "train_steps": TRAIN_STEPS,
    "local_eval_frequency": EVALUATE_EVERY,
    "log_step_count_steps": 1,
    "keep_checkpoint_max": 1,
    "eval_bleu_sentences": -1,
    "best_checkpoint_metric": "loss",
    "random_seed": 3,
}
# The last steps before which a process may die while it saves, evaluates and cleans up, and some steps of the start.
FATAL_TRAINING_STEPS = [
    ("os.rename .vocab.target.model.tmp", 1),
    ("os.rename .config.json.tmp", 1),
    ("open metrics.jsonl", 1),
    ("open gradient_norms.jsonl", 2),  # the other log has the line of this training step already
    ("open metrics.jsonl", EVALUATE_EVERY + 1),  # the record of the evaluation, whose checkpoint exists already
    ("open checkpoints/.model.ckpt-N.tmp/checkpoint.json", 1),
    ("os.rename checkpoints/.model.ckpt-N.tmp", 1),
    ("shutil.rmtree checkpoints/.model.ckpt-N.tmp", 1),
    ("open best/.model.ckpt-N.tmp/checkpoint.json", 1),
    ("os.rename best/.model.ckpt-N.tmp", 1),
    ("os.rename best/model.ckpt-N", 1),  # the previous best
    ("os.rename checkpoints/model.ckpt-N", 1),  # the oldest
    ("os.rmdir checkpoints/.model.ckpt-N.tmp", 1),
]
FATAL_DATAGEN_STEPS = [
    "os.mkdir .translate_parallel_text.generating",
    "os.rename .translate_parallel_text.generating/.vocab.translate_parallel_text.N.model.tmp",
    "open .translate_parallel_text.generating/train.chunks/rows/.N.tmp",
    "os.rename .translate_parallel_text.generating/train.chunks/keys/pair/.N.tmp",
    "os.remove .translate_parallel_text.generating/train.chunks/sorted/pair/N",
    "open .translate_parallel_text.generating/train.chunks/repeated/pair/.N.tmp",
    "os.rename .translate_parallel_text.generating/train.chunks/removed/.N.tmp",
    "os.rename .translate_parallel_text.generating/train.chunks/groups/.N.tmp",
    "shutil.rmtree .translate_parallel_text.generating/train.chunks",
    "os.rename .translate_parallel_text.generating/dev.chunks/groups/.translate_parallel_text-dev-N-of-N.npz.tmp",
    "open .translate_parallel_text.generating/.translate_parallel_text.manifest.json.tmp",
    "os.rename .translate_parallel_text.generating/translate_parallel_text-dev-N-of-N.npz",
    "os.rename .translate_parallel_text.generating/vocab.translate_parallel_text.N.model",
    "os.rename .translate_parallel_text.generating/translate_parallel_text.manifest.json",
    "shutil.rmtree .translate_parallel_text.generating",
]
# A third of the steps; a slow test covers the others.
SOME_TRAINING_STEPS = FATAL_TRAINING_STEPS[::3]
RANDOM_TRAINING_KILLS = 20  # in the slow test


class Server:
    """A process that forks children for jobs, one at a time."""

    def __init__(self, directory, *options):
        self._log = directory / f"kill_program.{id(self)}.log"
        self._process = subprocess.Popen(
            [sys.executable, str(pathlib.Path(__file__).with_name("kill_program.py")), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
            # Importing NumPy would start its thread pool.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"},
        )

    def __enter__(self):
        greeting = json.loads(self._process.stdout.readline())
        assert greeting["threads"] == 1, "forking a process with threads proves nothing"
        return self

    def __exit__(self, *exception):
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def run(self, command, flags, directory, *, kill_after=None, kill_at=None):
        """Runs a command and returns whether it was killed, its seconds and its steps; fails on any other failure."""
        job = {"command": command, "flags": flags, "log": str(self._log), "directory": str(directory)}
        self._process.stdin.write(json.dumps({**job, "kill_after": kill_after, "kill_at": kill_at}) + "\n")
        answer = json.loads(self._process.stdout.readline())
        assert answer["status"] in (0, -signal.SIGKILL), self._log.read_text()[-3000:]
        return answer["status"] != 0, answer["seconds"], answer["steps"]


def training_flags(data_dir, run):
    given = {**SETTINGS, "data_dir": data_dir, "output_dir": run}
    return ["--deterministic", *(f"--{name}={value}" for name, value in given.items())]


def files_below(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


def records(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("seconds", "tokens_per_second")} for line in lines]


def curves(run):
    """Returns TensorBoard's scalars as {(folder, tag): {step: value}}."""
    import tensorflow as tf

    points = {}
    for path in sorted(run.glob("*/events*")):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars" and value.tag != "tokens_per_second":
                    curve = points.setdefault((path.parent.name, value.tag), {})
                    assert event.step not in curve  # once, also where an evaluation was done again
                    curve[event.step] = float(tf.make_ndarray(value.tensor))
    return points


def assert_equal_runs(found, expected):
    for folder in ("checkpoints", "best"):
        one, other = files_below(found / folder), files_below(expected / folder)
        assert one.keys() == other.keys()  # also no file left over
        assert [name for name in one if one[name] != other[name]] == []
    assert records(found) == records(expected)
    logs = [(run / "gradient_norms.jsonl").read_text() for run in (found, expected)]
    assert logs[0] == logs[1] != ""
    assert curves(found) == curves(expected)
    assert [path for path in found.rglob("*") if ".tmp" in path.name] == []


@pytest.fixture(scope="module")
def corpus_flags(toy_corpus):
    sides = ("train_source", "train_target", "dev_source", "dev_target")
    return ["--problem=translate_parallel_text", *(f"--{side}={getattr(toy_corpus, side)}" for side in sides),
            "--vocab_size=340", "--num_shards=3", "--cleaning=duplicates=true"]  # fmt: skip


@pytest.fixture(scope="module")
def data_dir(corpus_flags, tmp_path_factory):
    from t2t_ext.bin import datagen

    directory = tmp_path_factory.mktemp("data")
    assert datagen.main([*corpus_flags, f"--data_dir={directory}"]) == 0
    return directory


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.fixture(scope="module")
def undisturbed(server, data_dir, tmp_path_factory):
    """Returns the undisturbed run that all others must equal, its seconds and the steps of its work on the disk."""
    directory = tmp_path_factory.mktemp("undisturbed")
    _, seconds, steps = server.run("trainer", training_flags(data_dir, directory / "run"), directory / "run")
    assert len(records(directory / "run")) == TRAIN_STEPS + TRAIN_STEPS / EVALUATE_EVERY
    return directory / "run", seconds, steps


def killed_at_random_moments(server, data_dir, root, seconds, expected, enough):
    """Kills one run after another at random moments, restarting each until it finishes, up to ``enough`` kills.

    Returns the number of kills.
    """
    rng = random.Random(20181115 + enough)
    kills = 0
    for number in itertools.count():
        run, before = root / f"random{number}", kills
        killed = True
        while killed:
            moment = rng.uniform(0, seconds) if kills < enough else None
            killed, took, _ = server.run("trainer", training_flags(data_dir, run), run, kill_after=moment)
            kills += killed
        if kills == before:  # the run finished before its kill: the machine is less busy now
            seconds = min(seconds, took)
        assert_equal_runs(run, expected)
        if kills >= enough:
            return kills


def killed_before_chosen_steps(server, data_dir, root, expected, chosen):
    """Kills and restarts a run before each chosen step, a new run whenever one has finished; then truncates its log."""
    steps = list(chosen)
    for number in itertools.count():
        run, before = root / f"chosen{number}", len(steps)
        while steps and server.run("trainer", training_flags(data_dir, run), run, kill_at=steps[0])[0]:
            steps.pop(0)
        assert not steps or len(steps) < before, f"{steps[0]} does not happen in a new run"
        if not steps:
            break
        assert_equal_runs(run, expected)
    log = run / "metrics.jsonl"
    log.write_bytes(log.read_bytes()[:-20])  # half a line, as after a power cut
    assert not server.run("trainer", training_flags(data_dir, run), run)[0]
    assert_equal_runs(run, expected)


def kill_the_command(server, data_dir, root, expected):
    """Kills the command as users start it during its work; a restart must finish it like an undisturbed run."""
    run = root / "command"
    log_of_run = run / "metrics.jsonl"
    command = [sys.executable, "-m", "t2t_ext.bin.trainer", *training_flags(data_dir, run)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    with open(root / "command.log", "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if log_of_run.exists() and log_of_run.read_bytes().count(b"\n") >= 4:
                break
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, (root / "command.log").read_text()[-3000:]
    assert not server.run("trainer", training_flags(data_dir, run), run)[0]
    assert_equal_runs(run, expected)


def test_killed_training_ends_as_if_it_had_not_been(server, data_dir, undisturbed, tmp_path):
    expected, steps = undisturbed[0], undisturbed[2]
    # All named steps must exist: if the code changes its work on the disk, the list above must follow.
    assert {step for step, _ in FATAL_TRAINING_STEPS} <= set(steps)
    killed_before_chosen_steps(server, data_dir, tmp_path, expected, SOME_TRAINING_STEPS)
    kill_the_command(server, data_dir, tmp_path, expected)


@pytest.mark.slow
def test_training_that_is_killed_at_more_steps_and_moments(server, data_dir, undisturbed, tmp_path):
    expected, seconds, _ = undisturbed
    others = [step for step in FATAL_TRAINING_STEPS if step not in SOME_TRAINING_STEPS]
    killed_before_chosen_steps(server, data_dir, tmp_path, expected, others)
    kills = killed_at_random_moments(server, data_dir, tmp_path, seconds, expected, RANDOM_TRAINING_KILLS)
    assert kills == RANDOM_TRAINING_KILLS


@pytest.mark.parametrize(
    ("fatal", "random_kills"),
    [(FATAL_DATAGEN_STEPS[::5], 1), pytest.param(FATAL_DATAGEN_STEPS, 4, marks=pytest.mark.slow)],
    ids=["some", "all"],
)
def test_killed_datagen_makes_the_same_bytes(corpus_flags, data_dir, tmp_path, fatal, random_kills):
    expected = files_below(data_dir)
    rng = random.Random(5)

    def is_whole_or_not_there(directory):
        found = files_below(directory) if directory.exists() else {}
        if "translate_parallel_text.manifest.json" in found:
            assert {name: found.get(name) for name in expected} == expected

    with Server(tmp_path, "datagen_only") as server:
        _, seconds, steps = server.run("datagen", [*corpus_flags, f"--data_dir={tmp_path / '0'}"], tmp_path / "0")
        assert set(FATAL_DATAGEN_STEPS) <= set(steps)
        kills = [{"kill_at": (step, 1)} for step in fatal]
        kills += [{"kill_after": rng.uniform(0, seconds)} for _ in range(random_kills)]
        rng.shuffle(kills)
        died = 0
        # Every third kill has its own directory; all others share one.
        for number, kill in enumerate(kills):
            directory = tmp_path / ("one" if number % 3 else f"own{number}")
            flags = [*corpus_flags, f"--data_dir={directory}", f"--num_processes={1 + number % 2}"]
            died += server.run("datagen", [*flags, "--overwrite"], directory, **kill)[0]
            is_whole_or_not_there(directory)
            if number % 3 == 0:
                assert not server.run("datagen", flags, directory)[0]
                assert files_below(directory) == expected
                # Overwriting existing data must be equally safe.
                server.run("datagen", [*flags, "--overwrite"], directory, **kill)
                is_whole_or_not_there(directory)
                assert not server.run("datagen", flags, directory)[0]
                assert files_below(directory) == expected
        assert died >= len(fatal)
        assert not server.run("datagen", [*corpus_flags, f"--data_dir={tmp_path / 'one'}"], tmp_path / "one")[0]
    assert files_below(tmp_path / "one") == expected
