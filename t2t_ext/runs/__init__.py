"""Run directories: their configuration, their checkpoints and averages, and the choice of runs for translation."""
