"""Comparison of buffers on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webnorm.gpu.device import Device, open_device
from webnorm.lab.verify.clobber import BufferComparer

WORDS = 1000
DATA_BYTES = 4 * 900 + 2


def buffers(device: Device, changed: dict[tuple[int, int], int]) -> list[Any]:
    """Return three buffers with the same words, except for some bits of some words."""
    made = []
    for index in range(3):
        words = np.arange(WORDS, dtype=np.uint32)
        for (which, word), bits in changed.items():
            if which == index:
                words[word] ^= bits
        made.append(device.create_buffer(words.nbytes))
        device.handle.queue.write_buffer(made[-1], 0, words)
    return made


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({}, True),
        ({(1, 0): 1}, False),
        ({(2, 899): 1 << 31}, False),
        ({(0, 450): 1}, False),
        # The data's last word: its lower half is data, its upper half is ignored.
        ({(1, 900): 1 << 15}, False),
        ({(1, 900): 1 << 16}, True),
        # The guard is compared.
        ({(2, 901): 1}, False),
        ({(2, 999): 1}, False),
    ],
)
@pytest.mark.parametrize("binding_bytes", [None, 1024])
def test_every_bit_of_data_is_compared(
    changed: dict[tuple[int, int], int], same: bool, binding_bytes: int | None, device: Device
) -> None:
    """The buffers are bound as a whole, and in parts if bindings are limited."""
    if binding_bytes is not None:
        device = open_device(device.adapter, limits={"max-storage-buffer-binding-size": binding_bytes})
    alike = buffers(device, {})
    assert BufferComparer(device).of([(alike, DATA_BYTES), (buffers(device, changed), DATA_BYTES)]) is same


def test_whole_words_are_compared_completely(device: Device) -> None:
    assert not BufferComparer(device).of([(buffers(device, {(1, 900): 1 << 16}), 4 * 901)])
