"""A model's attention in a sentence: maps, pictures and reports."""
