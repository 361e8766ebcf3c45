"""The page of `python -m bench.engines`: tables of engines, verdicts, errors and arithmetic in Markdown."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bench import markdown
from bench.engine_probes import COUNT, EngineDescription
from webnorm._version import __version__
from webnorm.engines.node_webgpu import WEBGPU
from webnorm.errors import sentence
from webnorm.gpu.backend_names import BACKENDS
from webnorm.lab.results.ranking import best, by_kernel, grouped, verdict
from webnorm.lab.results.result import Result
from webnorm.lab.results.tables import time_text

# Odd columns, a large mean, short and long rows, options, and narrow types. No case is watched for races,
# which takes a second compilation, and SwiftShader compiles slowly.
CASES: Mapping[str, tuple[str, ...]] = {
    "float32": (
        "cols-5",
        "cols-199",
        "cols-8192",
        "shift-1e4",
        "denormal",
        "zero-centered-61",
        "residual-bias-61",
        "saved-stats-256",
    ),
    "float16": ("cols-199", "zero-centered-61", "saved-stats-256"),
    "bfloat16": ("cols-199", "zero-centered-61", "saved-stats-256"),
}
# The problem that is timed on a GPU: x has 64 MiB in float32, as in the record.
TIMED_ROWS, TIMED_COLS = 16384, 1024
FEATURES = ("shader-f16", "subgroups", "subgroup-size-control", "timestamp-query")
LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-storage-size",
    "max-compute-workgroups-per-dimension",
)
UNREPORTED, NONE = "not reported", "-"
# The text for all engines, which is shorter than their names.
_EVERYWHERE = "all engines"


@dataclass(frozen=True)
class EngineRun:
    """The measurements in one engine; `times` are empty without a GPU."""

    name: str
    described: EngineDescription
    arithmetic: Mapping[str, float]
    results: Sequence[Result]
    times: Sequence[Result] = ()


def page(runs: Sequence[EngineRun], missing: Mapping[str, str]) -> str:
    """Return the page in Markdown."""
    sections = [
        "# Kernels in every engine",
        _opening(runs, missing),
        "## Engines",
        engine_table(runs),
        "The last rows are WGSL's language features, as shaders can use them. wgpu needs no directive for "
        "`immediate_address_space`.",
        "## Verdicts",
        _verdict_text(),
        verdict_table(runs),
        *_times(runs),
        "## Errors by case",
        "The largest error of all kernels without `one_pass`, which is unstable.",
        case_table(runs),
        "## Why results differ",
        f"Each row has an expression, evaluated for {COUNT:,} operands. An error is the largest one, in ulp: "
        "units in the last place of the exact result. 0.5 ulp is correctly rounded.",
        arithmetic_table(runs),
        explanations(runs),
        "## Not right, or not run",
        reasons(runs),
    ]
    return "\n\n".join(sections) + "\n"


def _opening(runs: Sequence[EngineRun], missing: Mapping[str, str]) -> str:
    """Return the first paragraph: date, command, and the kind of adapters."""
    software = [run.name for run in runs if run.described.traits.software]
    lines = [
        f"The kernels of the copy, LayerNorm and RMSNorm in {len(runs)} engines on one machine. "
        f"webnorm {__version__}, recorded {datetime.date.today()} with `python -m bench.engines --write`. "
        "[What engines do differently](../../docs/engines.md) has kernels that depend on the engine, and "
        "[the norm family](../../docs/norm-family.md#accuracy) has the errors of the other ops.",
    ]
    if software:
        lines.append(
            f"The adapter runs on the CPU in {_listed(software, runs)}. Kernels are timed only on GPUs."
        )
    lines += [f"{name} is missing: {sentence(why)}." for name, why in missing.items()]
    return "\n\n".join(lines)


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = True) -> str:
    """Return a Markdown table; columns after the first `numbers` ones are aligned to the right."""
    align = ["---"] + ["---:" if numbers else "---"] * (len(heading) - 1)
    return "\n".join(map(markdown.row, (heading, align, *rows)))


def engine_table(runs: Sequence[EngineRun]) -> str:
    """Return a table of the engines' properties, one column per engine."""
    known = sorted(frozenset().union(*(one.described.language_features for one in runs)))
    rows = [
        ["version", *map(_version, runs)],
        ["adapter", *(str(one.described.device["adapter"]) for one in runs)],
        ["backend", *map(_backend, runs)],
        ["driver", *map(_driver, runs)],
        *(
            [f"`{name}`", *(_yes(name in one.described.device["features"]) for one in runs)]
            for name in FEATURES
        ),
        ["subgroup size", *(str(one.described.device.get("subgroup_size", NONE)) for one in runs)],
        *([f"`{name}`", *(f"{one.described.limits[name]:,}" for one in runs)] for name in LIMITS),
        *([f"`{name}`", *(_yes(name in one.described.language_features) for one in runs)] for name in known),
    ]
    return _table(["", *(one.name for one in runs)], rows, numbers=False)


def _yes(there: bool) -> str:
    return "yes" if there else NONE


def _is_native(one: EngineRun) -> bool:
    return one.name in BACKENDS


def _version(one: EngineRun) -> str:
    """Return the versions of an engine, and of a library that gives it WebGPU."""
    implementation = str(one.described.device["wgpu"])
    if _is_native(one):
        return f"{'wgpudawn' if one.name == 'dawn' else 'wgpu-py'} {implementation.removeprefix('dawn ')}"
    return f"{implementation}, webgpu {WEBGPU} (Dawn)" if one.name == "node" else implementation


def _backend(one: EngineRun) -> str:
    return str(one.described.device["backend"]) if _is_native(one) else UNREPORTED


def _driver(one: EngineRun) -> str:
    return str(one.described.device["driver"]) if _is_native(one) else UNREPORTED


def _verdict_text() -> str:
    cases = "; ".join(
        f"{dtype}: {', '.join(f'`{name}`' for name in names)}" for dtype, names in CASES.items()
    )
    return (
        "A number alone is the verdict *pass*: the largest error of the kernel in float32, divided by "
        "max(1, |answer|). *3 of 9* is the number of cases that ran, if the kernel refuses the others. "
        "*FAIL 1* means wrong in one case. *unstable* means that only cases failed which the formula of the "
        "kernel cannot pass. *skip* means that the engine lacks a feature. "
        f"The cases of [the corpus](../../docs/numerics.md#the-corpus): {cases}."
    )


def verdict_table(runs: Sequence[EngineRun]) -> str:
    """Return a table of kernels by engines: the verdict and the largest error in float32."""
    own = [by_kernel(one.results) for one in runs]
    keys = dict.fromkeys(key for results in own for key in results)
    rows = [
        [f"`{op}`", f"`{kernel}`", *(verdict_cell(one.get((op, kernel), ())) for one in own)]
        for op, kernel in keys
    ]
    heading = ["op", "kernel", *(one.name for one in runs)]
    return _table(heading, rows).replace("| --- | ---: |", "| --- | --- |", 1)


def verdict_cell(results: Sequence[Result]) -> str:
    """Return a kernel's verdict in an engine, with its largest error in float32."""
    counts = Counter(map(verdict, results))
    ran = len(results) - counts["skip"]
    if not ran:
        return "skip" if results else NONE
    error = largest_error(one for one in results if one.problem.dtype == "float32")
    wrong = counts["FAIL"] + counts["error"]
    words = [f"**FAIL {wrong}**"] if wrong else ["unstable"] if counts["expected failure"] else []
    shown = " ".join([*words, *([] if error is None else [error_text(error)])])
    return f"{shown}, {ran} of {len(results)}" if counts["skip"] else shown


def largest_error(results: Iterable[Result]) -> float | None:
    """Return the largest relative error of results; None if there is none."""
    return max((one.max_rel_error for one in results if one.max_rel_error is not None), default=None)


def error_text(error: float | None) -> str:
    """Return an error with two digits."""
    return NONE if error is None else f"{error:.1e}" if error else "0"


def case_table(runs: Sequence[EngineRun]) -> str:
    """Return a table of cases by engines: the largest error of all stable kernels."""
    own = [
        grouped(
            (one for one in run.results if one.kernel != "one_pass"),
            lambda one: (one.problem.dtype, one.case),
        )
        for run in runs
    ]
    keys = [(dtype, name) for dtype, names in CASES.items() for name in names]
    rows = [
        [f"`{name}`, {dtype}", *(error_text(largest_error(one.get((dtype, name), ()))) for one in own)]
        for dtype, name in keys
    ]
    return _table(["case", *(one.name for one in runs)], rows)


def _times(runs: Sequence[EngineRun]) -> list[str]:
    """Return the section of times; nothing if no engine has a GPU."""
    timed = [one for one in runs if one.times]
    if not timed:
        return []
    fastest = [
        {key: best(members) for key, members in by_kernel(one.times).items() if key[0] != "copy"}
        for one in timed
    ]
    rows = [
        [f"`{op}`", f"`{kernel}`", *(_time_cell(one.get((op, kernel))) for one in fastest)]
        for op, kernel in dict.fromkeys(key for one in fastest for key in one)
    ]
    heading = ["op", "kernel", *(one.name for one in timed)]
    return [
        "## Times",
        f"The median time of {TIMED_ROWS} rows of {TIMED_COLS} in float32, and the percentage of the copy in "
        "the same engine.",
        _table(heading, rows).replace("| --- | ---: |", "| --- | --- |", 1),
    ]


def _time_cell(result: Result | None) -> str:
    if result is None:
        return NONE
    share = result.percent_of_copy
    return time_text(result.median_ns) + ("" if share is None else f", {share:.0f} %")


# --- why results differ

# By key of bench.engine_probes: the row's name, the form of its cells, and the bound of the specification.
_ERROR, _SHARE = "{:.2f} ulp", "{:.0%}"
ARITHMETIC: Mapping[str, tuple[str, str, str]] = {
    "inverse_sqrt": ("`inverseSqrt(x)`: error", _ERROR, "2 ulp"),
    "sqrt": ("`sqrt(x)`: error", _ERROR, "as 1 / inverseSqrt(x)"),
    "division": ("`x / y`: error", _ERROR, "2.5 ulp"),
    "exp": ("`exp(x)` for -87 < x < 88: error", _ERROR, "3 + 2 abs(x) ulp"),
    "contracted": ("`x * y + z`: rounded once", _SHARE, "any"),
    "contracted_fma": ("`fma(x, y, z)`: rounded once", _SHARE, "any"),
    "contracted_dot": ("`dot(vec2(x, z), vec2(y, 1.0))`: rounded once", _SHARE, "any"),
    "subnormals_stored": ("subnormals kept by a load and a store", _SHARE, "any"),
    "subnormals_read": ("subnormals kept as operands of `*`", _SHARE, "any"),
    "subnormals_computed": ("subnormals kept as results of `*`", _SHARE, "any"),
    "subnormals_compared": ("subnormals with `x != 0.0`", _SHARE, "any"),
    "pack_float16": ("`pack2x16float`: error in ulp of float16", _ERROR, "1 ulp"),
    "quantize_float16": ("`quantizeToF16`: error in ulp of float16", _ERROR, "1 ulp"),
}


def arithmetic_cell(run: EngineRun, key: str) -> str:
    """Return a measure of an engine's arithmetic as text."""
    return ARITHMETIC[key][1].format(run.arithmetic[key])


def arithmetic_table(runs: Sequence[EngineRun]) -> str:
    """Return a table of the measured arithmetic, with the bounds of the specification."""
    rows = [
        [name, bound, *(arithmetic_cell(one, key) for one in runs)]
        for key, (name, _, bound) in ARITHMETIC.items()
    ]
    return _table(["", "allowed", *(one.name for one in runs)], rows)


def by_value(runs: Sequence[EngineRun], value: Callable[[EngineRun], str]) -> str:
    """Return the engines of each value: "8 in wgpu; 4 in dawn and node"."""
    groups = grouped(runs, value)
    return "; ".join(
        f"{found} in {_listed([one.name for one in members], runs)}" for found, members in groups.items()
    )


def _listed(names: Sequence[str], runs: Sequence[EngineRun]) -> str:
    """Return names as a list in words."""
    if len(names) == len(runs) > 1:
        return _EVERYWHERE
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def explanations(runs: Sequence[EngineRun]) -> str:
    """Return a paragraph for each kind of difference, with the measurements in words."""
    subgroups = by_value(runs, _subgroup_text)
    values = {key: by_value(runs, partial(arithmetic_cell, key=key)) for key in ARITHMETIC}
    errors = {case: by_value(runs, partial(_error_cell, case=case)) for case in CASES["float32"]}
    text = EXPLANATIONS.format(subgroups=subgroups, same=_same_errors(runs), errors=errors, **values)
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in text.split("\n\n"))


# The fields of `explanations`.
EXPLANATIONS = """
**Contraction.** A compiler may compute `x * y + z` with one rounding, and `fma` with two. The operands
leave only the rounding error of the product. Rounded once: `x * y + z` {contracted}; `fma`
{contracted_fma}; `dot` {contracted_dot}. Kernels that subtract a rounded mean from x depend on it: a
compiler that contracts `x - sum / COLS` subtracts another mean. The largest error at a mean of 10⁴ standard
deviations, in `shift-1e4`: {errors[shift-1e4]}.

**Subnormals.** WGSL lets an engine replace numbers below 2⁻¹²⁶ by 0. Kept as an operand of `*`:
{subnormals_read}. Kept as a result: {subnormals_computed}. Kept by a load and a store: {subnormals_stored}.
The kernels add eps to the variance, so that subnormal numbers in x hardly change y. The largest error in
`denormal`: {errors[denormal]}.

**`inverseSqrt` and division.** WGSL allows errors of 2 and 2.5 ulp. `inverseSqrt`: {inverse_sqrt}.
Division: {division}. `sqrt`: {sqrt}. Each norm multiplies a row by one `inverseSqrt`, whose error is a
relative error of the whole row. `exp`, which softmax and activations use: {exp}.

**The size of a subgroup.** WGSL allows 4 to 128 invocations. Here: {subgroups}. The size decides the order
of additions, and kernels that need subgroups do not run without them. {same}

**float16.** Kernels round to float16 with `pack2x16float`: {pack_float16}. `quantizeToF16`:
{quantize_float16}. An error of 0.5 ulp means the nearest number, and one of 1 ulp means that lower bits are
removed.
""".strip()


def _error_cell(run: EngineRun, case: str) -> str:
    """Return the largest error of stable kernels in a case."""
    found = (one for one in run.results if one.case == case and one.kernel != "one_pass")
    return error_text(largest_error(one for one in found if one.problem.dtype == "float32"))


def _subgroup_text(run: EngineRun) -> str:
    size = run.described.device.get("subgroup_size")
    return "none" if size is None else str(size)


def _same_errors(runs: Sequence[EngineRun]) -> str:
    """Return a sentence about the kernels whose errors differ between engines."""
    own = [by_kernel([r for r in one.results if r.problem.dtype == "float32"]) for one in runs]
    shared = [key for key in own[0] if all(_passes(one.get(key, ())) for one in own)]
    found = {key: [largest_error(one[key]) or 0.0 for one in own] for key in shared}
    if not found:
        return "No kernel passed in all engines."
    same = sum(len({*errors}) == 1 for errors in found.values())
    factors = {key: max(errors) / min(errors) for key, errors in found.items() if min(errors) > 0}
    (op, kernel), factor = max(factors.items(), key=lambda one: one[1], default=(("", ""), 1.0))
    widest = f" The largest factor between two engines is {factor:.2g}, in `{op}/{kernel}`." if op else ""
    return (
        f"{len(found)} kernels passed in all engines. {same} of them have the same largest error in all "
        f"engines.{widest}"
    )


def _passes(results: Sequence[Result]) -> bool:
    return {"pass"} <= {*map(verdict, results)} <= {"pass", "skip"}


def reasons(runs: Sequence[EngineRun]) -> str:
    """Return a list of the reasons why kernels failed, or were not run at all, with the engines of each."""
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for one in runs:
        for (op, kernel), results in by_kernel(one.results).items():
            for reason in _reasons(results):
                found.setdefault((op, kernel, reason), {})[one.name] = None
    lines = [
        f"- `{op}/{kernel}` in {_listed([*engines], runs)}: {reason}"
        for (op, kernel, reason), engines in found.items()
    ]
    return "\n".join(lines) or "Every kernel is right in all engines."


def _reasons(results: Sequence[Result]) -> Iterator[str]:
    """Yield each failure with its case, or else the reasons why a kernel did not run in any case.

    All failures that are expected of an unstable kernel share a line.
    """
    groups = grouped(results, verdict)
    for one in (*groups.get("FAIL", ()), *groups.get("error", ())):
        yield f"{_case_text(one)}: {one.reason}"
    if expected := groups.get("expected failure"):
        yield f"unstable in {', '.join(map(_case_text, expected))}"
    if {*groups} == {"skip"}:
        yield from dict.fromkeys(one.reason or "" for one in results)


def _case_text(result: Result) -> str:
    return f"`{result.case}` ({result.problem.dtype})"
