"""What a Dask worker of a test is given that is nothing of webnorm's."""

import time


def span() -> tuple[float, float]:
    """When it ran."""
    begun = time.monotonic()
    time.sleep(0.02)
    return begun, time.monotonic()
