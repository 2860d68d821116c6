"""Types of features of samples, and sequences of float vectors in files of their own."""
