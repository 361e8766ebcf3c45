"""How long a fuzzer runs."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings


def examples(n: int) -> settings:
    """Settings for so many examples, times what the environment's WEBNORM_FUZZ says."""
    scale = int(os.environ.get("WEBNORM_FUZZ", "1"))
    return settings(max_examples=n * scale, deadline=None, suppress_health_check=list(HealthCheck))
