"""What suits a GPU where nothing was recorded for it: constants and an order of kernels.

Measured on one NVIDIA H200, as `thresholds` says, which has the constants of `registers`. Other
GPUs are expected to differ, which is what `webnorm tune` is for. What a rule names is only taken where the
adapter can run it, so that constants need not know limits.
"""

from __future__ import annotations

from collections.abc import Iterator

from webnorm.choice import thresholds
from webnorm.choice.thresholds import Constants, Names


def constants(op: str, kernel: str, names: Names) -> Iterator[Constants]:
    """Constants for a kernel of an op, those to prefer first; `names` are the problem's and the adapter's.

    The first that the adapter can run is meant. None for kernels without a rule, and on software adapters,
    which follow the headers' defaults.
    """
    if names["software"]:
        return
    if kernel == "registers":
        fitting = thresholds.fitting(op, names)
        yield fitting[0]
        yield from _lesser(fitting[-1], op.endswith("_backward"))
    elif kernel == "split_row":
        yield from _split(op, names)
    elif kernel == "workgroup_cache":
        # 64x65536 float32: 17.9 us, with 8 Vecs in registers 18.9.
        yield {"threads_per_row": 1024, "held": 12}
        yield {"threads_per_row": 256, "held": 12}
    elif kernel == "streaming" and names["rows"] <= 256 and (op == "layer_norm" or names["itemsize"] == 2):
        # 16x262144: 2 to 4 % faster than 512 invocations, but 26.3 against 15.1 us in RMSNorm float32.
        yield {"threads_per_row": 1024}
    elif kernel == "one_dispatch":
        yield from _one_dispatch(names)


def _lesser(best: Constants, backward: bool) -> Iterator[Constants]:
    """The constants, then with less of what an adapter may lack.

    Workgroup memory for the sums of several rows; invocations: 256 are what a page has.
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
                    # As many rows at a time as before.
                    scaled = best["groups"] * best["rows_per_workgroup"] // together
                    found["groups"] = min(scaled, 1056)
                yield found


def _split(op: str, names: Names) -> Iterator[Constants]:
    if not op.endswith("_backward"):
        # 64x65536 float32: 16 Vecs an invocation take 1.2 times as long; many rows of 65536: 63 %. float16 in
        # us, with two Vecs, four, and four of which one access fetches two: 14.5, 13.8, 13.3 at 16x262144,
        # 14.1, 13.5, 13.0 at 32x131072.
        narrow = names["itemsize"] == 2
        usual = {"threads_per_row": 256, "part_steps": 4 if narrow or names["rows"] > 256 else 2}
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
            "groups": 4 if names["rows"] > 32 else 1,
            "row_batch": 4,
        }


def _one_dispatch(names: Names) -> Iterator[Constants]:
    # LayerNorm float32 in us, and `registers`: 256x1024 5.1, 8.3; 1024x1024 8.4, 10.8; 512x2048 8.1, 12.0;
    # 512x512 5.6, 15.4; 128x768 4.0, 6.9. The best of 30 others is at most 2 % faster, in RMSNorm 10 %. With
    # one row to a workgroup and 16 chunks 256x1024 takes 19.
    cols = names["cols"]
    least, chunks = (32, 2) if cols <= 128 else (64, 2) if cols <= 768 else (128, 4)
    # 64x4096: 7.6 us, with four rows to a workgroup 15.
    rows = 4 if names["rows"] >= 128 else 1
    for threads in (one for one in (32, 64, 128, 256) if one >= least):
        # A page has 256 invocations; 128 are for an adapter that has fewer.
        for invocations in (512, 256, 128):
            yield {
                "threads_per_row": threads,
                "rows_per_workgroup": max(1, min(rows, invocations // threads)),
                "column_chunks": chunks,
                "batch": 4,
            }


def _before_all_gradients(names: Names) -> tuple[str, ...]:
    """At 4096x256 few workgroups walk down many rows: 14.8 us, `registers` 12.4; at 2048x512 10.5 and 10.8.
    Not measured under a cap.
    """
    few = names["rows"] <= 2048 and names["rows"] * names["cols"] <= thresholds.FEW_ELEMENTS
    return ("one_dispatch",) if few and names["saved_stats"] and not names["capped"] else ()


def order(op: str, names: Names) -> tuple[str, ...]:
    """Kernels of an op to be tried before all others, the best first."""
    if names["software"]:
        return _on_software(op, names)
    if op.endswith("_backward"):
        return (*_before_all_gradients(names), *_gradients(op, names))
    if (op, names["itemsize"]) not in _FIRST:
        return ()
    odd = names["cols"] % 4 != 0
    filling = _forward_odd(names) if odd else _forward(op, names)
    best = _SPLIT if _leaves_idle(op, names) else filling
    return tuple(dict.fromkeys((best, _SPLIT if odd else _CACHE, "streaming")))


def _on_software(op: str, names: Names) -> tuple[str, ...]:
    """A processor has no use for what shares a row out; where it has subgroups, they are its vector unit."""
    if op.endswith("_backward"):
        alone = names["span"] > 2048 and not names["has_subgroups"]
        return ("naive", _REGISTERS) if alone else (_REGISTERS, "tiles")
    alone = not names["has_subgroups"] or not 128 < names["span"] <= 32768
    return ("streaming", _REGISTERS) if alone else (_REGISTERS, "streaming")


_REGISTERS, _CACHE, _SPLIT = "registers", "workgroup_cache", "split_row"
# Up to how many columns which kernel is first where rows are enough to fill a card; beyond, split_row is.
_FIRST = {
    ("layer_norm", 4): ((12288, _REGISTERS), (28672, _CACHE), (40960, _REGISTERS), (65536, _CACHE)),
    ("layer_norm", 2): ((18432, _REGISTERS), (24576, _CACHE), (65536, _REGISTERS)),
    ("rms_norm", 4): ((16384, _REGISTERS), (24576, _CACHE), (40960, _REGISTERS), (65536, _CACHE)),
    ("rms_norm", 2): ((65536, _REGISTERS),),
}


def _forward(op: str, names: Names) -> str:
    rows, cols = names["rows"], names["cols"]
    page = names["max_invocations"] < 1024
    if cols <= 16384 and (page or rows > 128):
        return _REGISTERS
    if page:
        # Its 256 invocations hold 20480 columns of float16, fewer of float32. Beyond, a kernel that has a
        # workgroup for each row takes 1.03 to 13 times as long.
        return _CACHE if cols <= 20480 and rows > 512 else _SPLIT
    return next((kernel for most, kernel in _FIRST[op, names["itemsize"]] if cols <= most), _SPLIT)


def _forward_odd(names: Names) -> str:
    """For rows that do not begin at a multiple of four columns: float32 is read one column at a time."""
    rows, cols = names["rows"], names["cols"]
    one_by_one = names["itemsize"] == 4 and (cols > 32768 or (cols > 16384 and rows <= 32))
    return _SPLIT if one_by_one else _REGISTERS


def _leaves_idle(op: str, names: Names) -> bool:
    """Whether rows are so few and long that a workgroup for each leaves most of the card idle.

    In us, split_row, workgroup_cache and streaming in LayerNorm float32: 9.2, 38, 46 at 8x131072; 18, 39, 47
    at 32x131072; 17, 20, 27 at 64x65536; 18, 81, 87 at 16x262144.
    """
    start = (98304 if op == "rms_norm" else 65536) // names["itemsize"]
    return 512 * names["rows"] <= names["cols"] - start


def _gradients(op: str, names: Names) -> tuple[str, ...]:
    rows, cols = names["rows"], names["cols"]
    # Past what a workgroup holds the sums of, tiles has a workgroup for each row and needs many. In us, tiles
    # and split_row in LayerNorm: 66 and 58 at 256x32768 float32, 102 and 99 at 512x32768 (registers 370), 224
    # and 181 at 512x131072 float16.
    long = (_SPLIT, "tiles") if rows <= max(256, cols // 64) else ("tiles", _SPLIT)
    held = 20480 if op == "rms_norm_backward" and rows > 32 else 16384
    return (*long, _REGISTERS) if cols > held else (_REGISTERS, *long)
