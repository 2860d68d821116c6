"""Tests that XLA compiles convolutional models with static shapes and leaves their results unchanged."""

import pytest
from test_xla import NARROW, assert_every_bucket_compiles

from t2t_ext import registry
from t2t_ext.data.datasets.batching import bucket_boundaries


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dynamic", "lightweight"])
def test_buckets_compile(kind):
    hparams = registry.hparams("dynamic_conv_small").override(
        f"{NARROW},batch_size=256,max_length=80,min_length_bucket=20,length_bucket_step=2,conv_type={kind},"
        "encoder_kernel_sizes=31,decoder_kernel_sizes=7"
    )
    boundaries = bucket_boundaries(hparams)
    assert boundaries[0] < 64 < boundaries[-1]
    assert_every_bucket_compiles(hparams, boundaries, "dynamic_conv")
