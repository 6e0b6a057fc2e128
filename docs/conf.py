"""Sphinx configuration. Build with ``make docs``: warnings are errors."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import cloud_ml

project = "Cloud ML"
author = "The Cloud ML authors"
copyright = author  # noqa: A001 - Sphinx's name for it
version = release = cloud_ml.__version__

extensions = ["myst_parser", "cloud_ml_docs"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "_ext"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"Cloud ML {release}"
html_static_path = ["_static"]
html_css_files = ["page.css"]
html_copy_source = False
html_show_sphinx = False
