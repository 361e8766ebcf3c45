"""Ctrl-C at any moment."""

from __future__ import annotations

import _thread
import ast
import contextlib
import dis
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

import webnorm
from patience import HANG_S, at_least, hang
from webnorm import signals
from webnorm.calls import session
from webnorm.choice.defaults import default_variant
from webnorm.gpu import gate
from webnorm.gpu.device import Device, open_device
from webnorm.gpu.gate import Gate
from webnorm.kernels.headers.library import own_kernel
from webnorm.kernels.headers.traits import BROWSER
from webnorm.kernels.rendering import templates
from webnorm.kernels.rendering.render import render_shader
from webnorm.lab.run import api
from webnorm.op.dtypes import Array
from webnorm.ops.norms.problem import NormProblem

pytestmark = pytest.mark.opengl

TIMES = 200


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """Replace the handler of Ctrl-C by one that counts signals and does not raise."""
    found: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: found.append(number))
    yield found
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_a_program_that_is_interrupted_goes_on(device: Device) -> None:
    """Python drops an interrupt that arrives during a finalizer. Then the test sends another."""
    program = [sys.executable, str(Path(__file__).with_name("interrupted.py")), str(TIMES)]
    rng = random.Random(0)
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as child:
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        killer = threading.Timer(HANG_S, child.kill)
        killer.start()
        said, number, turn_s, due = "", "", 0.0, False
        for line in child.stdout:
            kind, *values = line.split()
            if kind not in ("ready", "turn"):
                said = line
                break
            if kind == "turn":
                turn_s = float(values[0])
            else:
                (number,), due = values, True
            # For some numbers, a whole turn comes first, because a turn that is always interrupted never
            # ends.
            if due and (kind == "turn" or int(number) % 4):
                due = False
                # The moment is random, and must not affect the result.
                at_least(2 * turn_s * rng.random() ** 2)
                child.send_signal(signal.SIGINT)
                # The number follows the signal.
                print(number, file=child.stdin, flush=True)
        killer.cancel()
        child.kill()
        assert said, child.stderr.read()
    counts = ast.literal_eval(said)
    assert counts["interrupts"] == TIMES
    assert min(counts[kind] for kind in ("arrays", "device arrays", "gradients", "new kernels")) > 0


def test_the_first_waits(heard: list[int]) -> None:
    outer = Gate()
    with outer, outer:
        os.kill(os.getpid(), signal.SIGINT)
        assert not heard
    assert heard == [signal.SIGINT]
    with outer:
        pass
    assert heard == [signal.SIGINT] and outer.refusal is None


def test_the_second_does_not_and_shuts(device: Device) -> None:
    own = open_device(device.adapter)
    x = webnorm.GpuArray.from_numpy(np.ones((2, 8), np.float32), own)
    waited = False
    with pytest.raises(KeyboardInterrupt), own.gate:
        _thread.interrupt_main()
        _thread.interrupt_main()
        # Python checks for signals when a loop jumps back.
        for _ in range(1000):
            pass
        waited = True
    assert not waited
    more = np.ones((2, 8), np.float32)
    for use in (x.numpy, lambda: webnorm.layer_norm(x, 8), lambda: webnorm.GpuArray.from_numpy(more, own)):
        with pytest.raises(webnorm.WebnormError, match=r"open another with webnorm\.open_device"):
            use()
    assert webnorm.layer_norm(np.ones((2, 8), np.float32), 8, device=device).shape == (2, 8)


def test_waiting_for_a_thread_is_interrupted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, taken, done = Gate(), threading.Event(), threading.Event()

    def hold() -> None:
        with shared:
            taken.set()
            done.wait(HANG_S)

    wait = gate._wait

    def interrupted() -> None:
        _thread.interrupt_main()
        wait()

    monkeypatch.setattr(gate, "_wait", interrupted)
    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(HANG_S)
    with pytest.raises(KeyboardInterrupt), shared:
        pass
    done.set()
    thread.join()
    with shared:
        assert shared.refusal is None


def test_handlers_stay_as_they_are(heard: list[int]) -> None:
    mine = signal.getsignal(signal.SIGINT)
    with Gate(), pytest.raises(ZeroDivisionError), Gate():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is mine
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Gate():
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    signal.signal(signal.SIGINT, before)


def test_finalizers_of_the_collector_do_not_wait() -> None:
    done: list[int] = []
    mine = Gate()
    mine.run_if_idle(lambda: done.append(1))
    with mine:
        mine.run_if_idle(lambda: done.append(2))
        other = threading.Thread(target=mine.run_if_idle, args=(lambda: done.append(3),))
        other.start()
        other.join()
    assert done == [1]
    assert not gate._process.inside and not gate._process.depth


def test_an_interrupt_of_the_collector_comes_later() -> None:
    with pytest.raises(KeyboardInterrupt):
        Gate().run_if_idle(_thread.interrupt_main)
        hang()


def test_a_lost_device(device: Device) -> None:
    own = open_device(device.adapter)
    x = webnorm.GpuArray.from_numpy(np.ones((2, 8), np.float32), own)
    y = webnorm.layer_norm(x, 8)
    own.handle.destroy()
    for _ in range(2):
        for use in (x.numpy, lambda: webnorm.layer_norm(x, 8), lambda: webnorm.rms_norm(y, 8)):
            with pytest.raises(webnorm.WebnormError) as caught:
                use()
            assert str(caught.value) == "the device is lost; open another with webnorm.open_device"


def test_a_lost_device_that_calls_share_is_opened_anew(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, lost = np.ones((2, 8), np.float32), open_device(device.adapter)
    monkeypatch.setattr(session, "_default", [lost])
    webnorm.layer_norm(x, 8)
    lost.handle.destroy()
    with pytest.raises(webnorm.WebnormError, match="the device is lost"):
        webnorm.layer_norm(x, 8)
    np.testing.assert_array_equal(webnorm.layer_norm(x, 8), np.zeros((2, 8)))


class SoftLimit(Exception):
    """An exception like Celery's."""


class Late(TimeoutError):
    """An exception of a handler that ends a wait. It is an OSError, which files also raise."""


class Wrong(ValueError):
    """An exception that many libraries interpret as an invalid value."""


KINDS = (SoftLimit, Late, Wrong)
# Each number of columns occurs once, so each kernel is new.
COLS = itertools.count(300)


@cache
def answering(code: CodeType) -> frozenset[int]:
    """Return the offsets of a code at which Python calls signal handlers.

    These are the places after calls, at the start of functions and at the end of loops.
    """
    steps = [*dis.get_instructions(code)]
    return frozenset(
        after.offset
        for before, after in itertools.pairwise(steps)
        # Another instruction calls an intrinsic, and Python does not check for signals after it.
        if re.search(r"^CALL(?!_INTRINSIC)|^JUMP_BACKWARD|RESUME", before.opname)
    )


def signalled(work: Callable[[], object], step: int, number: int = signal.SIGUSR1) -> bool:
    """Do some work, and call Python's handler at place number `step`, as a signal would.

    Return True if the work has so many places.
    """
    left = step

    def local(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if event == "opcode" and frame.f_lasti in answering(frame.f_code):
            left -= 1
            if left == 0:
                sys.settrace(None)
                handler = signal.getsignal(number)
                assert callable(handler)
                handler(number, frame)
        return local

    def trace(frame: FrameType, event: str, _: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return local

    before = sys.gettrace()
    # Python 3.12 checks only the caller's frame, and only now, if a frame requests opcode events.
    sys._getframe().f_trace_opcodes = True
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return left <= 0


def raises_at_every(
    work: Callable[[], object], is_right: Callable[[Any], object], stride: int, most: int | None = None
) -> int:
    """Raise an exception of a handler at every `stride`-th place of the work; return their number.

    Each exception must come out of the work unchanged, and the state of webnorm must be as before. After each
    exception the work runs once more and must be right.
    """
    raised: list[Exception] = []

    def handler(number: int, frame: FrameType | None) -> None:
        raised.append(KINDS[len(raised) % len(KINDS)]("from the handler"))
        raise raised[-1]

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        for step in itertools.islice(itertools.count(1, stride), most):
            times = len(raised)
            try:
                signalled(work, step)
            except Exception as error:
                assert raised[times:] == [error], f"step {step}: {error!r} is not what the handler raised"
            else:
                if raised[times:] == []:
                    break
                # Python drops an exception that a finalizer raises. Then webnorm sends the signal again.
                with pytest.raises(KINDS) as caught:
                    hang()
                assert caught.value is raised[-1] and len(raised) == times + 2, f"step {step}: it was lost"
            assert signal.getsignal(signal.SIGUSR1) is handler
            assert not signals._process.depth and not signals._process.handlers and not signals._process.noted
            assert not gate._process.depth and not gate._process.inside
            assert is_right(work())
    finally:
        signal.signal(signal.SIGUSR1, before)
    return len(raised)


STRIDES = [13, pytest.param(3, marks=pytest.mark.slow)]


@pytest.mark.parametrize("stride", STRIDES)
def test_a_call_on_arrays_lets_every_exception_of_a_handler_through(device: Device, stride: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, 24), dtype=np.float32)
    right = webnorm.layer_norm(x, 24)

    def is_right(y: Array) -> bool:
        return np.array_equal(y, right)

    assert raises_at_every(lambda: webnorm.layer_norm(x, 24), is_right, stride) > 20


@pytest.mark.parametrize("stride", STRIDES)
def test_a_call_on_resident_arrays_does_so_too(device: Device, stride: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, 24), dtype=np.float32)
    here = webnorm.GpuArray.from_numpy(x)
    right = webnorm.layer_norm(here, 24).numpy()

    def is_right(y: webnorm.GpuArray) -> bool:
        return np.array_equal(y.numpy(), right)

    assert raises_at_every(lambda: webnorm.layer_norm(here, 24), is_right, stride) > 10


@pytest.mark.parametrize("stride", STRIDES)
def test_arrays_that_go_to_the_device_and_back_do_so_too(device: Device, stride: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, 24), dtype=np.float32)

    def is_right(found: Array) -> bool:
        return np.array_equal(found, x)

    assert raises_at_every(lambda: webnorm.GpuArray.from_numpy(x).numpy(), is_right, stride) > 5


@pytest.mark.slow
@pytest.mark.parametrize("stride", [1499, pytest.param(199, marks=pytest.mark.slow)])
def test_a_kernel_that_is_new_does_so_too(device: Device, stride: int, tmp_path: Path) -> None:
    """A separate process renders a user's kernel, and this process renders webnorm's. Both are compiled."""

    def work() -> Array:
        n = next(COLS)
        return webnorm.layer_norm(np.ones((1, n), np.float32), n, kernel="naive")

    assert raises_at_every(work, lambda y: np.abs(y).max() < 1e-3, stride) > 2


@pytest.mark.parametrize("stride", [2999, pytest.param(101, marks=pytest.mark.slow)])
def test_rendering_does_so_too(stride: int) -> None:
    kernel = own_kernel("layer_norm", "naive")
    assert kernel is not None

    def work() -> str:
        problem = NormProblem(rows=1, cols=next(COLS))
        return render_shader(default_variant(kernel, problem, BROWSER), problem, "native", BROWSER).text

    assert raises_at_every(work, lambda text: "fn main" in text, stride) > 2


@pytest.mark.slow
def test_check_and_bench_do_so_too(device: Device) -> None:
    """Each starts a worker. The test tries a few of tens of thousands of places."""
    for work in (
        lambda: api.check(["naive"], cases="rows-1"),
        lambda: api.bench(["naive"], rows=4, cols=8, budget=0.05),
    ):
        assert raises_at_every(work, bool, 1501, most=12) > 5


@pytest.mark.parametrize("kind", [*KINDS, KeyboardInterrupt, SystemExit])
def test_what_a_handler_raises_while_a_template_is_rendered(
    kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """webnorm neither drops the exception nor reports it as an error of the template."""
    raised = kind("from the handler")

    def handler(number: int, frame: FrameType | None) -> None:
        raise raised

    kernel = own_kernel("layer_norm", "naive")
    assert kernel is not None
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        for place in ("_checked_text", "_lines_of", "workgroup_bytes"):
            real = getattr(templates, place)

            def interrupting(*given: object, real: Callable[..., object] = real) -> object:
                os.kill(os.getpid(), signal.SIGUSR1)
                return real(*given)

            problem = NormProblem(rows=1, cols=24)
            with monkeypatch.context() as patch:
                patch.setattr(templates, place, interrupting)
                with pytest.raises(kind) as caught:
                    render_shader(default_variant(kernel, problem, BROWSER), problem, "native", BROWSER)
            assert caught.value is raised
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_exception_of_a_handler_is_known_by_its_traceback() -> None:
    class Handler:
        def __call__(self, number: int, *rest: object) -> None:
            raise SoftLimit

        def method(self, number: int, frame: FrameType | None) -> None:
            self(number, frame)

    def plain(number: int, frame: FrameType | None) -> None:
        raise SoftLimit

    for handler in (plain, Handler(), Handler().method, partial(plain)):
        before = signal.signal(signal.SIGUSR1, handler)
        try:
            with pytest.raises(SoftLimit) as caught:
                os.kill(os.getpid(), signal.SIGUSR1)
                hang()
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert signals.is_from_handler(caught.value)
    with pytest.raises(ZeroDivisionError) as other:
        _ = 1 / 0
    assert not signals.is_from_handler(other.value)


def test_an_exception_that_was_taken_for_another_comes_out_all_the_same() -> None:
    """A library may catch every exception, but the exception of the handler still comes out."""
    raised = SoftLimit()

    def handler(number: int, frame: FrameType | None) -> None:
        raise raised

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with (
            pytest.raises(SoftLimit) as caught,
            signals.deferred,
            contextlib.suppress(Exception),
            signals.interruptible(),
        ):
            os.kill(os.getpid(), signal.SIGUSR1)
            hang()
        assert caught.value is raised
        with pytest.raises(SoftLimit) as again, signals.deferred:
            try:
                with signals.interruptible():
                    os.kill(os.getpid(), signal.SIGUSR1)
                    hang()
            except Exception as error:
                raise webnorm.WebnormError("a mistake") from error
        assert again.value is raised
    finally:
        signal.signal(signal.SIGUSR1, before)
