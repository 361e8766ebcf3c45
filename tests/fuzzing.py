"""The number of a fuzzer's examples. WEBNORM_FUZZ multiplies it, and then each run draws other examples."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings


def examples(n: int) -> settings:
    """Return the settings of a fuzzer with `n` examples in the suite."""
    scale = int(os.environ.get("WEBNORM_FUZZ", "1"))
    return settings(
        max_examples=n * scale,
        derandomize=scale == 1,
        suppress_health_check=list(HealthCheck),
    )
