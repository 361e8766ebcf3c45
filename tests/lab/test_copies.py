"""The copy for a user op moves as many bytes, is checked on its own rows, and passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import webnorm
from testbed import kernel_named
from user_folders import KERNEL, write_op
from webnorm.choice.defaults import default_variant
from webnorm.gpu.device import Device
from webnorm.lab.verify import problem_buffers
from webnorm.lab.verify.trial import try_variant
from webnorm.op.op import Op, Task
from webnorm.op.registry import OPS, as_copy_problem, load_op

# One input has no batch, so a token does not own a fixed number of its elements.
GATHER = '''"""Rows of a table by their numbers."""
from webnorm.op import define_op, integers, tensor

op = define_op(
    sizes={"tokens": 64, "vocab": 96, "dim": 32},
    inputs=[tensor("ids", "tokens", dtype="int32", draw=integers(0, "vocab")), tensor("table", "vocab dim")],
    outputs=[tensor("y", "tokens dim")],
)


@op.reference
def gather(ids, table):
    return table[ids]
'''
GALLERY = Path(webnorm.__file__).parents[1] / "examples" / "ops"


def bytes_over_copy(op: Op, problem: Any) -> float:
    return op.minimum_bytes(problem) / OPS["copy"].minimum_bytes(as_copy_problem(problem))


@pytest.mark.parametrize("tokens", [16, 64, 93])
def test_a_copy_repeats_a_block_of_its_own(
    device: Device, tokens: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The share of the op's bytes per element of its batch does not matter."""
    monkeypatch.setattr(problem_buffers, "_DRAWN_ELEMENTS", 1 << 10)
    monkeypatch.setattr("webnorm.ops.copy.op._ROW", 64)
    op = load_op(write_op(tmp_path / "gather", GATHER))
    problem = op.problem(tokens, 96, 32)
    board = problem_buffers.RepeatedRows(device, Task(op, problem), 2)
    variant = default_variant(kernel_named("copy", "copy"), as_copy_problem(problem), device.traits)
    result, plan, golden = try_variant(board, variant, watch=True)
    assert result.status == "pass" and plan is not None, result.reason
    dispatches = board.turns.take(5)
    plan.run_all(dispatches)
    assert board.holds(plan, golden, dispatches)
    assert board.drawn_problem(variant).batch_size < board.problem_of(variant).batch_size
    # The board of the block also contains the copy's block.
    assert try_variant(board.block, variant)[0].status == "pass"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", sorted(path.parent.name for path in GALLERY.glob("*/op.py")))
def test_a_copy_moves_as_many_bytes_as_the_op(name: str, dtype: str) -> None:
    op = load_op(GALLERY / name)
    for sizes in op.problem_type.default_sizes(software=False, quick=False):
        problem = op.problem(*sizes, dtype=dtype)
        assert bytes_over_copy(op, problem) == pytest.approx(1, abs=0.01), problem


def test_the_bytes_that_an_op_declares_are_copied(tmp_path: Path) -> None:
    """Their arrays fit into a device's memory if the op's arrays do."""
    text = GATHER.replace("outputs=", 'bytes="8 * tokens * dim * vocab",\n    outputs=')
    op = load_op(write_op(tmp_path / "gather", text, naive=KERNEL))
    assert bytes_over_copy(op, op.problem(64, 96, 32)) == pytest.approx(1, abs=0.01)
    assert bytes_over_copy(op, op.problem(1, 1, 1)) == 1
    huge = op.problem(1 << 14, 1 << 10, 1 << 10)
    assert bytes_over_copy(op, huge) > 100
    assert OPS["copy"].minimum_bytes(as_copy_problem(huge)) <= 2 * (128 << 20)


def test_a_gather_need_not_read_the_whole_table(tmp_path: Path) -> None:
    """A right gather of a large table is faster than a copy of the table, and is no failure."""
    op = load_op(write_op(tmp_path / "gather", GATHER))
    problem = op.problem(64, 1 << 20, 32)
    assert op.certain_bytes(problem) == 4 * 64 + 4 * 64 * 32 < op.minimum_bytes(problem)
    weights = GATHER.replace('"vocab dim")', '"vocab dim", "int8")')
    op = load_op(write_op(tmp_path / "weights" / "narrow", weights))
    assert op.certain_bytes(op.problem(64, 1 << 20, 32)) == 4 * 64 + 4 * 64 * 32
    declared = GATHER.replace("outputs=", 'bytes="4 * tokens * (2 * dim + 1)",\n    outputs=')
    op = load_op(write_op(tmp_path / "declared" / "picked", declared))
    problem = op.problem(64, 1 << 20, 32)
    assert op.certain_bytes(problem) == op.minimum_bytes(problem) == 4 * 64 * 65
    read = [load_op(GALLERY / name) for name in ("swiglu", "matvec_int8", "matvec_int4", "cross_entropy")]
    for op in (OPS["layer_norm"], *read):
        problem = op.problem(64, 128)
        assert op.certain_bytes(problem) == op.minimum_bytes(problem), op.name


def test_a_norm_is_copied_with_its_own_problem() -> None:
    for name in ("layer_norm", "rms_norm_backward"):
        copied = as_copy_problem(OPS[name].problem(93, 61, dtype="float16"))
        assert (copied.sizes, copied.dtype) == ({"rows": 93, "cols": 61}, "float16")
