"""The training runs behind the golden losses, and a command that writes the losses to their files again.

``losses_50_steps.json`` has the losses of a Transformer, ``losses_synchronous.json`` those of a synchronous
Transformer on pseudo references:

    python tests/golden/loss_run.py --write

Run it only after an intended change of the mathematics (initialization, dropout masks, order of the batches, loss,
optimizer, schedule), and say in the commit what changed. Without ``--write`` it prints how much the losses on this
machine differ from those in the files.
"""

import argparse
import contextlib
import importlib.util
import io
import json
import pathlib
import sys
import tempfile

FILE = pathlib.Path(__file__).with_name("losses_50_steps.json")
SYNCHRONOUS_FILE = pathlib.Path(__file__).with_name("losses_synchronous.json")
STEPS = 50
SYNCHRONOUS_STEPS = 20
# The settings use every part of the mathematics of training.
HPARAMS = (
    "hidden_size=32,filter_size=64,num_heads=2,num_hidden_layers=2,batch_size=512,precision=float32,"
    "layer_prepostprocess_dropout=0.1,attention_dropout=0.1,relu_dropout=0.1,label_smoothing=0.1,clip_grad_norm=1.0,"
    "learning_rate_warmup_steps=20"
)
RATE = "learning_rate_constant=0.5"  # the schedule of the synchronous hparams set has no constant factor
SYNCHRONOUS_HPARAMS = f"{HPARAMS},pseudo=six,sb_loss_on_pseudo=false,sb_future_dropout=0.1"
MEASURES = ("loss", "gradient_norm")


def synchronous_losses(directory):
    """Trains a synchronous Transformer with six triples (code-made references); returns 20 values of every measure."""
    return losses(directory, SYNCHRONOUS_HPARAMS, "synchronous_transformer", SYNCHRONOUS_STEPS)


def losses(directory, hparams=f"{HPARAMS},{RATE}", model="transformer", steps=STEPS):
    """Trains on 400 pairs made by code and returns a list of values of every measure, one for each step."""
    from t2t_ext import registry
    from t2t_ext.config.training import TrainConfig
    from t2t_ext.data.generation.generate import generate
    from t2t_ext.training.loop import train

    directory = pathlib.Path(directory)
    options = {}
    toy_pairs = _module("conftest").toy_pairs
    for split, count, seed in (("train", 400, 11), ("dev", 8, 12)):
        for number, side in enumerate(("source", "target")):
            path = directory / f"{split}.{side}"
            path.write_text("".join(pair[number] + "\n" for pair in toy_pairs(count, seed)), encoding="utf-8")
            options[f"{split}_{side}"] = str(path)
    problem = registry.problem("translate_parallel_text", **options)
    generate(problem, directory, directory, vocab_size=330, num_processes=1, progress=False, say=lambda text: None)
    two_sided = model == "synchronous_transformer"
    if two_sided:
        _module("pseudo_sidecar").write_sidecar(directory, problem)
    config = TrainConfig(
        output_dir=str(directory / "run"),
        problem="translate_parallel_text" + ("_synchronous" if two_sided else ""),
        problem_options=options,
        model=model,
        hparams_set=f"{model}_test",
        hparams=hparams,
        data_dir=str(directory),
        random_seed=1,
        train_steps=steps,
        log_step_count_steps=1,
        eval_bleu_sentences=-1,
        best_checkpoint_metric="loss",
    )
    with contextlib.redirect_stdout(io.StringIO()):
        train(config, quiet=True)
    records = [json.loads(line) for line in (directory / "run" / "metrics.jsonl").read_text().splitlines()]
    training = [record for record in records if record["kind"] == "train"]
    assert [record["step"] for record in training] == list(range(1, steps + 1))
    return {name: [record[name] for record in training] for name in MEASURES}


def _module(name):
    """Loads a module of the top test folder by its path, because several test folders have a ``conftest``."""
    path = pathlib.Path(__file__).parents[1] / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"tests_{name}", path)
    module = sys.modules[f"tests_{name}"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    """Prints the differences from the files, or writes the files."""
    parser = argparse.ArgumentParser(description="Compares losses with those of the files.")
    parser.add_argument("--write", action="store_true", help="Write the files anew.")
    write = parser.parse_args().write
    for file, run in ((FILE, losses), (SYNCHRONOUS_FILE, synchronous_losses)):
        with tempfile.TemporaryDirectory() as directory:
            found = run(directory)
        if write:
            file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(f"wrote {file}")
            continue
        expected = json.loads(file.read_text(encoding="utf-8"))
        print(file.name)
        for step in (step for step in (1, 2, 5, 10, 20, 30, 40, 50) if step <= len(found["loss"])):
            differences = (
                f"{name} {abs(found[name][step - 1] / expected[name][step - 1] - 1):.1e}" for name in MEASURES
            )
            print(f"step {step}: relative difference of {', '.join(differences)}")


if __name__ == "__main__":
    main()
