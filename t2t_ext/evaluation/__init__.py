"""How good translations are: scores with signatures and confidence, the protocols of papers, comparisons of systems."""
