"""Settings for summarizing articles, whose sources are longer than sentences."""

from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.hparams.transformer import transformer_base
from t2t_ext.registry import register_hparams


@register_hparams
def transformer_base_summarization() -> TransformerHParams:
    """The base model, trained as OpenNMT-py trains a Transformer on CNN/Daily Mail, without copy attention.

    Liu et al. 2020, appendix A.2: "Transformer-Base" with "the default setting provided by OpenNMT". That means dropout
    0.2, Adam's beta2 = 0.998, 2 d^-0.5 with 8,000 steps of warm-up, label smoothing 0.1, and 4 accumulated batches of
    4,096 tokens. 400 words of an article are fewer than 1,024 subwords.
    """
    return transformer_base().replace(
        max_length=1024,
        optimizer_adam_beta2=0.998,
        layer_prepostprocess_dropout=0.2,
        attention_dropout=0.2,
        relu_dropout=0.2,
        use_target_space_embedding=False,
        gradient_accumulation_steps=4,
    )
