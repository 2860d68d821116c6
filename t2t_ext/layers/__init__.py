"""Layers, one mechanism per file."""
