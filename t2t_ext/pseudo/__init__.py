"""Pseudo references: two trained models translate the training data for models that write in both directions."""
