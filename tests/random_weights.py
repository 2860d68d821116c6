"""Random weights for tests that differ from all initial values: biases are not 0, scales are not 1."""

import numpy as np


def random_arrays(model, seed, scale=1.0):
    """Returns arrays for ``model.assign``; `scale` multiplies the matrices, so a larger one makes outputs vary more."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for name, variable in model.named_variables().items():
        noise = rng.standard_normal(variable.shape)
        if name.endswith("scale"):
            arrays[name] = 1.0 + 0.3 * noise
        elif name.endswith("bias"):
            arrays[name] = 0.3 * noise
        else:
            arrays[name] = noise * scale / np.sqrt(variable.shape[-1])
    return {name: array.astype(np.float32) for name, array in arrays.items()}
