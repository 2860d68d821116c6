"""Gradient norms of a model's parts."""
