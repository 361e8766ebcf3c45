"""What makes times doubtful, whatever they are held against."""

from __future__ import annotations

from collections.abc import Sequence

from webnorm.lab.results import intervals
from webnorm.lab.results.result import Result


def timing_doubt(results: tuple[Result, Result], copies: tuple[Result, Result] | None) -> str | None:
    """Why nothing can be said of two timed results, None where it can."""
    for age, result in zip(("old", "new"), results, strict=True):
        if result.flags:
            return f"the {age} result {flags_phrase(result.flags)}"
    for age, copy in zip(("old", "new"), copies or (), strict=False):
        # The noise of its times is in the shares, and so in the interval.
        if flags := [flag for flag in copy.flags if flag != "noisy"]:
            return f"the {age} copy {flags_phrase(flags)}"
    fewest, most = sorted(len(result.samples_by_run) for result in results)
    if fewest < intervals.FEWEST_RUNS:
        many = f"{fewest} run{'s' if fewest > 1 else ''} {'each' if fewest == most else 'on one side'}"
        return (
            f"{many}; at least {intervals.FEWEST_RUNS} tell what moves between runs: webnorm bench --runs 5"
        )
    return None


def flags_phrase(flags: Sequence[str]) -> str:
    """Flags as the end of a sentence: one is no adjective."""
    few = [flag for flag in flags if flag == "few samples"]
    others = [flag for flag in flags if flag not in few]
    said = [f"is {', '.join(others)}"] if others else []
    return " and ".join([*said, *(f"has {flag}" for flag in few)])
