"""Reading buffers back: pieces of them, copied to one that can be mapped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import wgpu

from webnorm.errors import WebnormError, one_line
from webnorm.gpu.device import Device
from webnorm.gpu.pool import BufferPool
from webnorm.op.dtypes import Array

# What is read at a time: copying it takes milliseconds, the wait a fraction of one, and no large array lies
# in memory twice. Any WebGPU device has a buffer of that size.
_STAGED_BYTES = 1 << 26
# What a pool of buffers to read through is made with.
STAGING_USAGE = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
# A buffer, and the shape and dtype of the array at its beginning.
Source = tuple[Any, tuple[int, ...], np.dtype[Any]]


def read_buffers(
    device: Device, pool: BufferPool, sources: Sequence[Source], encoder: Any = None
) -> list[Array]:
    """The arrays at the beginning of buffers as new NumPy arrays, by way of a buffer of a staging pool.

    Small ones come with one submission and one wait. `encoder` holds commands that come before; it is
    submitted with the first copies. Raises WebnormError for arrays that find no room in memory.
    """
    try:
        found = [np.empty(shape, dtype) for _, shape, dtype in sources]
    except MemoryError as error:
        raise WebnormError(f"what is read finds no room: {one_line(str(error))}") from error
    pieces = [
        _Piece(source[0], begin, array.reshape(-1).view(np.uint8)[begin : begin + _STAGED_BYTES])
        for array, source in zip(found, sources, strict=True)
        for begin in range(0, array.nbytes, _STAGED_BYTES)
    ]
    if not pieces:
        return found
    size = min(_STAGED_BYTES, sum(piece.room for piece in pieces))
    with device.gate:
        handle = device.handle
        staging = pool.take(device, size)
        for batch in _batches(pieces):
            encoder = encoder or handle.create_command_encoder()
            for at, piece in batch:
                encoder.copy_buffer_to_buffer(piece.buffer, piece.begin, staging, at, piece.copied)
            handle.queue.submit([encoder.finish()])
            encoder = None
            # As in wgpu-py's own read_buffer: plain READ would submit once more.
            staging.map_sync("READ_NOSYNC", 0, size)
            mapped = np.frombuffer(staging.read_mapped(0, size, copy=False), np.uint8)
            for at, piece in batch:
                piece.target[:] = mapped[at : at + piece.target.size]
            del mapped
            staging.unmap()
        # Not after an error: a buffer that is still being mapped is of no use to the next call.
        pool.give_back(staging)
    return found


@dataclass(frozen=True)
class _Piece:
    """Bytes of a buffer from `begin` on, and where they go."""

    buffer: Any
    begin: int
    target: Array

    @property
    def copied(self) -> int:
        """Bytes that are copied: whole words."""
        return -(-self.target.size // 4) * 4

    @property
    def room(self) -> int:
        """Bytes up to where the next piece may lie."""
        return -(-self.target.size // 8) * 8


def _batches(pieces: Sequence[_Piece]) -> Iterator[list[tuple[int, _Piece]]]:
    """Pieces that fit the staging buffer together, each with its offset there."""
    batch: list[tuple[int, _Piece]] = []
    at = 0
    for piece in pieces:
        if at + piece.room > _STAGED_BYTES:
            yield batch
            batch, at = [], 0
        batch.append((at, piece))
        at += piece.room
    if batch:
        yield batch
