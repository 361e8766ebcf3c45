"""Construction of an `Op` from the definition in an `op.py`: its problems, draws, answers and hooks."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from itertools import islice, pairwise, product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from webnorm import signals
from webnorm.errors import WebnormError, counted, sentence, shown, unknown
from webnorm.op import expression
from webnorm.op.definition import FOLLOWS, ITEMSIZE, OpDefinition, TensorDefinition
from webnorm.op.derived_tolerance import UNIT, derive_scales
from webnorm.op.draws import hostile_draws
from webnorm.op.dtypes import DTYPES, INTEGERS, Array, finfo
from webnorm.op.op import (
    Expected,
    ExpectedOutputs,
    HeaderTerms,
    Op,
    OpSource,
    Task,
    Tensor,
    ToleranceFactors,
    UnsupportedProblem,
)
from webnorm.op.op_types import options_type, problem_type
from webnorm.op.options import Options
from webnorm.op.packaged_ops import OP_FILE
from webnorm.op.partial_reads import wholly_read
from webnorm.op.problem import Problem

# Sizes of the problems on which the reference is tested when an op is loaded.
TRIED_SIZES = (3, 4)
# Every WebGPU device allows storage buffers of this size, so an array of a copy may have it.
_BINDING_BYTES = 128 << 20
# An input counts as completely read if all of these draws agree, since one draw may select all rows of a
# small table.
_DRAWS = 8
# The terms that one accumulator of a kernel may add without larger errors than op.py allows.
_SHORT_SUM = 64
_MISSING_ARGUMENT = re.compile(r"(\w+)\(\) missing \d+ required .*arguments?: '(\w+)'")
_UNKNOWN_ARGUMENT = re.compile(r"(\w+)\(\) got an unexpected keyword argument '(\w+)'")


def located(error: BaseException, folder: Path) -> WebnormError:
    """Return an error in an op's files as one line, with the file and the line that raised it."""
    if isinstance(error, WebnormError) and error.place is not None:
        return error
    place, namespace = str(folder / OP_FILE), dict[str, Any]()
    for frame, line in traceback.walk_tb(error.__traceback__):
        if Path(frame.f_code.co_filename).parent == folder:
            place, namespace = f"{frame.f_code.co_filename}:{line}", frame.f_globals
    if isinstance(error, SyntaxError) and error.filename:
        return WebnormError(f"{error.filename}:{error.lineno}: {error.msg}")
    if isinstance(error, SystemExit):
        return WebnormError(f"{place}: ends the process; remove the call of exit")
    if isinstance(error, TypeError) and (wrong := _wrong_argument(str(error), place, namespace)) is not None:
        return wrong
    kind = "" if isinstance(error, WebnormError) else f"{type(error).__name__}: "
    return WebnormError(f"{place}: {kind}{sentence(str(error), 300) or 'no message'}")


def _wrong_argument(message: str, place: str, namespace: Mapping[str, Any]) -> WebnormError | None:
    """Return the error for a wrong argument of a function of `webnorm.op`; None for other functions."""
    missing, extra = (one.match(message) for one in (_MISSING_ARGUMENT, _UNKNOWN_ARGUMENT))
    if (found := missing or extra) is None:
        return None
    function, name = found.groups()
    called: Any = namespace.get(function)
    if not getattr(called, "__module__", "").startswith(f"{__package__}."):
        # The file may have a function of this name.
        return None
    if missing:
        return WebnormError(f"{place}: {function} lacks the argument {name!r}; add it")
    parameters = inspect.signature(called).parameters
    return unknown("argument", name, parameters, problem=f"{place}: {function} has no argument {name!r}")


def add_summary(definition: OpDefinition, module: ModuleType) -> None:
    """Take the first line of the module's docstring as summary of a definition without one."""
    definition.summary = definition.summary or sentence((module.__doc__ or "").strip().split("\n")[0], 200)


def packaged_op_of(module: ModuleType) -> Op:
    """Return the op that a module of webnorm defines with `define_op`. Its folder has the op's name."""
    folder = Path(str(module.__file__)).parent
    definition: OpDefinition = module.op
    add_summary(definition, module)
    source = OpSource(str(folder), folder.name, "", packaged=True)
    return BuiltOp(definition, folder.name, folder).build(source)


class BuiltOp:
    """The functions of an op that an `op.py` defines. The hooks of its Op are methods of this class."""

    def __init__(self, definition: OpDefinition, name: str, folder: Path) -> None:
        self.definition, self.name, self.folder = definition, name, folder
        if definition.reference_function is None:
            raise WebnormError("the op has no reference; expected a function under @op.reference")
        self.reference_function = definition.reference_function
        self._read: dict[Options, set[str]] = {}
        self.hostile = dict(hostile_draws({one.name: one.draw for one in definition.inputs}))

    @property
    def line(self) -> int:
        """The line of op.py where the reference begins."""
        return self.reference_function.__code__.co_firstlineno

    # --- draws

    def draw(self, task: Task, given: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
        """Return all inputs of the problem in their storage types. Inputs that are not given are drawn."""
        problem, arrays = task.problem, dict(given)
        hostile = self.hostile.get(problem.distribution, {})
        definitions = self.definition.named
        for one in task.op.inputs(problem):
            if one.name in arrays:
                continue
            shape = one.shape_in(problem)
            try:
                if one.name in hostile:
                    drawn = hostile[one.name](rng, shape)
                else:
                    drawn = definitions[one.name].draw.draw(rng, shape, partial(_bound, problem=problem))
            except Exception as error:
                signals.let_through(error)
                raise located(error, self.folder) from error
            arrays[one.name] = stored(drawn, one.dtype(problem))
        return arrays

    def other_version(self, task: Task, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return other inputs of the same problem."""
        return self.draw(task, {}, np.random.default_rng([task.problem.seed, 2]))

    # --- answers

    def call(
        self, function: Callable[..., Any], arrays: Mapping[str, Array], problem: Problem
    ) -> list[Array]:
        """Call a reference, or a mistake; return the outputs in order.

        Raises
        ------
        WebnormError
            The function raises, or returns other shapes. The message contains the file and the line.
        """
        return self._outputs(function, self._returned(function, arrays, problem), problem)

    def _returned(self, function: Callable[..., Any], arrays: Mapping[str, Array], problem: Problem) -> Any:
        given: dict[str, Any] = {one.name: arrays.get(one.name) for one in self.definition.inputs}
        given |= {**problem.sizes, **problem.scalars, FOLLOWS: problem.dtype}
        given |= {name: value for name, value in vars(problem.options).items() if name not in given}
        try:
            return function(**{name: given[name] for name in inspect.signature(function).parameters})
        except Exception as error:
            signals.let_through(error)
            whole = [one.name for one in self.definition.inputs if one.dtype in INTEGERS]
            if isinstance(error, IndexError) and whole:
                error.args = (
                    f'{error}; draw=integers(0, "rows") keeps the numbers of {whole[0]} below rows',
                )
            raise located(error, self.folder) from error

    def _outputs(self, function: Callable[..., Any], returned: Any, problem: Problem) -> list[Array]:
        tensors = self.op.outputs(problem)
        found = [*returned] if isinstance(returned, tuple) else [returned]
        code = function.__code__
        place = f"{code.co_filename}:{code.co_firstlineno}"
        if len(found) != len(tensors):
            names = ", ".join(one.name for one in tensors)
            raise WebnormError(
                f"{place}: {function.__name__} returns {counted(len(found), 'array')}; expected {names}"
            )
        for index, (one, tensor) in enumerate(zip(found, tensors, strict=True)):
            array = one if isinstance(one, np.ndarray) else _as_array(one)
            shape = tensor.shape_in(problem)
            if array.dtype.kind not in "fiub":
                raise WebnormError(
                    f"{place}: {function.__name__} returns {shown(one)} for {tensor.name}; "
                    "expected an array of numbers"
                )
            if array.shape != shape and not (array.size == 1 and shape == (1,)):
                raise WebnormError(
                    f"{place}: {tensor.name} has the shape {array.shape}; expected {shape} "
                    f"({' '.join(map(str, tensor.shape))})"
                )
            found[index] = array.reshape(shape)
        return found

    def reference(self, arrays: Mapping[str, Array], problem: Problem) -> ExpectedOutputs:
        """Return the expected outputs with their allowed errors."""
        tensors = self.op.outputs(problem)
        inputs = {name: wide(array) for name, array in arrays.items() if self.op.named[name].access == "read"}

        def outputs(given: Mapping[str, Array]) -> Sequence[Array]:
            # A reference may write to its inputs, so it gets copies.
            return self.call(
                self.reference_function, {name: one.copy() for name, one in given.items()}, problem
            )

        with np.errstate(all="ignore"):
            exact = outputs(inputs)
        if self.definition.error_function is not None:
            return self._allowed_errors(self.definition.error_function, inputs, problem, exact)
        if self.definition.tolerance is not None:
            return self._given_tolerance(tensors, exact)

        scales = derive_scales(outputs, inputs, exact, [one.batched for one in tensors])
        return {
            tensor.name: Expected(
                one.astype(np.float64), found.spread / UNIT, found.serial, beyond_float32=found.beyond
            )
            for tensor, one, found in zip(tensors, exact, scales, strict=True)
        }

    def _allowed_errors(
        self,
        function: Callable[..., Any],
        inputs: Mapping[str, Array],
        problem: Problem,
        exact: Sequence[Array],
    ) -> ExpectedOutputs:
        """Return the expected outputs with the errors that a function of op.py allows."""
        with np.errstate(all="ignore"):
            returned = self._returned(function, inputs, problem)
        found = [*returned] if isinstance(returned, tuple) else [returned]
        tensors = self.op.outputs(problem)
        try:
            pairs = zip(tensors, exact, found, strict=True)
            return {
                tensor.name: Expected(
                    one.astype(np.float64), np.broadcast_to(np.asarray(error), one.shape), np.zeros(1)
                )
                for tensor, one, error in pairs
            }
        except ValueError as error:
            code = function.__code__
            names = ", ".join(one.name for one in tensors)
            raise WebnormError(
                f"{code.co_filename}:{code.co_firstlineno}: {function.__name__} does not return one array "
                f"for each of {names}, of its shape: {error}"
            ) from error

    def _given_tolerance(self, tensors: Sequence[Tensor], exact: Sequence[Array]) -> ExpectedOutputs:
        given = self.definition.tolerance
        assert given is not None
        return {
            tensor.name: Expected(
                one.astype(np.float64), given.absolute + given.relative * np.abs(one), np.zeros(1)
            )
            for tensor, one in zip(tensors, exact, strict=True)
        }

    def tolerance(self, terms: HeaderTerms, problem: Problem) -> ToleranceFactors:
        """Return the tolerance that op.py defines, or else the derived one."""
        if self.definition.error_function is not None:
            terms_added = max(1, min(terms.serial + terms.column, problem.elements))
            reason = f"the errors that op.py allows, {terms_added} terms per accumulator"
            return ToleranceFactors(max(1.0, terms_added / _SHORT_SUM), 0.0, 0.0, 0.0, reason)
        if self.definition.tolerance is not None:
            return ToleranceFactors(1.0, 0.0, 0.0, 0.0, "the tolerance of op.py")
        # No accumulator adds more terms than there are elements, even if a header declares more.
        serial = min(terms.serial + terms.column, problem.elements)
        reason = "derived from the reference"
        if serial:
            reason += f", with {serial} terms added one after another"
        return ToleranceFactors(UNIT, float(serial), 0.0, 0.0, reason)

    def bytes_moved(self, problem: Problem) -> int:
        """Return the bytes that any kernel must move: the op's expression, or else every tensor once."""
        if self.definition.bytes is not None:
            return _counted(self.definition, self.definition.bytes, problem)
        return sum(one.data_bytes(problem) for one in self.op.present(problem))

    def certain_bytes(self, problem: Problem) -> int:
        """Return the bytes that a kernel must move for any inputs.

        Integer inputs may be indices, and a kernel does not read elements that they do not select. Without an
        expression in op.py, such an op counts its outputs, and the inputs that the reference reads
        completely.
        """
        present = self.op.present(problem)
        indexed = any(one.access == "read" and one.dtype(problem) in INTEGERS for one in present)
        if self.definition.bytes is not None or not indexed:
            return self.bytes_moved(problem)
        read = self._wholly_read(problem.options)
        return sum(one.data_bytes(problem) for one in present if one.access != "read" or one.name in read)

    def _wholly_read(self, options: Options) -> set[str]:
        """Return the inputs that the reference reads completely, in several draws of a small problem."""
        if options not in self._read:
            try:
                problem = small_problem(self.op, TRIED_SIZES[1], options)
            except UnsupportedProblem:
                return set()
            task = Task(self.op, problem)
            draws = [self.draw(task, {}, np.random.default_rng([6, number])) for number in range(_DRAWS + 1)]
            inputs = [{name: wide(array) for name, array in one.items()} for one in draws]

            def outputs(given: Mapping[str, Array]) -> Sequence[Array]:
                copies = {name: one.copy() for name, one in given.items()}
                return self.call(self.reference_function, copies, problem)

            with np.errstate(all="ignore"):
                found = [wholly_read(outputs, *pair) for pair in pairwise(inputs)]
            self._read[options] = set.intersection(*found)
        return self._read[options]

    def copied_bytes(self, problem: Problem) -> int:
        """Return the bytes that a copy next to the op moves.

        They are as many, in arrays that fit a binding if the op's do.
        """
        largest = max(one.data_bytes(problem) for one in self.op.present(problem))
        return min(self.bytes_moved(problem), 2 * max(largest, _BINDING_BYTES))

    def mistakes(self, task: Task, arrays: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
        """Return the outputs of kernels with a mistake, by the description of the mistake."""
        names = [one.name for one in task.op.outputs(task.problem)]
        found = {}
        for what, function in self.definition.mistakes.items():
            inputs = {name: wide(array) for name, array in arrays.items()}
            with np.errstate(all="ignore"):
                outputs = self.call(function, inputs, task.problem)
            found[what] = {name: one.astype(np.float64) for name, one in zip(names, outputs, strict=True)}
        return found

    def cases(self, seed: int) -> Any:
        """Return the corpus of the op, including the cases that op.py defines."""
        # That module imports this one.
        from webnorm.op.op_cases import op_cases

        return op_cases(self.op, self.definition.cases, seed)

    # --- the op

    def build(self, source: OpSource) -> Op:
        """Return the Op; raise WebnormError if the reference is unusable.

        The batch of a packaged op counts as tested: webnorm's tests build such an op like a user's.
        """
        op = self._built(source)
        batch = op.problem_type.BATCH
        for name, text in self.definition.derived.items():
            if batch in expression.names(expression.parse(text)):
                raise WebnormError(
                    f"derived name {name!r} depends on {batch}, the batch, which kernels get at run time; "
                    "expected an expression of other sizes"
                )
        return op

    def _built(self, source: OpSource) -> Op:
        self.op = self._made(source, "")
        batch = self.definition.batch
        if source.packaged and batch != "auto":
            self.op = self._made(source, batch or "")
            return self.op
        if batch is None:
            return self.op
        if batch == "auto":
            batch = self._first_dimension()
            self.op = self._made(source, batch)
            if batch and not self._independent():
                self.op = self._made(source, "")
            return self.op
        self.op = self._made(source, batch)
        outputs = self.op.outputs(small_problem(self.op, TRIED_SIZES[0]))
        sums = [one.name for one in outputs if not one.batched]
        if len(sums) == len(outputs):
            raise WebnormError(f"batch is {batch!r}, which is not the first dimension of any output")
        if not self._independent():
            which = f", or {', '.join(sums)} is not a sum over them" if sums else ""
            problem = "the reference's outputs change when its elements are reordered"
            raise WebnormError(f"batch is {batch!r}, but {problem}{which}")
        return self.op

    def _first_dimension(self) -> str:
        """Return the size that is the first dimension of every output, and nowhere else; or ""."""
        definition = self.definition
        firsts = {one.shape[0] for one in definition.outputs}
        name = next(iter(firsts))
        if len(firsts) > 1 or name not in definition.sizes:
            return ""
        others = [part for one in definition.named.values() for part in one.shape[1:]]
        others += [one.shape[0] for one in definition.inputs if one.shape[0] != name]
        if any(name in expression.names(expression.parse(part)) for part in others):
            return ""
        return name

    def _independent(self) -> bool:
        """Return True if the elements of the batch are independent of each other in small problems.

        Outputs without the batch have to be sums over its elements.
        """
        for options in all_options(self.op):
            try:
                problem = small_problem(self.op, TRIED_SIZES[1], options)
            except UnsupportedProblem:
                continue
            arrays = self.draw(Task(self.op, problem), {}, np.random.default_rng(5))
            if not any(self.op.named[name].batched for name in arrays):
                return False
            inputs = {name: wide(array) for name, array in arrays.items()}
            everything = np.arange(problem.batch_size)
            order = np.concatenate([np.array([2, 0, 3, 1]), everything[TRIED_SIZES[1] :]])
            with np.errstate(all="ignore"):
                whole = self._part(inputs, problem, everything)
                try:
                    reordered, first, rest = (
                        self._part(inputs, problem, part) for part in (order, everything[:1], everything[1:])
                    )
                except WebnormError:
                    return False
            for index, tensor in enumerate(self.op.outputs(problem)):
                if tensor.batched:
                    pairs = [(reordered[index], whole[index][order]), (rest[index], whole[index][1:])]
                else:
                    pairs = [(reordered[index], whole[index]), (first[index] + rest[index], whole[index])]
                # NumPy's order of additions depends on the shape.
                if not all(np.allclose(*pair, rtol=1e-9, atol=1e-12, equal_nan=True) for pair in pairs):
                    return False
        return True

    def _part(self, inputs: Mapping[str, Array], problem: Problem, part: Array) -> list[Array]:
        """Return the outputs of the reference for some elements of the batch."""
        some = {
            name: array[part] if self.op.named[name].batched else array.copy()
            for name, array in inputs.items()
        }
        return self.call(self.reference_function, some, problem.with_batch(len(part)))

    def _made(self, source: OpSource, batch: str) -> Op:
        definition = self.definition
        tensors = tuple(
            _tensor(one, access, batch)
            for access, ones in (("read", definition.inputs), ("read_write", definition.outputs))
            for one in ones
        )
        options = options_type(definition, source)
        problems = problem_type(definition, source, batch, options, self.hostile, self.copied_bytes)
        choices = tuple(one.name for one in definition.options if one.values)
        return Op(
            self.name,
            definition.summary,
            tensors,
            self.reference,
            problems,
            self.draw,
            defaults=options(),
            more_options=tuple(one.name for one in definition.options),
            requires=partial(_requires, definition),
            template_names=lambda problem: {name: getattr(problem.options, name) for name in choices},
            header_names=partial(_header_names, definition),
            starter="naive",
            counted_bytes=self.bytes_moved,
            counted_flops=None
            if definition.flops is None
            else partial(_counted, definition, definition.flops),
            source=source,
            hooks={
                "tolerance": self.tolerance,
                "other_version": self.other_version,
                "certain_bytes": self.certain_bytes,
                "mistakes": self.mistakes,
                "cases": self.cases,
                "evaluation": "webnorm.op.small_problems",
                "export_inputs": "webnorm.op.small_problems:export_inputs",
            },
        )


def _known_names(definition: OpDefinition, problem: Problem) -> dict[str, int]:
    """Return the sizes, the bytes of an element of --dtype, flags, and 0 or 1 for each value of a choice."""
    chosen = {
        name: int(getattr(problem.options, option) == value)
        for name, (option, value) in definition.choice_names().items()
    }
    return {**problem.counts, ITEMSIZE: DTYPES[problem.dtype].itemsize, **chosen}


def _header_names(definition: OpDefinition, problem: Problem) -> dict[str, int]:
    """Return the bytes of an element of --dtype, a 0 or 1 for each value of a choice, and derived names."""
    known = _known_names(definition, problem)
    derived = {
        name: expression.evaluate(expression.parse(text), known) for name, text in definition.derived.items()
    }
    return {name: known[name] for name in (ITEMSIZE, *definition.choice_names())} | derived


def _tensor(one: TensorDefinition, access: Any, batch: str) -> Tensor:
    return Tensor(
        one.name,
        access,
        tuple(int(part) if part.isdecimal() else part for part in one.shape),
        batched=bool(batch) and one.shape[0] == batch,
        storage="dtype" if one.dtype == FOLLOWS else one.dtype,
        option=one.option,
    )


def _counted(definition: OpDefinition, text: str, problem: Problem) -> int:
    return expression.evaluate(expression.parse(text), _known_names(definition, problem))


def _bound(value: Any, problem: Problem) -> float:
    if isinstance(value, str):
        tree = expression.parse(value)
        expression.check_names(tree, problem.sizes, value)
        return expression.evaluate(tree, problem.sizes)
    return float(value)


def wide(array: Array) -> Array:
    """Return the array as references receive it: floats in float64, integers in int64."""
    return array.astype(np.int64 if array.dtype.kind in "iu" else np.float64)


def _as_array(value: Any) -> Array:
    """Return the value as an array; an array of objects, whose type is rejected later, if that fails."""
    try:
        return np.asarray(value)
    except ValueError:
        return np.asarray(None)


def stored(drawn: Array, dtype: str) -> Array:
    """Return the array in a storage type.

    Values beyond its range become its largest number; NaN becomes integer 0.
    """
    drawn = np.asarray(drawn)
    if dtype in INTEGERS:
        limits = np.iinfo(DTYPES[dtype])
        clipped: Array = np.clip(np.nan_to_num(drawn), limits.min, limits.max)
        return clipped.astype(DTYPES[dtype])
    largest = float(finfo(dtype).max)
    with np.errstate(over="ignore"):
        found = drawn.astype(DTYPES[dtype])
    finite = np.isfinite(drawn) & ~np.isfinite(found.astype(np.float32))
    if finite.any():
        found[finite] = (np.sign(drawn[finite]) * largest).astype(DTYPES[dtype])
    return found


def _requires(definition: OpDefinition, problem: Problem) -> None:
    values = problem.counts
    for one in definition.requirements:
        if not expression.evaluate(expression.parse(one.rule), values):
            raise UnsupportedProblem(f"{problem.shape_text}: {one.why}")


def all_options(op: Op) -> list[Options]:
    """Return the op's default options, and variants with one flag or choice changed.

    If the op's requirements refuse a variant, one more flag is set with which they accept it.
    """
    found = [op.defaults]
    kind = type(op.defaults)
    for one in fields(op.defaults):
        now = getattr(op.defaults, one.name)
        values = (not now,) if isinstance(now, bool) else kind.VALUES.get(one.name, ())
        for value in values:
            # A value may require another option.
            with suppress(WebnormError):
                changed = replace(op.defaults, **{one.name: value})
                found += islice(filter(partial(_possible, op), _with_flag(changed)), 1)
    return list(dict.fromkeys(found))


def _with_flag(options: Options) -> Iterator[Options]:
    """Yield the options, then the options with each further flag set."""
    yield options
    for name in type(options).flags():
        if not getattr(options, name):
            yield replace(options, **{name: True})


def _possible(op: Op, options: Options) -> bool:
    """Return True if some small sizes satisfy the op's requirements with these options."""
    try:
        small_problem(op, TRIED_SIZES[1], options)
    except UnsupportedProblem:
        return False
    return True


def small_problem(op: Op, count: int, options: Options | None = None, **given: Any) -> Any:
    """Return the smallest problem with sizes of `count` or more that satisfy the op's requirements.

    Raises
    ------
    UnsupportedProblem
        No small sizes satisfy them.
    """
    error: UnsupportedProblem | None = None
    names = [*op.problem_type.SIZES]
    steps = (0, 1, 3, 5, 13, 29, 61)
    # Different sizes come first, since they reveal swapped sizes. Then come equal sizes, then powers of 2.
    tried = [tuple(count + at for at in range(len(names)))]
    tried += [(count + step,) * len(names) for step in steps]
    tried += [
        tuple(2 ** (2 + (at == index) * more) for at in range(len(names)))
        for index in range(len(names))
        for more in (1, 2, 3, 4)
    ]
    tried += list(product((4, 8, 32), repeat=min(len(names), 4))) if len(names) <= 4 else []
    for sizes in tried:
        try:
            return op.problem(*sizes, options=options, **given)
        except UnsupportedProblem as refused:
            error = refused
    assert error is not None
    raise error
