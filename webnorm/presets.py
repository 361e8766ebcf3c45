"""Named workloads: the shapes that a paper, a tutorial or a model asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from webnorm.problem import Problem


@dataclass(frozen=True)
class Preset:
    """A list of problems and where they come from."""

    summary: str
    problems: tuple[Problem, ...]


def _grid(rows: int, cols: tuple[int, ...], distribution: str = "normal") -> tuple[Problem, ...]:
    return tuple(Problem(rows=rows, cols=n, distribution=distribution) for n in cols)


PRESETS: Mapping[str, Preset] = {
    "wgpu-bench": Preset(
        "Fleetwood's LayerNorm article: [1, 2048, 512] float32, the shape of its repository.",
        _grid(2048, (512,)),
    ),
    "triton-forward": Preset(
        "The sweep of Triton's LayerNorm tutorial, M = 4096, N = 1024 to 15872, x = -2.3 + 0.5 randn; "
        "there in float16, here in float32.",
        _grid(4096, tuple(range(1024, 15873, 512)), "triton"),
    ),
    "equinox": Preset(
        "Equinox issue 1196: 256 x 32 rows of 64, where two-pass variance was found slower.",
        _grid(8192, (64,)),
    ),
    "transformer": Preset(
        "Hidden sizes of transformer models: 384, 768, 1024, 1280, 2048, 4096, 5120, 8192.",
        _grid(4096, (384, 768, 1024, 1280, 2048, 4096, 5120, 8192)),
    ),
    "h200": Preset(
        "Shapes that fill a large GPU: 256 MiB of x and more.",
        tuple(Problem(rows=m, cols=n) for m, n in ((65536, 1024), (16384, 4096), (8192, 8192))),
    ),
}
# A software adapter computes on the cores that also run everything else: small shapes say as much.
_SOFTWARE = (Problem(rows=1024, cols=256), Problem(rows=512, cols=768), Problem(rows=128, cols=4096))
_QUICK_SOFTWARE = (Problem(rows=256, cols=768),)
_QUICK_GPU = (Problem(rows=65536, cols=1024),)


def default_problems(software: bool, quick: bool) -> tuple[Problem, ...]:
    """The problems of a bench that names none: they suit the adapter."""
    if quick:
        return _QUICK_SOFTWARE if software else _QUICK_GPU
    return _SOFTWARE if software else PRESETS["h200"].problems
