"""Settings of the Transformer with a context gate: He et al. (NeurIPS 2018), section 5.4, after Tu et al. (2017)."""

from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.config.layer_coordination import ContextGateHParams
from t2t_ext.hparams.transformer import transformer_iwslt_small, transformer_test
from t2t_ext.registry import register_hparams


def _gated(hparams: TransformerHParams) -> ContextGateHParams:
    return ContextGateHParams(**{name: getattr(hparams, name) for name in hparams.names()})


@register_hparams
def context_gate_transformer_small() -> ContextGateHParams:
    """The paper's baseline: transformer_iwslt_small (6+6 layers of 256/1024, 4 heads) with a gate for each head."""
    return _gated(transformer_iwslt_small())


@register_hparams
def context_gate_transformer_test() -> ContextGateHParams:
    """2+2 layers of width 16, as transformer_test, for tests."""
    return _gated(transformer_test())
