"""The rendered shaders, in files that show the effects of a template's change in a review."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from testbed import GPU, KERNELS, suited, tracked
from webnorm.choice.defaults import default_variant
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.traits import BROWSER
from webnorm.kernels.rendering.render import Target, render_shader
from webnorm.ops.norms.problem import NormOptions, NormProblem

FOLDER = Path(__file__).parent / "snapshots"
PROBLEMS = (
    NormProblem(rows=1024, cols=768),
    NormProblem(rows=1024, cols=199, options=NormOptions(weight=False, bias=False)),
)
TRAITS = {"native": GPU, "browser": BROWSER}
CASES = [
    (kernel, suited(kernel, problem), target)
    for kernel in KERNELS
    for problem in PROBLEMS
    for target in ("native", "browser")
]


def file_of(kernel: Kernel, problem: NormProblem, target: str) -> Path:
    return FOLDER / kernel.op.name / f"{kernel.name}-{problem.cols}-{target}.wgsl"


@pytest.mark.parametrize(
    ("kernel", "problem", "target"), CASES, ids=lambda value: getattr(value, "label", None) or str(value)
)
def test_rendered_text(
    kernel: Kernel, problem: NormProblem, target: Target, request: pytest.FixtureRequest
) -> None:
    traits = TRAITS[target]
    text = render_shader(default_variant(kernel, problem, traits), problem, target, traits).text
    path = file_of(kernel, problem, target)
    if request.config.getoption("--snapshot-update"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return
    if not path.exists() and not tracked(kernel):
        pytest.skip(f"{kernel.label} has no snapshot yet; `pytest --snapshot-update` writes it")
    assert path.exists(), f"{path.name} is missing; `pytest --snapshot-update` writes it"
    kept = path.read_text()
    difference = difflib.unified_diff(
        kept.splitlines(), text.splitlines(), "snapshot", "rendered", lineterm=""
    )
    assert kept == text, "stale; `pytest --snapshot-update` rewrites it\n" + "\n".join(difference)


def test_no_snapshot_is_left_over(request: pytest.FixtureRequest) -> None:
    wanted = {file_of(*case) for case in CASES}
    for path in sorted(FOLDER.rglob("*.wgsl")):
        if path not in wanted:
            assert request.config.getoption("--snapshot-update"), f"{path.name} belongs to no kernel"
            path.unlink()
