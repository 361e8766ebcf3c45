"""The `enable` and `requires` directives that plain WGSL contains."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from webnorm.kernels.headers.traits import DEVICE_FEATURES, LANGUAGE_FEATURES, SUBGROUP_ID

_DIRECTIVE = re.compile(r"\b(?:enable|requires)\s+(\w+(?:\s*,\s*\w+)*)\s*,?\s*;")
_FEATURES = {
    **{directive: feature for feature, directive in DEVICE_FEATURES.items()},
    **{name: name for name in LANGUAGE_FEATURES},
}


def declared_features(code: str) -> frozenset[str]:
    """Return the features that kernels can use and that the directives of a text without comments name."""
    names = {name for _, names in _directives(code) for name in names}
    return frozenset(_FEATURES[name] for name in names & _FEATURES.keys())


def directive_edits(code: str, accepted: Collection[str]) -> Iterator[tuple[int, int, str]]:
    """Yield the edits that leave out the names that a compiler rejects: the range of text, and its new text.

    `accepted` has the names of features of webnorm's own directives. Other names remain, so that the compiler
    reports them.
    """
    known = {*_FEATURES, SUBGROUP_ID}
    for found, names in _directives(code):
        kept = [name for name in names if name in accepted or name not in known]
        if not kept:
            yield *found.span(), ""
        elif kept != names:
            yield *found.span(1), ", ".join(kept)


def _directives(code: str) -> Iterator[tuple[re.Match[str], list[str]]]:
    """Yield the directives of a text, each with its names."""
    for found in _DIRECTIVE.finditer(code):
        yield found, re.findall(r"\w+", found[1])
