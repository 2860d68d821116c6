"""Runs the Python blocks of README and docs, and the notebook, on a tiny run; other tests run blocks that need more."""

import json
import re
import shutil

import pytest
import tensorflow as tf
from python_blocks import BLOCK, ROOT, run_blocks

from t2t_ext import registry

PAGES = [
    page.relative_to(ROOT).as_posix()
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if BLOCK.search(page.read_text(encoding="utf-8"))
]


@pytest.fixture
def folder(tmp_path, monkeypatch, tiny_run):
    """Returns the current folder, with two copies of the tiny run, RUN and OTHER, which have an averaged checkpoint."""
    from t2t_ext.runs import checkpoints
    from t2t_ext.runs.run_directory import RunDirectory

    monkeypatch.chdir(tmp_path)
    for name in ("RUN", "OTHER"):
        shutil.copytree(tiny_run.path, tmp_path / name)
        run = RunDirectory.open(tmp_path / name)
        arrays = checkpoints.load_arrays(checkpoints.latest(run.checkpoints_dir))
        checkpoints.save_checkpoint(run.averaged_dir, 40, arrays)
    return tmp_path


@pytest.fixture
def registers(monkeypatch):
    """Removes everything that the test registers when the test ends."""
    for kind in (registry._problems, registry._models, registry._hparams):
        for name in ("_entries", "_families"):
            monkeypatch.setattr(kind, name, dict(getattr(kind, name)))


def test_every_page_is_run_by_a_test():
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    run = set(re.findall(r'run_blocks\(\s*"([\w/.]+)"', tests))
    assert len(PAGES) >= 9
    assert set(PAGES) == run, "each page with Python blocks is given to run_blocks by a test"


def test_readme(folder, capsys):
    run_blocks("README.md")
    assert capsys.readouterr().out.startswith("['")


def test_decoding(folder, capsys):
    names = run_blocks("docs/decoding.md", blocks=slice(1, None))
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert repr(names["translator"]).startswith("<Translator: Transformer of ")


def test_extending(folder, registers):
    names = run_blocks("docs/extending.md")
    (folder / "dev.tsv").write_text("Guten Morgen.\tGood morning.\nJa.\tYes.\t\nNein.\n", encoding="utf-8")
    pairs = [("Guten Morgen.", "Good morning."), ("Ja.", "Yes."), ("Nein.", "")]
    found = [(each["inputs"], each["targets"]) for each in names["TranslateDeenMine"]().samples("dev", folder)]
    assert found == pairs
    assert registry.hparams("transformer_mine").num_encoder_layers == 12
    hparams = registry.hparams("transformer_test").replace(attention_dropout=0.2)
    made = registry.model("my_transformer")(hparams, source_vocab_size=20, target_vocab_size=20)
    assert [layer.mixer.attention_dropout for layer in made.encoder.layers] == [0.4, 0.2]
    hparams = registry.hparams("first_dropout_base").override("first_dropout=0.5,hidden_size=16,filter_size=32")
    made = registry.model("first_dropout_transformer")(hparams, source_vocab_size=20, target_vocab_size=20)
    assert [layer.mixer.attention_dropout for layer in made.encoder.layers] == [0.5, *[0.1] * 5]
    assert [source.name for source in names["TranslateDeenMixed"]().pair_files("train", "T")] == ["news", "web"]
    hparams = registry.hparams("transformer_test").replace(num_hidden_layers=1)
    made = registry.model("calm_transformer")(hparams, source_vocab_size=20, target_vocab_size=20)
    made.build()
    features, [added] = made.features_and_losses(tf.constant([[7, 1]]), tf.constant([[8, 9, 1]]))
    assert float(added) == pytest.approx(1e-4 * float(tf.reduce_mean(features**2)))


def test_scoring(capsys):
    lines = ["the cat sees the old lamp", "the city loves the door today"]
    names = {"hypotheses": lines, "references": lines, "source": lines, "lines_a": lines, "lines_b": lines[::-1]}
    assert "<html" in run_blocks("docs/scoring.md", names=names)["html"]
    assert "BLEU 100.0" in capsys.readouterr().out


@pytest.mark.slow
def test_keras(folder, capsys):
    from t2t_ext.bin import exporter
    from t2t_ext.data.text.text_encoder import SubwordEncoder

    assert exporter.main(["--output_dir=RUN", "--export_dir=PRESET", "--format=keras_hub"]) == 0
    few = {'"transformer_tiny"': '"transformer_test"', "epochs=60": "epochs=2"}
    names = run_blocks("docs/keras.md", replaced=few)
    assert len(names["history"].history["sparse_categorical_accuracy"]) == 2
    assert (folder / "TUNED" / "task.json").is_file()
    assert names["again"].optimizer.iterations.numpy() == 4
    encoder = SubwordEncoder.from_file(folder / "RUN" / "vocab.source.model")
    assert encoder.decode(names["data"]["inputs"][0]) == names["german"][0], "the run is trained on its own subwords"


@pytest.mark.slow
def test_the_notebook(folder):
    cells = json.loads((ROOT / "examples" / "keras.ipynb").read_text(encoding="utf-8"))["cells"]
    namespace = {"__name__": "__main__"}
    for number, cell in enumerate(cells, 1):
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "outputs are not kept in the repository"
            exec(compile("".join(cell["source"]), f"keras.ipynb, cell {number}", "exec"), namespace)
    first, last = (namespace["history"].history["loss"][each] for each in (0, -1))
    assert last < 0.8 * first
    assert namespace["difference"] == 0


@pytest.mark.slow
def test_walkthrough(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    replaced = {
        '"transformer_small_data"': '"transformer_test"',
        "train_steps=2000": 'train_steps=2, decode_hparams="beam_size=1", eval_bleu_sentences=4',
        'tmp_dir="T"': 'tmp_dir="T", vocab_size=600, num_processes=1, progress=False',
    }
    run_blocks("docs/walkthrough.md", replaced=replaced)
    assert len(eval(capsys.readouterr().out.splitlines()[-1])) == 2
