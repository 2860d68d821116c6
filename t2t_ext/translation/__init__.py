"""Strings in, hypotheses out: the translator, scores of given translations, word alignments and reranking."""
