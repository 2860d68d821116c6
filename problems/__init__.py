"""The garden's problems, one file a corpus or a family of corpora."""
