"""Exports for other tools, compared with their published formats."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from samples import BARE, CARD, FULL, kept_run, timed
from webnorm.errors import WebnormError
from webnorm.lab.report.history.formats import MOST_NAME, exported
from webnorm.lab.results import result_files
from webnorm.lab.results.result import Report

NUMBER = {"type": "number"}
# The format of https://bencher.dev/bmf.json.
BENCHER = {
    "$schema": "http://json-schema.org/draft-07/schema",
    "type": "object",
    "patternProperties": {
        ".+": {
            "type": "object",
            "patternProperties": {
                ".+": {
                    "type": "object",
                    "properties": {"value": NUMBER, "lower_value": NUMBER, "upper_value": NUMBER},
                    "required": ["value"],
                }
            },
        }
    },
}
# The format customSmallerIsBetter from github-action-benchmark's README.
GITHUB = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            **{name: {"type": "string"} for name in ("name", "unit", "range", "extra")},
            "value": NUMBER,
        },
        "required": ["name", "unit", "value"],
        "additionalProperties": False,
    },
}


def as_others(folder: Path, form: str, *reports: Report) -> Any:
    paths = [folder / f"{at}.json" for at in range(len(reports))]
    for path, report in zip(paths, reports, strict=True):
        path.write_text(result_files.to_json(report))
    found = json.loads(exported(paths, form), parse_constant=pytest.fail)
    jsonschema.Draft7Validator(BENCHER if form == "bencher" else GITHUB).validate(found)
    return found


def test_the_format_of_bencher(tmp_path: Path) -> None:
    report = kept_run(0, {"registers": 2000.0})
    report = replace(report, results=(*report.results, BARE))
    found = as_others(tmp_path, "bencher", report)
    constants = "threads_per_row=64 vector_width=4"
    assert found == {
        f"{op}, 64x768 float32: {kernel} {constants}": {
            "latency": {"value": time, "lower_value": 1900.0, "upper_value": 2100.0},
            "gbps": {"value": 393216 / time},
            "percent-of-copy": {"value": 80.0},
        }
        for op, kernel, time in (("copy", "copy", 900.0), ("layer_norm", "registers", 2000.0))
    }


def test_the_format_of_github_action_benchmark(tmp_path: Path) -> None:
    _, one = as_others(tmp_path, "github", kept_run(0, {"registers": 2000.0}))
    assert one == {
        "name": "layer_norm, 64x768 float32: registers threads_per_row=64 vector_width=4",
        "unit": "ns",
        "value": 2000.0,
        "range": "± 100",
        "extra": "196.6 GB/s, 80 % of the copy, Some GPU, webnorm 0.1.0",
    }


@pytest.mark.parametrize("form", ["bencher", "github"])
def test_odd_results_are_exported_too(form: str, tmp_path: Path) -> None:
    odd = timed("k" * 990, 5.0, p20_ns=math.inf, gbps=math.nan, percent_of_copy=-math.inf)
    escapes = replace(odd, kernel="\x1b[31m\n", constants={"a\0": 2**100}, gbps=None)
    wrong = (replace(odd, median_ns=math.inf), replace(odd, status="fail"), replace(odd, median_ns=0.0))
    report = replace(
        kept_run(0, {}), results=(odd, odd, odd, escapes, *wrong), device={**CARD, "adapter": "\x07"}
    )
    found = as_others(tmp_path, form, report)
    names = [*found] if form == "bencher" else [one["name"] for one in found]
    assert len({*names}) == len(names) == 4
    assert all(len(name) <= MOST_NAME and name.isprintable() for name in names)
    assert [name[-3:] for name in names[1:3]] == [" #2", " #3"]


def test_names_stay_the_same_between_runs(tmp_path: Path) -> None:
    one, other = (as_others(tmp_path, "bencher", kept_run(at, {"a": 1e3, "b": 2e3 + at})) for at in (0, 1))
    assert [*one] == [*other] and one != other
    # Files of one device form one list.
    both = as_others(tmp_path, "bencher", kept_run(0, {"a": 1e3}, None), kept_run(1, {"b": 1e3}, None))
    assert len(both) == 2


def test_failing_exports_are_errors(tmp_path: Path) -> None:
    with pytest.raises(WebnormError, match=r"0\.json has no result that is both right and timed"):
        as_others(tmp_path, "github", replace(kept_run(0, {}), results=(BARE, replace(FULL, status="fail"))))
    other = kept_run(1, {"a": 1.0}, device={**CARD, "driver": "2"})
    with pytest.raises(WebnormError, match=r"1\.json comes from another device than .*0\.json"):
        as_others(tmp_path, "github", kept_run(0, {"a": 1.0}), other)
    with pytest.raises(WebnormError, match="--format is 'csv'; it must be bencher or github"):
        exported([tmp_path / "0.json"], "csv")
