"""Exports that cover every option and storage type of every op, and odd numbers of columns."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from immediates import with_immediates
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.traits import BROWSER, IMMEDIATES
from webnorm.op.op import Task
from webnorm.op.problem import Problem
from webnorm.web.folder import write_folder
from webnorm.web.package.bundle import Bundle, bundle_shaders, named_variants
from webnorm.web.package.npm import package_files
from webnorm.web.package.request import ExportRequest, request_for


@dataclass(frozen=True)
class Export:
    """A request to `webnorm export`."""

    op: str
    cols: tuple[int, ...]
    dtype: str = "float32"
    options: tuple[str, ...] = ()
    scale: float | None = None
    name: str | None = None

    @property
    def request(self) -> ExportRequest:
        settings = {
            "--dtype": self.dtype,
            "--eps": None,
            "--scale": self.scale,
            "--name": self.name,
            "--minify": None,
        }
        return request_for(self.op, self.cols, self.options, "auto", (), settings)

    def write(self, folder: Path) -> Path:
        write_folder(package_files(self.request), folder)
        return folder

    def __str__(self) -> str:
        return "-".join((self.op, *map(str, self.cols), self.dtype))


# The limit of a package's code, gzipped. It keeps a package a negligible part of an app.
MOST_CODE_BYTES = 16_100
COVERING = (
    Export("layer_norm", (61, 768), "float16", ("rounding=before_weight",)),
    Export("layer_norm", (1023,), "float32", ("residual", "residual_bias", "return_stats")),
    Export("layer_norm", (70,), "bfloat16", ("out_dtype=float8_e4m3fn", "weight_dtype=float32"), 16.0),
    Export("layer_norm", (3,), "float16", ("out_dtype=int8", "weight=false")),
    Export("layer_norm", (68, 256), "float16", ("out_dtype=int8", "scale_block=32")),
    Export("rms_norm", (260,), "float32", ("out_dtype=int8", "scale_block=128")),
    Export("layer_norm", (1025,), "bfloat16", ("weight=false", "bias=false")),
    # float32 rows of this length have shaders with 1024 invocations.
    Export(
        "layer_norm",
        (4099,),
        "float32",
        (
            "bias=false",
            "zero_centered_weight",
            "max_workgroups=3",
            "out_dtype=float8_e5m2",
            "residual",
            "residual_dtype=bfloat16",
        ),
    ),
    Export("rms_norm", (768,), "float32", ("weight_offset=-0.375", "max_workgroups=3")),
    Export("rms_norm", (199,), "float16", ("residual", "out_dtype=float8_e5m2", "weight=false")),
    Export(
        "rms_norm",
        (1, 1023),
        "bfloat16",
        ("bias=true", "weight_dtype=float32", "return_stats", "rounding=before_weight"),
    ),
    # Sums of three bfloat16 are so close to a tie that rounding twice gives another result.
    Export("rms_norm", (1021,), "bfloat16", ("residual", "residual_bias", "out_dtype=int8")),
    Export("rms_norm", (66,), "float16", ("residual", "residual_dtype=float32")),
    Export("layer_norm_backward", (61, 257), "float32", ("max_workgroups=3",)),
    Export("layer_norm_backward", (199,), "float16", ("saved_stats", "dh", "residual_bias", "weight=false")),
    Export(
        "layer_norm_backward",
        (1023,),
        "bfloat16",
        ("bias=false", "zero_centered_weight", "weight_dtype=float32"),
    ),
    Export("rms_norm_backward", (768,), "float32", ("weight_offset=-0.375",)),
    Export("rms_norm_backward", (511,), "bfloat16", ("bias=true", "saved_stats", "dh")),
    Export(
        "rms_norm_backward",
        (1, 70),
        "float16",
        ("residual_bias", "max_workgroups=2", "weight_dtype=bfloat16", "weight=false", "bias=true"),
    ),
)


# The classes of a bundle with immediates.
_CLASSES = {
    "subgroups": replace(BROWSER, features=frozenset({IMMEDIATES})),
    "portable": replace(BROWSER, features=frozenset()),
}


def bundle_with_immediates(kernel: Kernel, problem: Problem) -> Bundle:
    """Return a bundle of a kernel with immediates in its first shader, and with a uniform in its second."""
    chooser = named_variants(with_immediates(kernel))
    shaders, absent = bundle_shaders(problem, chooser, "a test", classes=_CLASSES)
    assert [one.shader.immediates for one in shaders] == [True, False] and absent == []
    task = Task(kernel.op, problem)
    return Bundle("immediates", task, (problem.axis,), "a test", tuple(shaders))


def block(page: Path, language: str) -> str:
    """Return the only code block of a language on a page of Markdown."""
    (found,) = re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    text: str = found
    return text
