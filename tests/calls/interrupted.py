"""A program that Ctrl-C interrupts at any moment: it catches that and goes on, and its answers stay right.

    python tests/calls/interrupted.py TIMES

It prints "ready" and the seconds that a turn takes before each piece of work that is to be interrupted,
and in the end what it went through.
"""

from __future__ import annotations

import itertools
import signal
import sys
import time
from collections import Counter

import numpy as np

import webnorm
from webnorm.norms.problem import Array


def norm(x: Array) -> Array:
    """The answer."""
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    found: Array = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    return found


def work(turn: int, seen: Counter[str]) -> None:
    """A call of every kind."""
    rng = np.random.default_rng(turn)
    weight, dy = rng.standard_normal((2, 24), dtype=np.float32)
    if turn % 8 == 0:
        cols = 25 + turn // 8 % 64
        wider = rng.standard_normal((3, cols), dtype=np.float32)
        # Where a compiler is slow, it is interrupted before it is done.
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


def main(times: int) -> None:
    """Work, be interrupted, and so on."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # What is compiled for the first time may take longer than anyone waits who interrupts.
    work(1, Counter())
    began = time.perf_counter()
    work(2, Counter())
    seconds = time.perf_counter() - began
    seen: Counter[str] = Counter()
    turns = itertools.count()
    for _ in range(times):
        try:
            print("ready", seconds, flush=True)
            while True:
                work(next(turns), seen)
        except KeyboardInterrupt:
            seen["interrupts"] += 1
    print(dict(seen))


if __name__ == "__main__":
    main(int(sys.argv[1]))
