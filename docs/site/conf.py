"""How Sphinx builds the site, of the folder that `staging` filled."""

from __future__ import annotations


import re
from pathlib import Path

from pygments.lexer import DelegatingLexer
from pygments.lexers.shell import BashLexer
from pygments.lexers.templates import DjangoLexer
from pygments.lexers.wgsl import WgslLexer
from sphinx.application import Sphinx

from webnorm import __version__

project = "webnorm"
author = "webnorm contributors"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
napoleon_use_ivar = True
# A record's levels are its tables'.
suppress_warnings = ["myst.header"]
smartquotes = False
exclude_patterns = ["README.md", "star.md"]

# Names of headings as code hosts make them.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]
nitpicky = True
# Types of Python and of other packages are described elsewhere, webnorm's inner ones in the code.
nitpick_ignore_regex = [("py:.*", ".*")]
default_role = "code"

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 60

html_theme = "furo"
html_title = "webnorm"
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"priority": 300})]
html_copy_source = html_show_sourcelink = html_show_copyright = False
html_domain_indices = False
html_use_index = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"


class Template(DelegatingLexer):
    """WGSL with Jinja in it."""

    def __init__(self, **options: object) -> None:
        super().__init__(WgslLexer, DjangoLexer, **options)


def _escape(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Let a docstring's *, | and _ stand for themselves: only backticks mean something."""
    pieces = re.split(r"(`[^`]*`)", "\n".join(lines))
    pieces[::2] = [re.sub(r"[*|]|_\b", r"\\\g<0>", piece) for piece in pieces[::2]]
    lines[:] = "".join(pieces).split("\n")


def setup(app: Sphinx) -> None:
    """Colour kernels as templates, and commands as such: a page's lines have no prompt."""
    # Before napoleon, which makes fields of sections.
    app.connect("autodoc-process-docstring", _escape, priority=400)
    app.add_lexer("wgsl", Template)
    app.add_lexer("console", BashLexer)
