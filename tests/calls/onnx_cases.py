"""Compute ONNX's backend test cases of its norms through the public API, and print the results.

This needs a separate process, because collecting the cases runs onnx's code for every operator.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import webnorm

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "LayerNormalization": webnorm.layer_normalization,
    "RMSNormalization": webnorm.rms_normalization,
}


def complaint(case: Any, op: str) -> str | None:
    """Return the error in the outputs of a case, or None if they are right."""
    from onnx import helper

    (node,) = case.model.graph.node
    assert node.op_type == op
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    for inputs, expected in case.data_sets:
        found: Any = FUNCTIONS[op](*inputs, **attributes)
        outputs = found if isinstance(found, tuple) else (found,)
        if len(outputs) != len(expected):
            return f"{len(outputs)} outputs instead of {len(expected)}"
        for output, answer in zip(outputs, expected, strict=True):
            if output.shape != answer.shape or output.dtype != answer.dtype:
                return f"{output.dtype}{output.shape} instead of {answer.dtype}{answer.shape}"
            if not np.allclose(output, answer, rtol=case.rtol, atol=case.atol):
                return f"off by {np.abs(output - answer).max()}"
    return None


def main() -> None:
    """Print a JSON object: for each operator, the errors of its cases by name, or null."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        # Some cases of other operators overflow on purpose.
        warnings.simplefilter("ignore")
        cases = collect_testcases()
    complaints: dict[str, dict[str, str | None]] = {op: {} for op in FUNCTIONS}
    case: Any
    for case in cases:
        op = case.model.graph.node[0].op_type
        # An "_expanded" case has the same data, and writes the operator out in other operators.
        if op in FUNCTIONS and "_expanded" not in case.name:
            complaints[op][case.name] = complaint(case, op)
    print(json.dumps(complaints))


if __name__ == "__main__":
    main()
