"""The static page of what visitors of a lab sent."""

from __future__ import annotations

import json
from typing import Any

from webnorm._version import __version__
from webnorm.web.collection.visit_summary import SCHEMA
from webnorm.web.folder import VISITS, Files, digests
from webnorm.web.pages import json_text, page_files

DATA = "visits.json"


def visits_page(data: Any) -> Files:
    """Return the files of a page that shows a summary of visits: see VisitSummary.as_json."""
    files = page_files("visits", "index.html")
    files[DATA] = (json.dumps(data, separators=(",", ":"), allow_nan=False) + "\n").encode()
    listing = {"schema": SCHEMA, "webnorm": __version__, "files": digests(files)}
    return files | {VISITS.listing: json_text(listing)}
