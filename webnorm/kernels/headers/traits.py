"""The limits and features that a shader may rely on: an adapter's, or the guaranteed ones of browsers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

SUBGROUP_SIZE_CONTROL = "subgroup-size-control"
IMMEDIATES = "immediate_address_space"
# WebGPU features that kernels can use, and WGSL's names for them in `enable` directives. wgpu has its own
# names for some features, and silently accepts unknown names.
DEVICE_FEATURES = {
    "subgroups": "subgroups",
    SUBGROUP_SIZE_CONTROL: "subgroup_size_control",
    "shader-f16": "f16",
}
# The language feature that webnorm requires wherever a kernel uses subgroups.
SUBGROUP_ID = "subgroup_id"
# The other WGSL language features that compute shaders can use, by their names in `requires` directives.
LANGUAGE_FEATURES = (
    "buffer_view",
    IMMEDIATES,
    "linear_indexing",
    "packed_4x8_integer_dot_product",
    "pointer_composite_access",
    "subgroup_uniformity",
    "swizzle_assignment",
    "uniform_buffer_standard_layout",
    "unrestricted_pointer_parameters",
)
KNOWN_FEATURES = (*DEVICE_FEATURES, *LANGUAGE_FEATURES)
# The sizes of subgroups in WebGPU, for an adapter that does not report its own.
SMALLEST_SUBGROUP, LARGEST_SUBGROUP = 4, 128


@dataclass(frozen=True)
class Traits:
    """The properties of an adapter that determine which variants run on it and which constants are default.

    `features` has WebGPU's names of features and WGSL's names of language features. `max_invocations` is per
    workgroup, `workgroup_storage` is in bytes, and `software` is set for an adapter that runs on the CPU.
    Subgroups have between `subgroup_min_size` and `subgroup_max_size` invocations.
    """

    features: frozenset[str]
    max_invocations: int
    workgroup_storage: int
    software: bool
    subgroup_min_size: int = SMALLEST_SUBGROUP
    subgroup_max_size: int = LARGEST_SUBGROUP


# WebGPU's default limits, and subgroups, which a page has to request.
BROWSER = Traits(frozenset({"subgroups"}), max_invocations=256, workgroup_storage=16384, software=False)


def name_in_expressions(feature: str) -> str:
    """Return the name that is 1 in a header's expressions if the adapter has a feature."""
    return "has_f16" if feature == "shader-f16" else f"has_{feature.replace('-', '_')}"


def enable_directives(features: Iterable[str]) -> list[str]:
    """Return the names for `enable` directives of a text that uses these features."""
    return [DEVICE_FEATURES[name] for name in sorted(features) if name in DEVICE_FEATURES]


def required_language(features: Iterable[str]) -> list[str]:
    """Return the names for `requires` directives of a text that uses these features."""
    used = set(features)
    implied = {SUBGROUP_ID} if "subgroups" in used else set()
    return sorted(implied | used & set(LANGUAGE_FEATURES))
