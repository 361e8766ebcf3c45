"""Broken kernels are reported, and the others continue."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import broken
from patience import HANG_S, all_end, at_least, hang, until
from webnorm.errors import SourceLocation, WebnormError
from webnorm.gpu import timing
from webnorm.gpu.device import Device
from webnorm.kernels.headers.library import discover, select
from webnorm.lab.process import worker as workers
from webnorm.lab.process.channel import Channel
from webnorm.lab.process.worker import TaskCancelled, TaskFailed, TaskLimits, Worker, WorkerDied
from webnorm.lab.results.result import Result
from webnorm.lab.run import bench, check, jobs
from webnorm.op.blocks import map_row_blocks
from webnorm.op.presets import tasks
from webnorm.ops.norms.corpus import CASES

RULE = timing.StoppingRule(least=2, most=2, budget_s=1.0)
MISTAKEN = SourceLocation("a.wgsl", 1, 2, 3)


def test_check_survives_every_kind_of_broken_kernel(tmp_path: Path, device: Device) -> None:
    root = broken.write(tmp_path, *broken.REPLACED)
    known = discover([root])
    deadly, died = broken.deadly(device)
    kernels = tuple(select(known, name) for name in ("naive", *broken.REPLACED))
    case = next(case for case in CASES if case.name == "rows-1")
    with Worker(time_limit_s=HANG_S) as worker:
        results = list(check.run(check.CheckRequest(kernels, (case,), roots=(root,)), worker, device.traits))
    found = {result.kernel: result for result in results}
    assert found["naive"].status == "pass" and found["naive"].deterministic
    assert found["wrong"].status == "fail" and "expected" in (found["wrong"].reason or "")
    assert found["unparsable"].status == "error" and "unparsable.wgsl:" in (found["unparsable"].reason or "")
    assert found["undefined"].status == "error" and "'nothing' is undefined" in (
        found["undefined"].reason or ""
    )
    assert found["unbound"].status == "error" and "unbound.wgsl" in (found["unbound"].reason or "")
    assert found[deadly].status == "error" and died in (found[deadly].reason or "")
    assert all("\n" not in (result.reason or "") for result in results)
    assert bench.has_failures(results)


@pytest.mark.slow
def test_bench_continues_without_crashing_kernels(tmp_path: Path, device: Device) -> None:
    deadly, died = broken.deadly(device)
    root = broken.write(tmp_path, deadly, "wrong")
    found = discover([root])
    kernels = tuple(select(found, name) for name in (deadly, "wrong", "naive"))
    copies = (select(found, "copy"),)
    request = bench.BenchRequest(tasks("layer_norm", ((8, 32),)), kernels, copies, RULE, (root,))
    results: dict[str, Result] = {}
    with Worker(time_limit_s=HANG_S) as worker:
        for event in bench.run(request, worker, device.traits):
            if isinstance(event, list):
                results = {result.kernel: result for result in event}
    assert results["naive"].status == "pass" and results["naive"].median_ns
    assert results["naive"].deterministic and results["naive"].percent_of_copy
    assert results["copy"].max_abs_error == 0.0
    assert results["wrong"].status == "fail" and results["wrong"].median_ns is None
    assert died in (results[deadly].reason or "")


@pytest.mark.slow
def test_a_lost_device_costs_one_variant(
    tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process ends too; the others are right and timed on another device."""
    lost = {"naive": "between two commands", "welford": "in the middle of a submission"}
    for name, where in lost.items():
        (tmp_path / name).write_text(where)
    monkeypatch.setenv("LOSES", str(tmp_path))
    monkeypatch.setattr(jobs, "time_variants", _losing)
    found = discover()
    kernels = tuple(select(found, name, "layer_norm") for name in (*lost, "two_pass"))
    request = bench.BenchRequest(tasks("layer_norm", ((8, 32),)), kernels, (select(found, "copy"),), RULE)
    with Worker() as worker:
        (*_, results) = bench.run(request, worker, device.traits)
    assert isinstance(results, list)
    reasons = {one.kernel: one.reason for one in results if one.status == "error"}
    assert reasons == dict.fromkeys(lost, "the device was lost")
    assert {one.kernel for one in results if one.status == "pass" and one.timed} == {"copy", "two_pass"}


def test_a_bug_and_a_mistake_in_the_worker(device: Device) -> None:
    with Worker() as worker:
        with pytest.raises(TaskFailed, match=r"^ZeroDivisionError$") as caught:
            list(worker.stream(_bug, None))
        assert "in _bug" in caught.value.details
        with pytest.raises(WebnormError, match="a mistake") as mistake:
            list(worker.stream(_mistake, None))
        assert mistake.value.place == MISTAKEN
        with pytest.raises(TaskFailed, match=r"^MemoryError: 763 GiB$"):
            list(worker.stream(_too_much, None))
        assert list(worker.stream(_fine, 3)) == [0, 1, 2]


def test_a_worker_that_falls_silent_is_stopped_and_started_again(device: Device) -> None:
    with Worker(time_limit_s=0.5) as worker:
        with pytest.raises(WorkerDied, match=r"no sign of life for 0\.5 s"):
            list(worker.stream(_silent, None))
        # Starting a process takes longer than that.
        worker.time_limit_s = HANG_S
        assert list(worker.stream(_fine, 2)) == [0, 1]


def test_work_on_large_arrays_is_no_silence(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits apply to kernels, not to float64 answers on few cores.

    Each part of the answers is a sign of life.
    """
    parts, kinds = 20, list[str]()
    with Worker() as worker:
        receive = worker._next

        def heard(*given: Any) -> Any:
            kind, value = receive(*given)
            kinds.append(kind)
            return kind, value

        monkeypatch.setattr(worker, "_next", heard)
        assert list(worker.stream(_at_work, parts)) == ["done"]
    # The first event confirms that the task was received.
    assert kinds == ["alive"] * (1 + parts) + ["event", "end"]


def test_no_such_adapter(device: Device) -> None:
    with (
        Worker("no-such-adapter") as worker,
        pytest.raises(WebnormError, match="no adapter 'no-such-adapter'; available: 0: "),
    ):
        list(worker.stream(_fine, 1))


@pytest.fixture(scope="module")
def shared() -> Iterator[Worker]:
    """A worker shared by tasks that need no own device."""
    with Worker() as worker:
        yield worker


class Foreign:
    """A value whose own code fails at a given step."""

    def __init__(self, fails: str) -> None:
        self.fails = fails

    def __getstate__(self) -> dict[str, str]:
        if self.fails == "pickled":
            raise ValueError("two\nlines \x1b[31m")
        return self.__dict__

    def __setstate__(self, state: dict[str, str]) -> None:
        self.__dict__ = state
        if self.fails == "read":
            raise SystemError("not here")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("an event that cannot be pickled", "ValueError: two lines"),
        ("an event that cannot be read", "an event cannot be read: SystemError: not here"),
        ("a lambda", "PicklingError|AttributeError"),
        ("an exit", "SystemExit: 3"),
        ("the end of a file", "EOFError"),
        ("an interrupt", "KeyboardInterrupt"),
        ("deep recursion", "RecursionError: maximum recursion depth exceeded"),
        ("no words", "Unspeakable"),
        ("several lines", "OSError: one two"),
        ("no generator", "TypeError: 'NoneType' object is not iterable"),
    ],
)
def test_any_failure_in_a_task_is_one_line(shared: Worker, name: str, message: str) -> None:
    with pytest.raises(TaskFailed) as caught:
        list(shared.stream(_fails, name))
    assert re.match(message, str(caught.value)), str(caught.value)
    assert str(caught.value).isprintable() and "Traceback" in caught.value.details
    assert pickle.loads(pickle.dumps(caught.value)).details == caught.value.details
    assert list(shared.stream(_fine, 2)) == [0, 1]


@pytest.mark.parametrize("job", [lambda: 1, threading.Lock(), Foreign("pickled")])
def test_a_job_that_cannot_be_sent(shared: Worker, job: object) -> None:
    with pytest.raises(TaskFailed, match=r"^the task cannot be sent: [^\n]+$"):
        list(shared.stream(_fine, job))
    assert list(shared.stream(_fine, 1)) == [0]


def test_a_job_that_cannot_be_read(shared: Worker) -> None:
    with pytest.raises(TaskFailed, match=r"^SystemError: not here$"):
        list(shared.stream(_fine, Foreign("read")))
    assert list(shared.stream(_fine, 1)) == [0]


def test_large_messages(shared: Worker) -> None:
    job = b"x" * (64 << 20)
    assert [len(event) for event in shared.stream(_echo, job)] == [64 << 20]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dies in a message", "the process crashed with SIGKILL, perhaps because memory ran out"),
        ("says more than it sends", "no sign of life for 0.5 s: stopped"),
        ("leaves", "the process ended with exit status 7"),
        ("reads nothing", "no sign of life for 0.5 s: stopped"),
        ("is stopped by the system", "no sign of life for 0.5 s: stopped"),
    ],
)
def test_a_child_that_stops_in_the_middle(shared: Worker, name: str, message: str) -> None:
    job = name, b"x" * (8 << 20)
    list(shared.stream(_fine, 1))
    if message.startswith("no sign of life"):
        shared.time_limit_s = 0.5
    try:
        if name == "reads nothing":
            os.kill(shared.start().process.pid, signal.SIGSTOP)
        with pytest.raises(WorkerDied) as caught:
            list(shared.stream(_breaks_off, job))
    finally:
        shared.time_limit_s = HANG_S
    assert str(caught.value) == message
    assert list(shared.stream(_fine, 2)) == [0, 1]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux says who goes first")
def test_the_worker_is_killed_first_if_memory_runs_out(shared: Worker) -> None:
    assert list(shared.stream(_reads, "/proc/self/oom_score_adj")) == ["1000\n"]


def test_an_abandoned_stream_leaves_no_old_events(shared: Worker) -> None:
    left = shared.stream(_fine, 5)
    assert next(left) == 0
    assert list(shared.stream(_fine, 2)) == [0, 1]
    with pytest.raises(WorkerDied, match="another task"):
        next(left)
    left = shared.stream(_fine, 5)
    assert next(left) == 0
    del left
    assert list(shared.stream(_fine, 2)) == [0, 1]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may keep a child from answering for a while."""
    monkeypatch.setattr(workers, "_GRACE_S", HANG_S)


@pytest.mark.parametrize("name", ["events", "work on large arrays"])
def test_a_cancelled_task_ends_at_its_next_sign_of_life(shared: Worker, patient: None, name: str) -> None:
    list(shared.stream(_fine, 1))
    pid, limits = shared.pid, TaskLimits()
    events = shared.stream(_goes_on, name, limits)
    assert next(events) == "begun"
    threading.Thread(target=limits.leave).start()
    with pytest.raises(TaskCancelled):
        list(events)
    # The child received the order in the middle, closed the task's resources, and answers the next task.
    assert list(shared.stream(_fine, 3)) == [0, 1, 2] and shared.pid == pid
    assert list(shared.stream(_tidied, None)) == [[name]]


def test_a_cancelled_task_yields_no_more(shared: Worker, patient: None) -> None:
    limits = TaskLimits()
    events = shared.stream(_fine, 5, limits)
    assert next(events) == 0
    pid = shared.pid
    limits.leave()
    limits.leave()
    with pytest.raises(TaskCancelled):
        next(events)
    # A repeated cancellation of the finished task has no effect.
    assert list(shared.stream(_fine, 2)) == [0, 1] and shared.pid == pid
    limits.leave()
    assert list(shared.stream(_fine, 2)) == [0, 1] and shared.pid == pid


def test_a_task_that_is_cancelled_before_it_begins(shared: Worker) -> None:
    limits = TaskLimits()
    limits.leave()
    with pytest.raises(TaskCancelled):
        list(shared.stream(_fine, 5, limits))
    assert list(shared.stream(_fine, 2)) == [0, 1]


def test_a_child_that_does_not_react_is_killed(shared: Worker, tmp_path: Path) -> None:
    limits, begun = TaskLimits(), tmp_path / "begun"
    events = shared.stream(_forever, begun, limits)
    pid = next(events)
    until(begun.exists)
    threading.Thread(target=limits.leave).start()
    with pytest.raises(TaskCancelled):
        next(events)
    assert shared.pid is None
    all_end([pid])


def test_a_task_has_its_own_limits(shared: Worker) -> None:
    list(shared.stream(_fine, 1))
    with pytest.raises(WorkerDied, match=r"^not done within 0.5 s: stopped$"):
        list(shared.stream(_goes_on, "events", TaskLimits(whole_limit_s=0.5)))


SCRIPT = """
import sys
from webnorm.lab.run import jobs
from webnorm.lab.process.worker import Worker

def own(device, job):
    yield job

def run():
    with Worker() as worker:
        task, job = (jobs.describe_device, None) if "lab" in sys.argv else (own, 5)
        print(len(list(worker.stream(task, job))))

{guard}
    run()
"""


@pytest.mark.parametrize(
    ("guard", "task", "said"),
    [
        ("if True:", "lab", "1"),
        ('if __name__ == "__main__":', "own", "1"),
        ("if True:", "own", '; start workers only below `if __name__ == "__main__":`'),
    ],
)
def test_a_script_without_a_main_guard(
    tmp_path: Path, device: Device, guard: str, task: str, said: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("{guard}", guard))
    done = subprocess.run([sys.executable, script, task], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == (0 if said == "1" else 1), done.stderr
    assert (done.stdout + done.stderr).splitlines()[-1].endswith(said)


@pytest.mark.slow
def test_a_daemonic_process(device: Device) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_in_a_daemon, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    assert ours.recv() == [0, 1, 2]
    process.join()


def test_a_folder_of_the_same_name_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Device
) -> None:
    for name in ("webnorm", "pickle"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(tmp_path)
    with Worker() as worker:
        assert list(worker.stream(_fine, 1)) == [0]


def _left(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir() if "webnorm" in entry.name]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system does not list descriptors")
def test_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def open_now() -> int:
        return len(os.listdir("/proc/self/fd"))

    with Worker() as first:
        first.start()
    before = open_now()
    for turn in range(200):
        with Worker() as worker:
            child = worker.start()
            if turn % 3 == 0:
                os.kill(child.process.pid, signal.SIGKILL)
    for _ in range(200):
        Worker()
    assert open_now() == before and not _left(tmp_path)


def test_a_worker_starts_despite_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Device
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no temporary folder is usable"))
    with Worker() as worker:
        assert list(worker.stream(_fine, 1)) == [0]
        with pytest.raises(WorkerDied, match=r"^the shader compiler panicked: last words$"):
            list(worker.stream(_breaks_off, ("panics", b"")))


def test_a_parent_that_is_killed_leaves_nothing(tmp_path: Path, device: Device) -> None:
    script = """
import test_worker, time
from webnorm.lab.process.worker import Worker

worker = Worker()
for pid in worker.stream(test_worker._forever, None):
    print(pid, flush=True)
"""
    places = dict.fromkeys(("TMPDIR", "XDG_RUNTIME_DIR"), str(tmp_path))
    environment = {**os.environ, **places, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    all_end([child])
    assert not _left(tmp_path)


def _in_a_daemon(connection: Any) -> None:
    with Worker() as worker:
        connection.send(list(worker.stream(_fine, 3)))


def _fails(device: object, name: str):  # type: ignore[no-untyped-def]
    match name:
        case "an event that cannot be pickled":
            yield Foreign("pickled")
        case "an event that cannot be read":
            yield Foreign("read")
        case "a lambda":
            yield lambda: 1
        case "an exit":
            sys.exit(3)
        case "the end of a file":
            raise EOFError
        case "an interrupt":
            raise KeyboardInterrupt
        case "deep recursion":
            yield from _fails(device, name)
        case "no words":
            raise Unspeakable
        case "several lines":
            raise OSError("one\ntwo")
        case "no generator":
            yield from None  # type: ignore[misc]


def _echo(device: object, job: object):  # type: ignore[no-untyped-def]
    yield job


def _breaks_off(device: object, job: tuple[str, bytes]):  # type: ignore[no-untyped-def]
    match job[0]:
        case "dies in a message":
            _write(b"x" * 4096)
            os.kill(os.getpid(), signal.SIGKILL)
        case "says more than it sends":
            _write(b"x" * 4096)
            hang()
        case "leaves":
            os._exit(7)
        case "panics":
            os.write(2, b"panicked at a.rs:1:\nlast words\n")
            os._exit(7)
        case "is stopped by the system":
            os.kill(os.getpid(), signal.SIGSTOP)
    yield


def _write(part: bytes) -> None:
    """Send a message that is shorter than announced."""
    ours = next(one for one in gc.get_objects() if isinstance(one, Channel))
    ours._socket.sendall(struct.pack("!Q", 1 << 20) + part)


def _forever(device: object, begun: Path | None):  # type: ignore[no-untyped-def]
    yield os.getpid()
    # A child checks for orders right after each event. After this one it never does.
    hang(begun)


_ended: list[str] = []


def _goes_on(device: object, name: str):  # type: ignore[no-untyped-def]
    _ended.clear()
    try:
        yield "begun"
        if name == "events":
            while True:
                at_least(0.01)
                yield "more"
        map_row_blocks(lambda part: at_least(0.01), 1 << 15, 1 << 19)
    finally:
        _ended.append(name)


def _tidied(device: object, job: object):  # type: ignore[no-untyped-def]
    yield _ended


def _losing(device: Device, job: jobs.TimingJob):  # type: ignore[no-untyped-def]
    for event in jobs.time_variants(device, job):
        yield event
        if isinstance(event, jobs.VariantBegan):
            loses = Path(os.environ["LOSES"], job.variants[event.index].path.stem)
            if loses.exists():
                where = loses.read_text()
                loses.unlink()
                device.handle.destroy()
                if where == "in the middle of a submission":
                    device.handle.queue.submit([])


def _bug(device: object, job: object):  # type: ignore[no-untyped-def]
    raise ZeroDivisionError
    yield


def _mistake(device: object, job: object):  # type: ignore[no-untyped-def]
    raise WebnormError("a mistake", MISTAKEN)
    yield


def _too_much(device: object, job: object):  # type: ignore[no-untyped-def]
    raise MemoryError("763 GiB")
    yield


def _silent(device: object, job: object):  # type: ignore[no-untyped-def]
    hang()
    yield


def _at_work(device: object, parts: int):  # type: ignore[no-untyped-def]
    workers._ALIVE_S = 0.0
    map_row_blocks(lambda part: None, parts, 1 << 19)
    yield "done"


def _reads(device: object, job: str):  # type: ignore[no-untyped-def]
    yield Path(job).read_text()


def _fine(device: object, job: int):  # type: ignore[no-untyped-def]
    yield from range(job)
