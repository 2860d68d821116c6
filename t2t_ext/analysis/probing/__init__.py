"""Probing tasks, which show what an encoder's states encode about a sentence."""
