"""The table of public cases: by operator, how many pass, and the reasons for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from bench import markdown
from bench.meanings import microsoft_cases, onnx_cases, torch_cases
from bench.meanings.outcomes import Outcome
from bench.numerics import DOCS, between_markers

PAGE = DOCS / "meanings.md"
# By source, the cases.
SOURCES: Mapping[str, Callable[[], Iterator[tuple[str, Outcome]]]] = {
    "torch": torch_cases.outcomes,
    "ONNX": onnx_cases.outcomes,
    "onnxruntime": microsoft_cases.outcomes,
}
Results = Mapping[tuple[str, str], Sequence[Outcome]]


def results() -> Results:
    """Compute every case; return the outcomes by source and operator."""
    found: dict[tuple[str, str], list[Outcome]] = {}
    for source, outcomes in SOURCES.items():
        for operator, outcome in outcomes():
            found.setdefault((source, operator), []).append(outcome)
    return found


def table_of(found: Results) -> str:
    """Return the versions of the libraries, and the table in Markdown."""
    from onnx import __version__ as onnx_version

    lines = [
        f"Versions: torch {torch_cases.version()}, onnx {onnx_version}.",
        "",
        "| source | operator | cases | pass | with gradient | the others |",
        "|---|---|---:|---:|---:|---|",
    ]
    for (source, operator), outcomes in found.items():
        passed = [one for one in outcomes if one.passed]
        reasons = Counter(one.failure or one.reason for one in outcomes if not one.passed)
        others = "; ".join(f"{count}: {reason}" for reason, count in reasons.items())
        gradients = sum(one.with_gradient for one in passed)
        counts = [str(len(outcomes)), str(len(passed)), str(gradients or "")]
        lines.append(markdown.row([source, f"`{operator}`", *counts, others]))
    return "\n".join(lines)


def page_with(table: str) -> str:
    """Return the page with a new table."""
    return between_markers(PAGE, "table", table)
