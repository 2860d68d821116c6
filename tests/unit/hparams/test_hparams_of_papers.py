"""Tests that the hparams sets of the papers' baselines have the values that each paper states."""

import pytest

from t2t_ext import registry

HEADS = {256: 4, 512: 8, 1024: 16}
POST_NORM = {"layer_preprocess_sequence": "none", "layer_postprocess_sequence": "dan"}
STATED = {
    # He et al. 2018, sections 4.2 and 4.3.
    "transformer_base_he2018": {"hidden_size": 512, "filter_size": 2048, "num_heads": 8, "optimizer_adam_beta2": 0.98},
    "transformer_big_he2018": {
        "hidden_size": 1024, "filter_size": 4096, "num_heads": 16, "optimizer_adam_beta2": 0.98, "batch_size": 4096,
        "gradient_accumulation_steps": 8,
    },
    # Liu et al. 2020, appendix A.
    "transformer_base_liu2020": {"hidden_size": 512, "filter_size": 2048, "num_heads": 8, **POST_NORM},
    "transformer_iwslt_liu2020": {
        "hidden_size": 512, "filter_size": 1024, "num_heads": 4, "layer_prepostprocess_dropout": 0.3, **POST_NORM,
    },
    "transformer_big_liu2020": {"hidden_size": 1024, "gradient_accumulation_steps": 8, **POST_NORM},
    "transformer_big_ende_liu2020": {"hidden_size": 1024, "gradient_accumulation_steps": 128, **POST_NORM},
    # Zhou et al. 2019, section 4.2.
    "transformer_big_zhou2019": {
        "hidden_size": 1024, "filter_size": 4096, "num_heads": 16, "optimizer_adam_beta1": 0.9,
        "optimizer_adam_beta2": 0.998, "optimizer_adam_epsilon": 1e-9, "learning_rate_warmup_steps": 16000,
        "label_smoothing": 0.1, "layer_prepostprocess_dropout": 0.1, **POST_NORM,
    },
    # Ampomah et al. 2021, sections 5.2 and 5.3.
    "transformer_base_ampomah2021": {
        "hidden_size": 512, "num_heads": 8, "num_hidden_layers": 6, "batch_size": 4960, "optimizer_adam_beta2": 0.98,
        "optimizer_adam_epsilon": 1e-9, **POST_NORM,
    },
    "transformer_iwslt_ampomah2021": {
        "hidden_size": 256, "num_heads": 4, "num_hidden_layers": 4, "filter_size": 1024, "batch_size": 2048,
        "optimizer_adam_beta2": 0.98, **POST_NORM,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", STATED)
def test_what_the_papers_state(name):
    hparams = registry.hparams(name)
    assert {field: getattr(hparams, field) for field in STATED[name]} == STATED[name]
    assert hparams.use_target_space_embedding is False
    assert hparams.label_smoothing == 0.1


@pytest.mark.parametrize(
    ("name", "train_steps", "peak_step", "peak"),
    [
        ("transformer_base_he2018", 100_000, 4000, 512**-0.5 * 4000**-0.5),
        ("transformer_base_liu2020", 50_000, 4000, 7.0e-4),
        ("transformer_iwslt_liu2020", 50_000, 4000, 5e-4),
        ("transformer_big_liu2020", 300_000, 4000, 5e-4),
        ("transformer_big_ende_liu2020", 30_000, 4000, 1e-3),
        ("transformer_big_zhou2019", 200_000, 16000, 1024**-0.5 * 16000**-0.5),
        ("transformer_base_ampomah2021", 160_000, 8000, 2 * 512**-0.5 * 8000**-0.5),
        ("transformer_iwslt_ampomah2021", 200_000, 8000, 2 * 256**-0.5 * 8000**-0.5),
    ],
)
def test_peaks_of_the_learning_rate(name, train_steps, peak_step, peak):
    from t2t_ext.training.schedules import Schedule

    schedule = Schedule(registry.hparams(name), train_steps)
    rates = {step: float(schedule(step)) for step in (1, peak_step // 2, peak_step, peak_step * 2, train_steps)}
    assert max(rates, key=rates.get) == peak_step
    assert rates[peak_step] == pytest.approx(peak, rel=3e-3)
    if "ampomah" in name:
        assert rates[train_steps] == pytest.approx(0.0, abs=1e-9)


def test_even_kernels_of_sets_and_of_stored_runs():
    """In the sets, even kernels have the extra tap on the left, as in Wu et al. (2019); in older stored runs, not."""
    from t2t_ext.config.dynamic_conv import DynamicConvHParams
    from t2t_ext.config.hyperparameters import HParams

    sets = [name for name in registry.hparams_names() if isinstance(registry.hparams(name), DynamicConvHParams)]
    assert len(sets) > 8
    for name in sets:
        hparams = registry.hparams(name)
        assert hparams.conv_even_kernel == "left", name
    stored = {key: value for key, value in hparams.to_dict().items() if key != "conv_even_kernel"}
    assert HParams.from_dict(stored).conv_even_kernel == "right"
