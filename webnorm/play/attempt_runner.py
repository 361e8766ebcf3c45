"""Attempts at a kernel, one after the other in a thread: the newest text first, then what was asked for.

A text that comes while another is at work takes its place at once. What is asked for beside that interrupts
the steps that nobody waits for, which go on afterwards.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from webnorm.errors import LimitReached, WebnormError, sentence
from webnorm.lab.process.worker import TaskCancelled, TaskFailed, WorkerDied, WorkerTimedOut
from webnorm.lab.run.evaluation import KernelRevision
from webnorm.lab.run.standby_worker import StandbyWorker
from webnorm.play import stages
from webnorm.play.attempt_store import MOST_SHOWN, AttemptStore
from webnorm.play.lessons import goal_of
from webnorm.play.stages import AttemptRun, MistakeLocator
from webnorm.play.state import AttemptState, By, HistoryEntry, PlaygroundState, StageName, text_digest
from webnorm.web.tint import OpenTint

# Notices that are kept.
_MOST_NOTICES = 5
_STEPS: Mapping[StageName, Callable[[AttemptRun], None]] = {
    "verdict": stages.evaluate_attempt,
    "trace": stages.trace_attempt,
    "time": stages.time_attempt,
    "race": stages.check_races,
    "tint": stages.ask_tint,
    "cost": stages.count_cost,
    "corpus": stages.try_corpus,
}
# What may help where a step was silent for too long.
_BUSY = "where the machine is busy, run it again or raise --time-limit"
# Whose complaint it is that ends a stage.
_BY: Mapping[StageName, By] = {"render": "template", "compile": "naga"}
_TRACES = re.compile(r"{{-?\s*trace\(")


@dataclass(frozen=True)
class _Errand:
    """A task that is no step of an attempt, and who waits for what it yields."""

    work: Any
    job: Any
    limit_s: float
    found: Future[list[Any]]


class AttemptRunner:
    """What is done with the texts of one file. Its methods are called from any thread."""

    def __init__(
        self,
        state: PlaygroundState,
        store: AttemptStore,
        path: Path,
        root: Path,
        op: str | None,
        adapter: str | None,
    ):
        self._state, self._store = state, store
        self._path, self._op = path, op
        self.worker, self._tint = StandbyWorker(adapter, (root,)), OpenTint()
        # Guards what is to be done, and wakes who does it.
        self._asked = threading.Condition()
        self._fresh: tuple[str, int, Path] | None = None
        self._waiting: deque[StageName] = deque()
        self._errands: deque[_Errand] = deque()
        self._doing: StageName | Literal["errand"] | None = None
        self._ended = False
        self._run: AttemptRun | None = None
        self._software, self._began = False, 0.0
        # Why a text is not run again.
        self._deadly: dict[str, str] = {}
        # Guards the history.
        self._keeping = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="course", daemon=True)

    def start(self) -> None:
        """Open the device and begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and leave no process."""
        with self._asked:
            self._ended = True
            self._asked.notify_all()
        self.worker.stop()
        self._tint.stop()
        while self._errands:
            self._errands.popleft().found.set_exception(WebnormError("the playground has ended"))

    def judge(self, text: str, edition: int, root: Path) -> None:
        """Begin an attempt at a text; `edition` counts the changes of its snippets, which lie in `root`."""
        with self._asked:
            self._fresh = text, edition, root
            self._interrupt(verdict=True)

    def do(self, stage: StageName) -> None:
        """Do one step more of the attempt at hand, before those that are left of it."""
        with self._asked:
            run = self._run
            if run is not None and run.op is not None and run.text.hash not in self._deadly:
                if stage == "trace":
                    run.settings = replace(run.settings, trace=self._state.now.settings.trace)
                self._waiting.appendleft(stage)
                self._interrupt()

    def ask(self, work: Any, job: Any, limit_s: float) -> list[Any]:
        """What another task yields in the worker, once that has time for it; raises what that raises."""
        errand = _Errand(work, job, limit_s, Future())
        with self._asked:
            if self._ended:
                raise WebnormError("the playground has ended")
            self._errands.append(errand)
            self._interrupt()
        return errand.found.result()

    def keep(self, text: str) -> None:
        """Keep a text that another takes the place of, also where it has not been judged."""
        now = self._state.now
        if any(one.hash == text_digest(text) for one in now.history):
            return
        under_way = now.attempt
        is_own = under_way is not None and under_way.hash == text_digest(text)
        self._keep(under_way if under_way and is_own else self._attempt(text), text)

    def idle(self, timeout_s: float) -> bool:
        """Wait until nothing is left to be done; False where that is not so in time."""
        with self._asked:
            return self._asked.wait_for(lambda: self._ended or not (self._doing or self._any), timeout_s)

    def notice(self, text: str) -> None:
        """Tell of something that is no attempt's fault; once, however often it happens."""
        if self._state.now.notices[-1:] == (text,):
            return
        known = tuple(one for one in self._state.now.notices if one != text)
        self._state.change(notices=(*known, text)[-_MOST_NOTICES:])

    @property
    def _any(self) -> bool:
        return bool(self._fresh or self._waiting or self._errands)

    def _interrupt(self, verdict: bool = False) -> None:
        """Have the step that runs leave off, and a verdict where that counts no more; never an errand."""
        self._asked.notify_all()
        if self._doing not in (None, "errand") and (verdict or self._doing != "verdict"):
            self.worker.leave()

    def _work(self) -> None:
        try:
            description, traits = self.worker.opened()
        except (WebnormError, TaskCancelled) as error:
            if not self._ended:
                hint = "" if "`webnorm doctor`" in str(error) else "; `webnorm doctor` lists the adapters"
                self.notice(f"{error}{hint}")
            self.stop()
            return
        self._software = traits.software
        self._state.change(device=description)
        while (next := self._next()) is not None:
            try:
                if isinstance(next, _Errand):
                    self._go(next)
                else:
                    self._do(next)
            except Exception as error:  # it would end this thread, and everybody would wait for ever
                self.notice(f"{_unforeseen(error)}; the playground goes on")

    def _next(self) -> StageName | _Errand | None:
        """What is done next; waits for it. None at the end."""
        with self._asked:
            self._doing = None
            self._asked.notify_all()
            self._asked.wait_for(lambda: self._ended or self._any)
            if self._ended:
                return None
            if self._fresh is not None:
                fresh, self._fresh = self._fresh, None
                self._run = self._begun(*fresh)
                self._waiting = self._steps(self._run)
            if self._errands and not (self._waiting and self._waiting[0] == "verdict"):
                self._doing = "errand"
                return self._errands.popleft()
            self._doing = self._waiting.popleft() if self._waiting else None
        return self._doing if self._doing is not None else self._next()

    def _go(self, errand: _Errand) -> None:
        try:
            errand.found.set_result(list(self.worker.stream(errand.work, errand.job, errand.limit_s)))
        except TaskCancelled:
            errand.found.set_exception(WebnormError("it was interrupted"))
        except (WorkerDied, TaskFailed) as failure:
            errand.found.set_exception(WebnormError(str(failure)))
        except WebnormError as error:
            errand.found.set_exception(error)
        except Exception as error:  # who asked waits for an answer
            errand.found.set_exception(WebnormError(_unforeseen(error)))

    # --- an attempt

    def _begun(self, text: str, edition: int, root: Path) -> AttemptRun:
        """A new attempt; the last text that was timed is what it is timed beside."""
        last, now = self._run, self._state.now
        attempt = self._attempt(text)
        self._state.change(attempt=attempt, working=None)
        key = f"{attempt.hash}-{edition}"
        failed = last.attempt.corpus.failed if last is not None and last.attempt.corpus else ()
        return AttemptRun(
            attempt=attempt,
            path=self._path,
            text=KernelRevision(self._path, key),
            previous=self._previous(last, key),
            op_name=self._op,
            roots=(root,),
            settings=now.settings,
            software=self._software,
            worker=self.worker,
            tint=self._tint,
            located=MistakeLocator(self._path, text),
            tell=self._tell,
            entered=self._enter,
            goal=goal_of(now.settings.lesson),
            failed_before=frozenset(one["case"] for one in failed),
        )

    def _attempt(self, text: str) -> AttemptState:
        """The attempt that follows those of the history, with nothing known of it."""
        return AttemptState(
            number=max((one.number for one in self._state.now.history), default=0) + 1,
            hash=text_digest(text),
            saved=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )

    def _previous(self, last: AttemptRun | None, key: str) -> KernelRevision | None:
        """The last text that was timed, other than this one, in a file of its own."""
        if last is None or last.op is None:
            return None
        if last.attempt.time is None or last.text.hash == key:
            return last.previous
        with suppress(WebnormError):
            return KernelRevision(self._source(last.located.text), last.text.hash)
        return None

    def _steps(self, run: AttemptRun) -> deque[StageName]:
        """What is done with a new text, in order."""
        deadly = self._deadly.get(run.text.hash)
        if deadly is not None:
            self._refuse(run, "run", WebnormError(f"{deadly}; not run again until it is edited"))
            self._keep(run.attempt, run.located.text)
            return deque()
        wanted = run.settings
        steps: list[tuple[StageName, bool]] = [
            ("verdict", True),
            ("trace", wanted.trace is not None or _TRACES.search(run.located.text) is not None),
            ("time", wanted.time),
            ("race", True),
            ("tint", True),
            ("cost", True),
            ("corpus", wanted.corpus),
        ]
        return deque(name for name, is_wanted in steps if is_wanted)

    def _do(self, step: StageName) -> None:
        """Do a step, and show how it ended."""
        run = self._run
        assert run is not None
        try:
            _STEPS[step](run)
            self._leave_stage("done")
        except TaskCancelled:
            self._leave_stage("waiting")
            with self._asked:
                # What it was interrupted for comes first.
                self._waiting.insert(min(1, len(self._waiting)), step)
            return
        except stages.StageSkipped as reason:
            self._leave_stage("skipped", str(reason))
        except (WorkerTimedOut, LimitReached) as limit:
            self._stopped(run, step, limit)
        except WorkerDied as death:
            self._deadly[run.text.hash] = str(death)
            self._refuse(run, "run", death)
            # Which does not run it.
            self._keep_to(run.attempt.rendered and "tint")
        except (TaskFailed, WebnormError) as error:
            if step == "verdict":
                self._refuse(run, self._by(run), error)
            else:
                # No more than a note of a step after the verdict.
                self._leave_stage("failed", str(error))
        except Exception as error:  # of this process: it is no mistake of the kernel's
            self._refuse(run, "run", WebnormError(_unforeseen(error)), ok=None)
            self._keep_to()
        if step == "verdict":
            self._judged(run)
        self._keep(run.attempt, run.located.text)

    def _stopped(self, run: AttemptRun, step: StageName, limit: WorkerTimedOut | LimitReached) -> None:
        """A step's time limit was reached: what was found by then counts, of the rest nothing is known."""
        by: By = self._by(run) if step == "verdict" else "run"
        error = WebnormError(f"{limit}; {_BUSY}")
        if isinstance(limit, LimitReached):
            by, error = "template", limit
        self._refuse(run, by, error, ok=False if run.attempt.ok is False else None)
        # What has no end takes as long in every step.
        self._keep_to(run.attempt.rendered and "tint")

    def _by(self, run: AttemptRun) -> By:
        """Whose complaint it is that ends the verdict's step."""
        return _BY.get(self._state.now.working or "verdict", "run") if run.op is not None else "header"

    def _refuse(self, run: AttemptRun, by: By, failure: Exception, ok: bool | None = False) -> None:
        error = failure if isinstance(failure, WebnormError) else WebnormError(str(failure))
        run.change(mistakes=(*run.attempt.mistakes, run.located.mistake(by, error)), ok=ok)
        self._leave_stage("failed", str(error))

    def _judged(self, run: AttemptRun) -> None:
        """After the verdict: what is wrong is not timed."""
        file = replace(self._state.now.file, op=run.op.name if run.op else None, kernel=run.kernel or None)
        self._state.change(file=file, **({"good": run.attempt} if run.attempt.judged else {}))
        if not run.attempt.ok:
            self._keep_to(run.attempt.judged and "trace", run.attempt.rendered and "tint")

    def _keep_to(self, *steps: object) -> None:
        """Leave out what waits to be done but for some steps."""
        with self._asked:
            self._waiting = deque(one for one in self._waiting if one in steps)

    def _tell(self, attempt: AttemptState) -> None:
        good = self._state.now.good
        is_good = good is not None and good.number == attempt.number
        self._state.change(attempt=attempt, **({"good": attempt} if is_good else {}))

    def _enter(self, name: StageName) -> None:
        """A stage begins, and with it the one before ends."""
        run = self._run
        assert run is not None
        self._leave_stage("done")
        self._began = perf_counter()
        run.attempt = run.attempt.with_stage(name, state="running")
        self._state.change(attempt=run.attempt, working=name)

    def _leave_stage(self, state: str, note: str = "") -> None:
        run, name = self._run, self._state.now.working
        if run is None or name is None:
            return
        if state == "done" and run.found_fault:
            state = "failed"
        ms = 1e3 * (perf_counter() - self._began)
        run.attempt = run.attempt.with_stage(name, state=state, ms=ms, note=note or run.note)
        self._state.change(working=None)
        self._tell(run.attempt)

    def _source(self, text: str) -> Path:
        """Where a text is kept, from now on; WebnormError where it cannot be."""
        return self._store.keep_source(text, self._path.parent.name, self._path.stem)

    def _keep(self, attempt: AttemptState, text: str) -> None:
        """Put an attempt into the history, on disk as far as that can be done."""
        entry = HistoryEntry.of(attempt)
        with self._keeping:
            known = self._state.now.history
            if entry in known:
                return
            others = tuple(one for one in known if one.number != entry.number)
            self._state.change(history=(*others, entry)[-MOST_SHOWN:])
            try:
                self._store.keep(attempt, self._state.now.device)
                self._source(text)
            except WebnormError as error:
                self.notice(str(error))


def _unforeseen(error: Exception) -> str:
    return sentence(f"webnorm failed: {type(error).__name__}: {error}")
