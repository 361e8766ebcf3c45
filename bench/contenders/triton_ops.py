"""Norms and their gradients in Triton, as in Triton's tutorial, but without its locks.

A program reads a whole row once. In a gradient, each of n programs handles every n-th row, and keeps its sums
over rows in registers. A second kernel adds the programs' sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from bench.contenders import Compute, Contender
from webnorm.op.op import Task
from webnorm.ops.norms.op import has_mean

# The most columns of a program: 64 for each of at most 1024 threads.
_MOST_COLS = 65536
_MOST_WARPS = 32
# Columns per thread: two to eight vectors of four are in flight at once.
_COLS_PER_THREAD = 16
_THREADS_PER_WARP = 32
# Warps of all programs of a multiprocessor in a gradient; more would exceed its registers.
_WARPS_PER_MULTIPROCESSOR = 16
# The tile of the kernel that adds the programs' sums: programs and columns.
_FINISH_ROWS, _FINISH_COLS = 32, 64


@triton.jit  # type: ignore[untyped-decorator]
def _forward(  # type: ignore[no-untyped-def]
    x, residual, weight, bias, y, h, cols, eps,
    HAS_MEAN: tl.constexpr, HAS_RESIDUAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute a row: y = norm(x + residual) * weight + bias, and the stored h = x + residual."""
    column = tl.arange(0, BLOCK)
    inside = column < cols
    start = tl.program_id(0).to(tl.int64) * cols
    row = tl.load(x + start + column, mask=inside, other=0.0)
    if HAS_RESIDUAL:
        wide = row.to(tl.float32) + tl.load(residual + start + column, mask=inside, other=0.0).to(tl.float32)
        row = wide.to(y.dtype.element_ty)
        tl.store(h + start + column, row, mask=inside)
    value = row.to(tl.float32)
    if HAS_MEAN:
        value = tl.where(inside, value - tl.sum(value, axis=0) / cols, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(value * value, axis=0) / cols + eps)
    value = value * rstd * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    if HAS_MEAN:
        value += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + start + column, value.to(y.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _backward(  # type: ignore[no-untyped-def]
    dy, x, weight, mean, rstd, dx, partial_weight, partial_bias, rows, cols,
    HAS_MEAN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute dx of every n-th row, and one record of sums over these rows for dweight and dbias."""
    column = tl.arange(0, BLOCK)
    inside = column < cols
    program = tl.program_id(0)
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    sum_weight = tl.zeros((BLOCK,), tl.float32)
    sum_bias = tl.zeros((BLOCK,), tl.float32)
    start = program.to(tl.int64) * cols
    for row in range(program, rows, tl.num_programs(0)):
        gradient = tl.load(dy + start + column, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(x + start + column, mask=inside, other=0.0).to(tl.float32)
        deviation = tl.load(rstd + row)
        if HAS_MEAN:
            value = tl.where(inside, value - tl.load(mean + row), 0.0)
        value *= deviation
        sum_weight += gradient * value
        g = gradient * scale
        along = tl.sum(g * value, axis=0) / cols
        result = g - value * along
        if HAS_MEAN:
            sum_bias += gradient
            result -= tl.sum(g, axis=0) / cols
        tl.store(dx + start + column, (result * deviation).to(dx.dtype.element_ty), mask=inside)
        start += tl.num_programs(0).to(tl.int64) * cols
    place = program.to(tl.int64) * cols + column
    tl.store(partial_weight + place, sum_weight, mask=inside)
    if HAS_MEAN:
        tl.store(partial_bias + place, sum_bias, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _add_records(  # type: ignore[no-untyped-def]
    partial, out, records, cols, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """Sum some columns of all records."""
    column = tl.program_id(0) * COLS + tl.arange(0, COLS)
    record = tl.arange(0, ROWS)
    total = tl.zeros((ROWS, COLS), tl.float32)
    for first in range(0, records, ROWS):
        at = first + record
        inside = (at < records)[:, None] & (column < cols)[None, :]
        total += tl.load(partial + at[:, None] * cols + column[None, :], mask=inside, other=0.0)
    tl.store(out + column, tl.sum(total, axis=0).to(out.dtype.element_ty), mask=column < cols)


def contenders(task: Task, device: str) -> list[Contender]:
    """Return the kernels above for the op; on the CPU they need Triton's interpreter."""
    if task.problem.cols > _MOST_COLS:
        return [Contender("Triton", absent=f"a row of more than {_MOST_COLS} columns does not fit a program")]
    return [Contender("Triton", _backward_of(task, device) if task.op.gradient else _forward_of(task))]


def _block_and_warps(cols: int) -> tuple[int, int]:
    block = triton.next_power_of_2(cols)
    return block, min(_MOST_WARPS, max(1, block // (_COLS_PER_THREAD * _THREADS_PER_WARP)))


def _forward_of(task: Task) -> Compute:
    problem, with_mean = task.problem, has_mean(task.op)
    block, warps = _block_and_warps(problem.cols)

    def compute(t: Mapping[str, Any]) -> Mapping[str, Any]:
        x = t["x"]
        outputs = {"y": torch.empty_like(x)}
        if problem.options.residual:
            outputs["h"] = torch.empty_like(x)
        _forward[(problem.rows,)](
            x,
            t.get("residual", x),
            t["weight"],
            t.get("bias", x),
            outputs["y"],
            outputs.get("h", x),
            problem.cols,
            problem.eps,
            HAS_MEAN=with_mean,
            HAS_RESIDUAL=problem.options.residual,
            BLOCK=block,
            num_warps=warps,
        )
        return outputs

    return compute


def _backward_of(task: Task, device: str) -> Compute:
    rows, cols, with_mean = task.problem.rows, task.problem.cols, has_mean(task.op)
    block, warps = _block_and_warps(cols)
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count if device == "cuda" else 2
    programs = min(rows, multiprocessors * max(1, _WARPS_PER_MULTIPROCESSOR // warps))

    def compute(t: Mapping[str, Any]) -> Mapping[str, Any]:
        x, weight = t["x"], t["weight"]
        outputs = {"dx": torch.empty_like(x)}
        partial = {
            name: torch.empty((programs, cols), dtype=torch.float32, device=x.device)
            for name in (("dweight", "dbias") if with_mean else ("dweight",))
        }
        _backward[(programs,)](
            t["dy"],
            x,
            weight,
            t.get("mean", x),
            t["rstd"],
            outputs["dx"],
            partial["dweight"],
            partial.get("dbias", x),
            rows,
            cols,
            HAS_MEAN=with_mean,
            BLOCK=block,
            num_warps=warps,
        )
        for name, records in partial.items():
            outputs[name] = torch.empty_like(weight)
            _add_records[(triton.cdiv(cols, _FINISH_COLS),)](
                records, outputs[name], programs, cols, ROWS=_FINISH_ROWS, COLS=_FINISH_COLS
            )
        return outputs

    return compute
