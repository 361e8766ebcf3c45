"""ONNX's backend test cases of normalization operators, computed by webnorm's functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import webnorm
from bench.meanings.outcomes import Outcome, Tolerance, difference, first, outcome

# By operator: webnorm's function with ONNX's inputs in order and its attributes by name.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "LayerNormalization": webnorm.layer_normalization,
    "RMSNormalization": webnorm.rms_normalization,
    "GroupNormalization": webnorm.group_normalization,
    "InstanceNormalization": webnorm.instance_normalization,
    "MeanVarianceNormalization": webnorm.mean_variance_normalization,
    "LpNormalization": webnorm.lp_normalization,
    "Softmax": lambda input, axis=-1: webnorm.softmax(input, axis),
    "LogSoftmax": lambda input, axis=-1: webnorm.log_softmax(input, axis),
}
_EXPANDED = "_expanded"


def collected() -> list[Any]:
    """Return ONNX's test cases of all operators."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        # Some cases of other operators overflow on purpose.
        warnings.simplefilter("ignore")
        return [*collect_testcases()]


def case_outcome(case: Any, node: Any) -> Outcome:
    """Compute a case of a node, and compare it as ONNX's own runner does."""
    from onnx import helper

    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    tolerance = Tolerance(case.rtol, case.atol)

    def complaint() -> str | None:
        complaints: list[str | None] = []
        for inputs, expected in case.data_sets:
            found: Any = FUNCTIONS[node.op_type](*inputs, **attributes)
            outputs = found if isinstance(found, tuple) else (found,)
            if len(outputs) != len(expected):
                return f"{len(outputs)} outputs in place of {len(expected)}"
            complaints += [
                difference(one, np.asarray(answer), tolerance, answer.dtype)
                for one, answer in zip(outputs, expected, strict=True)
            ]
        return first(complaints)

    return outcome(case.name, complaint)


def outcomes() -> Iterator[tuple[str, Outcome]]:
    """Yield each case's operator and outcome.

    An expanded case has the operator's function body as its graph. Its data is computed by the operator.
    """
    cases = collected()
    nodes = {case.name: case.model.graph.node[0] for case in cases if _EXPANDED not in case.name}
    for case in cases:
        node = nodes.get(case.name.partition(_EXPANDED)[0])
        if node is not None and node.op_type in FUNCTIONS:
            yield node.op_type, case_outcome(case, node)
