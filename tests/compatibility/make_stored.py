"""Makes the stored runs, data and exports that `test_stored_runs.py` reads, with the version of t2t_ext on the path.

    PYTHONPATH=CHECKOUT python tests/compatibility/make_stored.py tests/compatibility/data/stored.tar.xz

Run it before a change of what is stored, with the version whose files later versions must be able to read. It uses only
commands, the public interface and the test helpers of that checkout. It takes about five minutes.
"""

import contextlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "2")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "2")

import t2t_ext

sys.path.insert(0, str(pathlib.Path(t2t_ext.__file__).parents[1] / "tests"))
from conftest import toy_pairs

STEPS = 300
COMMON = (
    "hidden_size=16,filter_size=16,num_heads=2,num_hidden_layers=2,batch_size=500,"
    "layer_prepostprocess_dropout=0.0,attention_dropout=0.0,relu_dropout=0.0,precision=float32,max_length=48,"
    "learning_rate_warmup_steps=40"
)
# Folder -> (model, hparams set, overrides). Models with two target sides use the problem with pseudo references.
RUNS = {
    "asynchronous": ("asynchronous_transformer", "asynchronous_transformer_test", ""),
    "composed_three": ("composed_transformer", "composed_transformer_test", "synchronous=true,sb_lambda=0.8"),
    "composed_l2r": (
        "composed_transformer",
        "composed_transformer_test",
        "synchronous=false,dc_decoder_layers=2,dc_kernel_size=3,source_view=ama,integration=soft_two_attention",
    ),
    "context_gate": ("context_gate_transformer", "context_gate_transformer_test", ""),
    "cross_view_dynamic_conv": (
        "cross_view_dynamic_conv", "cross_view_dynamic_conv_test", "source_view=fma,integration=soft_two_attention",
    ),
    "cross_view_transformer": ("cross_view_transformer", "cross_view_transformer_test", ""),
    "dual_context": ("dual_context_transformer", "dual_context_test", "dc_encoder_layers=1-2,dc_decoder_layers=1"),
    "dynamic_conv": ("dynamic_conv", "dynamic_conv_test", ""),
    "layer_coordination": ("layer_coordination", "layer_coordination_test", ""),
    "layer_coordination_two_stacks": (
        "layer_coordination",
        "layer_coordination_test",
        "lwc_share_weights=false,lwc_mixed_attention=false,dc_encoder_layers=1,dc_kernel_size=3",
    ),
    "lightweight_conv_post_norm": (
        "dynamic_conv",
        "dynamic_conv_test",
        "conv_type=lightweight,layer_preprocess_sequence=none,layer_postprocess_sequence=dan,conv_glu=false",
    ),
    "synchronous": ("synchronous_transformer", "synchronous_transformer_test", "sb_lambda_trainable=vector"),
    "synchronous_gate": (
        "synchronous_transformer", "synchronous_transformer_test", "sb_fusion=gate,sb_layers=2,predict_tag=true",
    ),
    "synchronous_layer_coordination": (
        "synchronous_layer_coordination", "synchronous_layer_coordination_test", "",
    ),
    "transformer": ("transformer", "transformer_test", "ema_decay=0.95"),
    "transformer_r2l": (
        "transformer",
        "transformer_test",
        "target_direction=r2l,shared_embedding_and_softmax_weights=false,ffn_activation=swiglu,projection_bias=true",
    ),
}  # fmt: skip
# Runs that can be resumed; of the other runs only the weights are kept.
WITH_TRAINING_STATE = ("composed_three", "synchronous", "transformer")
EXPORTED = ("synchronous", "transformer")
DECODE = "beam_size=4,num_hypotheses=2,min_length=1,batch_size=8,max_length_offset=12"
SENTENCES = 5


def main():
    """Makes everything in a temporary folder, to which all paths in the runs are relative, and packs it."""
    target = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        files = _make_data()
        expected = {"commit": _commit(), "version": t2t_ext.__version__, "decode_hparams": DECODE, "runs": {}}
        for name in RUNS:
            _train(name, files)
            expected["runs"][name] = _answers(name)
            print(name, json.dumps(expected["runs"][name], ensure_ascii=False)[:900], flush=True)
        expected["exports"] = {name: _export(name) for name in EXPORTED}
        for name in RUNS:
            _slim(pathlib.Path("runs", name), name in WITH_TRAINING_STATE)
        expected["resumed"] = {name: _resume(name) for name in WITH_TRAINING_STATE}
        pathlib.Path("expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1) + "\n", "utf-8")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(target, "w:xz", preset=9) as packed:
            for path in sorted(path for path in pathlib.Path(".").rglob("*") if path.is_file()):
                packed.add(path, filter=_anonymous)
    print(f"{target}: {target.stat().st_size:,} bytes")


def _make_data():
    import pseudo_sidecar

    files = {}
    for split, count, seed in (("train", 400, 11), ("dev", 8, 12)):
        for column, side in enumerate(("source", "target")):
            path = pathlib.Path(f"{split}.{side}")
            path.write_text("".join(pair[column] + "\n" for pair in toy_pairs(count, seed)), encoding="utf-8")
            files[f"{split}_{side}"] = str(path)
    options = [f"--{name}={path}" for name, path in files.items()]
    _command(
        "datagen", "--problem=translate_parallel_text", "--data_dir=data", "--tmp_dir=tmp", "--vocab_size=330",
        "--num_shards=2", "--num_processes=1", *options,
    )  # fmt: skip
    shutil.rmtree("tmp", ignore_errors=True)
    pseudo_sidecar.write_sidecar(pathlib.Path("data"), t2t_ext.registry.problem("translate_parallel_text", **files))
    return options


def _train(name, files):
    model, hparams_set, more = RUNS[name]
    constant = "constant" in t2t_ext.registry.hparams(hparams_set).learning_rate_factors
    hparams = ",".join(filter(None, (COMMON, constant * "learning_rate_constant=2.0", more)))
    pseudo = "synchronous_" in hparams_set or "synchronous=true" in more
    _command(
        "trainer", f"--problem=translate_parallel_text{'_synchronous' * pseudo}", f"--model={model}",
        f"--hparams_set={hparams_set}", f"--hparams={hparams}", "--data_dir=data",
        f"--output_dir=runs/{name}", "--random_seed=1", f"--train_steps={STEPS}", f"--local_eval_frequency={STEPS}",
        "--eval_bleu_sentences=-1", "--best_checkpoint_metric=loss", "--eval_early_stopping_metric=loss", *files,
    )  # fmt: skip


def _answers(name):
    """Returns the output of the run's translator: hypotheses of some sentences and scores of some pairs."""
    translator = t2t_ext.Translator.load(f"runs/{name}", decode_hparams=DECODE)
    lines = [source for source, _ in toy_pairs(SENTENCES, seed=21)]
    pairs = list(zip(lines, [target for _, target in toy_pairs(SENTENCES, seed=22)], strict=True))
    sides = {}
    if translator.two_sided:
        sides["partners"] = [target for _, target in toy_pairs(SENTENCES, seed=23)]
        sides["directions"] = ["l2r", "r2l", "l2r", "r2l", "l2r"]
    found = translator.translate(lines)
    scored = translator.score(pairs, **sides)
    return {
        "lines": lines,
        "hypotheses": [
            [
                {"text": h.text, "ids": h.ids, "score": h.score, "finished": h.finished, "direction": h.direction}
                for h in row
            ]
            for row in found
        ],
        "pairs": pairs,
        **sides,
        "scores": [{"log_prob": each.log_prob, "token_log_probs": each.token_log_probs} for each in scored],
    }


def _export(name):
    """Exports a run; returns the outputs of the SavedModel's signatures, loaded without the toolkit's classes."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 - its operations

    _command("exporter", f"--output_dir=runs/{name}", f"--export_dir=exports/{name}", f"--decode_hparams={DECODE}")
    signatures = tf.saved_model.load(f"exports/{name}/{STEPS}").signatures
    lines = tf.constant([source for source, _ in toy_pairs(SENTENCES, seed=21)])
    answers = {}
    for signature in ("serving_default", "nbest"):
        found = signatures[signature](inputs=lines)
        answers[signature] = {
            key: [[each.decode() for each in row] if value.ndim > 1 else row.decode() for row in value]
            if value.dtype == object
            else value.tolist()
            for key, value in ((key, value.numpy()) for key, value in found.items())
        }
    return answers


def _resume(name):
    """Trains a copy of the run for two more steps and returns the logged losses of these steps."""
    copy = pathlib.Path("resumed")
    shutil.copytree(f"runs/{name}", copy)
    _command("trainer", f"--output_dir={copy}", f"--train_steps={STEPS + 2}", "--log_step_count_steps=1")
    records = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    shutil.rmtree(copy)
    return [
        {"kind": record["kind"], "step": record["step"], "loss": record["loss"]}
        for record in records
        if record["step"] > STEPS
    ]


def _slim(run, resumable):
    """Removes TensorBoard files, the second copy of the best checkpoint and, unless resumable, the training state."""
    shutil.rmtree(run / "tensorboard")
    if not resumable:
        (checkpoint,) = (run / "checkpoints").iterdir()
        shutil.rmtree(checkpoint)
        shutil.move(run / "best" / checkpoint.name, checkpoint)
    shutil.rmtree(run / "best")


def _command(name, *flags):
    """Runs the command t2t_ext-NAME in this process and exits with its output if it fails."""
    module = __import__(f"t2t_ext.bin.{name}", fromlist=["main"])
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(said):
        status = module.main(list(flags))
    if status:
        sys.exit(f"t2t_ext-{name} {' '.join(flags)}: status {status}\n{said.getvalue()[-3000:]}")


def _commit():
    folder = pathlib.Path(t2t_ext.__file__).parents[1]
    return subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()


def _anonymous(member):
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
