"""Reports: tables, figures and words, shown as text, TSV, JSON, or one HTML page."""
