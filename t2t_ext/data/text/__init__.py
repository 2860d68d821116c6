"""Text to ids and back: reversible steps, subword models, and the encoder inside the graph."""

# The files of the subword models in a folder of data and in a run.
VOCABULARY_NAMES = {"source": "vocab.source.model", "target": "vocab.target.model"}
