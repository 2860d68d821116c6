"""Models: one file a model; ``seq2seq`` is the contract that they share."""
