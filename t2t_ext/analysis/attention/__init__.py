"""What a model attends to in a sentence."""
