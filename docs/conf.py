"""Configuration of Sphinx: ``make docs`` writes the pages of this folder and the API reference as HTML."""

from tilewright import __version__

project = "Tilewright"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "index"
html_theme = "furo"
html_title = f"Tilewright {release}"

myst_heading_anchors = 4  # links such as cli.md#exit-status, with the anchors that GitHub gives
highlight_language = "none"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
