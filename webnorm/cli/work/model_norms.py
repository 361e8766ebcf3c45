"""The norms of --model: the problems of ops that they are, and the norms that this version cannot run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from webnorm.cli.terminal.streams import complain
from webnorm.errors import UnknownName, WebnormError, counted

if TYPE_CHECKING:
    from webnorm.models.norm_use import NormUse
    from webnorm.op.op import Task


@dataclass(frozen=True)
class ModelProblem:
    """A norm of a model, and the problem that it is."""

    use: NormUse
    task: Task


@dataclass(frozen=True)
class ModelProblems:
    """The problems of a model's norms, and one line for each norm that has none."""

    source: str
    found: tuple[ModelProblem, ...]
    skipped: tuple[str, ...]

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The problems, each once."""
        return tuple(dict.fromkeys(one.task for one in self.found))

    @property
    def ops(self) -> tuple[str, ...]:
        """The names of the ops."""
        return tuple(dict.fromkeys(one.task.op.name for one in self.found))


def dimensions(pairs: Sequence[str] | None) -> dict[str, int]:
    """Return the sizes of --dim by name."""
    from webnorm.op.selection import sizes

    found: dict[str, int] = {}
    for pair in pairs or ():
        name, equals, text = pair.rpartition("=")
        if not equals or not name:
            raise WebnormError(f"--dim is {pair!r}; expected NAME=N, such as sequence=512")
        if name in found:
            raise WebnormError(f"--dim {name} is given twice; expected it once")
        numbers = sizes(text, f"--dim {name}", 1)
        if len(numbers) != 1:
            raise WebnormError(f"--dim {name} is {text!r}; expected one number, such as 1024 or 4k")
        found[name] = numbers[0]
    return found


def norm_task(use: NormUse) -> Task:
    """Return the problem of a norm; raise WebnormError if this version has no such op or option."""
    from webnorm.op.op import Task
    from webnorm.op.registry import OPS, options_of

    if use.op not in OPS:
        raise WebnormError(f"this version has no op {use.op}")
    op = OPS[use.op]
    try:
        options = options_of(op, use.options)
        problem = op.problem(*op.sizes_of(use.sizes), dtype=use.dtype, options=options, **(use.scalars or {}))
    except UnknownName as error:
        # The names that exist do not help: the model determines this one.
        raise WebnormError(error.problem) from error
    return Task(op, problem)


def model_problems(
    model: Path | None, dim: Sequence[str] | None, dtype: str | Sequence[str] | None = None
) -> ModelProblems:
    """Return the problems of a model's norms, in the types of --dtype or in the model's own.

    Without a model there are none. A line on stderr reports each norm that has no problem.

    Raises
    ------
    WebnormError
        The model cannot be read, or this version can run none of its norms.
    """
    from webnorm.models.scan import scan_model, with_dtype
    from webnorm.op.selection import dtypes_named

    if model is None:
        return ModelProblems("", (), ())
    scan = scan_model(model, dimensions(dim))
    found: list[ModelProblem] = []
    skipped = [f"{scan.source}: not known: {line}" for line in scan.missing]
    for one in dtypes_named(dtype) or (None,):
        for use in (scan if one is None else with_dtype(scan, one)).uses:
            try:
                found.append(ModelProblem(use, norm_task(use)))
            except WebnormError as error:
                words = " ".join((use.shape_text, *use.options))
                skipped.append(f"{use.op} of {words}, {use.dtype or 'unknown type'}: {error}")
    if not found:
        reason = f" ({skipped[0]})" if skipped else ""
        raise WebnormError(f"{scan.source}: it has no norm that this version can run{reason}")
    for line in skipped:
        complain(f"skipped: {line}")
    return ModelProblems(scan.source, tuple(found), tuple(skipped))


def norms_text(skipped: Sequence[str]) -> str:
    """Return the number of skipped norms as text."""
    return f"{counted(len(skipped), 'norm')} of the model"
