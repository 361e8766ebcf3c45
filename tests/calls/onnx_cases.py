"""Computes ONNX's backend test cases of one operator through the public API and prints what came out.

Usage: python onnx_cases.py LayerNormalization. A process collects the cases of one operator: a second call
of collect_testcases gives the first one's.
"""

from __future__ import annotations

import json
import sys
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
    """What is wrong with the outputs of a case; None when nothing is."""
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


def main(op: str) -> None:
    """Print a JSON object: the case's name to its complaint or null."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        # Collecting computes the cases of every operator, some of which overflow on purpose.
        warnings.simplefilter("ignore")
        cases = collect_testcases(op)
    # An "_expanded" case is the same data with the operator written out in others.
    own = [case for case in cases if "_expanded" not in case.name]
    print(json.dumps({case.name: complaint(case, op) for case in own}))


if __name__ == "__main__":
    main(sys.argv[1])
