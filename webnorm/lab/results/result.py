"""Results of `check` and `bench`, and their origin: run, time, command and host."""

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
FaultKind = Literal["race", "loop"]
# Times outside of this range are no measurements, and their ratios could exceed float64.
SHORTEST_NS, LONGEST_NS = 1e-9, 1e21
# Sizes and scalars of the built-in ops. The names are fixed, because older files contain them.
PROBLEM_KEYS = ("rows", "cols", "dtype", "eps", "distribution", "seed", "options")
# The type of a cell in a table of results.
Cell = str | int | float | bool | None
# No memory reaches this many GB/s.
MOST_GBPS = 1e12


def usable(times: Sequence[float]) -> bool:
    """Return true if all times can be divided by one another: NaN, infinity, 0 and 1e300 ns cannot."""
    return all(SHORTEST_NS < time < LONGEST_NS for time in times)


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of one variant on one problem. Values that were not measured are None.

    Attributes
    ----------
    reason, place
        The reason of the status, and the source location of a mistake in the kernel's file.
    expected
        True for the failure of an unstable kernel on a case that the corpus expects to fail.
    worst
        The element that is closest to or furthest beyond its tolerance, with its actual and expected
        value.
    fault
        "race" for a race on workgroup memory, and "loop" for an endless loop. Such a failure is never
        expected.
    watched, unwatched
        True if loops and accesses to workgroup memory were watched for races, and
        otherwise the reason why they were not.
    median_ns, p20_ns, p80_ns, samples_ns
        Nanoseconds per dispatch.
    runs
        The number of samples of each run; None for a single run. Results of one problem in one run were
        sampled in turn, so that samples with the same index belong to the same round.
    bytes, gbps
        The op's minimum of bytes, and that number divided by the median.
    flops, gflops
        The op's number of operations, if it is known, and that number divided by the median.
    flags
        Remarks such as "noisy", "throttled" and "suspicious".
    auto
        Set for the variant that kernel="auto" uses for this problem: the source of that choice.
    tried
        The number of variants that tuning tried. The report contains the fastest and auto's.
    render_ns, compile_ns, pipeline_ns
        The time of rendering the text, of wgpu's parser and validator,
        and of the driver's compiler at the first use.
    upload_ns, download_ns
        The time to copy all inputs to the device, and all outputs back.
    call_ns, resident_call_ns
        The time of a Python call on NumPy arrays and on GpuArrays.
    """

    op: Name
    kernel: Name
    constants: Mapping[Name, int]
    # The type depends on the op.
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
    fault: FaultKind | None = None
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
        """True for a right result with a usable time."""
        return self.status == "pass" and self.median_ns is not None and usable((self.median_ns,))

    @property
    def samples_by_run(self) -> list[Array]:
        """The samples of each run, in nanoseconds."""
        samples = np.array(self.samples_ns or (), np.float64)
        return np.split(samples, np.cumsum(self.runs or (0,))[:-1])

    def levels(self, copy: Result | None = None) -> Array:
        """Return log(time) of each run, as a multiple of the copy's time in the same rounds if given."""
        own = self.samples_by_run
        return intervals.log_ratios(own, copy.samples_by_run if copy else [np.ones_like(one) for one in own])

    def shares_rounds(self, other: Result) -> bool:
        """Return true if both have usable samples from the same rounds of the same runs."""
        if not (self.sampled and other.sampled):
            return False
        mine, others = ([len(samples) for samples in one.samples_by_run] for one in (self, other))
        return mine == others and all(mine)

    @cached_property
    def sampled(self) -> bool:
        """True if there are samples and all of them are usable."""
        return bool(self.samples_ns) and usable(self.samples_ns or ())

    @property
    def roofline(self) -> bool:
        """True for a copy, the yardstick of the other ops."""
        return self.op == "copy"

    def row(self) -> dict[str, Cell]:
        """Return the result without its samples as a flat table row with the cells FLAT.

        Sizes, constants, options and flags are joined by semicolons.
        """
        # User ops can have sizes and scalars without a column of their own.
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
    """The origin of a report: a random run id, the start time (UTC, ISO 8601), the typed command, the host.

    `commit` is the commit of webnorm's source, followed by "-dirty" if files were changed. It is None if
    webnorm is not a git checkout.
    """

    run: Text
    recorded: Text
    command: Text
    host: Text
    commit: Text | None = None


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report of a run: the device (name, driver, type...) and the results in order.

    `webnorm` is the version that measured; later versions that rewrite a file keep it. `complete` is False
    during a run and after an interruption. `complete` and `origin` are None in older files without them.
    """

    device: Mapping[str, Any]
    results: tuple[Result, ...]
    webnorm: str = __version__
    complete: bool | None = None
    origin: Origin | None = None

    def rows(self) -> list[dict[str, Cell]]:
        """Return the results as flat rows, for example for pandas.DataFrame: see Result.row."""
        return [result.row() for result in self.results]


def origin_of(command: str) -> Origin:
    """Return the origin of a run that starts now."""
    return Origin(
        run=uuid.uuid4().hex,
        recorded=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        command=command,
        host=platform.node(),
        commit=commit_of(Path(__file__).parents[3]),
    )


def commit_of(folder: Path) -> str | None:
    """Return the commit of a git checkout; None if the folder is none, or git is not available."""
    # `git` would find a parent folder's checkout if the package is installed inside another project.
    if not (folder / ".git").exists():
        return None
    # `git describe --dirty` would take the lock of the index, and leave it behind if it is killed.
    git = ["git", "--no-optional-locks", "-C", str(folder)]
    try:
        commit, changed = (
            subprocess.run([*git, *words], capture_output=True, text=True, timeout=10, check=True).stdout
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return commit.strip() + ("-dirty" if changed else "")
