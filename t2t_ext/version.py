"""The version of t2t_ext, read by setup.py and stored in every run."""

__version__ = "0.1.0"
