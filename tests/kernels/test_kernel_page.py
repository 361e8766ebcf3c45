"""The limits in docs/kernel-file.md are the limits of the code."""

from __future__ import annotations

import re

from pages import ROOT
from webnorm.kernels.headers import header, sources, toml_fields, variants
from webnorm.kernels.rendering import templates, tracing
from webnorm.op import expression


def test_the_page_has_the_limits_of_the_code() -> None:
    text = (ROOT / "docs" / "kernel-file.md").read_text(encoding="utf-8")
    section = text.split("### Limits\n")[1].split("\n### ")[0]
    limits = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", section, re.M))
    entries = toml_fields.MOST_ENTRIES
    expected = {
        "file": [sources.MOST_BYTES >> 20],
        "header": [toml_fields.MOST_HEADER],
        "values in a header": [toml_fields.MOST_VALUES, toml_fields.MOST_LEVELS],
        "name": [toml_fields.MOST_NAME],
        "text or expression": [expression.MOST_TEXT],
        "parts of an expression": [expression.MOST_PARTS, expression.MOST_DEPTH],
        "axes": [entries["tune"]],
        "points of all axes together": [variants.MOST_POINTS],
        "derived constants": [entries["derive"]],
        "rules": [entries["require"]],
        "passes": [entries["pass"]],
        "scratch buffers": [entries["scratch"]],
        "rendered text": [templates.MOST_TEXT >> 20, templates.MOST_LINES],
        "traces in a text": [tracing.MOST_SITES],
        "traced expression": [tracing.MOST_EXPRESSION],
        "filter of a trace": [tracing.MOST_FILTER, tracing.MOST_NUMBERS],
        "records of a trace": [tracing.MOST_RECORDS],
    }
    assert toml_fields.MOST_SENTENCE == expression.MOST_TEXT
    assert limits["values of an axis"].startswith(f"{header.MOST_ON_AXIS},")
    for part, numbers in expected.items():
        found = [int(one.replace(",", "")) for one in re.findall(r"\d[\d,]*(?<!,)", limits[part])]
        assert found == numbers, part
