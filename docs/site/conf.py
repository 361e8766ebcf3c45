"""The Sphinx configuration of the site. The sources are the folder that `staging` fills."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

from pygments.lexer import DelegatingLexer, RegexLexer
from pygments.lexers.templates import DjangoLexer
from pygments.lexers.wgsl import WgslLexer
from pygments.token import Comment, Generic, Text
from sphinx.application import Sphinx

from webnorm import __version__

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

project = "webnorm"
author = "webnorm contributors"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
# A copy has the commands of a console block, without their prompts and output.
copybutton_prompt_text = "$ "
napoleon_use_ivar = True
# Records have headings down to the level of their tables.
suppress_warnings = ["myst.header"]
smartquotes = False
exclude_patterns = ["README.md", "docs/README.md"]

# Anchors of headings in the style of code hosts.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]
# In docstrings, single backticks mark code.
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
    """A lexer for WGSL with Jinja tags."""

    def __init__(self, **options: object) -> None:
        super().__init__(WgslLexer, DjangoLexer, **options)


class Commands(RegexLexer):  # type: ignore[misc]
    """Commands, with prompts if their output follows. A word such as export is webnorm's, not the shell's."""

    tokens: ClassVar = {
        "root": [
            (r"^\$ ", Generic.Prompt),
            (r"(?<=\S)  +# .*", Comment),
            (r"\s+|\S+", Text),
        ]
    }


def _escape(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape *, | and _ in a docstring, except in backticks and in examples."""
    pieces = re.split(r"(`[^`]*`|>>>(?:.+\n?)+)", "\n".join(lines))
    pieces[::2] = [re.sub(r"[*|]|_\b", r"\\\g<0>", piece) for piece in pieces[::2]]
    lines[:] = "".join(pieces).split("\n")


def setup(app: Sphinx) -> None:
    """Register the lexers, so that kernels are highlighted as templates and commands by their comments."""
    # Runs before napoleon, which converts sections to fields.
    app.connect("autodoc-process-docstring", _escape, priority=400)
    app.add_lexer("wgsl", Template)
    app.add_lexer("console", Commands)
