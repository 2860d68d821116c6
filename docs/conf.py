"""How Sphinx makes web pages of the documentation: ``make docs``, which runs it in the folder above.

Pages link to README.md and others beside this folder, so these are pages, too; what else they link to is copied.
"""

project = "t2t_ext"
copyright = "The t2t_ext authors"
include_patterns = ["*.md", "docs/**"]
root_doc = "docs/index"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "t2t_ext"
myst_heading_anchors = 4
