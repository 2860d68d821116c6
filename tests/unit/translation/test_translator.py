"""What a translator is, in words."""

from t2t_ext.translation import translator


def test_it_says_what_it_is(make_translator, tiny_model):
    from t2t_ext.models.ensemble import Ensemble

    one = make_translator(beam_size=8, num_hypotheses=2)
    model = f"Transformer of {tiny_model.count_params():,} parameters"
    subwords = f"{one.source_encoder.vocab_size} subwords"
    assert (
        repr(one) == f"<Translator: {model}, {subwords} to {subwords}, l2r, beam_size=8, alpha=0.6, num_hypotheses=2>"
    )
    encoder = one.source_encoder
    assert f"{model} + {model}," in repr(translator.Translator(Ensemble([tiny_model] * 2), encoder, encoder))
