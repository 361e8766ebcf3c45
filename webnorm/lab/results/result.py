"""Results of `check` and `bench`, and where they come from: which run, when, by what command, what host."""

from __future__ import annotations

import platform
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from webnorm._version import __version__
from webnorm.errors import SourceLocation
from webnorm.files.forms import Name, Size, Text
from webnorm.gpu.timing import Method
from webnorm.lab.results import intervals
from webnorm.op.dtypes import Array

Status = Literal["pass", "fail", "skip", "error"]
Cache = Literal["cold", "warm"]
Calls = Literal["one by one", "at once"]
Source = Literal["tuning", "rules"]
# Nanoseconds. What lies beyond is no measurement, and its ratios could leave float64's range.
SHORTEST_NS, LONGEST_NS = 1e-9, 1e21
# Names of the files' format, which older files hold: sizes and scalars of the ops that come with webnorm.
PROBLEM_KEYS = ("rows", "cols", "dtype", "eps", "distribution", "seed", "options")
# What stands in a cell of a table of results.
Cell = str | int | float | bool | None
# GB/s that no memory has.
MOST_GBPS = 1e12


def usable(times: Sequence[float]) -> bool:
    """Whether these are times that can be divided by one another: NaN, infinity, 0 and 1e300 ns are not."""
    return all(SHORTEST_NS < time < LONGEST_NS for time in times)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What is known of one variant on one problem; None where nothing was measured.

    `place` is where a file has the mistake that is the `reason`.
    Times are nanoseconds per dispatch, `gbps` is `bytes` (the op's minimum) over the median, and `gflops`
    `flops` over the median, where the op says how many there are.
    `expected` marks the failure of a kernel declared unstable where the corpus says it must fail.
    `worst` names the element nearest to or furthest beyond its tolerance, with what was got and expected.
    `watched` says whether its loops and its use of workgroup memory were watched, and could be; `unwatched`
    is the reason why they could not.
    `flags` holds remarks such as "noisy", "throttled" and "suspicious". `auto` marks the variant that
    kernel="auto" takes for this problem, and says what named it; with `tried` it stands beside the fastest of
    so many variants that tuning tried.
    `runs` is how many of the samples each run gave, None for one run. Results of one problem in one run were
    sampled in turn: samples with the same index stand in the same round.
    The first use took `render_ns` for the text, `compile_ns` for wgpu to parse and check it and `pipeline_ns`
    for the driver's compiler. `upload_ns` and `download_ns` are what all inputs took to the device, and all
    outputs back; `call_ns` and `resident_call_ns` a call of the Python interface, on NumPy arrays and on
    GpuArrays.
    """

    op: Name
    kernel: Name
    constants: Mapping[Name, int]
    # Of its op's own type.
    problem: Any
    status: Status
    reason: Text | None = None
    place: SourceLocation | None = None
    expected: bool | None = None
    case: Name | None = None
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    tolerance: float | None = None
    worst: Text | None = None
    non_finite: Size | None = None
    deterministic: bool | None = None
    watched: bool | None = None
    unwatched: Text | None = None
    median_ns: float | None = None
    p20_ns: float | None = None
    p80_ns: float | None = None
    samples_ns: tuple[float, ...] | None = None
    runs: tuple[Annotated[int, Meta(ge=1)], ...] | None = None
    dispatches_per_sample: Size | None = None
    timing_method: Method | None = None
    cache: Cache | None = None
    calls: Calls | None = None
    bytes: Size | None = None
    gbps: float | None = None
    flops: Size | None = None
    gflops: float | None = None
    percent_of_copy: float | None = None
    flags: tuple[Name, ...] = ()
    auto: Source | None = None
    tried: Size | None = None
    render_ns: float | None = None
    compile_ns: float | None = None
    pipeline_ns: float | None = None
    upload_ns: float | None = None
    download_ns: float | None = None
    upload_bytes: Size | None = None
    download_bytes: Size | None = None
    call_ns: float | None = None
    resident_call_ns: float | None = None

    @property
    def timed(self) -> bool:
        """Whether this is a right answer with a usable time."""
        return self.status == "pass" and self.median_ns is not None and usable((self.median_ns,))

    @property
    def samples_by_run(self) -> list[Array]:
        """The samples of each run, in nanoseconds."""
        samples = np.array(self.samples_ns or (), np.float64)
        return np.split(samples, np.cumsum(self.runs or (0,))[:-1])

    def levels(self, copy: Result | None = None) -> Array:
        """log(time) of each run, as a multiple of a copy's in the same rounds where there is one."""
        own = self.samples_by_run
        return intervals.log_ratios(own, copy.samples_by_run if copy else [np.ones_like(one) for one in own])

    def beside(self, other: Result) -> bool:
        """Whether the two have samples, all of them usable, of the same rounds of the same runs."""
        if not (self.sampled and other.sampled):
            return False
        mine, others = ([len(samples) for samples in one.samples_by_run] for one in (self, other))
        return mine == others and all(mine)

    @cached_property
    def sampled(self) -> bool:
        """Whether there are samples, all of them usable."""
        return bool(self.samples_ns) and usable(self.samples_ns or ())

    @property
    def roofline(self) -> bool:
        """Whether this is a copy, which the other ops are held against."""
        return self.op == "copy"

    def row(self) -> dict[str, Cell]:
        """The result without its samples, flat, as a line of a table: FLAT names the cells.

        Sizes, constants, options and flags are joined by semicolons.
        """
        # An op of the user's has other sizes and scalars than those that have columns of their own.
        cells: dict[str, Cell] = {**dict.fromkeys(PROBLEM_KEYS), **self.problem.as_json()}
        cells["sizes"] = ";".join(f"{name}={size}" for name, size in self.problem.sizes.items())
        cells |= {name: getattr(self, name) for name in FLAT if name not in (*PROBLEM_KEYS, "sizes")}
        cells["options"] = str(self.problem.options).replace(", ", ";")
        cells["constants"] = ";".join(f"{name}={int(value)}" for name, value in self.constants.items())
        cells["flags"] = ";".join(self.flags)
        cells["place"] = None if self.place is None else str(self.place)
        return {name: cells[name] for name in FLAT}


FLAT = (
    *PROBLEM_KEYS,
    "sizes",
    *(field.name for field in fields(Result) if field.name not in ("problem", "samples_ns", "runs")),
)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A run's random id, its beginning (UTC, ISO 8601), the command as it was typed, and the host's name.

    `commit` is that of webnorm's source, with "-dirty" behind it where files were changed; None where webnorm
    is no git checkout.
    """

    run: Text
    recorded: Text
    command: Text
    host: Text
    commit: Text | None = None


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything one run found: the device (name, driver, type...), and the results in order.

    `webnorm` is the version that measured, which a file keeps when a later version rewrites it. `complete` is
    False while a run goes on, and after it was interrupted; that and `origin` are None where a file is older
    than they are.
    """

    device: Mapping[str, Any]
    results: tuple[Result, ...]
    webnorm: str = __version__
    complete: bool | None = None
    origin: Origin | None = None

    def rows(self) -> list[dict[str, Cell]]:
        """The results as flat rows, such as pandas.DataFrame takes: see Result.row."""
        return [result.row() for result in self.results]


def origin_of(command: str) -> Origin:
    """The origin of a run that begins now."""
    return Origin(
        run=uuid.uuid4().hex,
        recorded=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        command=command,
        host=platform.node(),
        commit=commit_of(Path(__file__).parents[3]),
    )


def commit_of(folder: Path) -> str | None:
    """The commit that a folder is a checkout of; None where it is none, or git is not there to ask."""
    # A package installed inside somebody else's checkout is not that checkout.
    if not (folder / ".git").exists():
        return None
    # Not `git describe --dirty`: it takes the lock of the index from whoever works there, and leaves it if it
    # is killed.
    git = ["git", "--no-optional-locks", "-C", str(folder)]
    try:
        commit, changed = (
            subprocess.run([*git, *words], capture_output=True, text=True, timeout=10, check=True).stdout
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return commit.strip() + ("-dirty" if changed else "")
