"""What a shader may count on: the limits and features of an adapter, or those of every browser."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Traits:
    """What of an adapter decides which variants run on it and which constants are the default.

    `features` has WebGPU's names, `max_invocations` counts them per workgroup, `workgroup_storage`
    is in bytes, and `software` tells an adapter that is a program on the CPU.
    """

    features: frozenset[str]
    max_invocations: int
    workgroup_storage: int
    software: bool


# The limits that a page gets without asking (WebGPU, "Limits"), and subgroups where it asks for them.
BROWSER = Traits(frozenset({"subgroups"}), max_invocations=256, workgroup_storage=16384, software=False)
