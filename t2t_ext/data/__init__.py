"""From text to batches: corpora are read, cut into subwords, written as shards and read back as batches."""
