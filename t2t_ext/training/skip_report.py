"""Reports the batches of steps whose gradients were not finite, so that users can find out why."""

import json
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.training.session import Session

SHOWN_PAIRS = 10

Report = dict[str, Any]


def make_report(session: Session, generated: GeneratedData, row: int, last: int) -> Report:
    """Rebuilds the batches of a row of skipped steps, which are functions of seed and step, and examines the last one.

    With several workers, all must call it, since gradients are computed again. The session must not have been restored
    since then. The row ends with step ``last``, counted from 1.

    Returns:
      JSON values: ``first_step``, ``last_step``, ``loss_scale``, ``learning_rate``, ``batches`` (of the first and the
      last step), ``weights_not_finite`` (names of variables) and, if the weights are still those of the last step,
      ``last_step_computed_again``.
    """
    store = ExampleStore.load(generated, "train", verify=False)
    first = last - row + 1
    report: Report = {
        "first_step": first,
        "last_step": last,
        "loss_scale": session.loss_scale(),
        "learning_rate": float(session.schedule(tf.constant(last, tf.int64))),
        "batches": [_batch(session, store, step) for step in dict.fromkeys((first, last))],
        "weights_not_finite": [
            name
            for name, variable in session.model.named_variables().items()
            if not np.isfinite(np.asarray(tf.convert_to_tensor(variable), np.float32)).all()
        ],
    }
    # A step that was not skipped has changed the weights since.
    if session.counter("skipped/in_a_row") >= session.step - last + 1:
        report["last_step_computed_again"] = _computed_again(session, last)
    return report


def to_json(report: Report) -> str:
    """Returns the contents of the report file; numbers that are not finite become strings, since JSON has none."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [plain(inner) for inner in value]
        return str(value) if isinstance(value, float) and not np.isfinite(value) else value

    return json.dumps(plain(report), indent=1, ensure_ascii=False) + "\n"


def summary(report: Report) -> str:
    """Returns a summary of the report in a few sentences."""
    batch = report["batches"][-1]
    numbers = ", ".join(map(str, batch["examples"][:5])) + (", ..." if len(batch["examples"]) > 5 else "")
    text = (
        f"The batch of step {batch['step']} has {len(batch['examples'])} pairs (examples {numbers}), sources up to "
        f"{max(batch['source_lengths'])} and targets up to {max(batch['target_lengths'])} tokens"
    )
    again = report.get("last_step_computed_again")
    if again:
        names = list(again["gradients_not_finite"])
        text += f"; computed again: loss {again['loss']:.4g}, gradient norm {again['gradient_norm']:.4g}, "
        text += (
            f"not finite in {len(names)} of {again['variables']} variables (such as {names[0]})"
            if names
            else "no gradient has values that are not finite"
        )
    if report["weights_not_finite"]:
        text += f"; the weights themselves are not finite in {', '.join(report['weights_not_finite'][:3])}"
    pair = batch["pairs"][0]
    return f"{text}. Its first pair: {_short(pair['source'])!r} - {_short(pair['target'])!r}."


def _batch(session: Session, store: ExampleStore, step: int) -> Report:
    planner = session.pipeline.planner
    epoch, number = planner.locate(step - 1)
    plan = planner.epoch(epoch)
    parts = range(number * planner.parts, (number + 1) * planner.parts)
    examples = [index for part in parts for index in plan.examples[plan.begins[part] : plan.ends[part]].tolist()]
    made_of = session.pipeline.examples
    pairs = [made_of.sequences(store, index) for index in examples]
    texts = [
        {
            "example": index,
            "pair": index % made_of.num_pairs,
            "source": _source_text(source, session.encoders[0]),
            # If there are two targets, the second one is generated from right to left.
            **{
                name: session.encoders[1].decode(ids.tolist())
                for name, ids in zip(("target", "target_r2l"), targets, strict=False)
            },
        }
        for index, (source, targets) in zip(examples[:SHOWN_PAIRS], pairs, strict=False)
    ]
    return {
        "step": step,
        "epoch": epoch,
        "batch_of_epoch": number,
        "examples": examples,
        "source_lengths": [len(source) for source, _ in pairs],
        "target_lengths": [max(map(len, targets)) for _, targets in pairs],
        "pairs": texts,
    }


def _source_text(source: np.ndarray, encoder: Any) -> str:
    """Returns a source as text; for feature vectors, how many there are and the range of their values."""
    if source.ndim == 1:
        return encoder.decode(source.tolist())
    values = np.asarray(source, np.float32)
    return f"{len(source)} feature vectors of {source.shape[1]} numbers from {values.min():.4g} to {values.max():.4g}"


def _computed_again(session: Session, step: int) -> Report:
    """Computes the gradients of a step's batch again, with its dropout masks and, as far as known, its loss scale."""
    state = session.state
    scale = session.loss_scale()
    state.step.assign(step - 1)
    if state.uses_loss_scale and session.step == step:
        state.loss_scale.assign(2.0 * scale)  # it was halved after that step
    try:
        found = session.train_step.gradients(next(session.iterator(step - 1)))
    finally:
        state.step.assign(session.step)
        state.loss_scale.assign(scale)
    gradients = found["gradients"]
    bad = {
        name: {"nan": int(np.isnan(values).sum()), "inf": int(np.isinf(values).sum()), "of": int(values.size)}
        for name, values in ((name, np.asarray(gradient)) for name, gradient in gradients.items())
        if not np.isfinite(values).all()
    }
    return {
        "loss": float(found["loss"]),
        "gradient_norm": float(tf.linalg.global_norm([tf.cast(g, tf.float32) for g in gradients.values()])),
        "variables": len(gradients),
        "gradients_not_finite": bad,
    }


def _short(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
