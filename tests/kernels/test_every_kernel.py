"""Every kernel in every storage type and with every option gives right answers, with few compiled texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

import tiers
from testbed import GPU, KERNELS, problem_of, run, suited
from webnorm.choice.defaults import default_variant
from webnorm.gpu.device import Device
from webnorm.kernels.headers.kernel import Kernel
from webnorm.op.corpus import problems
from webnorm.op.dtypes import STORAGE
from webnorm.ops.norms.case import OPTION_CASES
from webnorm.ops.norms.problem import NormProblem


def candidates(kernel: Kernel) -> list[NormProblem]:
    """Return the corpus's cases of options as problems that suit the kernel, and one without parameters."""
    plain = replace(kernel.op.defaults, **dict.fromkeys(kernel.op.defaults.IGNORABLE, False))
    found = [problem_of(kernel.op, rows=11, cols=70, dtype=dtype, options=plain) for dtype in STORAGE]
    found += [problem for _, problem in problems(OPTION_CASES, kernel.op, STORAGE)]
    suitable = [suited(kernel, replace(problem, distribution="normal")) for problem in found]
    return [one for one in suitable if default_variant(kernel, one, GPU).refusal(one, GPU) is None]


def fewest(kernel: Kernel, found: Sequence[NormProblem]) -> list[NormProblem]:
    """Return few of the problems that together meet all needs. The next one always meets most of the rest."""
    needed = tiers.needed_of(kernel)
    kept = []
    while needed:
        best = max(found, key=lambda problem: len(needed & tiers.met_by(kernel, problem)))
        assert needed & tiers.met_by(kernel, best), f"no case has {sorted(needed)}"
        needed -= tiers.met_by(kernel, best)
        kept.append(best)
    return kept


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.label)
def test_every_type_and_option(kernel: Kernel, device: Device) -> None:
    for problem in fewest(kernel, candidates(kernel)):
        variant = default_variant(kernel, problem, device.traits)
        missing = sorted(variant.features(problem, device.traits) - device.traits.features)
        if missing:
            reason = f"{device.adapter} has no {', '.join(missing)}"
            tiers.excuse("kernel", kernel.label, reason=reason)
            pytest.skip(reason)
        _, accuracy = run(device, variant, problem)
        assert accuracy.ok, f"{problem}: {accuracy.reason}"
