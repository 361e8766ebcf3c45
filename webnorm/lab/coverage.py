"""Which parts of a request were checked. A skipped result says nothing about a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from webnorm.lab.results import Result
from webnorm.norms.selection import ALL, is_pattern

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
        for one in own:
            for part, checked in self._parts(one):
                parts[part] = parts.get(part, False) or checked
        if not any(self._checked(one) for one in own):
            return ["everything"]
        given = {
            *(one.op for one in results),
            *(one.problem.dtype for one in own),
            *(one.case for one in own),
        }
        absent = (name for name in (*self.ops, *self.dtypes, *self.cases) if name not in given)
        return [*(part for part, checked in parts.items() if not checked), *absent]

    def _parts(self, one: Result) -> Iterable[tuple[str, bool]]:
        """The parts that a result belongs to, and whether it checks them."""
        checked = self._checked(one)
        what = f"{one.op}, {one.problem}" if self.timed else f"{one.op}, {one.problem.dtype}"
        if one.case in self.cases:
            what = f"{what}, case {one.case}"
        yield what, checked
        if any(_is_of(name, one) for name in self.kernels):
            # A kernel that is declared unstable may have to fail, and then has no time.
            yield f"{one.kernel} ({what})", checked or (one.status == "fail" and bool(one.expected))

    def _checked(self, one: Result) -> bool:
        return one.timed if self.timed else one.status != "skip"


def listed(parts: Sequence[str]) -> str:
    """The first parts, and how many more there are."""
    more = len(parts) - _MOST_LISTED
    return "; ".join(parts[:_MOST_LISTED]) + (f"; and {more} more" if more > 0 else "")


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """The names of a list, without patterns."""
    parts = given.split(",") if isinstance(given, str) else given or ()
    return tuple(part for part in map(str.strip, parts) if part != ALL and not is_pattern(part))


def _is_of(name: str, one: Result) -> bool:
    """Whether a name of a kernel, a label or a path means a result's kernel."""
    stem = Path(name).stem if name.endswith(".wgsl") else name
    return one.kernel == stem or f"{one.op}/{one.kernel}" == name
