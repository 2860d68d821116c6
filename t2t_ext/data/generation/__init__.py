"""From corpora to shards: cleaning, vocabularies, workers on all cores or on Beam."""
