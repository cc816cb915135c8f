"""The documents as a site: `make docs` builds it, into `build/site`."""

import sys
from importlib import import_module
from pathlib import Path

import tidemark

sys.path.insert(0, str(Path(__file__).parent))
# autodoc rewrites annotations of pydantic's models, after which Dagster can't be imported any more.
import_module("dagster")

project = "Tidemark"
version = release = tidemark.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "extensions.commands",
    "extensions.docstrings",
    "extensions.pages",
]
exclude_patterns = ["extensions"]

# A link to a heading is checked like one to a page: a heading's anchor is as on a forge.
myst_heading_anchors = 4
# Dashes alone: quotes are those of code.
smartquotes_action = "D"

# What a class only inherits is told where it comes from.
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "Tidemark"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_sphinx = False
# Prompts and what a command says are not copied with it.
copybutton_prompt_text = "$ "
