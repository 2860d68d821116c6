"""How good translations are: BLEU, chrF and TER with signatures and confidence."""
