"""What outlives a process: atomic files, run directories and checkpoints."""
