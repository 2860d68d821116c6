"""Builds reports from tables, figures and text, and shows them as plain text, TSV, JSON or a single HTML page."""
