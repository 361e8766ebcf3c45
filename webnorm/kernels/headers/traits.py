"""The limits and features that a shader may rely on: an adapter's, or the guaranteed ones of browsers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Traits:
    """The properties of an adapter that determine which variants run on it and which constants are default.

    `features` has WebGPU's names, `max_invocations` is per workgroup, `workgroup_storage` is in bytes, and
    `software` is set for an adapter that runs on the CPU.
    """

    features: frozenset[str]
    max_invocations: int
    workgroup_storage: int
    software: bool


# WebGPU's default limits, and subgroups, which a page has to request.
BROWSER = Traits(frozenset({"subgroups"}), max_invocations=256, workgroup_storage=16384, software=False)
