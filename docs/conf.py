"""How Sphinx makes web pages of this folder: ``make docs``."""

project = "t2t_ext"
copyright = "The t2t_ext authors"
root_doc = "index"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "t2t_ext"
exclude_patterns = ["_build"]
myst_heading_anchors = 4
# Pages link to files beside this folder, too; tests/unit/test_docs.py checks all links.
suppress_warnings = ["myst.xref_missing"]
