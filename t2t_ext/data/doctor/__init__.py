"""Reports on raw text, before anybody trains on it."""
