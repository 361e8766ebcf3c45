"""Runs an exported page in an engine without a driver, and returns the reports that the page posts."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path, PurePosixPath
from time import monotonic

from webnorm.engines.catalog import Engine
from webnorm.engines.launch import RunningEngine, start_engine
from webnorm.errors import WebnormError
from webnorm.serving import POLICY
from webnorm.web.browser import visits
from webnorm.web.browser.report_site import ASSETS, PostedReport, ReportSite, report_site
from webnorm.web.browser.visits import PageVisit
from webnorm.web.folder import AGAIN, PAGE

# Seconds between checks for an engine that ended, a missing file or an expired limit.
_GLANCE_S = 0.1
_SCRIPT = "engine_verify.mjs"
# The module of a package that checks it without a page.
_CHECK = "page/verify_package.js"


class EngineVisitor:
    """An engine that starts for each call, with a profile of its own.

    Nothing drives it: the page posts its report to the server that it came from, and opens what the server
    responds.
    """

    def __init__(self, engine: Engine, time_limit_s: float | None = None) -> None:
        self.engine = engine
        self.time_limit_s = visits.TIME_LIMIT_S if time_limit_s is None else time_limit_s

    @cached_property
    def name(self) -> str:
        """The engine's name with its version."""
        return f"{self.engine} {self.engine.version}".strip()

    def visit(
        self,
        folder: Path,
        query: str = "",
        *,
        page: str = PAGE,
        screenshot: bool = False,
        policy: str = POLICY,
    ) -> PageVisit:
        """Open a folder's page, or check the folder's package by a script, and wait for the report.

        Raises WebnormError if the engine does not start, ends or takes too long, or if the page fails.
        """
        if screenshot:
            raise WebnormError(f"{self.engine} gives no picture of its page; leave --screenshot out")
        (found,) = self.visits(folder, [query], page=page, policy=policy)
        return found

    def visits(
        self, folder: Path, queries: Sequence[str], *, page: str = PAGE, policy: str = POLICY
    ) -> Generator[PageVisit]:
        """Start the engine once, open a folder's page with each query, and yield each report.

        The time limit holds for each report. The engine ends with the generator, so close a generator that
        you do not exhaust. A script takes a single query. Raises WebnormError as `visit` does.
        """
        assert self.engine.is_browser or len(queries) == 1
        deadline = monotonic() + self.time_limit_s
        with (
            report_site(folder, page, policy, queries) as site,
            self._started(site, folder, page, queries[0]) as running,
        ):
            for at in range(len(queries)):
                posted = self._posted(site, at, running, page, deadline)
                yield site.visit(self.name, posted)
                deadline = monotonic() + self.time_limit_s

    def _started(
        self, site: ReportSite, folder: Path, page: str, query: str
    ) -> AbstractContextManager[RunningEngine]:
        if not self.engine.is_browser and not (folder / _CHECK).is_file():
            raise WebnormError(f"{folder / _CHECK}: the file is missing, which {self.engine} runs; {AGAIN}")
        # A model's package has the page of each norm in a folder of its own.
        part = str(PurePosixPath(page).parent)
        words = (str(folder.absolute()), part, site.report_url, query)
        return start_engine(self.engine, f"{site.url}/{page}{query}", ASSETS / _SCRIPT, *words)

    def _posted(
        self, site: ReportSite, at: int, running: RunningEngine, page: str, deadline: float
    ) -> PostedReport:
        """Wait for the report with the number `at`."""
        while True:
            # An engine may end right after its last report, so this looks for the end first.
            ended = running.ended()
            site.received.clear()
            if len(site.posted) > at:
                return site.posted[at]
            site.check_missing()
            if ended is not None:
                raise WebnormError(f"{self.engine} ended while it ran {page}: {ended}")
            if monotonic() >= deadline:
                late = f"{page} did not report within {self.time_limit_s:g} s in {self.engine}: stopped"
                raise WebnormError(late)
            site.received.wait(_GLANCE_S)
