"""Tests that each command, given a damaged stored file, works or says in one line what is wrong, and changes nothing.

The fast part takes a sample of the cases, the same one every time. `make test-hostile` takes many more.
"""

import contextlib
import http.server
import json
import random
import re
import threading

import hostile_damage
import pytest
from hostile_world import DATA, RUN, Outcome

_CHECKPOINT = f"{RUN}/checkpoints/model.ckpt-00000300"
_DECODER = ("decoder", f"--output_dir=WORLD/{RUN}", "--decode_from_file=WORLD/text.txt", "--decode_to_file=OUT/out")
_EXPLAIN = ("trainer", f"--output_dir=WORLD/{RUN}", "--explain")
_SHORTLIST = ("analyze", "shortlist", f"--output_dir=WORLD/{RUN}", "--shortlist_file=OUT/shortlist.npz")
_NEW_RUN = (
    "trainer", "--problem=translate_parallel_text", "--model=transformer", "--hparams_set=transformer_test",
    f"--data_dir=WORLD/{DATA}", "--output_dir=OUT/run",
    *(f"--{side}_{name}=WORLD/{side}.{name}" for side in ("train", "dev") for name in ("source", "target")),
)  # fmt: skip
_SYNCHRONOUS = (
    "trainer", "--problem=translate_parallel_text_synchronous", "--model=synchronous_transformer",
    "--hparams_set=synchronous_transformer_test", f"--data_dir=WORLD/{DATA}", "--output_dir=OUT/run",
)  # fmt: skip
_PREPARE = ("prepare", f"--subword_model=WORLD/{RUN}/vocab.source.model", "--describe")
_BLEU = ("bleu", "--reference=WORLD/text.txt")
# File, command that reads it, number of cases in the fast tests, number in the slow tests.
JSON_FILES = [
    (f"{DATA}/translate_parallel_text.manifest.json", _NEW_RUN, 60, 400),
    (f"{DATA}/translate_parallel_text.manifest.json", _SHORTLIST, 10, 60),
    (f"{DATA}/translate_parallel_text_synchronous.manifest.json", _SYNCHRONOUS, 40, 200),
    (f"{RUN}/config.json", _DECODER, 60, 300),
    (f"{RUN}/config.json", _EXPLAIN, 60, 300),
    (f"{RUN}/config.json", ("prepare", f"--output_dir=WORLD/{RUN}", "--describe"), 20, 100),
    (f"{_CHECKPOINT}/checkpoint.json", _DECODER, 40, 200),
    (f"{RUN}/gradient_norms.jsonl", ("analyze", "grad_norms", f"--output_dir=WORLD/{RUN}", "--out_dir=OUT/x"), 0, 30),
    ("list.jsonl", (*_BLEU, "--translation=WORLD/list.jsonl"), 60, 130),
    ("translations/scores.jsonl", (*_BLEU, "--translation=WORLD/translations"), 60, 270),
]
BINARY_FILES = [
    (f"{DATA}/translate_parallel_text-train-00000-of-00002.npz", _SHORTLIST, 10, 60),
    (f"{DATA}/vocab.translate_parallel_text.330.model", _NEW_RUN, 5, 30),
    (f"{RUN}/vocab.source.model", _DECODER, 10, 40),
    (f"{_CHECKPOINT}/ema.index", _DECODER, 10, 40),
    (f"{_CHECKPOINT}/model.data-00000-of-00001", _DECODER, 10, 40),
    (
        f"{RUN}/vocab.source.model",
        ("prepare", f"--subword_model=WORLD/{RUN}/vocab.source.model", "--describe"),
        20,
        200,
    ),
]


def sizes(targets):
    """Returns pytest parameters: each target with few cases, unless that is 0, and with many cases in a slow test."""
    few = [pytest.param(*target, size) for *target, size, _ in targets if size]
    return few + [pytest.param(*target, size, marks=pytest.mark.slow) for *target, _, size in targets]


def faults_of(world, name, command, cases):
    """Returns what is wrong with a command's behavior over all damages of a file that it reads, as a list."""
    undamaged = world.run(*command)
    assert world.fault(undamaged) == "", "not even the undamaged file can be read"
    found, refused = [], 0
    for what, content in cases:
        with world.damaged(name, content):
            outcome = world.run(*command)
        refused += outcome.status == 2
        if fault := world.fault(outcome):
            found.append(f"{name}: {what}: {fault}")
    assert refused, "nothing was damaged"
    return found


def a_sample(cases, size):
    cases = list(cases)
    return random.Random(1).sample(cases, min(size, len(cases)))


@pytest.mark.parametrize(("name", "command", "size"), sizes(JSON_FILES))
def test_damaged_json(world, name, command, size):
    content, end = (world.folder / name).read_bytes(), b""
    if name.endswith(".jsonl"):  # only the first line
        content, end = content.splitlines()[0], b"\n"
    cases = [(what, damaged + end) for what, damaged in hostile_damage.of_json(content, size)]
    assert faults_of(world, name, command, cases) == []


@pytest.mark.parametrize(("name", "command", "size"), sizes(BINARY_FILES))
def test_damaged_bytes(world, name, command, size):
    cases = a_sample(hostile_damage.of_bytes((world.folder / name).read_bytes(), 60), size)
    assert faults_of(world, name, command, cases) == []


@pytest.mark.parametrize("name", [f"{RUN}/config.json", f"{_CHECKPOINT}/checkpoint.json", f"{RUN}/vocab.source.model"])
def test_a_missing_file_is_named(world, name):
    with world.damaged(name, None):
        outcome = world.run(*_DECODER)
    assert world.fault(outcome) == ""
    assert name.rpartition("/")[2] in outcome.err


@pytest.mark.parametrize("size", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_damaged_recipes(world, size):
    """With a wrong value, a missing line or damaged bytes in a recipe, the command works or prints one error line."""
    name, lines = "recipes/own.toml", (world.folder / "recipes/own.toml").read_text().splitlines()
    wrong = ("nan", "-1", '""', "[]", "{}", "1979-05-27", "true", '"x"', "[[1]]", '"\\u0000"', "[" * 5000, "1e400",
             "9" * 5000, "{ a = nan }", "{ a = [] }", '["x"]', "99999999999")  # fmt: skip
    cases = []
    for number, line in enumerate(lines):
        for value in wrong if "=" in line else ():
            changed = re.sub(r"= .*", lambda _, value=value: f"= {value}", line, count=1)
            cases.append((changed[:60], [*lines[:number], changed, *lines[number + 1 :]]))
        cases.append((f"line {number} left out", [*lines[:number], *lines[number + 1 :]]))
    cases = [(what, "\n".join(content).encode()) for what, content in cases]
    cases += hostile_damage.of_bytes("\n".join(lines).encode(), 10)
    command = ("experiment", "--recipe=own", "--recipes_dir=WORLD/recipes", "--work_dir=OUT/work", "--dry_run")
    assert faults_of(world, name, command, a_sample(cases, size)) == []


@contextlib.contextmanager
def server_that_answers(answers):
    """Runs a server that answers each POST with the next (status, body) of ``answers``, and yields its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            status, body = next(answers)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


ANSWER = {"outputs": {"outputs": ["ein Haus"], "scores": [-0.5]}}
NBEST = {"outputs": {"outputs": [["ein Haus"]], "scores": [[-0.5]], "log_probs": [[-1.0]], "lengths": [[3]]}}


@pytest.mark.parametrize(("answer", "flags", "size"), sizes([(ANSWER, (), 30, 120), (NBEST, ("--nbest",), 30, 200)]))
def test_answers_of_a_server(world, answer, flags, size):
    bodies = [("undamaged", json.dumps(answer).encode())]
    bodies += hostile_damage.of_json(bodies[0][1], size)
    refusal = (400, b'{"error": "Serving signature name: \\"text_encoders\\" not found"}')
    found, statuses = [], []
    for status in (200, 500):
        for what, body in bodies[:: 1 if status == 200 else 10]:
            with server_that_answers(iter([refusal, *[(status, body)] * 3])) as address:
                outcome = world.run("query-server", f"--server={address}", "--rest", "--servable_name=m",
                                    "--inputs_once=a house", *flags)  # fmt: skip
            statuses.append(outcome.status)
            if fault := world.fault(outcome):
                found.append(f"{status} {what}: {fault}")
    assert found == []
    assert statuses[0] == 0
    assert 2 in statuses


def test_a_fault_is_seen(world):
    """The checks of these tests themselves find unhandled errors, unclear messages and changed files."""
    assert Outcome(0, "", "").fault() == ""
    assert Outcome(2, "", "error: a\n").fault() == ""
    assert Outcome(2, "", "error: a\nerror: b\n").fault() != ""
    assert Outcome(2, "", "").fault() != ""
    assert Outcome(1, "", "", "ValueError").fault() != ""
    (world.folder / "new.txt").write_text("")
    assert "new.txt" in world.fault(Outcome(0, "", ""))
    (world.folder / "new.txt").unlink()
    assert world.fault(Outcome(0, "", "")) == ""
