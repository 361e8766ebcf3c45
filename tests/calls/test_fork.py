"""Forked processes, whose parent already uses the GPU or not yet."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from patience import HANG_S
from webnorm.gpu.device import Device

pytestmark = [
    pytest.mark.opengl,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork"),
]

# Each use runs in a forked child, which then ends as any program does. Meanwhile two threads of the parent
# have locks.
PROGRAM = """
import json, multiprocessing, os, sys, threading, time
import numpy as np
import webnorm

x = np.ones((4, 8), np.float32)

def forked(use):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = type(use()).__name__
        except webnorm.WebnormError as error:
            said = str(error)
        os.write(writer, said.encode())
        sys.exit(3)
    os.close(writer)
    said = os.read(reader, 1000).decode()
    os.close(reader)
    return said, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def norm(x):
    return webnorm.layer_norm(x, 8)

found = {"before": [forked(lambda: norm(x))]}
device = webnorm.open_device()
here = webnorm.GpuArray.from_numpy(x, device)
module = webnorm.LayerNorm(8)
module(x)
norm(x), norm(here)
done = threading.Event()

def work():
    while not done.is_set():
        norm(here).numpy()

threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
found["after"] = [
    forked(use)
    for use in (
        lambda: norm(x),
        lambda: norm(here),
        lambda: webnorm.layer_norm(x, 8, device=device),
        here.numpy,
        lambda: webnorm.GpuArray.from_numpy(x),
        lambda: module(x),
        lambda: module.backward(x),
        webnorm.adapters,
        webnorm.open_device,
        lambda: device.handle.queue,
        lambda: device.subgroup_size,
    )
]
# The child uses nothing, and releases everything.
found["idle"] = [forked(lambda: [globals().pop(name) for name in ("device", "here", "module")])]
done.set()
for thread in threads:
    thread.join()
try:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.apply(norm, [x])
except webnorm.WebnormError as error:
    found["pool"] = [[str(error), 3]]
norm(here).numpy()
print(json.dumps(found))
"""


@pytest.mark.slow
def test_a_child_raises_and_ends(device: Device) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["before"] == [["ndarray", 3]]
    assert found["idle"] == [["list", 3]]
    refusal = (
        "this process was forked from one that uses the GPU and cannot use it; "
        "use the start method spawn, or fork before the first use"
    )
    assert len(found["after"]) == 11
    assert all(one == [refusal, 3] for one in [*found["after"], *found["pool"]])
