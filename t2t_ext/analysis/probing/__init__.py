"""Probing tasks: what an encoder's states know of a sentence."""
