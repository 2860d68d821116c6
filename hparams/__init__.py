"""The garden's hparams sets: every published setting under a name, one file a model family."""
