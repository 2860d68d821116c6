"""Turns text into batches: reads corpora, segments them into subwords, writes shards and reads these as batches."""
