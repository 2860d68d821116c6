"""Beam search, sampling and the rules of the search, which knows only the ``start`` and ``step`` of a model."""
