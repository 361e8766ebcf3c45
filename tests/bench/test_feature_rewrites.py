"""Rewritten kernels that use one more feature: they compute the same, and times are compared by round."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bench.feature_rewrites import REWRITES, Rewrite, _indexed
from bench.features import Compared, CompareJob, compare
from patience import HANG_S
from testbed import GPU
from webnorm.gpu.device import Device
from webnorm.gpu.timing import StoppingRule
from webnorm.lab.run.jobs import VariantSpec
from webnorm.op.op import Task
from webnorm.op.registry import OPS
from webnorm.system import dawn_drivers, is_installed


def test_a_ratio_compares_the_samples_of_the_same_round() -> None:
    found = Compared((100.0, 200.0, 50.0), (110.0, 220.0, 55.0), (0.0, 0.0), None)
    assert found.ratio.median == pytest.approx(1.1) and found.ratio.spread == pytest.approx(0.0)


def test_index_expressions_with_brackets_are_rewritten() -> None:
    text = "x[at[1u] + 2u] = xx[3u]; y = x[4u].z;"
    assert _indexed(text, "x", "view({})") == "view(at[1u] + 2u) = xx[3u]; y = view(4u).z;"


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda rewrite: rewrite.name)
def test_a_rewrite_computes_the_same_where_the_device_has_its_feature(
    rewrite: Rewrite, device: Device
) -> None:
    if rewrite.feature and rewrite.feature not in device.traits.features:
        pytest.skip(f"this device lacks {rewrite.feature}")
    found = 0
    for dtype in rewrite.dtypes:
        task = Task(OPS["rms_norm"], OPS["rms_norm"].problem(63, 1024, dtype=dtype))
        variant = rewrite.base(task, device.traits)
        assert variant is not None
        rule = StoppingRule(least=2, most=2)
        for one in compare(device, CompareJob(rewrite.name, task, VariantSpec.of(variant), 1, rule)):
            found += 1
            # Arithmetic in float16 rounds more often.
            assert (one.wrong is None) == (rewrite.name != "half arithmetic"), one.wrong
            assert len(one.without) == len(one.with_feature) == 2
    assert found or rewrite.name == "half arithmetic"


def test_every_rewrite_has_a_problem_and_a_sentence() -> None:
    assert len({rewrite.name for rewrite in REWRITES}) == len(REWRITES)
    for rewrite in REWRITES:
        assert rewrite.ops and rewrite.shapes and rewrite.what
        for op in rewrite.ops:
            problem = OPS[op].problem(*rewrite.shapes[0], dtype=rewrite.dtypes[0])
            assert rewrite.base(Task(OPS[op], problem), GPU) is not None


@pytest.mark.slow
@pytest.mark.skipif(not is_installed("wgpudawn"), reason="the backend dawn is not installed")
@pytest.mark.skipif(not dawn_drivers(), reason="Dawn finds no driver of SwiftShader")
def test_all_rewrites_run_in_dawn() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "WEBNORM_ADAPTER"}
    done = subprocess.run(
        [sys.executable, "-m", "bench.features", "--quick", "--engine", "dawn"],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "subgroup rows | 4 |" in done.stdout and "odd rows | 2 |" in done.stdout
    # A line with an error has empty cells.
    assert "| | |" not in done.stdout and "off by" not in done.stdout
