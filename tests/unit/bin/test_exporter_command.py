"""What t2t_ext-exporter says before TensorFlow starts."""

import types

import pytest

from t2t_ext.bin import exporter
from t2t_ext.config.decode import resolve_decode_hparams


@pytest.mark.parametrize(
    ("written", "given", "idle"),
    [
        ("saved_model", "beam_size=8,alpha=1", []),
        ("saved_model", "num_hypotheses=2,batch_size=8", ["batch_size", "num_hypotheses"]),
        ("saved_model", "return_beams=true,write_beam_scores=true", ["return_beams", "write_beam_scores"]),
        ("saved_model", "sampling_method=random,num_hypotheses=5", []),
        ("keras_hub", "num_hypotheses=2,batch_size=8", ["num_hypotheses"]),
    ],
)
def test_settings_without_effect_on_an_export(written, given, idle):
    assert exporter._idle(types.SimpleNamespace(format=written), resolve_decode_hparams(given)) == idle
