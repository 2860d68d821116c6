"""Gradient norms of the parts of a model."""
