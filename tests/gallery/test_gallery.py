"""The ops of examples/ops: their kernels are right in every storage type, and checks find all mutants."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from try_mutants import OPS, checked

import webnorm
from webnorm.op import op_trial
from webnorm.op.dtypes import STORAGE

NAMES = sorted(path.parent.name for path in OPS.glob("*/op.py"))
MODULES = sorted(path.stem for path in Path(__file__).parent.glob("mutants_*.py"))
MUTANTS: dict[str, Any] = {
    op: found for module in MODULES for op, found in import_module(module).MUTANTS.items()
}
FEWEST_MUTANTS = 8


@pytest.fixture(params=NAMES)
def op(request: pytest.FixtureRequest) -> Iterator[str]:
    webnorm.load_op(OPS / request.param)
    yield request.param


@pytest.fixture(autouse=True)
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the trial in a child process, which the test of the command line covers."""
    monkeypatch.setenv(op_trial._INSIDE, "1")


def failures(op: str, **asked: Any) -> list[str]:
    found = webnorm.check(op=op, **asked)
    assert found.results
    return [
        f"{one.kernel}, {one.case}, {one.problem}: {one.reason}"
        for one in found.results
        if one.status in ("fail", "error")
    ]


def test_each_has_a_naive_and_a_fast_kernel(op: str) -> None:
    kernels = [path.stem for path in (OPS / op).glob("*.wgsl")]
    assert "naive" in kernels and len(kernels) >= 2


@pytest.mark.opengl
def test_the_kernels_are_right_at_odd_sizes(op: str) -> None:
    assert not failures(op, dtype="all", cases=f"{op}-*-61", seed=5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", STORAGE)
def test_the_kernels_are_right(op: str, dtype: str) -> None:
    assert not failures(op, dtype=dtype)


def test_every_op_has_mutants() -> None:
    assert {op for op in NAMES if len(MUTANTS.get(op, ())) >= FEWEST_MUTANTS} == {*NAMES}


# This test does not use the fixture. A process has one op of a name, and mutants are in a copy of the folder.
@pytest.mark.slow
@pytest.mark.parametrize("op", NAMES)
def test_mutants_die(op: str) -> None:
    found = list(checked(op, MUTANTS[op]))
    assert [mutant.name for mutant, _, reason in found if mutant is not None and not reason] == []
    assert [reason for mutant, _, reason in found if mutant is None and reason] == []
