"""The attention of a model in a sentence: maps, pictures, reports."""
