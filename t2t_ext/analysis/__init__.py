"""Analyses of trained models: attention, gradient norms, divergence and probing, shown by ``t2t_ext-analyze``."""
