"""Files that are there completely or not at all, progress, and signals: what everything else writes and waits with."""
