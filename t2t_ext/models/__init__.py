"""Models, one per file; ``seq2seq`` defines their common interface."""
