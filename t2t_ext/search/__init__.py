"""Beam search, sampling and the rules of the search. It knows a model's ``start`` and ``step`` only."""
