"""The documentation site, of the Markdown that is read in the repository:  sphinx-build docs site

Its source folder is the repository, so that README, ARCHITECTURE and CHANGELOG are pages of it.
"""

import sys
from pathlib import Path

from sphinx.application import Sphinx

import frontier

sys.path.insert(0, str(Path(__file__).parent))
import docstring_pages

project = "frontier"
author = "the frontier developers"
version = release = frontier.__version__
root_doc = "docs/index"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
include_patterns = [
    "*.md",
    "docs/**.md",
    "tests/real_engines/README.md",
    "tests/faults/README.md",
    "benchmarks/truth/README.md",
]
exclude_patterns = [".venv", ".ci", "runs", "site"]
html_theme = "furo"
html_title = f"frontier {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
smartquotes = False
suppress_warnings = ["toc.not_included"]  # decisions and examples are reached from their own lists
html_show_copyright = False
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
autodoc_typehints = "description"
autodoc_class_signature = "separated"


def setup(app: Sphinx) -> None:
    """Take the repository as the source folder, also where docs was named, and write the pages that
    are made of docstrings."""
    app.srcdir = Path(__file__).parent.parent
    docstring_pages.write()
