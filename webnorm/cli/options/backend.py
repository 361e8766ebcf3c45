"""The option --backend: the implementation of WebGPU for a verb and its worker processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


def choose(params: Mapping[str, Any]) -> None:
    """Put the backend of a verb's parameters into the environment.

    Raises WebnormError, before any work, for a backend that does not exist or is not installed.
    """
    if "backend" not in params:
        return
    # Imported here, because `webnorm --help` needs none of it.
    from webnorm.gpu.backend_names import BACKEND_VARIABLE, check_backend, requested_backend

    if params["backend"] is not None:
        os.environ[BACKEND_VARIABLE] = check_backend(params["backend"], "backend")
    requested_backend()
