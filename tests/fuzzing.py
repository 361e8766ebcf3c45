"""The number of draws of a fuzzer. WEBNORM_FUZZ multiplies it, and draws something else each time."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings


def examples(n: int) -> settings:
    """Settings for a fuzzer of `n` examples in the suite."""
    scale = int(os.environ.get("WEBNORM_FUZZ", "1"))
    return settings(
        max_examples=n * scale,
        derandomize=scale == 1,
        suppress_health_check=list(HealthCheck),
    )
