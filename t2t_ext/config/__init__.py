"""Typed, strict settings that say where every value comes from: the hyper-parameters of every family of models."""
