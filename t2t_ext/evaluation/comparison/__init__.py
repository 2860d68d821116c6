"""Comparisons of systems that translated the same text: paired tests, analyses, pages."""
