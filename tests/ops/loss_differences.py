"""Gradients by central differences, for the references of gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Arrays = Mapping[str, Any]
_STEP = 1e-5


def gradients(loss: Callable[[Arrays], float], inputs: Arrays, names: list[str]) -> dict[str, Any]:
    """Return the gradient of a loss with respect to some of its inputs."""
    found = {}
    for name in names:
        gradient = np.zeros(inputs[name].shape)
        for place in np.ndindex(gradient.shape):
            ends = []
            for step in (_STEP, -_STEP):
                moved = inputs[name].copy()
                moved[place] += step
                ends.append(loss({**inputs, name: moved}))
            gradient[place] = (ends[0] - ends[1]) / (2.0 * _STEP)
        found[name] = gradient
    return found
