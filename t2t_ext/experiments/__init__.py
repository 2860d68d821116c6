"""Experiments: every checkpoint of a run translated and scored, and published experiments as recipes."""
