"""Many calls of more shapes than are cached: nothing grows, and every answer is right."""

from __future__ import annotations

from typing import Any

import pytest

import webnorm
from bench import arguments, soak
from bench.soak import MemorySight, SoakFindings, drawn_shapes
from webnorm.calls import session
from webnorm.cli.work.jobs import INCONCLUSIVE, OK, WRONG
from webnorm.gpu.device import Device, open_device
from webnorm.ops.norms import resolved

pytestmark = pytest.mark.opengl


def soaked(device: Device, monkeypatch: pytest.MonkeyPatch, shapes: int, calls: int) -> SoakFindings:
    """Run a soak test on a new device with small caches."""
    for name, most in {"PROGRAMS": 3, "SCHEDULES": 5, "BINDINGS": 8, "POOL_BYTES": 1 << 14}.items():
        monkeypatch.setattr(session, name, most)
    monkeypatch.setattr(resolved, "MOST_KNOWN", 4)
    monkeypatch.setattr(soak, "_MOST_ELEMENTS", 1 << 9)
    monkeypatch.setattr(soak, "_MOST_COLS", 1 << 7)
    monkeypatch.setattr(soak, "_KEPT", 4)
    found = SoakFindings()
    assert len(list(soak.soak(open_device(device.adapter), drawn_shapes(shapes, 5), calls, 1, found))) == 20
    return found


@pytest.mark.slow
def test_calls_leak_nothing(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    found = soaked(device, monkeypatch, 8, 240)
    assert (found.checked, found.wrong) == (9, [])
    # Memory is left out, because its noise hides the growth of so few calls.
    leaks = {"objects", "native", "blocks"} & set(found.leaks())
    if leaks:
        # A leak also shows with more calls. Python's caches from the first calls do not, and fluctuations of
        # its blocks weigh less.
        leaks &= set(soaked(device, monkeypatch, 8, 4000).leaks())
    assert not leaks, found.added()


@pytest.mark.slow
def test_a_leak_of_calls_is_found(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[Any] = []
    real = webnorm.GpuArray.from_numpy

    def leaking(*given: Any) -> webnorm.GpuArray:
        left.append(real(*given))
        return real(*given)

    monkeypatch.setattr(webnorm.GpuArray, "from_numpy", leaking)
    assert {"objects", "native", "blocks"} <= set(soaked(device, monkeypatch, 3, 60).leaks())


@pytest.mark.parametrize(("of_a_call", "leaks"), [(0, []), (200, []), (4000, ["resident"]), (-3000, [])])
def test_a_number_that_grows_with_every_call_is_a_leak(of_a_call: int, leaks: list[str]) -> None:
    """Growth at the start and fluctuations do not count as leaks."""
    found = SoakFindings()
    for part in range(20):
        early = 1000 * min(part, 9)
        found.sights.append(
            MemorySight(
                calls=1000 * part,
                resident=(1 << 28) + 1000 * of_a_call * part + 4096 * early + (part % 3 << 19),
                buffers=0,
                **dict.fromkeys(("objects", "native", "blocks"), 500 + early),
            )
        )
    assert found.leaks() == leaks


def sights(count: int, resident: int = 1 << 28) -> list[MemorySight]:
    return [
        MemorySight(at + 1, resident, 0, **dict.fromkeys(("objects", "native", "blocks"), 5))
        for at in range(count)
    ]


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (SoakFindings(sights=sights(20), checked=3), OK),
        (SoakFindings(sights=sights(20), checked=3, wrong=["y is off"]), WRONG),
        (SoakFindings(sights=sights(20), checked=0), INCONCLUSIVE),
        (SoakFindings(sights=sights(1), checked=3), INCONCLUSIVE),
        (SoakFindings(sights=sights(20, resident=0), checked=3), INCONCLUSIVE),
    ],
)
def test_an_unmeasured_number_does_not_count_as_steady(found: SoakFindings, status: int) -> None:
    assert soak.status(found) == status
    assert arguments.INCONCLUSIVE == INCONCLUSIVE, "as the command has it"
