"""The docstrings of the public names: their sections, and examples that run."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import webnorm
from webnorm.gpu.device import adapters

ROOT = Path(__file__).parents[2]
# Classes that users receive but do not create, and functions that the examples of another name cover.
WITHOUT_EXAMPLES = {
    "webnorm.Accuracy",
    "webnorm.Changes",
    "webnorm.Device",
    "webnorm.Evaluation",
    "webnorm.Findings",
    "webnorm.Inputs",
    "webnorm.Kernel",
    "webnorm.LoadedOp",
    "webnorm.Outputs",
    "webnorm.Shader",
    "webnorm.Variant",
    "webnorm.dask.layer_norm_backward",
    "webnorm.dask.rms_norm",
    "webnorm.dask.rms_norm_backward",
}


def named() -> dict[str, Any]:
    modules: list[ModuleType] = [webnorm]
    try:
        import webnorm.dask as with_dask

        modules.append(with_dask)
    except webnorm.WebnormError:
        pass
    return {
        f"{module.__name__}.{name}": getattr(module, name) for module in modules for name in module.__all__
    }


NAMED = {name: value for name, value in named().items() if inspect.isroutine(value) or inspect.isclass(value)}
WITH_EXAMPLES = sorted(NAMED.keys() - WITHOUT_EXAMPLES)


@pytest.mark.skipif(not adapters(), reason="no adapter")
@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_are_true(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(NAMED[name]) or "", {}, name, None, None)
    report: list[str] = []
    found = doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert found.attempted and not found.failed, "".join(report)


def parameters(doc: str) -> set[str]:
    """Return the names in the section Parameters."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=\n\n\w[^\n]*\n-+\n|\Z)", doc, re.DOTALL | re.MULTILINE)
    lines = section[1].split("\n") if section else []
    heads = [line.partition(" : ")[0] for line in lines if line and not line.startswith(" ")]
    return {name.strip() for head in heads for name in head.split(",")}


@pytest.mark.parametrize("name", NAMED)
def test_parameters_are_documented_and_exist(name: str) -> None:
    value, taken = NAMED[name], {*inspect.signature(NAMED[name]).parameters}
    listed = parameters(inspect.getdoc(value) or "")
    assert listed <= taken
    if inspect.isroutine(value) and name not in ("webnorm.check", "webnorm.dask.rms_norm_backward"):
        assert listed == taken


def properties() -> Iterator[tuple[str, str]]:
    for name, value in NAMED.items():
        if inspect.isclass(value):
            for own, one in inspect.getmembers(
                value, lambda one: isinstance(one, property | cached_property)
            ):
                yield f"{name}.{own}", inspect.getdoc(one) or ""


def test_summaries_of_properties_have_no_colon() -> None:
    # sphinx.ext.napoleon would read the text before a colon as a type.
    assert [name for name, doc in properties() if ": " in doc.split("\n")[0]] == []
