"""Evaluation of translations: scores with signatures and confidence, papers' scoring protocols, system comparisons."""
