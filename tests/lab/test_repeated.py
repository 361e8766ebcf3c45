"""Repeated rows are compared with float64, including rows after the block."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from testbed import GPU, kernel_named
from webnorm.choice.defaults import default_variant
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.kernels.headers.traits import Traits
from webnorm.kernels.headers.variants import Variant
from webnorm.lab.run import jobs
from webnorm.lab.verify import problem_buffers, timed_work
from webnorm.lab.verify.clobber import BufferComparer
from webnorm.lab.verify.problem_buffers import ProblemBuffers, repeated_dispatches
from webnorm.lab.verify.trial import try_variant
from webnorm.op.dtypes import DTYPES
from webnorm.op.op import Task, make_inputs
from webnorm.op.registry import OPS
from webnorm.ops.norms.problem import NormProblem

# A block six times; five times and some rows; the same with a partial last word.
SHAPES = [(96, 64, "float32"), (93, 64, "float32"), (93, 63, "float16")]


@pytest.mark.parametrize(("rows", "cols", "dtype"), SHAPES)
@pytest.mark.parametrize("op", ["layer_norm", "rms_norm_backward"])
def test_repeated_rows_are_compared_with_float64_too(
    device: Device, op: str, rows: int, cols: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problem_buffers, "_DRAWN_ELEMENTS", 1 << 10)
    problem = NormProblem(rows=rows, cols=cols, dtype=dtype, options=OPS[op].defaults)
    board = problem_buffers.RepeatedRows(device, Task(OPS[op], problem), 2)
    block = board.block.problem.rows
    assert board.times == rows // block >= 4
    variant = default_variant(kernel_named("naive", op), problem, device.traits)
    arrays = {
        name: np.resize(one, (rows, *one.shape[1:])) if one.ndim == 2 else one
        for name, one in board.arrays.items()
    }
    whole = ProblemBuffers(device, Task(OPS[op], problem), arrays, (), 2)
    digests = []
    for bench in (board, whole):
        result, plan, golden = try_variant(bench, variant)
        assert result.status == "pass" and plan is not None, result.reason
        dispatches = bench.turns.take(5)
        plan.run_all(dispatches)
        assert bench.holds(plan, golden, dispatches)
        digests.append({name: array[:block].tobytes() for name, (array, _) in bench.read(plan, 0, 0).items()})
    # The device repeats the block's rows in the same way as the host.
    assert digests[0] == digests[1]

    # Errors outside of the block: the last element is wrong, or memory after it is overwritten.
    (rowwise,) = (tensor for tensor in OPS[op].outputs(problem) if tensor.name in ("y", "dx"))
    buffer = board.outputs(variant).buffers[rowwise.name][0]
    plan = board.prepare(variant)
    plan.run()
    itemsize = DTYPES[dtype].itemsize
    end = rows * cols * itemsize
    for at, said in ((end - itemsize, "equal rows gave different outputs"), (end, None)):
        word = math.ceil(at / 4) * 4 if said is None else at // 4 * 4
        written = device.handle.queue.read_buffer(buffer, word, 4)
        spoiled = np.frombuffer(written, np.uint8).copy()
        spoiled[at - word if said else 0] ^= 1
        device.handle.queue.write_buffer(buffer, word, spoiled)
        dispatches = range(0, 2)
        assert not board.holds(plan, golden, dispatches)
        if said is None:
            assert not board.read(plan, 0, 0)[rowwise.name][1]
        else:
            with pytest.raises(WebnormError, match=said):
                board.outcome(plan)
        device.handle.queue.write_buffer(buffer, word, written)
    assert board.outcome(plan)[0].ok


@pytest.mark.parametrize("version", [0, 1])
def test_sums_over_rows_include_all_rows(
    device: Device, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problem_buffers, "_DRAWN_ELEMENTS", 1 << 10)
    op = OPS["layer_norm_backward"]
    problem = op.problem(93, 64)
    board = problem_buffers.RepeatedRows(device, Task(op, problem), 2)
    variant = default_variant(kernel_named("naive", op.name), problem, device.traits)
    found = board.answers(variant, {}, version)
    moved = {
        name: np.roll(one, version, axis=0) if one.ndim == 2 else one for name, one in board.arrays.items()
    }
    arrays = {
        name: np.resize(one, (93, *one.shape[1:])) if one.ndim == 2 else one for name, one in moved.items()
    }
    for name, answer in op.reference(arrays, problem).items():
        if answer.abs_sum is not None:
            np.testing.assert_allclose(found[name].value, answer.value, rtol=1e-12, atol=1e-12)
            summed = found[name].abs_sum
            assert summed is not None
            np.testing.assert_allclose(summed, answer.abs_sum, rtol=1e-12)


def test_each_variant_is_compared_with_its_own_bits(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem_buffers, "_DRAWN_ELEMENTS", 1 << 10)
    op = OPS["layer_norm"]
    problem = op.problem(93, 64)
    board = problem_buffers.RepeatedRows(device, Task(op, problem), 2)
    tried = []
    for name in ("naive", "two_pass"):
        variant = default_variant(kernel_named(name), problem, device.traits)
        result, plan, golden = try_variant(board, variant)
        assert result.status == "pass" and plan is not None
        tried.append((plan, golden))
    assert len({golden for _, golden in tried}) == 2, "expected sums in another order"
    for plan, golden in tried:
        dispatches = board.turns.take(5)
        plan.run_all(dispatches)
        assert board.holds(plan, golden, dispatches)
        other = next(bits for _, bits in tried if bits != golden)
        assert not board.holds(plan, other, dispatches)


def test_equal_rows_with_different_outputs_are_a_failure(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problem_buffers, "_DRAWN_ELEMENTS", 1 << 10)
    op = OPS["layer_norm"]
    problem = op.problem(93, 64)
    board = problem_buffers.RepeatedRows(device, Task(op, problem), 2)
    variant = default_variant(kernel_named("naive"), problem, device.traits)

    result, plan, golden = try_variant(board, variant)
    assert result.status == "pass" and plan is not None
    monkeypatch.setattr(BufferComparer, "repeats", lambda self, buffer, period, size: False)
    result, found, _ = try_variant(board, variant)
    assert found is None and result.status == "fail"
    assert result.reason == "y: equal rows gave different outputs"
    # The same applies if a right output changes later.
    setup = timed_work.timing_setup(board, 0.0)
    (running,) = (jobs.timed_variant(setup, 0, result, plan, golden),)
    strayed = timed_work._strayed(board, running, range(0, 2))
    assert (strayed.status, strayed.deterministic) == ("fail", False)
    assert strayed.reason == "y: equal rows gave different outputs"


def test_a_block_that_no_device_can_bind_is_the_problem(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problem_buffers, "_DRAWN_ELEMENTS", 1 << 10)
    task = Task(OPS["layer_norm"], NormProblem(rows=93, cols=64))
    assert problem_buffers.block_of(task, device).batch_size == 16
    monkeypatch.setitem(device.limits, "max-storage-buffer-binding-size", 4095)
    assert problem_buffers.block_of(task, device) == task.problem


def test_without_rows_there_is_nothing_to_repeat(device: Device) -> None:
    op = OPS["layer_norm_backward"]
    board = problem_buffers.RepeatedRows(device, Task(op, op.problem(0, 64)), 1)
    result, _, _ = try_variant(
        board, default_variant(kernel_named("naive", op.name), board.problem, device.traits)
    )
    assert result.status == "pass", result.reason


def test_a_small_problem_is_its_own_block(device: Device) -> None:
    op = OPS["rms_norm"]
    board = problem_buffers.RepeatedRows(device, Task(op, op.problem(5, 3)), 1)
    assert board.block.problem == board.problem


def test_a_software_adapter_repeats_large_dispatches_less() -> None:
    software = replace(GPU, software=True)
    counts = [repeated_dispatches(software, work) for work in (0, 1000, 1 << 19, 3 << 20, 1 << 40)]
    assert counts == [33, 33, 8, 3, 3]
    assert repeated_dispatches(GPU, 1 << 40) == 33


def test_invocations_count_as_work(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of 8 columns takes as long as one of 256 if its workgroup has as many invocations."""
    seen: list[int] = []

    def count(traits: Traits, work: int) -> int:
        seen.append(work)
        return repeated_dispatches(traits, work)

    monkeypatch.setattr(problem_buffers, "repeated_dispatches", count)
    kernel, problem = kernel_named("two_pass"), NormProblem(rows=64, cols=8)
    board = ProblemBuffers(device, Task(kernel.op, problem), make_inputs(kernel.op, problem), ())
    constants = default_variant(kernel, problem, device.traits).constants
    for threads in (8, 256):
        variant = Variant(kernel, {**constants, "threads_per_row": threads})
        assert try_variant(board, variant)[0].status == "pass"
    assert seen == [64 * 8, 64 * 256]
