"""Provides atomic writing, reading, locks, logging, progress reports and signal handling for all other packages."""
