"""The limits and features that a shader may rely on: an adapter's, or the guaranteed ones of browsers."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from webnorm.errors import WebnormError, unknown

SUBGROUP_SIZE_CONTROL = "subgroup-size-control"
SHADER_F16 = "shader-f16"
IMMEDIATES = "immediate_address_space"
# The language feature that every text with subgroups requires.
SUBGROUP_ID = "subgroup_id"
# WebGPU features that kernels can use, and WGSL's names for them in `enable` directives. wgpu has its own
# names for some features, and silently accepts unknown names.
DEVICE_FEATURES = {
    "subgroups": "subgroups",
    SUBGROUP_SIZE_CONTROL: "subgroup_size_control",
    SHADER_F16: "f16",
}
# WGSL language features that kernels can declare, by their names in `requires` directives.
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


def unknown_feature(name: str, known: Iterable[str] = KNOWN_FEATURES) -> WebnormError:
    """Return the error for a feature that does not exist, such as WGSL's name of WebGPU's feature."""
    of_directives = {directive: feature for feature, directive in DEVICE_FEATURES.items()}
    return unknown("feature", name, known, like=of_directives.get(name))


def name_in_expressions(feature: str) -> str:
    """Return the name that is 1 in a header's expressions if the adapter has a feature."""
    return "has_f16" if feature == SHADER_F16 else f"has_{feature.replace('-', '_')}"


def extended(traits: Traits, declared: Collection[str]) -> Iterator[tuple[str, Traits]]:
    """Yield the traits with each combination of declared features that they lack, the most features first.

    Each comes with a name of the combination; the last are the traits themselves, with an empty name. The
    language features are one group, because most engines have all of the newer ones or none.
    """
    optional = {
        "language": LANGUAGE_FEATURES,
        "f16": (SHADER_F16,),
        "sizes": (SUBGROUP_SIZE_CONTROL,) if "subgroups" in traits.features else (),
    }
    added = {name: {*group}.intersection(declared) - traits.features for name, group in optional.items()}
    groups = [group for group in added.items() if group[1]]
    for taken in itertools.product((True, False), repeat=len(groups)):
        chosen = dict(itertools.compress(groups, taken))
        yield "-".join(chosen), replace(traits, features=traits.features.union(*chosen.values()))


def device_features(features: Iterable[str]) -> list[str]:
    """Return the features that a device has to be created with; the others are WGSL's."""
    return sorted(name for name in features if name in DEVICE_FEATURES)


def enable_directives(features: Iterable[str]) -> list[str]:
    """Return the names for `enable` directives of a text that uses these features."""
    return [DEVICE_FEATURES[name] for name in device_features(features)]


def required_language(features: Iterable[str]) -> list[str]:
    """Return the names for `requires` directives of a text that uses these features."""
    used = set(features)
    implied = {SUBGROUP_ID} if "subgroups" in used else set()
    return sorted(implied | used & set(LANGUAGE_FEATURES))
