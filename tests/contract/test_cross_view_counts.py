"""Cross-view decoding adds as many parameters as its equations say (Liu et al. 2020)."""

import pytest
from test_parameter_counts import counted, formula

PRE_NORM = {"layer_preprocess_sequence": "n", "layer_postprocess_sequence": "da"}
TWO = {"integration": "soft_two_attention"}


def counts(name, changes):
    """Returns the numbers of parameters with and without the views."""
    from t2t_ext import registry

    hparams = registry.hparams(f"cross_view_transformer_{name}").replace(**changes)
    return counted(hparams, 50, 50, True, "cross_view_transformer"), formula(hparams, 50, 50, True)


# D = 16, N = 3 encoder layers, M = 2 decoder layers; a layer norm has 2 D parameters. gca, gpa and fga have no weights
# of their own, so a case for one of them covers all three.
@pytest.mark.parametrize(
    ("changes", "growth"),
    [
        ({"source_view": "gpa"}, 2 * 32),
        ({"source_view": "fga", "integration": "hard"}, 0),
        ({"source_view": "ama"}, 2 * (3 * 16 + 32)),
        ({"source_view": "ama", "ama_share_layers": True, "integration": "hard"}, 3 * 16),
        ({"source_view": "ama", "ama_query": "decoder"}, 2 * (3 * 16 + 32)),
        ({"source_view": "fma"}, 2 * (3 * 16 * 16 + 16 + 32)),
        ({"source_view": "fma", "fma": "scalar", "integration": "hard"}, 2 * 3),
        ({"source_view": "gca", **TWO}, 2 * 32),
        ({"source_view": "gca", **TWO, "integration_attention": "separate"}, 2 * (4 * 16 * 16 + 32)),
        # Pre-norm: each encoder layer that is read (1, or 1 and 2) has a norm of its own; layer 3 has the stack's norm.
        ({"source_view": "gca", **PRE_NORM}, 32 + 2 * 32),
        ({"source_view": "gca", **PRE_NORM, "source_view_norm": "shared"}, 2 * 32),
        ({"source_view": "ama", **PRE_NORM, "integration": "hard"}, 2 * 32 + 2 * 3 * 16),
    ],
)
def test_growth(changes, growth):
    found, transformer = counts("test", {"num_encoder_layers": 3, "num_decoder_layers": 2, **changes})
    assert found - transformer == growth


def test_growth_of_full_matching_in_the_papers_base_model():
    """Full matching adds N D^2 + D and a norm per decoder layer, 1.57M each: not the paper's "minimal" increase."""
    found, transformer = counts("base", {"source_view": "fma"})
    assert found - transformer == 6 * (6 * 512**2 + 512 + 2 * 512) == 9_446_400


def test_all_weights_of_a_transformer_keep_their_names():
    """The Transformer's weights keep their names and shapes, so that a run can start from a trained Transformer."""
    from t2t_ext import registry

    def names(model, **changes):
        hparams = registry.hparams("cross_view_transformer_test").replace(**changes)
        model = registry.model(model)(hparams, source_vocab_size=50, target_vocab_size=50)
        model.build()
        return {path: tuple(variable.shape) for path, variable in model.named_variables().items()}

    transformer = names("transformer", source_view="last", integration="hard")
    for changes in ({}, {"source_view": "ama", **TWO, "integration_attention": "separate"}):
        ours = names("cross_view_transformer", **changes)
        assert transformer.items() <= ours.items()
        assert names("transformer", **changes) == ours
