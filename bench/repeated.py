"""A bench for large problems: rows repeat, so that holding them against float64 takes seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.gpu.plan import Plan
from webnorm.kernels.variants import Variant
from webnorm.lab.accuracy import Accuracy, assess
from webnorm.lab.board import Board
from webnorm.norms.ops import Task, make_inputs
from webnorm.norms.parts import in_parts
from webnorm.norms.problem import Array, Problem
from webnorm.norms.reference import Answer, Answers

# Elements of x that are drawn and held against float64.
_ELEMENTS = 1 << 22


def repeats(problem: Problem) -> int:
    """How often a block of rows fills a problem, so that the block is large enough and fills it."""
    most = max(1, problem.rows * problem.cols // _ELEMENTS)
    return next(count for count in range(most, 0, -1) if problem.rows % count == 0)


class RepeatedRows(Board):
    """Buffers of a problem whose rows are a block of rows again and again.

    The block is held against float64; all other rows have to be bit for bit like it, and a sum over rows as
    many times the block's. `block` is a bench of the block alone.
    """

    def __init__(self, device: Device, task: Task, sets: int) -> None:
        op, problem = task.op, task.problem
        self._count = repeats(problem)
        self._rows = problem.rows // self._count
        block_problem = replace(problem, rows=self._rows)
        block = make_inputs(op, block_problem)
        by_rows = {tensor.name for tensor in op.present(problem) if tensor.per_row}
        arrays = {
            name: np.tile(array, (self._count, 1)) if name in by_rows else array
            for name, array in block.items()
        }
        super().__init__(device, problem, arrays, (), sets)
        self.block = Board(device, block_problem, block, ())

    def answers(
        self, variant: Variant, outputs: Mapping[str, tuple[Array, bool]], version: int = 0
    ) -> Answers:
        """The op's float64 answers for the block; sums over rows are those of all rows."""
        h = {"h": (outputs["h"][0][: self._rows], outputs["h"][1])} if "h" in outputs else {}
        answers = self.block.answers(variant, h, version)
        return {name: self._of_all(answer) for name, answer in answers.items()}

    def _of_all(self, answer: Answer) -> Answer:
        if answer.summed is None:
            return answer
        count = self._count
        return Answer(answer.value * count, answer.unit * count, answer.shaky * count, answer.summed * count)

    def judged(self, plan: Plan, got: Mapping[str, tuple[Array, bool]], version: int) -> Accuracy:
        """As a bench's; raises WebnormError where rows are unlike the block's."""
        variant = plan.shader.variant
        block = dict(got)
        for name, tensor in self.outputs(variant).tensors.items():
            if tensor.per_row:
                array, intact = got[name]
                if not self._alike(array):
                    raise WebnormError(f"{name}: rows that hold the same came out different")
                block[name] = array[: self._rows], intact
        return assess(block, self.answers(variant, block, version), plan.shader)

    def _alike(self, array: Array) -> bool:
        words = array.reshape(self._count, -1).view(np.uint8)
        return all(in_parts(lambda part: bool(np.all(words[:, part] == words[0, part])), words.shape[1], 8))
