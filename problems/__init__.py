"""The garden's problems: what can be translated from what, one file a corpus or a family of them."""
