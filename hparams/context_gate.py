"""Settings of the Transformer with a context gate: He et al. (NeurIPS 2018), section 5.4, after Tu et al. (2017)."""

from t2t_ext.config.context_gate import ContextGateHParams
from t2t_ext.hparams._families import as_family
from t2t_ext.hparams.transformer import transformer_iwslt_small, transformer_test
from t2t_ext.registry import register_hparams


@register_hparams
def context_gate_transformer_small() -> ContextGateHParams:
    """The paper's baseline: transformer_iwslt_small (6+6 layers of 256/1024, 4 heads) with a gate for each head."""
    return as_family(transformer_iwslt_small(), ContextGateHParams)


@register_hparams
def context_gate_transformer_test() -> ContextGateHParams:
    """2+2 layers of width 16, like transformer_test, for tests."""
    return as_family(transformer_test(), ContextGateHParams)
