"""Strings in, hypotheses out: the translator, scores of given pairs, alignments, reranking."""
