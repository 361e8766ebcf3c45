"""The corpus of a user op: its own cases, and ordinary and hostile values at sizes that break kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from webnorm.errors import WebnormError
from webnorm.op.built_op import all_options, small_problem, stored
from webnorm.op.corpus import Case, ForceSplit, Overrides
from webnorm.op.definition import CaseDefinition
from webnorm.op.dtypes import Array
from webnorm.op.fitting_problem import fitting_task
from webnorm.op.op import Op, Task, UnsupportedProblem
from webnorm.op.options import Options
from webnorm.op.problem import Problem
from webnorm.op.registry import options_of

# Lengths of each size in turn: nothing for sizes that may be 0, one element, an odd prime, a workgroup, one
# more, and several workgroups.
_LENGTHS = (0, 1, 3, 61, 64, 257, 1000, 1024)
_WATCHED = (61, 64, 257)
# Lengths at which other constants are tried. Both take many steps with few invocations.
_VARYING = (257, 1024)
# Lengths of the batch for dispatches in two dimensions, which take three workgroups. These primes give enough
# workgroups of 1024, 256 and 16 batch elements. The longest that the op accepts is used.
_SQUARE = (2053, 521, 61)
# Pools of sizes for draws, for even and for odd lengths, if other sizes do not fit; and the number of draws.
_POOLS = (((4, 8, 12), (4,), (1, 2, 3, 4)), ((1, 3, 5, 7), (1, 3), (1, 2, 3)))
_DRAWS = 300
# Start sizes if longer ones have too many elements: multiples of 4, and odd ones.
_SHORTER, _ODD = (68, 40, 16, 8), (131, 69, 41, 17, 9)
# Elements of a case's largest tensor, and the product of its sizes, which bounds the work of a reference such
# as a convolution. More would be slow on a software adapter, or in NumPy.
_MOST_ELEMENTS, _MOST_STEPS = 1 << 18, 1 << 20


@dataclass(frozen=True)
class OpCase(Case):
    """One problem of a user op. `given` contains arrays, or functions that draw them."""

    op_name: str
    name: str
    source: str
    shape: tuple[int, ...]
    options: Options
    distribution: str = "normal"
    seed: int = 0
    narrow: ForceSplit | None = None
    given: Mapping[str, Any] = field(default_factory=dict, hash=False, compare=False)
    is_watched: bool = False
    varies_constants: bool = False
    # Scalars that differ from their defaults.
    scalars: tuple[tuple[str, float], ...] = ()

    @property
    def watched(self) -> bool:
        """True if checks look for races on the case."""
        return self.is_watched

    def problem(self, op: Op, dtype: str = "float32", overrides: Overrides | None = None) -> Any:
        """Return the case as a problem of its op; None for another op, or for options that it lacks."""
        overrides = overrides or Overrides()
        if op.name != self.op_name:
            return None
        try:
            options = self.options if overrides.options is None else options_of(op, overrides.options)
            known = {
                name: value for name, value in overrides.given.items() if name in op.problem_type.SCALARS
            }
            if known != overrides.given:
                return None
            return op.problem(
                *self.shape,
                dtype=dtype,
                options=options,
                distribution=self.distribution,
                seed=self.seed,
                **{**dict(self.scalars), **known},
            )
        except UnsupportedProblem:
            return None

    def other_task(self, task: Task, fits: Callable[[Any], bool], numbers: Sequence[int]) -> Task:
        """Return the task with other sizes that fit. A case with fixed arrays has no other sizes."""
        own = any(not callable(one) for one in self.given.values())
        return task if own else fitting_task(task, fits, numbers)

    def draw(self, task: Task) -> dict[str, Array]:
        """Return the input arrays of a task."""
        rng = np.random.default_rng([self.seed, *self.name.encode()])
        arrays = {}
        for tensor in task.op.inputs(task.problem):
            if tensor.name in self.given:
                given = self.given[tensor.name]
                shape = tensor.shape_in(task.problem)
                drawn = given(rng, shape) if callable(given) else given
                if np.shape(drawn) != shape:
                    raise WebnormError(
                        f"case {self.name!r}: {tensor.name} has the shape {np.shape(drawn)}; expected {shape}"
                    )
                arrays[tensor.name] = stored(np.asarray(drawn), tensor.dtype(task.problem))
        return task.op.draw(task, arrays, rng)


def op_cases(op: Op, own: Sequence[CaseDefinition], seed: int) -> tuple[Case, ...]:
    """Return the corpus of an op and its own cases, with draws of this seed."""
    return (
        *_by_size(op, seed),
        *_by_value(op, op.defaults, "", seed),
        *_by_scalar(op, op.defaults, "", seed),
        *_by_option(op, seed),
        *_split(op, seed),
        *_own(op, own, seed),
    )


def _case(op: Op, name: str, sizes: tuple[int, ...], source: str, **given: Any) -> Case | None:
    given = {"options": op.defaults, **given}
    try:
        problem = op.problem(*sizes, options=given["options"])
    except UnsupportedProblem:
        return None
    if problem.elements > _MOST_ELEMENTS or prod(sizes) > _MOST_STEPS:
        return None
    return OpCase(op.name, f"{op.name}-{name}", source, sizes, **given)


def _fits(op: Op, sizes: Mapping[str, int], options: Options | None = None) -> bool:
    """Return True if sizes make a case: the op accepts them, and they are small enough."""
    return _case(op, "", tuple(sizes.values()), "", options=options or op.defaults) is not None


def _drawn(
    op: Op, pool: Sequence[int], fixed: Mapping[str, int] | None = None, options: Options | None = None
) -> dict[str, int] | None:
    """Return sizes from a pool that make a case, together with the fixed ones.

    Of several draws the one with the most different sizes wins. The result is None if no draw makes a case.
    """
    rng = np.random.default_rng(0)
    draws = rng.choice(pool, size=(_DRAWS, len(op.problem_type.SIZES))).tolist()
    shapes = [{**dict(zip(op.problem_type.SIZES, draw, strict=True)), **(fixed or {})} for draw in draws]
    shapes.sort(key=lambda sizes: -len({*sizes.values()}))
    return next((sizes for sizes in shapes if _fits(op, sizes, options)), None)


def _usual(op: Op, options: Options | None = None) -> dict[str, int]:
    """Return medium sizes that satisfy the op's requirements, all different if the op accepts that.

    Raises
    ------
    UnsupportedProblem
        No small sizes satisfy them.
    """
    sizes = dict(small_problem(op, 8, options).sizes)
    if len({*sizes.values()}) == len(sizes) and _fits(op, sizes, options):
        return sizes
    return _drawn(op, range(2, 14), options=options) or sizes


def _multiples(op: Op, counts: Sequence[int] = (8,)) -> dict[str, int]:
    """Return multiples of 4, all different, for kernels that read vectors.

    The first count that fits determines them. If the op rejects them, the result is `_usual`.
    """
    for count in counts:
        sizes = {name: count + 4 * at for at, name in enumerate(op.problem_type.SIZES)}
        sizes |= {op.problem_type.BATCH: 4} if op.problem_type.BATCH else {}
        if _fits(op, sizes):
            return sizes
    return _drawn(op, (4, 8, 12, 16)) or _usual(op)


def _odd(op: Op, counts: Sequence[int], batch: int, options: Options | None = None) -> dict[str, int]:
    """Return odd sizes, all different, so that every tensor has an odd number of elements.

    The first count that fits determines them. One size is even if the op requires that. If the op rejects
    them, the result is `_usual`.
    """
    for count in counts:
        sizes = {name: count + 2 * at for at, name in enumerate(op.problem_type.SIZES)}
        sizes |= {op.problem_type.BATCH: batch} if op.problem_type.BATCH else {}
        for shape in (sizes, *({**sizes, name: sizes[name] + 1} for name in sizes)):
            if _fits(op, shape, options):
                return shape
    if drawn := _drawn(op, range(3, 15, 2), options=options):
        return drawn
    usual = _usual(op, options)
    sizes = {**usual, op.problem_type.BATCH: batch} if op.problem_type.BATCH else usual
    return sizes if _fits(op, sizes, options) else usual


def _by_size(op: Op, seed: int) -> Iterator[Case]:
    """Yield cases with every size at every length. Other sizes are odd at odd lengths, else multiples of 4.

    If the op rejects a length, the case uses the next length that the op accepts.
    """
    odd, multiples, names = _odd(op, (7, 3), 5), _multiples(op), set[str]()
    lengths = {name: _LENGTHS[least:] for name, least in op.problem_type.SIZES.items()}
    for name, length in ((name, length) for name, tried in lengths.items() for length in tried):
        others = odd if length % 2 else multiples
        moved = ({**others, name: more} for more in range(length + 1, length + 17))
        # A size may limit another one, and the product of many small sizes is large.
        drawn = (_drawn(op, [*pool, length + 8], {name: length}) for pool in _POOLS[length % 2])
        for sizes in chain([{**others, name: length}], drawn, moved):
            found = sizes and _case(
                op,
                f"{name}-{sizes[name]}",
                tuple(sizes.values()),
                "a size that often breaks kernels",
                seed=seed,
                is_watched=length in _WATCHED,
                varies_constants=length in _VARYING,
            )
            if found:
                # A rejected length may have become the next one.
                if found.name not in names:
                    yield found
                names.add(found.name)
                break


def _by_value(op: Op, options: Options, prefix: str, seed: int) -> Iterator[Case]:
    """Yield cases with every distribution, at odd sizes and at multiples of 4.

    Rows are longer than a workgroup if that fits. With options other than the op's defaults, the
    distributions alternate between the two shapes.
    """
    shapes = [("", _odd(op, _ODD, 5, options)), ("-vectors", _multiples(op, (132, *_SHORTER)))]
    for number, kind in enumerate(op.problem_type.DISTRIBUTIONS):
        for suffix, sizes in shapes if options == op.defaults else [shapes[number % 2]]:
            found = _case(
                op,
                f"{prefix}{kind}{suffix}",
                tuple(sizes.values()),
                "values that often break formulas",
                options=options,
                distribution=kind,
                seed=seed,
            )
            if found is not None:
                yield found


def _by_option(op: Op, seed: int) -> Iterator[Case]:
    for options in all_options(op)[1:]:
        # A comma would separate names on the command line.
        prefix = f"{options}-".replace(", ", "+").replace(" ", "-")
        for count in (3, 8, 61):
            with suppress(UnsupportedProblem):
                sizes = tuple(small_problem(op, count, options).sizes.values())
                found = _case(op, f"{prefix}{count}", sizes, "an option", options=options, seed=seed)
                if found is not None:
                    yield found
        yield from _by_value(op, options, prefix, seed)
        yield from _by_scalar(op, options, prefix, seed)


def _by_scalar(op: Op, options: Options, prefix: str, seed: int) -> Iterator[Case]:
    """Yield cases in which one scalar differs from its default, which a kernel may have as a constant."""
    try:
        sizes = _usual(op, options)
    except UnsupportedProblem:
        return
    usual = op.problem(*sizes.values(), options=options)
    for name, default in usual.scalars.items():
        steps = (1, -1, default) if isinstance(default, int) else (0.5, -0.5, default, -default / 2)
        for value in (default + step for step in steps if step):
            if not _has_numbers(op, replace(usual, **{name: value}), seed):
                continue
            given = {"options": options, "scalars": ((name, value),), "seed": seed}
            why = "a scalar that is not its default"
            found = _case(op, f"{prefix}{name}={value:g}", tuple(sizes.values()), why, **given)
            if found is not None:
                yield found
            break


def _has_numbers(op: Op, problem: Problem, seed: int) -> bool:
    """Return True if the reference of a problem returns finite numbers for drawn inputs."""
    try:
        arrays = op.draw(Task(op, problem), {}, np.random.default_rng(seed))
        return all(np.isfinite(one.value).all() for one in op.reference(arrays, problem).values())
    except WebnormError:
        return False


def _split(op: Op, seed: int) -> Iterator[Case]:
    """Yield a case whose batch is cut into slices, and one whose dispatches have two dimensions."""
    batch = op.problem_type.BATCH
    if not batch:
        return
    splits: tuple[tuple[ForceSplit, Sequence[int], str], ...] = (
        ("bindings", (61,), f"{batch} cut into slices"),
        ("dispatches", _SQUARE, "dispatches in two dimensions"),
    )
    for narrow, lengths, source in splits:
        for length in lengths:
            sizes = {**_usual(op), batch: length}
            if not _fits(op, sizes):
                sizes = _drawn(op, range(1, 7), {batch: length}) or sizes
            found = _case(op, f"cut-{narrow}", tuple(sizes.values()), source, narrow=narrow, seed=seed)
            if found is not None:
                yield found
                break


def _own(op: Op, cases: Sequence[CaseDefinition], seed: int) -> Iterator[Case]:
    """Yield the cases that op.py defines."""
    for one in cases:
        options = options_of(op, one.options)
        yield OpCase(
            op.name,
            f"{op.name}-{one.name}",
            one.source,
            sizes_of_case(op, one, options),
            options,
            seed=seed,
            given=one.arrays,
        )


def sizes_of_case(op: Op, one: CaseDefinition, options: Options) -> tuple[int, ...]:
    """Return the sizes of a case: from its arrays, or else its own sizes, or else small ones.

    Raises
    ------
    WebnormError
        The arrays do not fit together.
    """
    found = dict(one.sizes)
    for name, given in one.arrays.items():
        if callable(given):
            continue
        shape, declared = np.shape(given), op.named[name].shape
        if len(shape) != len(declared):
            raise WebnormError(f"case {one.name!r}: {name} has the shape {shape}; expected {declared}")
        for length, size in zip(shape, declared, strict=True):
            if (
                isinstance(size, str)
                and size in op.problem_type.SIZES
                and found.setdefault(size, length) != length
            ):
                raise WebnormError(
                    f"case {one.name!r}: {size} is both {found[size]} and {length}; expected one value"
                )
    sizes = {**small_problem(op, 3, options).sizes, **found}
    problem = op.problem(*sizes.values(), options=options)
    for name, given in one.arrays.items():
        if not callable(given):
            expected = op.named[name].shape_in(problem)
            if np.shape(given) != expected:
                raise WebnormError(
                    f"case {one.name!r}: {name} has the shape {np.shape(given)}; expected {expected}"
                )
    return tuple(sizes[size] for size in op.problem_type.SIZES)
