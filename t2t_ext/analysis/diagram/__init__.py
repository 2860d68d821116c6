"""A model's diagram, as text and as a picture."""
