"""Layers: one mechanism a file."""
