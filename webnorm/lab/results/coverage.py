"""Which parts of a request were checked. A skipped result says nothing about a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from webnorm.kernels.headers.sources import is_wgsl
from webnorm.lab.results.result import Result
from webnorm.op.selection import ALL, is_pattern

# Parts that are listed in a message.
_MOST_LISTED = 3


@dataclass(frozen=True)
class Coverage:
    """What a request names. Every op and storage type needs a result that was checked; so does each name of
    an op, a storage type, a kernel or a case. A pattern, "all" and a default ask for what runs here.

    With `timed` a result counts when it has a time, and every problem needs one.
    """

    ops: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    timed: bool = False

    @classmethod
    def of(
        cls,
        op: str | Sequence[str] | None = None,
        dtype: str | Sequence[str] | None = None,
        kernels: Sequence[str] | None = None,
        cases: str | Sequence[str] | None = None,
        *,
        timed: bool = False,
    ) -> Coverage:
        """The coverage that the arguments of `check` or `bench` ask for."""
        return cls(_names(op), _names(dtype), _names(kernels), _names(cases), timed)

    def unchecked(self, results: Sequence[Result]) -> list[str]:
        """The parts of the request without a checked result, in words; "everything" where none has one."""
        own = [one for one in results if not one.roofline] or results
        parts: dict[str, bool] = {}
        kernels: dict[tuple[str, str], bool] = {}
        for one in own:
            part, checked = self._part(one), self._checked(one)
            parts[part] = parts.get(part, False) or checked
            if any(_is_of(name, one) for name in self.kernels):
                # A kernel that is declared unstable may have to fail, and then has no time.
                failed = one.status == "fail" and bool(one.expected)
                kernels[one.kernel, part] = kernels.get((one.kernel, part), False) or checked or failed
        if not any(self._checked(one) for one in own):
            return ["everything"]
        given = {
            *(one.op for one in results),
            *(one.problem.dtype for one in own),
            *(one.case for one in own),
        }
        absent = (name for name in (*self.ops, *self.dtypes, *self.cases) if name not in given)
        return [
            *(part for part, checked in parts.items() if not checked),
            # Where nothing of a part was checked, no kernel was.
            *(f"{name} ({part})" for (name, part), checked in kernels.items() if parts[part] and not checked),
            *absent,
        ]

    def _part(self, one: Result) -> str:
        """The part of the request that a result belongs to."""
        what = f"{one.op}, {one.problem if self.timed else one.problem.dtype}"
        return f"{what}, case {one.case}" if one.case in self.cases else what

    def _checked(self, one: Result) -> bool:
        return one.timed if self.timed else one.status != "skip"


def first_names(parts: Sequence[str]) -> str:
    """The first parts, and how many more there are."""
    more = len(parts) - _MOST_LISTED
    return "; ".join(parts[:_MOST_LISTED]) + (f"; and {more} more" if more > 0 else "")


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """The names of a list, without patterns."""
    parts = given.split(",") if isinstance(given, str) else given or ()
    return tuple(part for part in map(str.strip, parts) if part != ALL and not is_pattern(part))


def _is_of(name: str, one: Result) -> bool:
    """Whether a name of a kernel, a label or a path means a result's kernel."""
    stem = Path(name).stem if is_wgsl(name) else name
    return one.kernel == stem or f"{one.op}/{one.kernel}" == name
