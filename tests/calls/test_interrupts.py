"""Ctrl-C at any moment."""

from __future__ import annotations

import _thread
import ast
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import webnorm
from patience import HANG_S, at_least, hang
from webnorm.calls import session
from webnorm.gpu import gate
from webnorm.gpu.device import Device, open_device
from webnorm.gpu.gate import Gate

pytestmark = pytest.mark.opengl

TIMES = 200


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """Who is told of Ctrl-C does not raise."""
    found: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: found.append(number))
    yield found
    signal.signal(signal.SIGINT, before)


def test_a_program_that_is_interrupted_goes_on(device: Device) -> None:
    """Some interrupts come where Python drops them, in what ends an object: then another is sent."""
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
            # Now and then a whole turn comes first: one that is always broken off never ends.
            if due and (kind == "turn" or int(number) % 4):
                due = False
                # A moment that nobody chose; which one decides nothing.
                at_least(2 * turn_s * rng.random() ** 2)
                child.send_signal(signal.SIGINT)
                # The word comes behind the signal.
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
        # Python looks for signals when it goes back in a loop.
        for _ in range(1000):
            pass
        waited = True
    assert not waited
    more = np.ones((2, 8), np.float32)
    for use in (x.numpy, lambda: webnorm.layer_norm(x, 8), lambda: webnorm.GpuArray.from_numpy(more, own)):
        with pytest.raises(webnorm.WebnormError, match=r"expected another from webnorm\.open_device"):
            use()
    assert webnorm.layer_norm(np.ones((2, 8), np.float32), 8, device=device).shape == (2, 8)


def test_who_waits_for_a_thread_is_interrupted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_what_the_collector_starts_waits_for_nobody() -> None:
    done: list[int] = []
    mine = Gate()
    mine.tidy(lambda: done.append(1))
    with mine:
        mine.tidy(lambda: done.append(2))
        other = threading.Thread(target=mine.tidy, args=(lambda: done.append(3),))
        other.start()
        other.join()
    assert done == [1]
    assert not gate._process.inside and not gate._process.depth


def test_an_interrupt_of_the_collector_comes_later() -> None:
    with pytest.raises(KeyboardInterrupt):
        Gate().tidy(_thread.interrupt_main)
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
            assert str(caught.value) == "the device is lost; expected another from webnorm.open_device"


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
