"""Constants of `registers` by numbers of columns, each row with what was measured on one NVIDIA H200.

x of 256 MiB unless said otherwise, in per cent of the copy of the same run, which was that of the search
for constants: bench/results/h200.md has the chosen ones beside others. `rules` says when a row is
taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Names = Mapping[str, int]
Constants = Mapping[str, int]


class Upto(NamedTuple):
    """Constants for rows of at most so many columns, and what they reached where they were measured.

    Their values stand in the order of `_REGISTERS` or `_GRADIENT`; those left out are 0. `otherwise` is for
    an adapter or a problem that the first does not fit.
    """

    cols: int
    constants: tuple[int, ...]
    percent: str
    otherwise: tuple[int, ...] = ()


_REGISTERS = ("threads_per_row", "rows_per_workgroup", "vector_width", "parameters_first", "parked")
_GRADIENT = (*_REGISTERS[:2], "groups", "vector_width", "prefetch", "reread", "parked_weight")
_ANY = 2**32


def _with(table: tuple[Upto, ...], *rows: Upto) -> tuple[Upto, ...]:
    """The table with rows added, or put in the place of those for as many columns."""
    merged = {row.cols: row for row in (*table, *rows)}
    return tuple(merged[cols] for cols in sorted(merged))


# Weight and bias asked for before the first sum hide their latency, as long as there are registers for
# them: 99.7 against 98.9 % at 1024 columns, 98.2 against 96.1 % at 8192, but 88 against 93 % at 16384.
_FORWARD_4_BYTES = (
    Upto(128, (16, 8, 4, 0), "not measured: two Vecs an invocation"),
    Upto(256, (32, 4, 4, 0), "99.0"),
    Upto(768, (64, 1, 4, 1), "99.5"),
    Upto(1024, (128, 1, 4, 1), "99.7"),
    Upto(2048, (256, 1, 4, 1), "98.5"),
    Upto(4096, (512, 1, 4, 0), "98.3; 256 invocations: 97.7", (256, 1, 4, 1)),
    Upto(6144, (256, 1, 4, 1), "99.0 at 5120"),
    Upto(8192, (512, 1, 4, 1), "98.2; 256 invocations, all that a page has: 97.7"),
    Upto(24576, (512, 1, 4, 0), "93.2 at 16384; at 20480 89.7 with parameters_first"),
    Upto(_ANY, (1024, 1, 4, 0), "80.8 at 32768, 67.4 at 49152"),
)
# Two rows a workgroup halve the bytes of the parameters.
_RMS_4_BYTES = _with(
    _FORWARD_4_BYTES,
    Upto(2048, (256, 2, 4, 1), "97.4; one row: 96.9"),
    Upto(4096, (512, 2, 4, 1), "98.9; one row: 97.4", (256, 1, 4, 1)),
    Upto(5120, (640, 1, 4, 0), "98.4; 256 invocations: 97.7", (256, 1, 4, 1)),
    Upto(8192, (512, 1, 4, 1, 2), "98.9; without parking 98.5", (512, 1, 4, 1)),
)
# With a residual there are two rows to read and two to write, which hides more.
_RESIDUAL_4_BYTES = _with(
    _FORWARD_4_BYTES,
    Upto(4096, (512, 1, 4, 1), "98.7; without parameters_first 97.5", (256, 1, 4, 1)),
    Upto(8192, (1024, 1, 4, 0), "97.2; 512 invocations: 95", (512, 1, 4, 1)),
)
# Half the bytes leave half the time for arithmetic, so that an access of 16 bytes and fewer invocations,
# which decode and decide less, win nearly everywhere. Where half of the row or so is parked in workgroup
# memory there are registers for parameters_first, and for more workgroups.
_FORWARD_2_BYTES = (
    Upto(128, (16, 8, 8, 0), "not measured: one access an invocation"),
    Upto(256, (16, 4, 8, 1), "99.0; width 4: 97.6"),
    Upto(768, (32, 1, 8, 1), "98.8; width 4: 97.6 in a run of its own"),
    Upto(1024, (64, 1, 8, 0, 2), "98.8; 32 invocations without parking: 98.4", (64, 1, 8, 0)),
    Upto(2048, (64, 1, 8, 1, 4), "99.1; without parking 98.0", (128, 1, 4, 0)),
    Upto(3072, (128, 1, 8, 0), "98.8"),
    Upto(4096, (128, 1, 8, 1, 4), "98.3; without parking 96.9", (256, 1, 4, 0)),
    Upto(5120, (160, 1, 8, 0), "97.5; 128 invocations: 96.9", (128, 1, 8, 0)),
    Upto(8192, (256, 1, 8, 0), "98.0 at 6144, 96.0 at 8192; width 4: 93.4"),
    Upto(12288, (512, 1, 8, 0), "93.9"),
    Upto(16384, (256, 1, 8, 1, 10), "90.0; without parking 84.8", (512, 1, 4, 0)),
    Upto(32768, (512, 1, 4, 0), "not measured: 84.8 at 16384"),
    Upto(_ANY, (1024, 1, 4, 0, 4), "64x65536: 7 % faster than workgroup_cache", (1024, 1, 4, 0)),
)
_RESIDUAL_2_BYTES = _with(
    _FORWARD_2_BYTES, Upto(8192, (512, 1, 8, 1), "95.2; 256 invocations: 94", (256, 1, 8, 0))
)
# Without a bias there are registers for the weight in rows of any length.
_RMS_2_BYTES = (
    *_FORWARD_2_BYTES[:3],
    Upto(1024, (64, 1, 8, 1), "99.6"),
    Upto(2048, (128, 1, 8, 1), "99.7"),
    Upto(4096, (256, 1, 4, 1), "98.8"),
    Upto(6144, (256, 1, 8, 1), "98.6 at 5120"),
    Upto(8192, (256, 2, 8, 1), "98.2; one row: 96.8"),
    Upto(32768, (1024, 1, 8, 1, 2), "98.5 at 16384; 512: 97.9", (512, 1, 8, 1)),
    Upto(_ANY, (1024, 1, 8, 0, 4), "64x65536: 12 % faster than workgroup_cache", (1024, 1, 8, 0)),
)
# Rounding to bfloat16 takes six operations where float16 takes half of one, so that arithmetic decides: fewer
# invocations, which decide and reduce less.
_BFLOAT16 = (
    _FORWARD_2_BYTES[0],
    Upto(256, (4, 8, 8, 1), "93.4; 8 invocations: 92.0", (8, 8, 8, 1)),
    Upto(768, (16, 2, 8, 0), "93.9; 32 invocations: 87.5"),
    Upto(1024, (16, 2, 8, 1), "93.9; 32 invocations: 90.9"),
    Upto(2048, (32, 1, 8, 1), "94.2; width 4: 93.4"),
    Upto(6144, (128, 1, 8, 0), "92.8 at 4096, 92.0 at 5120; 64 invocations: 90.0 at 4096"),
    Upto(8192, (256, 1, 8, 0), "88.9; 128 invocations: 87.6"),
    Upto(16384, (512, 1, 8, 0), "78; 256, half of the row parked: 74.6; at 12288 10 % slower"),
    _FORWARD_2_BYTES[-1],
)
_RMS_BFLOAT16 = _with(
    _RMS_2_BYTES,
    Upto(768, (32, 2, 8, 0), "99.3; one row: 95.1"),
    Upto(1024, (64, 1, 8, 0), "98.5; with parameters_first 94.2"),
    Upto(2048, (64, 1, 8, 1), "97.9; 128 invocations: 92.3"),
    Upto(4096, (128, 1, 8, 1), "97.2; 256 invocations: 87.9"),
    Upto(5120, (160, 1, 8, 0), "98.0; 256 invocations: 91.8", (128, 1, 8, 1)),
    Upto(8192, (256, 1, 8, 1, 4), "96.7; without parking 95.9", (256, 1, 8, 1)),
    Upto(16384, (256, 1, 8, 0, 4), "92.7; 1024 invocations: 84.6", (512, 1, 8, 1)),
)
# Rows that start anywhere, in per cent of a copy of an even size. float32: neighbouring invocations take
# neighbouring columns, 96 % at 1023 columns, where whole chunks that are stored column by column reach 83 %.
_ODD_4_BYTES = (
    Upto(1024, (64, 1, 1, 1), "96"),
    Upto(4096, (256, 1, 1, 1), "90 at 4095"),
    Upto(_ANY, (512, 1, 1, 0), "90 at 5119"),
)
_RMS_ODD_4_BYTES = _with(
    _ODD_4_BYTES, Upto(8192, (256, 1, 1, 1), "5 % faster than the above at 5119, 11 % at 7681")
)
# float16: words, two rows to a workgroup that exchange the halves they share; with atomics on shared words
# 51 % at 4095 columns.
_ODD_2_BYTES = (
    Upto(1024, (32, 2, 2, 0), "83 at 1023"),
    Upto(5120, (128, 2, 2, 0), "73 at 4095, 67 at 5119; 256 invocations at 5119: 60"),
    Upto(_ANY, (256, 2, 2, 0), "7681: 512 invocations 45 % slower"),
)
# As many workgroups as keep a multiprocessor's registers full, and no more: each writes a record of sums.
_BACKWARD_4_BYTES = (
    Upto(256, (64, 8, 264, 4, 1), "97.1; 32 invocations: 95.1"),
    Upto(768, (32, 4, 264, 4, 0), "96.0; with prefetch 95.5"),
    Upto(1024, (64, 4, 264, 4, 0), "94.6"),
    Upto(2048, (128, 4, 132, 4, 1), "94.8"),
    Upto(4096, (512, 1, 264, 4, 0), "95.0; 256: 93.9", (256, 2, 132, 4, 0)),
    Upto(5120, (640, 1, 132, 4, 1), "97.3; 256: 96.6", (256, 1, 132, 4, 1)),
    Upto(6144, (256, 1, 132, 4, 1), "96.3 at 5120; without prefetch 81.9"),
    Upto(8192, (512, 1, 132, 4, 0, 0, 1), "94.6; weight in registers: 93.8", (512, 1, 132, 4, 0)),
    Upto(_ANY, (1024, 1, 132, 4, 0, 1), "73.5 at 16384; in registers, which are too few: 66.4"),
)
# Fetching the next row while this one is worked on matters most here: 90 against 78 % at 1024 columns. With
# the weight parked in workgroup memory there are registers for it; the second per cent are without.
_BACKWARD_2_BYTES = (
    Upto(256, (32, 8, 528, 8, 1), "91.8"),
    Upto(768, (32, 4, 396, 8, 1, 0, 1), "93.7; 91.6; 264 groups: 79", (32, 4, 396, 8, 1)),
    Upto(1024, (64, 4, 264, 4, 1), "93.5"),
    Upto(2048, (128, 4, 132, 4, 1, 0, 1), "93.1; 91.6", (128, 4, 132, 8, 1)),
    Upto(4096, (256, 2, 132, 8, 1), "91.8"),
    Upto(6144, (256, 1, 264, 4, 0, 0, 1), "82.6 at 5120; 81.8", (256, 1, 264, 4, 0)),
    Upto(8192, (256, 1, 132, 8, 1, 0, 1), "88.8; 86.4", (512, 1, 132, 8, 1)),
    Upto(16384, (512, 1, 132, 4, 1, 1), "71; 1024: 58", (1024, 1, 132, 8, 0, 1)),
    Upto(_ANY, (1024, 1, 132, 8, 0, 1), "58 at 16384"),
)
# Without the sums of a bias there are registers for more.
_RMS_BACKWARD_4_BYTES = _with(
    _BACKWARD_4_BYTES,
    Upto(256, (32, 8, 264, 4, 1), "95.5; 64 invocations: 82.3"),
    Upto(1024, (128, 4, 264, 4, 0), "95.3; 64 invocations: 94.1"),
    Upto(4096, (256, 2, 132, 4, 0), "95.6; 512 invocations: 92.9"),
    Upto(_ANY, (1024, 1, 132, 4, 1, 1), "84.8 at 16384; without prefetch 77.1"),
)
_RMS_BACKWARD_2_BYTES = _with(
    _BACKWARD_2_BYTES,
    Upto(2048, (256, 2, 264, 8, 1), "96.0; 128 invocations with 4 rows: 78.5"),
    Upto(5120, (320, 1, 264, 8, 1, 0, 1), "95.3; 256: 87.1", (256, 1, 264, 4, 0)),
    Upto(8192, (512, 1, 132, 8, 1, 0, 1), "93.4; 256: 92.6", (512, 1, 132, 8, 1)),
    Upto(16384, (512, 1, 132, 4, 0, 0, 1), "88.3; read again 68.6", (1024, 1, 132, 8, 0)),
)
# Few elements in rows that were measured, where `one_dispatch` cannot be taken: more invocations each.
FEW_ELEMENTS = 1 << 20
_BACKWARD_FEW = (
    Upto(256, (32, 4, 264, 4, 0), "4096x256: 12.4 us, with 132 groups 13.8"),
    Upto(2048, (128, 4, 132, 4, 1), "1024x1024: 10 % faster than without prefetch"),
    Upto(
        4096, (128, 1, 264, 4, 1), "64x4096: 13.1 us, with four rows to a workgroup 36.4", (256, 1, 264, 4, 1)
    ),
)


def fitting(op: str, names: Names) -> list[Constants]:
    """Constants for a problem, and behind them those for what the first do not fit, where they are known.

    `names` are the problem's own and the adapter's.
    """
    row = next(row for row in _table(op, names) if names["cols"] <= row.cols)
    axes = _GRADIENT if op.endswith("_backward") else _REGISTERS
    given = (row.constants, row.otherwise) if row.otherwise else (row.constants,)
    padded = [(*values, *[0] * (len(axes) - len(values))) for values in given]
    return [dict(zip(axes, values, strict=True)) for values in padded]


def _table(op: str, names: Names) -> tuple[Upto, ...]:
    narrow, rms = names["itemsize"] == 2, op.startswith("rms_norm")
    if op.endswith("_backward"):
        if names["rows"] * names["cols"] <= FEW_ELEMENTS and names["cols"] <= _BACKWARD_FEW[-1].cols:
            return _BACKWARD_FEW
        if rms:
            return _RMS_BACKWARD_2_BYTES if narrow else _RMS_BACKWARD_4_BYTES
        return _BACKWARD_2_BYTES if narrow else _BACKWARD_4_BYTES
    if names["cols"] % 4 and not (narrow and names["out_itemsize"] == 1):
        if narrow:
            return _ODD_2_BYTES
        return _RMS_ODD_4_BYTES if rms else _ODD_4_BYTES
    if narrow and not names["is_float16"]:
        return _RMS_BFLOAT16 if rms else _BFLOAT16
    if rms:
        return _RMS_2_BYTES if narrow else _RMS_4_BYTES
    if names["has_residual"]:
        return _RESIDUAL_2_BYTES if narrow else _RESIDUAL_4_BYTES
    return _FORWARD_2_BYTES if narrow else _FORWARD_4_BYTES
