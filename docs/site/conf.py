"""The configuration of Sphinx, which builds the site from the folder that `staging` filled."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

from pygments.lexer import DelegatingLexer, RegexLexer
from pygments.lexers.templates import DjangoLexer
from pygments.lexers.wgsl import WgslLexer
from pygments.token import Comment, Text
from sphinx.application import Sphinx

from webnorm import __version__

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

project = "webnorm"
author = "webnorm contributors"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
napoleon_use_ivar = True
# A record's levels are its tables'.
suppress_warnings = ["myst.header"]
smartquotes = False
exclude_patterns = ["README.md"]

# Names of headings as code hosts make them.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]
# Docstrings have code between single backticks.
default_role = "code"

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 60

html_theme = "furo"
html_title = "webnorm"
html_favicon = str(ROOT / "webnorm" / "web" / "assets" / "page" / "icon.svg")
html_static_path = [str(HERE / "static")]
templates_path = [str(HERE / "templates")]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_copy_source = html_show_sourcelink = html_show_copyright = False
html_domain_indices = False
html_use_index = False
pygments_style = "github-light-high-contrast"
pygments_dark_style = "github-dark-high-contrast"


class Template(DelegatingLexer):  # type: ignore[misc]
    """WGSL with Jinja in it."""

    def __init__(self, **options: object) -> None:
        super().__init__(WgslLexer, DjangoLexer, **options)


class Commands(RegexLexer):  # type: ignore[misc]
    """Lines for a shell, without a prompt; a word such as export is webnorm's, not the shell's."""

    tokens: ClassVar = {"root": [(r"#.*", Comment), (r"[^#]+", Text)]}


def _escape(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape *, | and _ in a docstring, except in backticks and in examples."""
    pieces = re.split(r"(`[^`]*`|>>>(?:.+\n?)+)", "\n".join(lines))
    pieces[::2] = [re.sub(r"[*|]|_\b", r"\\\g<0>", piece) for piece in pieces[::2]]
    lines[:] = "".join(pieces).split("\n")


def setup(app: Sphinx) -> None:
    """Colour kernels as templates, and of commands the comments."""
    # Before napoleon, which makes fields of sections.
    app.connect("autodoc-process-docstring", _escape, priority=400)
    app.add_lexer("wgsl", Template)
    app.add_lexer("console", Commands)
