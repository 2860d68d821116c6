"""Pseudo references: two trained models translate the training data for models that generate in both directions."""
