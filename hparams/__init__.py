"""The garden's hparams sets: every published setting has a name, and each model family has a file."""
