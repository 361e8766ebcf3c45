"""The forward kernels of the norm family are accurate for rows with a large mean."""

from __future__ import annotations

import numpy as np
import pytest

from bench.family_accuracy import MEANS, PROBLEMS, AccuracyProblem
from webnorm.gpu.device import Device
from webnorm.op.registry import OPS
from webnorm.ops.rows import HI_LO_TOLERANCE


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_errors_stay_small_at_every_mean(problem: AccuracyProblem, device: Device) -> None:
    errors = [problem.errors(device, mean) for mean in MEANS]
    assert max(own for own, _ in errors) <= HI_LO_TOLERANCE
    # The short formulas that cancel or overflow show that these inputs are hard.
    assert np.isnan(errors[-1][1]) == (problem.name not in ("`qk_norm`, RMSNorm", "`l2_norm`"))


def test_every_forward_op_of_define_op_is_measured() -> None:
    forward = {op.name for op in OPS.values() if op.source is not None and op.source.packaged}
    assert {one.op for one in PROBLEMS} == {name for name in forward if not name.endswith("_backward")}
