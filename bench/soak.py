"""Test whether many calls of many shapes leak memory or wgpu objects, or give a wrong result.

    python -m bench.soak [--adapter ADAPTER] [--calls 20000] [--shapes 500] [--seed 0] [--json FILE]

The script draws shapes at random: ops, sizes, storage types and options of the Python interface, on NumPy
arrays or on GpuArrays. It keeps some results on GpuArrays alive for a while. Half of the calls use one of the
last few shapes, as a model does. The others use any shape. There are more shapes than webnorm caches kernels
for, so it evicts kernels and compiles them again. Some results are checked against float64. Each line shows
the state after a part of the calls. It has the process's memory, the memory of wgpu's buffers, the numbers of
objects of wgpu-py and wgpu-native, and the number of Python's memory blocks.

The first half of the calls fills the caches of webnorm and the driver. Growth in the second half is a leak.
The exit status is 1 for a leak or a wrong result, and 3 if the calls are too few to know. (A few thousand
calls only fill the caches, which looks like a leak.)
"""

from __future__ import annotations

import gc
import inspect
import json
import mmap
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import webnorm
from bench.arguments import INCONCLUSIVE, bare_parser, positive, run, whole
from webnorm.errors import WebnormError
from webnorm.files.atomic import check_writable, write_text
from webnorm.gpu.backend import wgpu
from webnorm.gpu.device import Device, find_adapter, open_device
from webnorm.lab.verify.accuracy import assess
from webnorm.op.dtypes import FP8, STORAGE, Array
from webnorm.op.op import Op, Task, make_inputs
from webnorm.op.registry import OPS
from webnorm.ops.norms.op import OPS as NORM_OPS
from webnorm.ops.norms.problem import NormOptions

# The largest x, in elements and columns. Small problems suffice, because only the leftovers of calls matter.
_MOST_ELEMENTS, _MOST_COLS = 1 << 15, 1 << 12
# The number of recent shapes that half of the calls use, and the number of results kept alive.
_RECENT, _KEPT = 8, 32
# One in so many results is checked against float64, which takes longer than the call.
_CHECKED = 25
# The number of lines. The second half of them shows the growth per call.
_PARTS = 20
# The largest allowed growth per call of each number of a MemorySight. Some growth is normal: the pool of free
# buffers still grows, ever more slowly, and a driver frees memory late. These are measurements on llvmpipe,
# for calls 10,000 to 20,000. Through Vulkan, a call added 370 to 750 bytes, and 150 to 300 of them in that
# pool. Through OpenGL, a call added -10 bytes. Through both, a call added 0.01 objects and up to 0.15 blocks,
# about ten blocks for each buffer object. A leaked pipeline would add megabytes.
MOST_ADDED = {"resident": 2048.0, "objects": 0.1, "native": 0.1, "blocks": 0.5}


@dataclass(frozen=True)
class SoakShape:
    """A problem to call; `here` means on GpuArrays."""

    task: Task
    here: bool


@dataclass(frozen=True)
class MemorySight:
    """The state after a number of calls.

    `resident` and `buffers` are the bytes of the process and of wgpu's buffers. `objects` and `native` count
    the objects of wgpu-py and of wgpu-native, and `blocks` the memory blocks of Python.
    """

    calls: int
    resident: int
    buffers: int
    objects: int
    native: int
    blocks: int

    def __str__(self) -> str:
        return (
            f"{self.calls} calls: {self.resident / 2**20:.1f} MiB, buffers {self.buffers / 2**20:.1f} MiB, "
            f"objects {self.objects} and {self.native}, blocks {self.blocks}"
        )


@dataclass
class SoakFindings:
    """The measurements of a soak test, and the wrong results."""

    sights: list[MemorySight] = field(default_factory=list)
    checked: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def compared(self) -> list[tuple[MemorySight, MemorySight]]:
        """All pairs of sights of the second half."""
        return list(combinations(self.sights[len(self.sights) // 2 :], 2))

    def added(self) -> dict[str, float]:
        """Return each number's growth per call in the second half: the median slope over all pairs."""
        pairs = self.compared
        return {
            name: median([(getattr(b, name) - getattr(a, name)) / (b.calls - a.calls) for a, b in pairs])
            if pairs
            else 0.0
            for name in MOST_ADDED
        }

    def known(self, name: str) -> bool:
        """Return True if all sights have this number; some systems do not report the memory."""
        return bool(self.compared) and all(getattr(one, name) for one in self.sights)

    def leaks(self) -> list[str]:
        """Return the numbers that grow with every call."""
        return [name for name, most in MOST_ADDED.items() if self.added()[name] > most]


# --- shapes


def drawn_shapes(count: int, seed: int) -> list[SoakShape]:
    """Draw this many different shapes of all ops."""
    rng = np.random.default_rng([seed, 0])
    found: dict[tuple[str, bool], SoakShape] = {}
    while len(found) < count:
        shape = SoakShape(_drawn_task(rng), bool(rng.integers(2)))
        found[str(shape.task), shape.here] = shape
    return list(found.values())


def _drawn_task(rng: np.random.Generator) -> Task:
    op = OPS[rng.choice([op.name for op in NORM_OPS])]
    cols = round(2 ** rng.uniform(0, np.log2(_MOST_COLS)))
    rows = round(2 ** rng.uniform(0, np.log2(_MOST_ELEMENTS // cols)))
    dtype = str(rng.choice(STORAGE))
    options = _drawn_options(rng, op, dtype)
    scale = 2.0 ** rng.integers(-2, 3) if options.out_dtype in FP8 else 1.0
    return Task(
        op, op.problem(rows, cols, dtype=dtype, eps=10 ** rng.uniform(-8, -2), options=options, scale=scale)
    )


def _drawn_options(rng: np.random.Generator, op: Op, dtype: str) -> NormOptions:
    """Draw options of an op that a call can request; a type of arrays needs an array."""
    flags = [name for name in op.options if name in NormOptions.flags()]
    types = (None, None, None, "int8", *FP8)
    of_parameters = [t.option for t in op.tensors if not t.batched and t.access == "read"]
    while True:
        chosen: dict[str, Any] = {name: rng.random() < 0.4 for name in flags}
        if "out_dtype" in op.options:
            chosen["out_dtype"] = types[int(rng.integers(len(types)))]
        given = any(chosen.get(str(name)) for name in of_parameters)
        chosen["weight_dtype"] = "float32" if given and dtype != "float32" and rng.random() < 0.4 else None
        if chosen.get("residual"):
            chosen["residual_dtype"] = "float32" if rng.random() < 0.4 else None
        chosen["max_workgroups"] = int(rng.choice([0, 0, 0, 3]))
        # The op rejects invalid combinations, which are drawn again.
        with suppress(WebnormError):
            options = NormOptions(**chosen)
            op.problem(1, 1, options=options)
            return options


# --- calls


def call(device: Device, shape: SoakShape, arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Call the op's Python function for a shape, and return the outputs by name."""
    op, problem = shape.task.op, shape.task.problem
    function = getattr(webnorm, op.name)
    taken = inspect.signature(function).parameters
    inputs = [tensor for tensor in op.tensors if tensor.access == "read"]
    # An array brings these options along: that it exists, and its storage type.
    brought = {tensor.option for tensor in inputs} | {tensor.storage for tensor in inputs}
    given: dict[str, Any] = {
        name if name in taken else f"{name}_grad": getattr(problem.options, name)
        for name in op.options
        if name not in brought
    }
    if "scale" in taken:
        given["scale"] = problem.scale
    for name, array in arrays.items():
        given[name] = webnorm.GpuArray.from_numpy(array, device) if shape.here else array
    found = function(normalized_shape=problem.cols, eps=problem.eps, device=device, **given)
    names = [tensor.name for tensor in op.outputs(problem)]
    if isinstance(found, webnorm.NormOutput):
        return {name: getattr(found, name) for name in names}
    several = found if isinstance(found, tuple) else (found,)
    return dict(zip(names, (one for one in several if one is not None), strict=True))


def objection(
    device: Device, task: Task, arrays: Mapping[str, Array], found: Mapping[str, Any]
) -> str | None:
    """Check the outputs of a call against float64; return the reason if they are wrong, or None."""
    op, problem = task.op, task.problem
    got = {name: np.asarray(array) for name, array in found.items()}
    if "amax" in got:
        got["amax"] = np.concatenate([got["amax"], np.array([1 / problem.scale], np.float32)])
    shaped = {t.name: got[t.name].reshape(t.shape_in(problem)) for t in op.outputs(problem)}
    with device.gate:
        schedule = device.session.schedule(device, device.session.wanted(device, task, None))
        shader = replace(schedule.shader, problem=problem)
    # y is checked against the norm of the written h.
    written = {"h": shaped["h"]} if "h" in shaped else {}
    answers = op.reference({**arrays, **written}, problem)
    return assess({name: (array, True) for name, array in shaped.items()}, answers, shader).reason


def soak(
    device: Device, shapes: Sequence[SoakShape], calls: int, seed: int, found: SoakFindings
) -> Iterator[MemorySight]:
    """Call and check, and yield each sight; the results are also stored in `found`."""
    rng = np.random.default_rng([seed, 1])
    recent: deque[SoakShape] = deque(maxlen=_RECENT)
    kept: deque[dict[str, Any]] = deque(maxlen=_KEPT)
    for number in range(1, calls + 1):
        among = recent if recent and rng.random() < 0.5 else shapes
        shape = among[int(rng.integers(len(among)))]
        recent.append(shape)
        arrays = make_inputs(shape.task.op, shape.task.problem)
        outputs = call(device, shape, arrays)
        if shape.here:
            kept.append(outputs)
        if number % _CHECKED == 0:
            found.checked += 1
            reason = objection(device, shape.task, arrays, outputs)
            found.wrong += [f"{shape.task}: {reason}"] if reason else []
        if number * _PARTS // calls > (number - 1) * _PARTS // calls:
            found.sights.append(look(number))
            yield found.sights[-1]


def look(calls: int) -> MemorySight:
    """Return the current state, after a garbage collection."""
    gc.collect()
    ours = wgpu.diagnostics.object_counts.get_dict()["total"]
    native = wgpu.diagnostics.wgpu_native_counts.get_dict()["total"]["count"]
    blocks = sys.getallocatedblocks()
    return MemorySight(calls, resident_bytes(), ours["resource_mem"], ours["count"], native, blocks)


def resident_bytes() -> int:
    """Return the memory of this process in bytes; 0 if the system does not report it."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * mmap.PAGESIZE if statm.exists() else 0


def main() -> None:
    """Parse the arguments, run the calls, print each sight and the verdicts."""
    parser = bare_parser(__doc__)
    parser.add_argument("--adapter")
    parser.add_argument("--calls", type=positive, default=20_000)
    parser.add_argument("--shapes", type=positive, default=500)
    parser.add_argument("--seed", type=whole, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.json is not None:
        check_writable(given.json)
    device, found = open_device(find_adapter(given.adapter)), SoakFindings()
    print(f"{device.adapter}: {given.calls} calls of {given.shapes} shapes", flush=True)
    for sight in soak(device, drawn_shapes(given.shapes, given.seed), given.calls, given.seed, found):
        print(sight, flush=True)
    added, leaks = found.added(), found.leaks()
    for name, most in MOST_ADDED.items():
        verdict = "GROWS" if name in leaks else "steady" if found.known(name) else "not known"
        print(f"{name}: {added[name]:+.3g} per call in the second half, at most {most:g} allowed: {verdict}")
    print(f"{found.checked} results checked against float64, {len(found.wrong)} wrong")
    for line in found.wrong:
        print(line)
    if given.json is not None:
        report = {"device": device.description(), **asdict(found), "added": added, "leaks": leaks}
        write_text(given.json, json.dumps(report, indent=1) + "\n")
    sys.exit(status(found))


def status(found: SoakFindings) -> int:
    """Return the exit status: for a leak or a wrong result, or for too few calls to know."""
    if found.leaks() or found.wrong:
        return 1
    unknown = [name for name in MOST_ADDED if not found.known(name)]
    if not found.checked or unknown:
        print(f"not known: {', '.join([*unknown, *([] if found.checked else ['the results'])])}")
        return INCONCLUSIVE
    return 0


if __name__ == "__main__":
    run(main)
