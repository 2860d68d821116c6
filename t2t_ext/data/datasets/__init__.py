"""Turns shards into padded batches: the manifest, the examples in memory, the plan of batches, the pipeline."""
