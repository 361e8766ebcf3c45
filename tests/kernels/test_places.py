"""The places in a template of rendered text, of compilers' errors, and of mistakes."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from testbed import FAMILIES, GPU, suited
from webnorm.choice.defaults import default_variant
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.kernels.rendering.render import render_shader
from webnorm.ops.norms.problem import NormOptions, NormProblem

SHAPES = ((4, 61, "float32"), (4, 768, "float16"), (64, 199, "bfloat16"))


@cache
def template(file: str) -> list[str]:
    return Path(wgsl_root().parent, file).read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("kernels", FAMILIES.values(), ids=FAMILIES)
def test_every_character_of_a_template_has_its_place(kernels: tuple[Kernel, ...]) -> None:
    """Text without a place comes from an expression, or is a renamed function."""
    for kernel, (rows, cols, dtype) in zip(kernels * 3, SHAPES, strict=False):
        options = NormOptions(residual=dtype == "float16" and "residual" in kernel.op.options)
        problem = suited(kernel, NormProblem(rows=rows, cols=cols, dtype=dtype, options=options))
        shader = render_shader(default_variant(kernel, problem, GPU), problem, "browser", GPU)
        count = exact = near = 0
        for number, line in enumerate(shader.text.splitlines(), 1):
            for column, character in enumerate(line, 1):
                if not character.isspace():
                    place = shader.place(number, column, 1)
                    assert place is not None
                    there = template(place.file)[place.line - 1][place.column - 1 :][: place.length]
                    assert there == character or "{{" in there or re.fullmatch(r"(let )?\w+( = )?|", there)
                    count += 1
                    exact += there == character
                    near += place.length == 0
        assert count > 1000 and exact > 0.7 * count and near < 0.06 * count
