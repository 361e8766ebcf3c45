"""Devices of another engine, such as a browser, with the part of wgpu-py's interface that webnorm uses.

The objects here have no GPU. They turn calls into WebGPU commands, which a link carries to the engine in
batches. A batch is sent when Python needs an answer: the bytes of a buffer, or whether a shader compiles. The
script at the other end is `webnorm/engines/page/commands.js`.

Batch and answer have the same form: the length of a header (4 bytes, little-endian), the header as JSON, and
bytes.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from webnorm.gpu.backend import wgpu
from webnorm.gpu.device import AdapterInfo, adapters

# A batch with more bytes is sent although Python needs no answer.
_MOST_BATCH_BYTES = 1 << 26
_ERRORS = {
    "validation": wgpu.GPUValidationError,
    "out-of-memory": wgpu.GPUOutOfMemoryError,
    "internal": wgpu.GPUInternalError,
}
# The gate recognises this text (webnorm.gpu.gate).
_LOST = "the device is lost"


class Link(Protocol):
    """The connection to an engine."""

    def ask(self, batch: bytes) -> bytes:
        """Send a batch and return its answer. Raises ConnectionError if the engine has ended."""


@dataclass(frozen=True)
class EngineFacts:
    """The properties of an engine's adapter, as the engine reports them.

    `features` and `limits` have WebGPU's names. `software` is None if the engine does not say it.
    `subgroup_sizes` are the smallest and the largest.
    """

    engine: str
    version: str
    name: str
    vendor: str
    features: frozenset[str]
    language_features: frozenset[str]
    limits: Mapping[str, int]
    software: bool | None
    subgroup_sizes: tuple[int, int]


def remote_adapter(link: Link, facts: EngineFacts) -> AdapterInfo:
    """Return the adapter of an engine at the other end of a link."""
    software = _is_software_machine() if facts.software is None else facts.software
    kind = "CPU" if software else "Unknown"
    handle = _RemoteAdapter(link, facts)
    return AdapterInfo(0, handle, facts.name, facts.vendor, handle.implementation, "WebGPU", kind)


def _is_software_machine() -> bool:
    """Return whether this machine has only software adapters, so that an engine on it has none either."""
    return all(one.type == "CPU" for one in adapters())


@dataclass
class _Batch:
    """Commands that were not sent yet, with their bytes."""

    commands: list[Any] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)
    size: int = 0


class _Connection:
    """The commands of one device."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._batch = _Batch()
        self._next = 0
        self._lost: str | None = None

    def make(self, command: str, *arguments: Any) -> int:
        """Add a command that creates an object, and return the object's number."""
        self._next += 1
        self.add(command, self._next, *arguments)
        return self._next

    def add(self, command: str, *arguments: Any) -> None:
        """Add a command to the batch."""
        if self._lost:
            raise RuntimeError(f"{_LOST}: {self._lost}")
        self._batch.commands.append([command, *arguments])

    def add_bytes(self, data: Any) -> tuple[int, int]:
        """Add bytes to the batch, and return their place."""
        part, at = bytes(memoryview(data).cast("B")), self._batch.size
        self._batch.parts.append(part)
        self._batch.size += len(part)
        return at, len(part)

    def send(self) -> memoryview:
        """Send the batch and return the bytes of the answer.

        Raises wgpu's errors, as wgpu-py does, or RuntimeError if the device is lost.
        """
        batch, self._batch = self._batch, _Batch()
        header = json.dumps(batch.commands, separators=(",", ":")).encode()
        try:
            answer = self._link.ask(b"".join((struct.pack("<I", len(header)), header, *batch.parts)))
        except ConnectionError as error:
            self._lost = f"the engine ended with {error}"
            raise RuntimeError(f"{_LOST}: {self._lost}") from error
        (size,) = struct.unpack_from("<I", answer)
        said = json.loads(answer[4 : 4 + size])
        if said["lost"] is not None:
            self._lost = str(said["lost"])
            raise RuntimeError(f"{_LOST}: {self._lost}")
        if said["error"] is not None:
            kind, text = said["error"]
            raise _ERRORS.get(kind, wgpu.GPUInternalError)(str(text))
        return memoryview(answer)[4 + size :]

    def send_if_large(self) -> None:
        """Send the batch if it has many bytes."""
        if self._batch.size > _MOST_BATCH_BYTES:
            self.send()

    def drop(self, number: int) -> None:
        """Release an object; this is safe while the garbage collector runs."""
        self._batch.commands.append(["drop", number])


class _RemoteAdapter:
    """An engine's adapter, as wgpu-py's GPUAdapter."""

    target = "browser"

    def __init__(self, link: Link, facts: EngineFacts) -> None:
        self._link = link
        # An engine does not name its driver, so that its own version takes the driver's place.
        self.implementation = f"{facts.engine} {facts.version}".strip()
        self.features, self.language_features = facts.features, facts.language_features
        self.subgroup_sizes = facts.subgroup_sizes
        self.limits = {_dashed(name): value for name, value in facts.limits.items()}

    def request_device_sync(
        self, *, required_features: Sequence[str], required_limits: Mapping[str, int]
    ) -> _RemoteDevice:
        connection = _Connection(self._link)
        limits = {_camel(name): value for name, value in required_limits.items()}
        connection.add("open", list(required_features), limits)
        try:
            connection.send()
        except wgpu.GPUError as error:
            raise RuntimeError(str(error)) from error
        return _RemoteDevice(connection, frozenset(required_features), {**self.limits, **required_limits})


def _dashed(name: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name)


def _camel(name: str) -> str:
    first, *others = name.split("-")
    return first + "".join(word.capitalize() for word in others)


class _Remote:
    """An object of the engine, which is released when Python drops it."""

    def __init__(self, connection: _Connection, number: int, *kept: Any) -> None:
        # `kept` are objects that this one needs at the engine.
        self._connection, self.number, self._kept = connection, number, kept

    def __del__(self) -> None:
        self._connection.drop(self.number)


class _RemoteBuffer(_Remote):
    """A buffer of the engine."""

    def __init__(self, connection: _Connection, number: int, size: int) -> None:
        super().__init__(connection, number)
        self.size = size
        self._read: memoryview | None = None

    def map_async(self, mode: str) -> _RemoteBuffer:
        """Return the buffer itself, whose `sync_wait` reads it."""
        return self

    def sync_wait(self) -> None:
        """Read the buffer."""
        self._connection.add("read", self.number, 0, self.size)
        self._read = self._connection.send()

    def read_mapped(self) -> memoryview:
        """Return the bytes that `sync_wait` read."""
        assert self._read is not None
        return self._read

    def unmap(self) -> None:
        """Forget the bytes."""
        self._read = None


class _RemoteQueue:
    """The queue of an engine's device."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def write_buffer(self, buffer: _RemoteBuffer, offset: int, data: Any) -> None:
        place = self._connection.add_bytes(np.ascontiguousarray(data))
        self._connection.add("write", buffer.number, offset, *place)
        self._connection.send_if_large()

    def read_buffer(self, buffer: _RemoteBuffer, offset: int = 0, size: int | None = None) -> memoryview:
        count = buffer.size - offset if size is None else size
        # WebGPU copies whole words.
        begin = offset // 4 * 4
        whole = math.ceil((offset + count) / 4) * 4 - begin
        self._connection.add("read", buffer.number, begin, whole)
        return self._connection.send()[offset - begin : offset - begin + count]

    def submit(self, encoders: Sequence[_RemoteEncoder]) -> None:
        for encoder in encoders:
            self._connection.add("submit", encoder.commands)


class _RemotePass:
    """A compute pass, whose commands are a part of its encoder's."""

    def __init__(self, timestamps: Mapping[str, Any] | None) -> None:
        self.commands: list[Any] = []
        self.timestamps = timestamps
        self.kept: list[Any] = []

    def set_pipeline(self, pipeline: _Remote) -> None:
        self._add("pipeline", pipeline)

    def set_bind_group(self, index: int, group: _Remote) -> None:
        self._add("group", group, index)

    def set_immediates(self, offset: int, data: Any, data_offset: int, data_size: int) -> None:
        words = np.frombuffer(data, np.uint32, data_size // 4, data_offset)
        self.commands.append(["immediates", offset, *words.tolist()])

    def dispatch_workgroups(self, x: int, y: int = 1, z: int = 1) -> None:
        self.commands.append(["dispatch", x, y, z])

    def end(self) -> None:
        """End the pass; there is nothing to do."""

    def _add(self, command: str, one: _Remote, *arguments: int) -> None:
        self.kept.append(one)
        self.commands.append([command, one.number, *arguments])


class _RemoteEncoder:
    """An encoder, which is its own command buffer. It keeps its objects until it is dropped."""

    def __init__(self) -> None:
        self.commands: list[Any] = []
        self._kept: list[Any] = []

    def begin_compute_pass(self, timestamp_writes: Mapping[str, Any] | None = None) -> _RemotePass:
        queries = None
        if timestamp_writes is not None:
            ends = ("beginning_of_pass_write_index", "end_of_pass_write_index")
            queries = [timestamp_writes["query_set"].number, *(timestamp_writes[one] for one in ends)]
        begun = _RemotePass(timestamp_writes)
        self._kept.append(begun)
        self.commands.append(["pass", begun.commands, queries])
        return begun

    def copy_buffer_to_buffer(
        self, source: _RemoteBuffer, begin: int, target: _RemoteBuffer, at: int, size: int
    ) -> None:
        self._kept += [source, target]
        self.commands.append(["copy", source.number, begin, target.number, at, size])

    def resolve_query_set(
        self, queries: _Remote, first: int, count: int, buffer: _RemoteBuffer, at: int
    ) -> None:
        self._kept += [queries, buffer]
        self.commands.append(["resolve", queries.number, first, count, buffer.number, at])

    def finish(self) -> _RemoteEncoder:
        return self


class _RemoteDevice:
    """An engine's device, as wgpu-py's GPUDevice."""

    target = "browser"

    def __init__(self, connection: _Connection, features: frozenset[str], limits: Mapping[str, int]) -> None:
        self._connection, self.features, self.limits = connection, features, limits
        self.queue = _RemoteQueue(connection)

    def create_buffer(self, *, size: int, usage: int) -> _RemoteBuffer:
        return _RemoteBuffer(self._connection, self._connection.make("buffer", size, usage), size)

    def create_buffer_with_data(self, *, data: Any, usage: int) -> _RemoteBuffer:
        array = np.ascontiguousarray(data)
        buffer = self.create_buffer(size=array.nbytes, usage=usage | wgpu.BufferUsage.COPY_DST)
        self.queue.write_buffer(buffer, 0, array)
        return buffer

    def create_shader_module(self, *, code: str) -> _Remote:
        return self._checked("module", code)

    def create_bind_group_layout(self, *, entries: Sequence[Mapping[str, Any]]) -> _Remote:
        known = [[one["binding"], one["buffer"]["type"]] for one in entries]
        return self._made("layout", known)

    def create_pipeline_layout(
        self, *, bind_group_layouts: Sequence[_Remote], immediate_size: int = 0
    ) -> _Remote:
        numbers = [one.number for one in bind_group_layouts]
        return self._made("pipeline layout", numbers, immediate_size, kept=bind_group_layouts)

    def create_compute_pipeline(self, *, layout: _Remote, compute: Mapping[str, Any]) -> _Remote:
        numbers = layout.number, compute["module"].number
        return self._checked("pipeline", *numbers, compute["entry_point"], kept=(layout, compute["module"]))

    def create_bind_group(self, *, layout: _Remote, entries: Sequence[Mapping[str, Any]]) -> _Remote:
        parts = [(one["binding"], one["resource"]) for one in entries]
        known = [[at, part["buffer"].number, part["offset"], part["size"]] for at, part in parts]
        return self._made(
            "group", layout.number, known, kept=(layout, *(part["buffer"] for _, part in parts))
        )

    def create_query_set(self, *, type: str, count: int) -> _Remote:
        return self._made("queries", type, count)

    def create_command_encoder(self) -> _RemoteEncoder:
        return _RemoteEncoder()

    def _made(self, command: str, *arguments: Any, kept: Sequence[Any] = ()) -> _Remote:
        return _Remote(self._connection, self._connection.make(command, *arguments), *kept)

    def _checked(self, command: str, *arguments: Any, kept: Sequence[Any] = ()) -> _Remote:
        """Create an object and wait for the engine's verdict on it."""
        made = self._made(command, *arguments, kept=kept)
        self._connection.send()
        return made
