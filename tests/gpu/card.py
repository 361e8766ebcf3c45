"""A simulated GPU for tests of the stopwatch.

It has one queue, its own time, and a clock that falls when idle.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from webnorm.gpu.timing import Reading, Sampler


@dataclass
class Card:
    """A GPU whose clock rises with work. All durations are in seconds.

    `plateau` is the work at the lowest clock, `rise` the work from there to the highest clock. After
    `falls_after` of idleness the clock falls again. `slow` is the speed at the lowest clock, as a share of
    the full speed. The defaults are an NVIDIA H200's, where `slow` is the copy's share at 345 of 1980 MHz.
    """

    plateau: float = 0.35
    rise: float = 0.2
    falls_after: float = 0.5
    slow: float = 0.4
    # The host's time, the time at which the queue is empty, and the time of work since the last long pause.
    now: float = 1000.0
    free: float = 0.0
    worked: float = 0.0
    # The order of submissions and reads, and the idle time of the device within a run.
    events: list[str] = field(default_factory=list)
    starved: float = 0.0

    def clock(self) -> float:
        return self.now

    def speed(self) -> float:
        """Return the current share of the full speed."""
        risen = (self.worked - self.plateau) / self.rise
        return self.slow + (1 - self.slow) * min(max(risen, 0.0), 1.0)

    def sampler(self, name: str, ns: float, seconds: float = 1e-3) -> Sampler:
        """Return a sampler of work that takes `ns` at full speed; a sample lasts `seconds`."""

        def submit() -> Reading:
            self.events.append(f"submit {name}")
            self.now += 50e-6
            begin = max(self.now, self.free)
            gap = begin - self.free
            if gap > self.falls_after:
                self.worked = 0.0
            else:
                self.starved += gap
            took = ns / self.speed()
            end = self.free = begin + seconds * took / ns
            self.worked += end - begin

            def read() -> float:
                self.events.append(f"read {name}")
                self.now = max(self.now, end) + 100e-6
                return took

            return read

        return submit
