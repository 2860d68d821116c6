"""Reports on raw text before training."""
