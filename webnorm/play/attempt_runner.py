"""Run the attempts at a kernel in a thread: the newest text first, then other requests.

A new text replaces the running attempt at once. Another request interrupts a background step, which continues
afterwards.
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
from webnorm.gpu.backend_names import Backend, backend_of
from webnorm.lab.process.worker import TaskCancelled, TaskFailed, WorkerDied, WorkerTimedOut
from webnorm.lab.run.evaluation import KernelRevision
from webnorm.lab.run.standby_worker import StandbyWorker
from webnorm.play import stages
from webnorm.play.attempt_store import MOST_SHOWN, AttemptStore
from webnorm.play.lessons import reference_kernel
from webnorm.play.stages import AttemptRun, MistakeLocator
from webnorm.play.state import AttemptState, By, HistoryEntry, PlaygroundState, StageName, text_digest
from webnorm.web.tint import OpenTint

# Notices in a snapshot; older ones are dropped.
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
# Advice after a step that sent no message within its limit.
_BUSY = "if the machine is busy, run it again or raise --time-limit"
# The compilers of the backends.
_COMPILERS: Mapping[Backend, By] = {"wgpu": "naga", "dawn": "tint"}
_TRACES = re.compile(r"{{-?\s*trace\(")


@dataclass(frozen=True)
class _OtherTask:
    """A task that is not a step of an attempt; `found` receives everything it yields."""

    work: Any
    job: Any
    limit_s: float
    found: Future[list[Any]]


class AttemptRunner:
    """A thread that runs the attempts at one file. Methods may be called from any thread."""

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
        # Guards the queues below and wakes the thread.
        self._asked = threading.Condition()
        self._fresh: tuple[str, int, Path] | None = None
        self._waiting: deque[StageName] = deque()
        self._other_tasks: deque[_OtherTask] = deque()
        self._doing: StageName | Literal["other"] | None = None
        self._ended = False
        self._run: AttemptRun | None = None
        self._software, self._began = False, 0.0
        # Errors of texts that killed a worker: such a text is not run again.
        self._deadly: dict[str, str] = {}
        # Guards the history.
        self._keeping = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="attempts", daemon=True)

    def start(self) -> None:
        """Open the device and start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and its processes."""
        with self._asked:
            self._ended = True
            self._asked.notify_all()
        self.worker.stop()
        self._tint.stop()
        while self._other_tasks:
            self._other_tasks.popleft().found.set_exception(WebnormError("the playground has ended"))

    def evaluate(self, text: str, edition: int, root: Path) -> None:
        """Start an attempt at a text; `edition` counts the changes of its snippets in the folder `root`."""
        with self._asked:
            self._fresh = text, edition, root
            self._interrupt(verdict=True)

    def do(self, stage: StageName) -> None:
        """Run one more step of the current attempt, before its remaining steps."""
        with self._asked:
            run = self._run
            if run is not None and run.op is not None and run.text.hash not in self._deadly:
                if stage == "trace":
                    run.settings = replace(run.settings, trace=self._state.now.settings.trace)
                self._waiting.appendleft(stage)
                self._interrupt()

    def ask(self, work: Any, job: Any, limit_s: float) -> list[Any]:
        """Run another task in the worker and return everything it yields; its errors are raised here."""
        task = _OtherTask(work, job, limit_s, Future())
        with self._asked:
            if self._ended:
                raise WebnormError("the playground has ended")
            self._other_tasks.append(task)
            self._interrupt()
        return task.found.result()

    def keep(self, text: str) -> None:
        """Store a text that is about to be replaced, even if it has not been checked."""
        now = self._state.now
        if any(one.hash == text_digest(text) for one in now.history):
            return
        under_way = now.attempt
        is_own = under_way is not None and under_way.hash == text_digest(text)
        self._keep(under_way if under_way and is_own else self._attempt(text), text)

    def idle(self, timeout_s: float) -> bool:
        """Wait until no work is left; return False after `timeout_s` seconds."""
        with self._asked:
            return self._asked.wait_for(lambda: self._ended or not (self._doing or self._any), timeout_s)

    def notice(self, text: str) -> None:
        """Show a notice that concerns no attempt; a repeated notice is shown once."""
        if self._state.now.notices[-1:] == (text,):
            return
        known = tuple(one for one in self._state.now.notices if one != text)
        self._state.change(notices=(*known, text)[-_MOST_NOTICES:])

    @property
    def _any(self) -> bool:
        return bool(self._fresh or self._waiting or self._other_tasks)

    def _interrupt(self, verdict: bool = False) -> None:
        """Stop the running step; a verdict only with `verdict`, and another task never."""
        self._asked.notify_all()
        if self._doing not in (None, "other") and (verdict or self._doing != "verdict"):
            self.worker.leave()

    def _work(self) -> None:
        try:
            description, traits = self.worker.opened()
        except (WebnormError, TaskCancelled) as error:
            if not self._ended:
                advice = "; run `webnorm doctor` to list the adapters"
                self.notice(f"{error}{'' if '`webnorm doctor`' in str(error) else advice}")
            self.stop()
            return
        self._software = traits.software
        self._state.change(device=description)
        while (next := self._next()) is not None:
            try:
                if isinstance(next, _OtherTask):
                    self._run_other(next)
                else:
                    self._do(next)
            except Exception as error:  # an error would end this thread, and all callers would wait forever
                self.notice(f"{_unforeseen(error)}; the playground continues")

    def _next(self) -> StageName | _OtherTask | None:
        """Wait for the next step or task and return it; None at the end."""
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
            if self._other_tasks and not (self._waiting and self._waiting[0] == "verdict"):
                self._doing = "other"
                return self._other_tasks.popleft()
            self._doing = self._waiting.popleft() if self._waiting else None
        return self._doing if self._doing is not None else self._next()

    def _run_other(self, task: _OtherTask) -> None:
        try:
            task.found.set_result(list(self.worker.stream(task.work, task.job, task.limit_s)))
        except TaskCancelled:
            task.found.set_exception(WebnormError("the task was interrupted; try again"))
        except (WorkerDied, TaskFailed) as failure:
            task.found.set_exception(WebnormError(str(failure)))
        except WebnormError as error:
            task.found.set_exception(error)
        except Exception as error:  # the caller waits for an answer
            task.found.set_exception(WebnormError(_unforeseen(error)))

    # --- an attempt

    def _begun(self, text: str, edition: int, root: Path) -> AttemptRun:
        """Return a new attempt, which is compared in speed with the last timed text."""
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
            locator=MistakeLocator(self._path, text),
            publish=self._publish,
            stage_entered=self._enter,
            goal=reference_kernel(now.settings.lesson),
            failed_before=frozenset(one["case"] for one in failed),
        )

    def _attempt(self, text: str) -> AttemptState:
        """Return an empty attempt with the next number."""
        return AttemptState(
            number=max((one.number for one in self._state.now.history), default=0) + 1,
            hash=text_digest(text),
            saved=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )

    def _previous(self, last: AttemptRun | None, key: str) -> KernelRevision | None:
        """Return the last timed text other than this one, stored in its own file, or None."""
        if last is None or last.op is None:
            return None
        if last.attempt.time is None or last.text.hash == key:
            return last.previous
        with suppress(WebnormError):
            return KernelRevision(self._source(last.locator.text), last.text.hash)
        return None

    def _steps(self, run: AttemptRun) -> deque[StageName]:
        """Return the steps for a new text, in order."""
        deadly = self._deadly.get(run.text.hash)
        if deadly is not None:
            self._refuse(run, "run", WebnormError(f"{deadly}; this text is not run again until you edit it"))
            self._keep(run.attempt, run.locator.text)
            return deque()
        wanted = run.settings
        steps: list[tuple[StageName, bool]] = [
            ("verdict", True),
            ("trace", wanted.trace is not None or _TRACES.search(run.locator.text) is not None),
            ("time", wanted.time),
            ("race", True),
            ("tint", True),
            ("cost", True),
            ("corpus", wanted.corpus),
        ]
        return deque(name for name, is_wanted in steps if is_wanted)

    def _do(self, step: StageName) -> None:
        """Run a step and publish its outcome."""
        run = self._run
        assert run is not None
        try:
            _STEPS[step](run)
            self._leave_stage("done")
        except TaskCancelled:
            self._leave_stage("waiting")
            with self._asked:
                # The interrupted step continues after the step that interrupted it.
                self._waiting.insert(min(1, len(self._waiting)), step)
            return
        except stages.StageSkipped as reason:
            self._leave_stage("skipped", str(reason))
        except (WorkerTimedOut, LimitReached) as limit:
            self._stopped(run, step, limit)
        except WorkerDied as death:
            self._deadly[run.text.hash] = str(death)
            self._refuse(run, "run", death)
            # Tint compiles the text without running it.
            self._keep_to(run.attempt.rendered and "tint")
        except (TaskFailed, WebnormError) as error:
            if step == "verdict":
                self._refuse(run, self._by(run), error)
            else:
                # After the verdict a failed step only leaves a note.
                self._leave_stage("failed", str(error))
        except Exception as error:  # an error of this process is not the kernel's fault
            self._refuse(run, "run", WebnormError(_unforeseen(error)), ok=None)
            self._keep_to()
        if step == "verdict":
            self._after_verdict(run)
        self._keep(run.attempt, run.locator.text)

    def _stopped(self, run: AttemptRun, step: StageName, limit: WorkerTimedOut | LimitReached) -> None:
        """End a step at its time limit: earlier findings stay, and a missing verdict stays unknown."""
        by: By = self._by(run) if step == "verdict" else "run"
        error = WebnormError(f"{limit}; {_BUSY}")
        if isinstance(limit, LimitReached):
            by, error = "template", limit
        self._refuse(run, by, error, ok=False if run.attempt.ok is False else None)
        # An endless kernel would reach the limit in every step.
        self._keep_to(run.attempt.rendered and "tint")

    def _by(self, run: AttemptRun) -> By:
        """Return the source of the error that ends the verdict step."""
        if run.op is None:
            return "header"
        match self._state.now.working:
            case "render":
                return "template"
            case "compile":
                return _COMPILERS[backend_of(self._state.now.device.get("wgpu", ""))]
        return "run"

    def _refuse(self, run: AttemptRun, by: By, failure: Exception, ok: bool | None = False) -> None:
        error = failure if isinstance(failure, WebnormError) else WebnormError(str(failure))
        run.change(mistakes=(*run.attempt.mistakes, run.locator.mistake(by, error)), ok=ok)
        self._leave_stage("failed", str(error))

    def _after_verdict(self, run: AttemptRun) -> None:
        """Publish the verdict; a wrong kernel is not timed."""
        file = replace(self._state.now.file, op=run.op.name if run.op else None, kernel=run.kernel or None)
        self._state.change(file=file, **({"good": run.attempt} if run.attempt.checked else {}))
        if not run.attempt.ok:
            self._keep_to(run.attempt.checked and "trace", run.attempt.rendered and "tint")

    def _keep_to(self, *steps: object) -> None:
        """Drop all waiting steps except these."""
        with self._asked:
            self._waiting = deque(one for one in self._waiting if one in steps)

    def _publish(self, attempt: AttemptState) -> None:
        good = self._state.now.good
        is_good = good is not None and good.number == attempt.number
        self._state.change(attempt=attempt, **({"good": attempt} if is_good else {}))

    def _enter(self, name: StageName) -> None:
        """Start a stage and end the previous one."""
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
        self._publish(run.attempt)

    def _source(self, text: str) -> Path:
        """Store a text and return its path; WebnormError if it cannot be written."""
        return self._store.keep_source(text, self._path.parent.name, self._path.stem)

    def _keep(self, attempt: AttemptState, text: str) -> None:
        """Add an attempt to the history and store it; a notice reports a failed write."""
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
