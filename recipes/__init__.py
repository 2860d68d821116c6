"""The garden's recipes: a published experiment each, in TOML files.

``t2t_ext.experiments.recipes`` says what a recipe holds; ``t2t_ext-experiment --list`` lists them.
"""
