"""Settings and fixtures of all tests: quiet TensorFlow on two threads; a tiny corpus, encoder, run and translator.

The fixtures import the toolkit only when a test asks for them, so that tests of parts
that do not need TensorFlow need not wait for its import.
"""

import base64
import ctypes
import dataclasses
import fcntl
import gc
import importlib.util
import logging
import os
import pathlib
import random
import signal
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "2")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "2")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

# A shell that starts the tests in the background makes them, and all programs that they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Commands set these variables before they import TensorFlow (the decoder: one thread for each operation). In a test
# process TensorFlow has its threads already, but programs that later tests start would inherit the changed values,
# and their results would differ in the last bits.
_THREADS = {
    name: os.environ.get(name) for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
}


def _restore_threads():
    for name, value in _THREADS.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Restores the numbers of threads and the log level that commands of earlier tests have set."""
    _restore_threads()
    logging.getLogger("absl.t2t_ext").setLevel(logging.INFO)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    """Restores the numbers of threads that commands in this test's fixtures have set."""
    _restore_threads()


# Files that take up to a minute. If one of them began last, it would keep one worker busy while the others are idle.
_LONGEST_FILES = {
    "test_all_models.py", "test_cldr.py", "test_consistency_step.py", "test_kills.py", "test_replicas.py",
    "test_step.py", "test_trainer.py",
}  # fmt: skip


def pytest_collection_modifyitems(items):
    """Moves the tests of the longest files to the front."""
    items.sort(key=lambda item: item.path.name not in _LONGEST_FILES)


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """Gives a function (name, make) -> directory; make(directory) fills it once for all processes of a test run."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root

    def once(name, make):
        directory, done = root / name, root / f".{name}.done"
        with open(root / f".{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # held until the file is closed
            if not done.exists():
                directory.mkdir()
                make(directory)
                done.touch()
        return directory

    return once


@pytest.fixture
def without_package(monkeypatch):
    """Gives a function that makes the package with a given name look as if it were not installed."""
    find_spec = importlib.util.find_spec

    def hide(package):
        hidden = lambda name, *rest: None if name == package else find_spec(name, *rest)  # noqa: E731
        monkeypatch.setattr("importlib.util.find_spec", hidden)

    return hide


# Bytes by which the process may grow before it returns memory to the system.
_GROWTH = 200 << 20
_memory = {"after": 0}


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Returns memory to the system after a file's last test, when its fixtures are gone, and after large growth."""
    last = nextitem is None or nextitem.path != item.path
    if "keras" not in sys.modules or not (last or _resident() > _memory["after"] + _GROWTH):
        return
    if last:
        _forget_gradients()
    gc.collect()
    if last:
        # The million objects of TensorFlow's modules stay alive. Freezing them spares the collector half a second at
        # every collection. Later calls also freeze the modules that later files import.
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    _memory["after"] = _resident()


def _forget_gradients():
    """Removes custom gradients from TensorFlow's registry, which would otherwise keep the graphs of all tests alive.

    Only code that differentiates a graph made in an earlier file would still need them.
    """
    from tensorflow.python.framework import ops

    registered = ops.gradient_registry._registry
    for name in [name for name in registered if name.startswith("CustomGradient-")]:
        del registered[name]


def _resident():
    """Returns the resident memory of this process in bytes, or 0 if the system does not report it."""
    try:
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


_WORDS = {
    "the": "die", "red": "rote", "green": "grüne", "old": "alte", "small": "kleine", "new": "neue",
    "cat": "Katze", "lamp": "Lampe", "door": "Tür", "street": "Straße", "city": "Stadt", "flower": "Blume",
    "sees": "sieht", "finds": "findet", "paints": "malt", "loves": "liebt",
    "today": "heute", "often": "oft", "here": "hier", "there": "dort",
}  # fmt: skip
_NAMES = list(_WORDS)


def toy_pairs(count, seed):
    """Returns `count` pairs of English-like and German-like sentences, word-by-word translations; `seed` fixes them."""
    rng = random.Random(seed)
    noun_phrase = lambda: ["the", *rng.sample(_NAMES[1:6], rng.randint(0, 2)), rng.choice(_NAMES[6:12])]  # noqa: E731
    pairs = []
    for _ in range(count):
        words = [*noun_phrase(), rng.choice(_NAMES[12:16]), *noun_phrase(), *rng.sample(_NAMES[16:], rng.randint(0, 2))]
        pairs.append((" ".join(words) + " .", " ".join(_WORDS[word] for word in words) + " ."))
    return pairs


@dataclasses.dataclass(frozen=True)
class ToyCorpus:
    """The pairs of the toy corpus and the paths of its files, which have one sentence per line."""

    train_source: pathlib.Path
    train_target: pathlib.Path
    dev_source: pathlib.Path
    dev_target: pathlib.Path
    train: list[tuple[str, str]]
    dev: list[tuple[str, str]]

    def options(self):
        """Returns the problem options of `translate_parallel_text` that name the files."""
        return {name: str(getattr(self, name)) for name in ("train_source", "train_target", "dev_source", "dev_target")}


@pytest.fixture(scope="session")
def toy_corpus(tmp_path_factory):
    """Gives a parallel corpus of 600 training pairs and 24 development pairs, written as plain text."""
    directory = tmp_path_factory.mktemp("toy_corpus")
    parts = {"train": toy_pairs(600, seed=1), "dev": toy_pairs(24, seed=2)}
    paths = {}
    for split, pairs in parts.items():
        for side, column in (("source", 0), ("target", 1)):
            path = directory / f"{split}.{side}.txt"
            path.write_text("".join(pair[column] + "\n" for pair in pairs), encoding="utf-8")
            paths[f"{split}_{side}"] = path
    return ToyCorpus(**paths, **parts)


@pytest.fixture(scope="session")
def tiny_encoder(toy_corpus):
    """Gives a SentencePiece encoder trained on both languages of the toy corpus together."""
    from t2t_ext.data.text import sentencepiece_model, text_encoder

    texts = [text for pair in toy_corpus.train for text in pair]
    return text_encoder.SubwordEncoder(sentencepiece_model.train(texts, vocab_size=340))


@pytest.fixture(scope="session")
def tiny_model(tiny_encoder):
    """Gives an untrained tiny Transformer whose translations vary in words and length; it uses the tiny encoder."""
    import numpy as np
    from random_weights import random_arrays

    from t2t_ext import registry

    size = tiny_encoder.vocab_size
    hparams = registry.hparams("transformer_test").replace(shared_embedding_and_softmax_weights=False)
    model = registry.model("transformer")(hparams, source_vocab_size=size, target_vocab_size=size)
    model.build()
    arrays = random_arrays(model, seed=3, scale=2.0)
    # Subwords longer than a byte become likelier, and EOS does in some contexts: lengths vary from 1 to the limit.
    bias = arrays["decoder/final_norm/bias"]
    arrays["softmax/embeddings"][267:] += 3.0 * bias / np.dot(bias, bias)
    arrays["softmax/embeddings"][1] *= 1.5
    model.assign(arrays)
    return model


@pytest.fixture(scope="session")
def make_translator(tiny_model, tiny_encoder):
    """Gives a function (decode hparams as keywords) -> Translator of the tiny model."""
    from t2t_ext.config.decode import DecodeHParams
    from t2t_ext.translation.translator import Translator

    def make(target_direction="l2r", **decode_hparams):
        return Translator(tiny_model, tiny_encoder, tiny_encoder, DecodeHParams(**decode_hparams), target_direction)

    return make


@pytest.fixture(scope="session")
def tiny_translator(make_translator):
    """Gives the tiny model's Translator with a beam of 4."""
    return make_translator(beam_size=4, batch_size=32)


@pytest.fixture(scope="session")
def toy_data(toy_corpus, tmp_path_factory):
    """Gives the data directory of `translate_parallel_text` on the toy corpus, in two shards; tests only read it."""
    from t2t_ext import registry
    from t2t_ext.data.generation.generate import generate

    directory = tmp_path_factory.mktemp("toy_data")
    problem = registry.problem("translate_parallel_text", **toy_corpus.options())
    generate(
        problem, directory, directory, vocab_size=340, num_shards=2, num_processes=1, progress=False,
        say=lambda text: None,
    )  # fmt: skip
    return directory


@pytest.fixture(scope="session")
def small_pictures():
    """Replaces attention pictures by one pixel, because drawing takes half of a short run; only in this process."""
    pixel = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("t2t_ext.training.monitor.attention_picture", lambda *_: pixel)
        yield


@dataclasses.dataclass(frozen=True)
class TrainedRun:
    """The output directory of a finished training run."""

    directory: pathlib.Path


@pytest.fixture(scope="session")
def trained_run(toy_corpus, toy_data, small_pictures, shared):
    """Gives a tiny Transformer trained for 60 steps on the toy corpus, with two checkpoints; tests only read it."""
    from t2t_ext.config.training import TrainConfig
    from t2t_ext.training.loop import train

    def make(directory):
        config = TrainConfig(
            output_dir=str(directory / "run"),
            problem="translate_parallel_text",
            problem_options=toy_corpus.options(),
            model="transformer",
            hparams_set="transformer_test",
            hparams="batch_size=512,hidden_size=32,filter_size=64,learning_rate_warmup_steps=30,max_length=64",
            data_dir=str(toy_data),
            random_seed=1,
            train_steps=60,
            local_eval_frequency=30,
            log_step_count_steps=10,
            eval_bleu_sentences=8,
        )
        assert train(config, quiet=True).finished

    return TrainedRun(shared("trained_run", make) / "run")
