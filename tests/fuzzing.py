"""How much is tried where inputs are drawn at random."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings


def examples(n: int) -> settings:
    """Settings for `n` examples, times the factor in $WEBNORM_FUZZ."""
    scale = int(os.environ.get("WEBNORM_FUZZ", "1"))
    return settings(max_examples=n * scale, deadline=None, suppress_health_check=list(HealthCheck))
