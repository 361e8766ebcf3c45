"""The parts of packages and pages: the runtime, the pages and the templates."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

from jinja2 import Environment, StrictUndefined

from webnorm.gpu import timing
from webnorm.lab.results import result_files
from webnorm.lab.verify import accuracy, deviations, problem_buffers, timed_work
from webnorm.op.registry import OPS
from webnorm.web.folder import Files

_ASSETS = Path(str(resources.files("webnorm.web"))) / "assets"
# A comment on lines of its own. Packages omit these, since index.d.ts documents the runtime for its users.
_JS_COMMENT = re.compile(r"^ *(?://.*|/\*\*(?:.|\n)*?\*/)\n", re.MULTILINE)
# An import or export between the runtime's modules.
_JS_LINK = re.compile(r'^(?:import|export) \{[^}]*\} from "[^"]*";\n+', re.MULTILINE)
# A module whose name begins with one of these belongs to that page only.
_PAGES = ("verify", "model", "lab", "play", "visits")
# The page of visits runs no kernels, so it needs few of the shared modules.
_OF_VISITS = (
    "boot.js",
    "dom.js",
    "format.js",
    "icon.svg",
    "statistics.js",
    "style.css",
    "table.js",
)
# The constants that pages share with Python; the comments at their definitions give the reasons.
_NUMBERS: Mapping[ModuleType, tuple[str, ...]] = {
    accuracy: (
        "FEW",
        "AMBIGUOUS_SHARE",
        "VAGUE",
        "WITHOUT_NUMBERS",
    ),
    deviations: ("TIE", "DENORMAL"),
    timing: (
        "NOISY_SPREAD",
        "FEW_SAMPLES",
        "THROTTLED_RATIO",
        "DRIFTING",
        "AGREEING",
        "AS_BEFORE",
        "PAUSE_S",
        "ERROR_OF_MEDIAN",
    ),
    timed_work: ("SUSPICIOUS_PERCENT", "SUSPICIOUS_ONE_SIDED_PERCENT"),
    problem_buffers: ("LARGEST_CACHE",),
    result_files: ("SCHEMA",),
}


def json_text(data: Any) -> bytes:
    """Return data as the JSON text of a file."""
    return (json.dumps(data, indent=2, allow_nan=False) + "\n").encode()


def render_asset(template: str, context: Mapping[str, Any]) -> bytes:
    """Render a file of a package from its template."""
    return _rendered(f"package/{template}", context)


def render_model_asset(template: str, context: Mapping[str, Any]) -> bytes:
    """Render a file of a model's package from its template."""
    return _rendered(f"model/{template}", context)


def _rendered(template: str, context: Mapping[str, Any]) -> bytes:
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    source = (_ASSETS / template).read_text(encoding="utf-8")
    return environment.from_string(source).render(context).encode()


def _runtime() -> bytes:
    """Join the runtime's modules into one, so that an app loads a single module for all shaders."""
    paths = (_ASSETS / "runtime.js", *sorted((_ASSETS / "runtime").iterdir()))
    text = "".join(path.read_text(encoding="utf-8") for path in paths)
    return _JS_LINK.sub("", _JS_COMMENT.sub("", text)).encode()


def _numbers() -> bytes:
    """Return a page's module with the numbers, the words of verdicts and the defaults from Python."""
    lines: list[str] = []
    for module, names in _NUMBERS.items():
        lines.append(f"// {module.__name__}")
        lines += (f"export const {name} = {json.dumps(getattr(module, name))};" for name in names)
    for numbers in dict.fromkeys(tuple((op.hook("page_numbers") or {}).items()) for op in OPS.values()):
        lines += (f"export const {name} = {json.dumps(value)};" for name, value in numbers)
    options = (field for op in OPS.values() if op.source is None for field in fields(op.defaults))
    on = sorted({option.name for option in options if option.default is True})
    lines += ["// Options that are on by default.", f"export const ON_BY_DEFAULT = {json.dumps(on)};"]
    return "\n".join([*lines, ""]).encode()


def page_files(page: str, index: str | None = None) -> Files:
    """Return the files of a page: its modules, and the runtime if it runs kernels.

    The playground also gets the editor. The page of a model's package also gets the modules of "verify".
    """
    own_modules = ("model", "verify") if page == "model" else (page,)
    others = tuple(name for name in _PAGES if name not in own_modules)
    folders = ("page", "vendor") if page == "play" else ("page",)
    files = {
        f"{folder}/{path.name}": path.read_bytes()
        for folder in folders
        for path in sorted((_ASSETS / folder).iterdir())
        if not path.name.startswith(others)
        and (page != "visits" or path.name in _OF_VISITS or path.name.startswith(page))
    }
    if page != "visits":
        # The modules in the folders of ops: float64 references, tolerances and draws.
        own = sorted(Path(str(resources.files("webnorm.ops"))).glob("*/page/*"))
        files |= {f"page/{path.name}": path.read_bytes() for path in own}
        files["runtime.js"] = _runtime()
    files["page/numbers.js"] = _numbers()
    files[index or f"{page}.html"] = (_ASSETS / f"{page}.html").read_bytes()
    return files
