"""The types of what a sample consists of, and sequences of float vectors in files of their own."""
