"""Jobs that make a report: what `check` and `bench` find, where it goes, and what it is worth."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from webnorm.cli.outputs import command_line, report_steps, take_each
from webnorm.cli.running import OK, WRONG, Job
from webnorm.cli.streams import complain

if TYPE_CHECKING:
    from rich.console import Console

    from webnorm.lab.origin import Origin
    from webnorm.lab.results import Report, Result


def _origin() -> Origin:
    from webnorm.lab.origin import origin_of

    return origin_of(command_line())


@dataclass(kw_only=True)
class Measuring(Job):
    """A job whose results go where `outputs` (paths by their options, as in check_outputs) say.

    `seed` is None where nothing was drawn; `wanted` says what at least one kernel has to be, lest the command
    fail, where `allow_skipped` does not admit that.
    """

    outputs: Mapping[str, Path | None]
    console: Console
    seed: int | None
    allow_skipped: bool
    wanted: str
    origin: Origin = field(default_factory=_origin)

    @abstractmethod
    def results(self) -> Sequence[Result]:
        """All that was found so far."""

    @abstractmethod
    def show_results(self) -> None:
        """Print what has not been printed."""

    def report(self, complete: bool = False) -> Report:
        """The results so far."""
        from webnorm.lab.results import Report

        return Report(
            device=self.device, results=tuple(self.results()), complete=complete, origin=self.origin
        )

    def finish(self, complete: bool) -> None:
        """Write, draw and print; an output that fails costs no other."""
        from webnorm.cli import plot

        report, picture = self.report(complete), self.outputs.get("--plot")
        drawn = [partial(plot.plot, report, picture)] if picture is not None and report.results else []
        saved, printed = report_steps(report, self.outputs)
        take_each(*saved, *drawn, self._show, *printed)

    def _show(self) -> None:
        from webnorm.cli.report import race_line

        self.show_results()
        software = self.device.get("type") == "CPU"
        self.console.print(race_line(self.results(), software), soft_wrap=True)
        if self.seed is not None:
            self.console.print(f"drawn with --seed {self.seed}", soft_wrap=True)

    def status(self) -> int:
        """Whether a kernel is wrong, or none was tried; a line on stderr says so of the latter."""
        from webnorm.lab import bench

        results = self.results()
        if not self.allow_skipped and not bench.ran(results):
            complain(f"nothing was {self.wanted}: everything was skipped (--allow-skipped admits that)")
            return WRONG
        return WRONG if bench.failed(results) else OK
