"""A reader of protobuf's wire format that copies an ONNX model without the payload of its weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from mmap import mmap

from webnorm.errors import WebnormError, size_in_bytes

# Messages up to this size are copied as they are: most nodes, constants such as eps and shapes, and weights
# of norms, which some exporters fill with ones for a norm without a weight.
SMALL_BYTES = 1 << 16
# Longer texts and lists of numbers are not needed: caches of compilers, trees, stack traces.
_LONGEST_LEAF = SMALL_BYTES
# Limits of what is kept, and of the work. A model of 100 000 nodes has about a million fields.
_MOST_KEPT = 256 << 20
_MOST_FIELDS = 5_000_000
_DEEPEST = 32

# The messages of onnx.proto inside each other: field numbers, and the kind of message. Other fields are
# copied.
_INNER: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {
        5: "tensor",
        6: "graph",
        10: "tensor",
        11: "graph",
        22: "sparse tensor",
        23: "sparse tensor",
    },
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
# Texts that explain, data for training, and the elements of tensors.
_LEFT_OUT: Mapping[str, frozenset[int]] = {
    "model": frozenset({6, 14, 20}),
    "graph": frozenset({10, 16}),
    "function": frozenset({8, 14}),
    "node": frozenset({6, 9}),
    "attribute": frozenset({13}),
    "sparse tensor": frozenset(),
    "tensor": frozenset({4, 5, 6, 7, 9, 10, 11, 12, 16}),
}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}


@dataclass(frozen=True)
class _Field:
    """A field of a message: its number, its place with the tag, and the place of its value."""

    number: int
    wire_type: int
    start: int
    value: int
    end: int


@dataclass
class _Copier:
    data: bytes | mmap
    name: str
    kept: int = 0
    fields_read: int = field(default=0)

    def error(self, position: int, reason: str) -> WebnormError:
        return WebnormError(f"{self.name}: no valid ONNX model: byte {position}: {reason}")

    def varint(self, position: int, end: int) -> tuple[int, int]:
        """Return a number of 64 bits at most, and the position behind it."""
        value = shift = 0
        for at in range(position, min(end, position + 10)):
            byte = self.data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at + 1
            shift += 7
        reason = "the message ends within a number" if position + 10 > end else "a number has too many bytes"
        raise self.error(position, reason)

    def fields(self, start: int, end: int) -> Iterator[_Field]:
        position = start
        while position < end:
            self.fields_read += 1
            if self.fields_read > _MOST_FIELDS:
                raise self.error(position, f"the model has more than {_MOST_FIELDS} fields")
            tag, value = self.varint(position, end)
            number, wire_type = tag >> 3, tag & 7
            if number == 0:
                raise self.error(position, "a field has the number 0")
            if wire_type == _VARINT:
                _, behind = self.varint(value, end)
            elif wire_type == _BYTES:
                length, value = self.varint(value, end)
                behind = value + length
            elif wire_type in _SIZES:
                behind = value + _SIZES[wire_type]
            else:
                raise self.error(position, f"field {number} has the wire type {wire_type}")
            if behind > end:
                raise self.error(position, f"field {number} needs {behind - end} bytes more than there are")
            yield _Field(number, wire_type, position, value, behind)
            position = behind

    def copied(self, kind: str, start: int, end: int, depth: int = 0) -> bytes:
        """Return a message without the fields that a scan does not need."""
        if kind != "model" and end - start <= SMALL_BYTES:
            return bytes(self.data[start:end])
        if depth > _DEEPEST:
            raise self.error(start, f"messages are nested more than {_DEEPEST} deep")
        parts = []
        for one in self.fields(start, end):
            if one.number in _LEFT_OUT[kind]:
                continue
            inner = _INNER[kind].get(one.number)
            if inner is not None:
                if one.wire_type != _BYTES:
                    raise self.error(one.start, f"field {one.number} of a {kind} is no message")
                content = self.copied(inner, one.value, one.end, depth + 1)
                part = _varint_bytes(one.number << 3 | _BYTES) + _varint_bytes(len(content)) + content
            elif one.end - one.value > _LONGEST_LEAF:
                continue
            else:
                part = bytes(self.data[one.start : one.end])
            parts.append(part)
            self.kept += len(part) if inner is None or len(part) <= SMALL_BYTES else 0
            if self.kept > _MOST_KEPT:
                raise self.error(one.start, f"the graph alone has more than {size_in_bytes(_MOST_KEPT)}")
        return b"".join(parts)


def _varint_bytes(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def without_payload(data: bytes | mmap, name: str) -> bytes:
    """Return an ONNX model without the elements of large tensors; their names, types and shapes stay.

    Raises
    ------
    WebnormError
        The data are no protobuf message, or more than a scan reads. The message has the file and the byte.
    """
    return _Copier(data, name).copied("model", 0, len(data))
