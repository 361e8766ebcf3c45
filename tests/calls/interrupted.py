"""A program that Ctrl-C interrupts at any moment: it continues, and its answers stay right.

    python tests/calls/interrupted.py TIMES

It prints "ready" and a number before each piece of work that the other side may interrupt. After each turn it
prints "turn" and the turn's seconds. At the end it prints a count of each kind of work. The other side sends
a signal, and then the number of that piece of work on standard input.
"""

from __future__ import annotations

import itertools
import os
import select
import signal
import sys
import threading
import time
from collections import Counter

import numpy as np

import webnorm
from webnorm.op.dtypes import Array


def norm(x: Array) -> Array:
    """Return LayerNorm of x, computed in float64."""
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    found: Array = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    return found


def work(turn: int, seen: Counter[str]) -> None:
    """Make a call of every kind, and count them in `seen`."""
    rng = np.random.default_rng(turn)
    weight, dy = rng.standard_normal((2, 24), dtype=np.float32)
    if turn % 8 == 0:
        cols = 25 + turn // 8 % 64
        wider = rng.standard_normal((3, cols), dtype=np.float32)
        # A slow compiler is interrupted before it ends, so this counts the call first.
        seen["new kernels"] += 1
        y = webnorm.layer_norm(wider, cols, kernel="naive")
        np.testing.assert_allclose(y, norm(wider), atol=1e-5)
    x = rng.standard_normal((1 + turn % 70, 24), dtype=np.float32)
    np.testing.assert_allclose(webnorm.layer_norm(x, 24), norm(x), atol=1e-5)
    seen["arrays"] += 1
    here = webnorm.GpuArray.from_numpy(x)
    out = webnorm.layer_norm(here, 24, return_stats=True)
    np.testing.assert_allclose(out.y.numpy(), norm(x), atol=1e-5)
    seen["device arrays"] += 1
    like = webnorm.GpuArray.from_numpy(np.broadcast_to(dy, x.shape))
    dx, *_ = webnorm.layer_norm_backward(like, here, 24, weight, stats=out.stats)
    del here, like, out
    assert np.isfinite(dx.numpy()).all()
    seen["gradients"] += 1


def say(*words: object) -> None:
    """Write a whole line or nothing: an interrupt could cut a line from `print`."""
    os.write(1, f"{' '.join(map(str, words))}\n".encode())


def sent() -> int:
    """Return the number of the last interrupt that the other side has announced."""
    if select.select([0], [], [], 0)[0] and (words := os.read(0, 1 << 16).split()):
        return int(words[-1])
    return 0


def dropped(number: int) -> bool:
    """Return True if an interrupt arrived but raised nothing, because an object's finalizer ran."""
    if sent() < number:
        return False
    # A timer repeats an interrupt that arrived during garbage collection (gate.interrupt_later).
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()
    # Python checks for signals when a loop jumps back.
    for _ in range(1000):
        pass
    return True


def main(times: int) -> None:
    """Work until the given number of interrupts has arrived, then print the counts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A first compilation takes much longer than a turn.
    work(1, Counter())
    seen: Counter[str] = Counter()
    turns, number = itertools.count(), 0
    while seen["interrupts"] < times:
        number += 1
        try:
            say("ready", number)
            while True:
                began = time.perf_counter()
                work(next(turns), seen)
                say("turn", time.perf_counter() - began)
                if dropped(number):
                    break
        except KeyboardInterrupt:
            seen["interrupts"] += 1
    print(dict(seen))


if __name__ == "__main__":
    main(int(sys.argv[1]))
