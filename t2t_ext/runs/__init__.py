"""Run directories: their configuration, checkpoints and averages, and which of them translate."""
