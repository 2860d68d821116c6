"""Defines the types of features in samples, and stores sequences of float vectors in separate files."""
