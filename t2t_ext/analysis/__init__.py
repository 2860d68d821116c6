"""Analyses of trained models (``t2t_ext-analyze``): attention, gradient norms, divergence, probing; model diagrams."""
