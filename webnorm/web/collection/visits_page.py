"""The static page of what visitors of a lab sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webnorm._version import __version__
from webnorm.lab.results.result_files import json_lines
from webnorm.web.collection.visit_summary import SCHEMA
from webnorm.web.folder import VISITS, Files, digests
from webnorm.web.pages import json_text, page_files

DATA = "visits.json"


def data_text(data: Mapping[str, Any]) -> str:
    """Return a summary of visits as JSON, with the results of a device on a problem in one line."""
    head = {name: value for name, value in data.items() if name != "groups"}
    return json_lines(head, "groups", data["groups"]) + "\n"


def visits_page(data: Mapping[str, Any]) -> Files:
    """Return the files of a page that shows a summary of visits: see VisitSummary.as_json."""
    files = page_files("visits", "index.html")
    files[DATA] = data_text(data).encode()
    listing = {"schema": SCHEMA, "webnorm": __version__, "files": digests(files)}
    return files | {VISITS.listing: json_text(listing)}
