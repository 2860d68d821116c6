"""Compares systems that translated the same text: paired tests, analyses and report pages."""
