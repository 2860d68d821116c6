"""Turns corpora into shards: cleaning, vocabularies, workers on all cores or on Beam."""
