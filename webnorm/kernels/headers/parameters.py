"""The words of `params`: the numbers that a kernel reads from its uniform or its immediates."""

from __future__ import annotations

from webnorm.kernels.headers.kernel import Kernel
from webnorm.op.expression import Tree
from webnorm.op.problem import Problem

# The words that fit WebGPU's default limit of immediates (maxImmediateSize, 64 bytes).
MOST_IMMEDIATES = 16


def call_words(problem: Problem) -> tuple[str, ...]:
    """Return the words for the call: the size of the batch, and the scalars."""
    return (*([problem.BATCH] if problem.BATCH else []), *problem.SCALARS)


def place_words(name: str, batched: bool, scratch: bool) -> tuple[str, ...]:
    """Return the words for a buffer.

    They are the start of a slice, or for a scratch buffer of the whole call the number of its records and
    whether earlier slices have written them.
    """
    if batched:
        return (f"{name}_start",)
    return (f"{name}_count", f"{name}_kept") if scratch else ()


def word_count(kernel: Kernel, problem: Problem) -> Tree:
    """Return the number of words as an expression, because the problem may not need a scratch buffer."""
    if kernel.plain is not None:
        return len(kernel.plain.words)
    tensors = (place_words(one.name, one.batched, False) for one in kernel.op.present(problem))
    count: Tree = len(call_words(problem)) + sum(map(len, tensors))
    for one in kernel.scratch:
        own = len(place_words(one.name, one.batched, True))
        count = ["+", count, ["if", [">", one.words, 0], own, 0]]
    return count
