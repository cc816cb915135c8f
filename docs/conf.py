"""Configuration of the documentation site, which `make docs` builds into `build/site`."""

import sys
from importlib import import_module
from pathlib import Path

import tidemark

sys.path.insert(0, str(Path(__file__).parent))
# autodoc rewrites annotations of pydantic's models, which breaks a later import of Dagster.
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

# Links to headings are checked like links to pages. Anchors are those of GitHub.
myst_heading_anchors = 4
# Convert dashes only, because quotes may be code.
smartquotes_action = "D"

# Inherited members are documented in their own class.
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
# Do not copy prompts and the output of commands.
copybutton_prompt_text = "$ "
