"""Downloads and unpacks raw corpora, and reads the common formats of parallel text."""
