"""The rules for adapters without a recorded tuning: kernels, the best first, and their constants.

For GPUs they follow from measurements on one NVIDIA H200 (`measured`), and from the rules here, which state
their measurements. Other GPUs may differ: `webnorm tune` is for them. A suggestion is used only if the
adapter can run it, so this module does not check limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from webnorm.ops.norms.measured import ONE_DISPATCH, MeasuredVariant, ranked

Names = Mapping[str, int]
Constants = Mapping[str, int]


class Suggestion(NamedTuple):
    """A kernel and its constants; None for the kernel's own choice."""

    kernel: str
    constants: Constants | None = None


def suggestions(op: str, names: Names) -> Iterator[Suggestion]:
    """Yield kernels to try before all others, the best first.

    `names` are the names of the problem and the adapter.
    """
    if names["software"]:
        yield from map(Suggestion, _on_software(op, names))
        return
    yield from map(Suggestion, _before_all(op, names))
    for variant in _measured(op, names):
        yield Suggestion(variant.kernel, _constants(variant.constants, names))
    yield from map(Suggestion, _behind_all(op, names))


def constants(op: str, kernel: str, names: Names) -> Iterator[Constants]:
    """Yield constants for a kernel, in order of preference. The first that the adapter can run are used.

    Software adapters get none, and use the defaults of the headers.
    """
    if names["software"]:
        return
    best: Constants | None = None
    known = ranked(op, names, ONE_DISPATCH) if kernel == ONE_DISPATCH else _measured(op, names)
    for variant in known:
        if variant.kernel == kernel:
            found = _constants(variant.constants, names)
            best = best or found
            yield found
    if kernel == _REGISTERS and best is not None:
        yield from _lesser(best, op.endswith("_backward"))
    elif kernel == _REGISTERS:
        yield from _long_row(op, names)
    elif kernel == _SPLIT:
        yield from _split(op, names)
    elif kernel == _CACHE:
        # 64x65536 float32: 17.9 us, with 8 Vecs in registers 18.9.
        yield {"threads_per_row": 1024, "held": 12}
        yield {"threads_per_row": 256, "held": 12}
    elif kernel == "streaming" and names["rows"] <= 256 and (op == "layer_norm" or names["itemsize"] == 2):
        # 16x262144: 2 to 4 % faster than 512 invocations, but 26.3 against 15.1 us in RMSNorm float32.
        yield {"threads_per_row": 1024}
    elif kernel == ONE_DISPATCH:
        yield from _one_dispatch(names)
    elif kernel == _TWO_DISPATCH:
        yield from _two_dispatch(op, names)


def _measured(op: str, names: Names) -> Iterator[MeasuredVariant]:
    """Yield measured variants, the best first.

    Measurements of kernels that split a row, which are for long rows, do not apply to short ones.
    """
    for variant in ranked(op, names):
        if variant.kernel == _REGISTERS or names["cols"] > LONG_COLS:
            yield variant


def _constants(measured: tuple[tuple[str, int], ...], names: Names) -> Constants:
    """Return constants as they were measured, with subgroups if the adapter has them."""
    found = dict(measured)
    if "subgroups" in found:
        found["subgroups"] = names["has_subgroups"]
    return found


def _lesser(best: Constants, backward: bool) -> Iterator[Constants]:
    """Yield the constants, then variants for adapters with lower limits.

    They need less workgroup memory for the sums of several rows, and fewer invocations: a page has 256.
    """
    widths = dict.fromkeys((best["vector_width"], 4))
    rows = [count for count in (8, 4, 2, 1) if count <= best["rows_per_workgroup"]]
    most = best["threads_per_row"]
    threads = [most, *(count for count in (512, 256, 128, 64, 32, 16) if count < most)]
    for width in widths:
        for count in threads:
            for together in rows:
                found = {
                    **best,
                    "vector_width": width,
                    "threads_per_row": count,
                    "rows_per_workgroup": together,
                }
                if backward and together < best["rows_per_workgroup"]:
                    # The number of rows at a time stays the same.
                    scaled = best["groups"] * best["rows_per_workgroup"] // together
                    found["groups"] = min(scaled, 1056)
                yield found


def _long_row(op: str, names: Names) -> Iterator[Constants]:
    """Yield constants for rows with more columns than the measured ones, which do not fit in registers."""
    if op.endswith("_backward"):
        yield {"threads_per_row": 1024, "reread": 1}
    elif names["itemsize"] == 2:
        # 64x65536: 7 % faster than workgroup_cache, in RMSNorm 12.
        yield {"threads_per_row": 1024, "vector_width": 4 if op == "layer_norm" else 8, "parked": 4}


def _split(op: str, names: Names) -> Iterator[Constants]:
    if not op.endswith("_backward"):
        # 64x65536 float32: 16 Vecs an invocation take 1.2 times as long; many rows of 65536: 63 %. float16 in
        # us, with two Vecs, four, and four in pairs per access: 14.5, 13.8, 13.3 at 16x262144, 14.1, 13.5,
        # 13.0 at 32x131072; but 8.1 with two and 8.7 with four at 8x131072, which has few parts.
        narrow = names["itemsize"] == 2
        more = names["rows"] > 256 or (narrow and names["rows"] * names["cols"] > 1 << 20)
        usual = {"threads_per_row": 256, "part_steps": 4 if more else 2}
        if narrow:
            yield {**usual, "vector_width": 8}
        yield usual
    else:
        # Four rows' loads together: 64x65536 float32 34.0 us (36.9 one by one), float16 25.0 us (27.7);
        # 16x262144 46.0 us (49.5) and 36.1 us (39.0).
        yield {
            "threads_per_row": 256,
            "part_steps": 2 if names["itemsize"] == 2 else 1,
            "column_threads": 64,
            # 16x32768 LayerNorm bfloat16 17.6 us with 8 groups; 16x262144 RMSNorm 31.5 with 2, 38.0 with 16.
            # 8 and not 16 at 64x65536, 2 and not 1 at 32x131072: 2.1 to 5.4 % faster in both ops, float32 and
            # float16.
            "groups": 8 if names["rows"] > 32 or names["cols"] <= 32768 else 2 if names["rows"] > 16 else 1,
            "row_batch": 4,
        }


def _one_dispatch(names: Names) -> Iterator[Constants]:
    # Over the 295 problems behind these rules, the best of up to 64 constants is 2.8 % faster on average.
    rows, cols = names["rows"], names["cols"]
    chunks = 2 if cols <= 800 else 4 if cols <= 2100 else 8 if cols < 8192 or rows > 400 else 16
    if cols > 3200:
        most, together = 256, 2 if rows >= 128 and cols <= 4200 else 1
    else:
        most, together = 128, 4 if rows >= 384 else 2 if rows >= 128 else 1
    # Adapters with fewer invocations than a page still run one row at a time.
    for threads in (one for one in (256, 128, 64, 32) if one <= most):
        yield from _together(threads, together, {"column_chunks": chunks, "batch": 4})


def _two_dispatch(op: str, names: Names) -> Iterator[Constants]:
    # The first dispatch gets 128 to 512 workgroups. Over the 46 problems with more than 34000 columns behind
    # these rules, the best of 20 to 106 constants is 1.2 % faster on average.
    rows, cols = names["rows"], names["cols"]
    batch = 2 if op == "layer_norm_backward" else 4
    if rows <= 8:
        together = max(1, min(rows, 8 // batch))
        threads = 256 // together
    elif cols > 65536:
        threads, together = 128, 2 if cols > 131072 else 4
    else:
        threads = 16 if cols <= 24576 else 32
        together = 16 if threads == 16 or (rows >= 256 and cols <= 32768) else 8
    steps = 4 if rows >= 64 and cols <= 65536 else 2
    yield from _together(threads, together, {"batch": batch, "block_steps": steps})


def _together(threads: int, most_rows: int, others: Constants) -> Iterator[Constants]:
    """Yield constants with several rows in a workgroup, then with fewer: a page has 256 invocations."""
    for invocations in (512, 256, 128):
        rows = max(1, min(most_rows, invocations // threads))
        yield {"threads_per_row": threads, "rows_per_workgroup": rows, **others}


def _before_all(op: str, names: Names) -> Iterator[str]:
    """Yield the kernels that precede the measured ones.

    They are for few rows, which leave a card idle, for problems in which two dispatches cost more than a
    second read, and for pages, which have lower limits than the card.
    """
    if op.endswith("_backward"):
        # It was not measured with a cap.
        if _few_elements(names) and names["saved_stats"] and not names["capped"]:
            yield ONE_DISPATCH
        rows, cols = names["rows"], names["cols"]
        if cols > max(16384, 128 * rows):
            # In us, two_dispatch and split_row in LayerNorm float32: 9.6 and 17.7 at 16x32768, 8.2 and 30.3
            # at 1x262144, 28.1 and 38.8 at 64x65536, 98.5 and 106 at 256x65536. float16: 73.9 and 81.3 at
            # 64x262144, but 74.0 and 64.1 at 256x65536.
            if rows <= 64 or names["itemsize"] == 4 or rows * cols <= 1 << 23:
                yield _TWO_DISPATCH
            # In us, split_row and `registers`: 16.0 and 20.1 at 16x32768 in RMSNorm of two bytes, 20.7 and
            # 22.7 at 64x20480 in LayerNorm float32.
            yield _SPLIT
    elif _leaves_idle(op, names):
        yield _SPLIT
    elif names["max_invocations"] < 1024 and names["cols"] > _PAGE_COLS:
        # 256 invocations store up to 20480 columns of float16. Beyond that, a kernel with one workgroup per
        # row takes 1.03 to 13 times as long.
        yield _CACHE if names["cols"] <= 20480 and names["rows"] > 512 else _SPLIT


def _few_elements(names: Names) -> bool:
    """Return True if a gradient is so small that a dispatch costs more than a second read.

    In percent of a copy, one_dispatch and `registers`: 2048x1024 69 to 86 and 66; 256x4096 98 and 59; 64x8192
    102 and 74; 4096x256 65 and 50. But at 4096x128, where few workgroups walk down many rows: 47 and 57. With
    more elements in us, float16: 13.7 and 19.7 at 512x8192, 11.8 and 12.8 at 3000x768, 23.5 and 27.4 at
    1024x8192, but 18.3 and 17.4 at 8192x512 and 24.0 and 21.9 at 4096x2048; float32 40.2 and 35.1 at
    1024x8192.
    """
    rows, cols = names["rows"], names["cols"]
    elements = rows * cols
    if elements <= 1 << 21:
        return rows <= 16 * cols
    if elements <= 1 << 22:
        return rows <= 4 * cols
    return elements * names["itemsize"] <= 1 << 24 and 2 * rows <= cols


def _behind_all(op: str, names: Names) -> tuple[str, ...]:
    """Return the kernels for problems without measurements, or for which the measured variants cannot run."""
    rows, cols = names["rows"], names["cols"]
    if op.endswith("_backward"):
        # If a workgroup cannot store the sums, tiles uses one workgroup per row, and so needs many rows. In
        # us, tiles and split_row in LayerNorm: 66 and 58 at 256x32768 float32, 102 and 99 at 512x32768
        # (registers 370), 224 and 181 at 512x131072 float16.
        long = (_SPLIT, "tiles") if rows <= max(256, cols // 64) else ("tiles", _SPLIT)
        return (_REGISTERS, *long) if cols <= 16384 else (*long, _REGISTERS)
    if cols % 4:
        # Unaligned float32 rows are read one column at a time.
        return (_SPLIT, _REGISTERS) if names["itemsize"] == 4 and cols > 16384 else (_REGISTERS, _SPLIT)
    held = next((kernel for most, kernel in _FIRST[names["itemsize"]] if cols <= most), _SPLIT)
    return (held, _CACHE)


def _on_software(op: str, names: Names) -> tuple[str, ...]:
    """Return the kernels for a processor, which gains nothing from splitting a row.

    Its subgroups are vector units.
    """
    if op.endswith("_backward"):
        alone = names["span"] > 2048 and not names["has_subgroups"]
        return ("naive", _REGISTERS) if alone else (_REGISTERS, "tiles")
    alone = not names["has_subgroups"] or not 128 < names["span"] <= 32768
    return ("streaming", _REGISTERS) if alone else (_REGISTERS, "streaming")


_REGISTERS, _CACHE, _SPLIT, _TWO_DISPATCH = "registers", "workgroup_cache", "split_row", "two_dispatch"
# Columns that the 256 invocations of a page store in registers.
_PAGE_COLS = 16384
# Kernels other than `registers` were only measured with more columns.
LONG_COLS = 8192
# The first kernel up to each number of columns. float32 reaches 81 % of the copy at 32768, 67 at 49152.
_FIRST = {4: ((40960, _REGISTERS), (65536, _CACHE)), 2: ((65536, _REGISTERS),)}


def _leaves_idle(op: str, names: Names) -> bool:
    """Return True if rows are so few and long that one workgroup per row leaves most of the card idle.

    In us, split_row, workgroup_cache and streaming in LayerNorm float32: 9.2, 38, 46 at 8x131072; 18, 39, 47
    at 32x131072; 17, 20, 27 at 64x65536; 18, 81, 87 at 16x262144.
    """
    rows, cols, itemsize = names["rows"], names["cols"], names["itemsize"]
    if cols % 4 and itemsize == 4 and cols > 16384:
        # Rows that are read one column at a time are split sooner.
        return rows <= 32
    start = (98304 if op == "rms_norm" else 65536) // itemsize
    return 512 * rows <= cols - start
