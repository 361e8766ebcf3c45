"""The record's tables: webnorm's choice, the best copy and the fastest other library of the same run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bench import markdown
from bench.contenders import NAMES
from bench.record import times
from bench.record.sections import SECTIONS, Goal, Section
from webnorm.lab.results.ranking import best
from webnorm.lab.results.result import Report, Result
from webnorm.lab.results.tables import device_text
from webnorm.ops.norms.problem import NormProblem

_NOTHING = "-"


@dataclass(frozen=True)
class Summary:
    """One problem of the record. A field is None if no result was right and timed.

    `copy` is the fastest copy, and `auto` is webnorm's own choice. `best` is the fastest of webnorm's tried
    variants. `single_mean` is the choice without the mean's second word. `others` are the contenders by name.
    """

    op: str
    problem: NormProblem
    copy: Result | None
    auto: Result | None
    best: Result | None
    single_mean: Result | None
    others: Mapping[str, Result]

    @classmethod
    def of(cls, results: Sequence[Result]) -> Summary:
        """Return the summary of one problem's results."""
        own = [result for result in results if result.kernel not in NAMES and not result.roofline]
        auto = best([result for result in own if result.auto])
        without = {**auto.constants, "hi_lo_mean": 0} if auto and auto.constants.get("hi_lo_mean") else None
        return cls(
            op=own[0].op,
            problem=own[0].problem,
            copy=best([result for result in results if result.roofline]),
            auto=auto,
            best=best(own),
            single_mean=best([result for result in own if result.constants == without]),
            others={result.kernel: result for result in results if result.kernel in NAMES},
        )

    @property
    def fastest_other(self) -> Result | None:
        """The fastest contender that computes the op."""
        return best([result for result in self.others.values() if not result.roofline])

    @property
    def percent_of_copy(self) -> float | None:
        """The speed of webnorm's choice in percent of the best copy's."""
        return self._percent(self.auto)

    @property
    def fastest_others_percent(self) -> float | None:
        """The speed of the fastest other in percent of the best copy's."""
        return self._percent(self.fastest_other)

    @property
    def ahead(self) -> float | None:
        """The fastest other's time divided by the time of webnorm's choice."""
        return _ratio(self.fastest_other, self.auto)

    @property
    def of_tuned(self) -> float | None:
        """The speed of webnorm's choice in percent of the fastest tuned variant's, if there was tuning."""
        ratio = _ratio(self.best, self.auto)
        return None if ratio is None or not (self.auto and self.auto.tried) else 100 * ratio

    def met(self, goal: Goal) -> bool | None:
        """Return True if the goal is met by a right choice; None if there is nothing to compare."""
        if goal != Goal() and self.auto is None:
            return False
        pairs = (
            (goal.percent_of_copy, self.percent_of_copy),
            (goal.ahead, self.ahead),
            (goal.of_tuned, self.of_tuned),
        )
        known = [found >= asked for asked, found in pairs if asked is not None and found is not None]
        return all(known) if known else None

    def percent(self, name: str) -> str:
        """Return a contender's speed in percent of the best copy as text, or its status."""
        result = self.others.get(name)
        if result is None:
            return _NOTHING
        words = {"skip": _NOTHING, "fail": "wrong", "error": "failed"}
        return words.get(result.status) or _text(self.share(name), 1) + _mark(result)

    def share(self, name: str) -> float | None:
        """Return a contender's speed in percent of the best copy's."""
        result = self.others.get(name)
        return self._percent(result) if result and result.timed else None

    def better(self) -> str:
        """Return the best variant's kernel or constants if they differ from the choice, and its lead."""
        lead = _ratio(self.auto, self.best)
        if self.auto is None or self.best is None or lead is None:
            return _NOTHING
        if self.best is self.auto:
            return "auto"
        mine, its = self.auto.constants, self.best.constants
        unlike = [f"{name}={value}" for name, value in its.items() if mine.get(name) != value]
        if self.best.kernel != self.auto.kernel:
            unlike = [self.best.kernel]
        return f"{' '.join(unlike)}: {100 * (lead - 1):.1f} % faster"

    def __str__(self) -> str:
        words = [
            f"copy {_text(_gbps(self.copy), 0)} GB/s",
            f"auto {_text(self.percent_of_copy, 1)} %",
        ]
        words += [f"{name} {self.percent(name)}" for name in self.others]
        if self.auto and self.auto.tried:
            words.append(f"{_text(self.of_tuned, 1)} % of the best of {self.auto.tried}")
        return ", ".join([*words, f"best {self.better()}"])

    def _percent(self, result: Result | None) -> float | None:
        if result is None or self.copy is None or not result.gbps or not self.copy.gbps:
            return None
        return 100 * result.gbps / self.copy.gbps


def summaries(report: Report) -> dict[str, list[Summary]]:
    """Return the summaries by section; problems are sorted by op, storage type and columns."""
    groups: dict[tuple[str | None, NormProblem], list[Result]] = {}
    for result in report.results:
        groups.setdefault((result.case, result.problem), []).append(result)
    found: dict[str, list[Summary]] = {}
    for name, section in SECTIONS.items():
        own = [Summary.of(results) for (case, _), results in groups.items() if case == name]
        order = [(op, dtype) for op in section.ops for dtype in section.dtypes]
        own.sort(
            key=lambda one: (order.index((one.op, one.problem.dtype)), one.problem.cols, -one.problem.rows)
        )
        if own:
            found[name] = own
    return found


def to_markdown(report: Report, picture: str | None) -> str:
    """Return the record as Markdown: the machine, the goals, and a table per section, op and storage type.

    `picture` is the name of the picture in the same folder, or None.
    """
    device = report.device
    packages = ", ".join(f"{package} {version}" for package, version in device.get("packages", {}).items())
    software = device.get("type") == "CPU"
    found = summaries(report)
    parts = [
        f"# {device['adapter']}",
        f"{device_text(device)}; {device.get('cpu', 'unknown processor')}; webnorm {report.webnorm}; "
        f"Python {device.get('python', 'unknown')}, {packages}.",
        " ".join([_ON_SOFTWARE if software else _ON_A_GPU, *_of_jax(report), _MARKED]),
        *([] if picture is None else [f"![Share of the best copy by columns]({picture})"]),
    ]
    for name, members in found.items():
        section = SECTIONS[name]
        parts.append(f"## {section.title}")
        parts.append(f"Recorded {times.text(report, [name])}.")
        if section.goals:
            verdicts = [one.met(section.goal(one.problem.cols)) for one in members]
            count = f"{verdicts.count(True)} of {len(verdicts) - verdicts.count(None)}"
            parts.append(f"Goal: {'; '.join(map(str, section.goals))}. Met by {count} problems.")
        parts += [*_tuning_summary(members), *_tables(members, section), *_remarks(members)]
    return "\n\n".join(parts) + "\n"


_ON_A_GPU = (
    "GB/s counts every tensor with rows once. % is relative to the best copy of the same run, in WGSL or by "
    "torch. webnorm is its own choice of kernel. All kernels are sampled in turn, over buffers that are "
    "rotated past the cache, and each call waits for the previous one. webnorm is timed by timestamps around "
    "a compute pass, and the others as CUDA graphs between two events."
)
_IN_JAX = (
    "JAX runs all its calls as one XLA program. Its time is the wall-clock difference between two programs "
    "in a row and one."
)
_ON_SOFTWARE = (
    "webnorm runs on a software adapter here, which runs GPU programs on the processor's cores. It shows "
    "that kernels are right, and its times do not predict a GPU's. The others use the same cores directly. "
    "All are sampled in turn by the wall clock, over buffers that stay in the cache. % is relative to the "
    "fastest copy of the same run."
)
_MARKED = (
    "~ marks times whose samples scatter by more than 20 %, or rose by more than 15 % during the run, "
    "because the machine had other work."
)


def _of_jax(report: Report) -> list[str]:
    return [_IN_JAX] if any(one.kernel == "JAX" and one.timed for one in report.results) else []


def _tuning_summary(members: Sequence[Summary]) -> Iterator[str]:
    shares = [share for one in members if (share := one.of_tuned) is not None]
    if shares:
        least, median = min(shares), statistics.median(shares)
        yield (
            f"In {len(shares)} problems, webnorm's choice was compared with the fastest variant that tuning "
            f"found. It reaches at least {least:.1f} % of that speed; the median is {median:.1f} %."
        )


# A column: its title, and its cell for a problem.
_Column = tuple[str, Callable[[Summary], str]]


def _tables(members: Sequence[Summary], section: Section) -> Iterator[str]:
    groups: dict[tuple[str, str], list[Summary]] = {}
    for one in members:
        groups.setdefault((one.op, one.problem.dtype), []).append(one)
    for (op, dtype), own in groups.items():
        columns = list(_columns(own, section))
        lines = [
            [head for head, _ in columns],
            ["---", *["---:"] * (len(columns) - 3), "---", "---"],
            *([cell(one) for _, cell in columns] for one in own),
        ]
        table = "\n".join(map(markdown.row, lines))
        yield f"### `{op}`, {dtype}\n\n{table}"


def _columns(own: Sequence[Summary], section: Section) -> Iterator[_Column]:
    """Yield the columns of a table, without empty ones."""
    yield "rows x cols", lambda one: f"{one.problem.rows} x {one.problem.cols}"
    yield "best copy, GB/s", lambda one: f"{_text(_gbps(one.copy), 0)} ({_kernel(one.copy)})"
    yield "webnorm, GB/s", lambda one: _text(_gbps(one.auto), 0)
    yield "%", lambda one: _text(one.percent_of_copy, 1) + _mark(one.auto)
    for name in NAMES:
        if any(name in one.others for one in own):
            yield f"{name}, %", partial(Summary.percent, name=name)
    yield "times as fast as the fastest other", lambda one: _text(one.ahead, 2)
    if any(one.of_tuned is not None for one in own):
        yield "% of the tuned best", lambda one: _text(one.of_tuned, 1)
    if any(one.single_mean for one in own):
        yield "without hi/lo mean, % faster", _gain_of_single_mean
    if section.goals:
        yield "goal", lambda one: _MET[one.met(section.goal(one.problem.cols))]
    yield "best variant tried", Summary.better
    yield "chosen", lambda one: _chosen(one.auto)


_MET = {True: "met", False: "**missed**", None: _NOTHING}


def _gain_of_single_mean(one: Summary) -> str:
    ratio = _ratio(one.auto, one.single_mean)
    return _NOTHING if ratio is None else f"{100 * (ratio - 1):.1f}"


def _kernel(result: Result | None) -> str:
    return result.kernel if result else _NOTHING


def _chosen(auto: Result | None) -> str:
    if auto is None:
        return "no right kernel"
    constants = " ".join(f"{name}={value}" for name, value in auto.constants.items())
    return f"`{auto.kernel}` {constants}"


def _remarks(members: Sequence[Summary]) -> Iterator[str]:
    """Yield a list of the reasons why contenders have no time."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for one in members:
        for name, result in one.others.items():
            if not result.timed:
                what = f"{one.op} {one.problem.rows} x {one.problem.cols} {one.problem.dtype}"
                reasons.setdefault((name, f"{result.status}: {result.reason}"), []).append(what)
    lines = [
        f"- {name}, {where[0] if len(where) == 1 else f'{len(where)} problems'}: {reason}"
        for (name, reason), where in reasons.items()
    ]
    if lines:
        yield "\n".join(lines)


def _ratio(slower: Result | None, faster: Result | None) -> float | None:
    """Return the first's time divided by the second's."""
    if slower is None or faster is None or not slower.median_ns or not faster.median_ns:
        return None
    return slower.median_ns / faster.median_ns


def _mark(result: Result | None) -> str:
    """Return the mark of a time whose samples scatter or rose, or ""."""
    return "~" if result and {"noisy", "throttled"} & set(result.flags) else ""


def _gbps(result: Result | None) -> float | None:
    return result.gbps if result else None


def _text(number: float | None, digits: int) -> str:
    return _NOTHING if number is None else f"{number:.{digits}f}"
