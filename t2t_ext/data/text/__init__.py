"""Converts text to ids and back: reversible text steps, subword models, and the encoder inside the graph."""

# The names of the subword model files in a data directory and in a run directory.
VOCABULARY_NAMES = {"source": "vocab.source.model", "target": "vocab.target.model"}
