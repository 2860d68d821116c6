"""From text to batches: corpora are read, segmented into subwords, written as shards and read back as batches."""
