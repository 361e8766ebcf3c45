"""The trial of an op's reference on small problems.

It rejects references that no kernel can be compared with.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from webnorm.errors import WebnormError
from webnorm.op.built_op import BuiltOp, all_options, small_problem
from webnorm.op.corpus import problems
from webnorm.op.dtypes import Array
from webnorm.op.op import Op, Task, UnsupportedProblem
from webnorm.op.packaged_ops import OP_FILE

_SIZES = (1, 3, 8)


def try_reference(op: Op) -> None:
    """Compute small problems with every option on ordinary inputs.

    Raises
    ------
    WebnormError
        The reference raises, returns other shapes or NaN, differs between two calls, or changes its inputs.
        A mistake raises, or returns other shapes.
    """
    tried = 0
    for options in all_options(op):
        for size in _SIZES:
            try:
                task = Task(op, small_problem(op, size, options))
            except UnsupportedProblem:
                continue
            tried += 1
            _try(task)
    if not tried:
        raise WebnormError(f"{_file(op)}: no sizes up to 64 satisfy its requirements; expected some")
    if (built := _built(op)) is not None:
        task = Task(op, small_problem(op, _SIZES[-1]))
        built.mistakes(task, op.draw(task, {}, np.random.default_rng(1)))
        # Drawing once checks that the arrays of op.py fit its shapes.
        for case, problem in problems(op.hook("cases")(0), op, ["float32"]):
            case.draw(Task(op, problem))


def _file(op: Op) -> str:
    if op.source is None:
        return op.name
    built = _built(op)
    return f"{op.source.folder}/{OP_FILE}:{1 if built is None else built.line}"


def _built(op: Op) -> BuiltOp | None:
    """Return the `BuiltOp` of an op from `define_op`; None for an op that its folder builds itself."""
    built = getattr(op.draw, "__self__", None)
    return built if isinstance(built, BuiltOp) else None


def _try(task: Task) -> None:
    op, problem = task.op, task.problem
    arrays = op.draw(task, {}, np.random.default_rng(1))
    before = {name: array.copy() for name, array in arrays.items()}
    expected = op.reference(arrays, problem)
    again = op.reference(arrays, problem)
    where = f"{_file(op)}: for {problem}"
    for name, one in expected.items():
        if not _same(one.value, again[name].value):
            raise WebnormError(f"{where} the reference returns another {name} each time; expected the same")
        if np.isnan(one.value).any():
            raise WebnormError(
                f"{where} {name} has NaN on drawn inputs; expected numbers: change the "
                "reference, or the draw of an input"
            )
    _check_unchanged(arrays, before, where)


def _check_unchanged(arrays: Mapping[str, Array], before: Mapping[str, Array], where: str) -> None:
    for name, array in arrays.items():
        if array.tobytes() != before[name].tobytes():
            raise WebnormError(f"{where} the reference changes {name}; it must not change its inputs")


def _same(one: Array, other: Array) -> bool:
    return bool(np.array_equal(one, other, equal_nan=True))
