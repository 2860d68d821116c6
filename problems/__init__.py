"""The garden's problems: one file for each corpus or family of corpora."""
