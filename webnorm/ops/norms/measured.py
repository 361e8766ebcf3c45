"""A model of variants' speed, from measurements on one NVIDIA H200 at some numbers of columns.

LayerNorm's float16 gradient that computes its own statistics was measured on one H100.

The files in `sweeps` contain percentages of a copy, which `python -m bench.sweep.landscape` takes from a
sweep. Each op and storage type has entries (rows and columns) with the percentages of all variants that were
measured. A problem lies between entries. The model estimates how close a variant comes to the fastest from
the nearest entries, and corrects for the part of the last Vecs that lies past the row. docs/performance.md
explains each number, and shows how far the choices are from the best where nothing was measured.

This module does not know which variants can run. A variant's kernel decides that, for any adapter.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from webnorm.errors import WebnormError

Names = Mapping[str, int]

FOLDER = Path(__file__).with_name("sweeps")

# --- the model, chosen by leaving out one number of columns after the other (`bench.sweep.landscape`)

# A share falls with the part of an invocation's columns that belong to the row, but less than in proportion:
# accesses past the row are issued, but move no bytes.
_WASTE = 0.15
# The weight of an entry falls by a factor of e at this difference of columns (in logarithms). The bytes of x
# may differ more: waves of workgroups, and the time to fill and empty the card, change slowly.
_NEAR = 0.065
_NEAR_ODD = 0.15
_SIZE = 0.03
# The weight of an entry with another number of Vecs per invocation, since registers and loads in flight
# differ.
_OTHER_STEPS = 0.1
# The penalty for estimates from distant or few entries: _DOUBT divided by their weight plus _FAINT.
_DOUBT, _FAINT = 0.01, 0.05
_NEIGHBOURS = 6
# An x above the first size behaves like a larger one. An x below the second does not fill a card; it has
# separate entries, which are farther apart.
_LARGE_BYTES, FEW_BYTES = 256 << 20, 16 << 20
_NEAR_FEW, _ROWS_FEW = 0.25, 0.5
# Variants rank differently with a residual, or in a gradient that computes its statistics. Measurements of
# that kind reach three times as far, and the weights of others fall by e to the power of the second number.
_REACH_OWN, _APART_PLAIN = 3.0, 2.0
# Kinds of problems, by the names of their files.
PLAIN, RESIDUAL, OWN_STATS = "", "residual", "own_stats"
# A rule selects this kernel where it is the fastest, so its variants are compared only with each other.
ONE_DISPATCH = "one_dispatch"
# Rows with more columns do not fit in registers. Rules choose their kernels.
MOST_COLS = 34000


class MeasuredVariant(NamedTuple):
    """A variant of a kernel, by its constants."""

    kernel: str
    constants: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class SweepEntry:
    """A problem's rows and columns, and the results of variants on it, in any unit."""

    rows: int
    cols: int
    reached: Sequence[tuple[MeasuredVariant, float]]

    @cached_property
    def shares(self) -> Mapping[MeasuredVariant, float]:
        """The results as logarithms of shares of the fastest.

        A loss against the copy that all variants share, because of the size or the columns, does not affect
        their order elsewhere. The property is lazy, since a call reads few entries.
        """
        most = max(percent for _, percent in self.reached)
        return {variant: math.log(percent / most) for variant, percent in self.reached}


@dataclass(frozen=True)
class SweepLandscape:
    """The entries of an op and a storage type, their reach, and their distance from the problem's kind."""

    entries: Sequence[SweepEntry] = ()
    reach: float = 1.0
    apart: float = 0.0

    def of(self, kernel: str | None) -> SweepLandscape:
        """Return the part for the kernel `ONE_DISPATCH`, or for None the part for all other kernels."""
        is_one = kernel == ONE_DISPATCH
        parts = (
            replace(
                entry, reached=[one for one in entry.reached if (one[0].kernel == ONE_DISPATCH) == is_one]
            )
            for entry in self.entries
        )
        return replace(self, entries=[part for part in parts if part.reached])


class _File(msgspec.Struct):
    axes: dict[str, list[str]]
    variants: list[tuple[str, list[int]]]
    entries: list[tuple[int, int, list[int], list[int]]]


def ranked(op: str, names: Names, kernel: str | None = None) -> Sequence[MeasuredVariant]:
    """Return variants for a problem, the most promising first; none if nothing is known.

    `names` are the names of the problem and the adapter. `kernel` is `ONE_DISPATCH`, or None for all other
    kernels.
    """
    if names["cols"] > MOST_COLS:
        return ()
    # The order depends on these values only, and calls repeat them.
    kind = kind_of(op, bool(names["has_residual"]), bool(names["saved_stats"]))
    narrow = "float16" if names["is_float16"] else "bfloat16"
    dtype = "float32" if names["itemsize"] == 4 else narrow
    return _ranked(op, dtype, kind, kernel, names["rows"], names["cols"])


@lru_cache(maxsize=64)
def _ranked(
    op: str, dtype: str, kind: str, kernel: str | None, rows: int, cols: int
) -> tuple[MeasuredVariant, ...]:
    known = known_of(op, dtype, kind, kernel)
    shares = expected(known, rows, cols, 4 if dtype == "float32" else 2)
    return tuple(sorted(shares, key=lambda variant: -shares[variant]))


def kind_of(op: str, residual: bool, saved_stats: bool) -> str:
    """Return the kind of a problem that has separate data; empty for plain problems."""
    if op.endswith("_backward"):
        return PLAIN if saved_stats else OWN_STATS
    return RESIDUAL if residual else PLAIN


def file_name(op: str, dtype: str, kind: str) -> str:
    """Return the file name of an op, a storage type and a kind of problems, without its suffix."""
    return "-".join(filter(None, (op, dtype, kind)))


@lru_cache(maxsize=32)
def known_of(op: str, dtype: str, kind: str = PLAIN, kernel: str | None = None) -> Sequence[SweepLandscape]:
    """Return the landscapes for an op, a storage type, and a kernel as `ranked` takes it."""
    return known_from(lambda name: _landscape(FOLDER / f"{name}.json"), op, dtype, kind, kernel)


def known_from(
    read: Callable[[str], SweepLandscape], op: str, dtype: str, kind: str, kernel: str | None
) -> Sequence[SweepLandscape]:
    """Return the landscapes from other files: `read` takes a name that `file_name` returned."""
    plain = read(file_name(op, dtype, PLAIN)).of(kernel)
    own = read(file_name(op, dtype, kind)).of(kernel) if kind else SweepLandscape()
    return related_landscapes(plain, own) if own.entries else [plain]


def related_landscapes(plain: SweepLandscape, own: SweepLandscape) -> Sequence[SweepLandscape]:
    """Return the landscapes for a kind of problems with few measurements."""
    return [replace(own, reach=_REACH_OWN), replace(plain, apart=_APART_PLAIN)]


def _landscape(path: Path) -> SweepLandscape:
    """Return the landscape in a file; an empty one if the file does not exist."""
    if not path.exists():
        return SweepLandscape()
    try:
        return decode(path.read_bytes())
    except (OSError, ValueError, LookupError) as error:
        raise WebnormError(f"{path} is not what webnorm came with: {error}; install it again") from error


@cache
def measured_cols() -> frozenset[int]:
    """Return all numbers of columns in the files."""
    found = (_landscape(path) for path in FOLDER.glob("*.json"))
    return frozenset(entry.cols for known in found for entry in known.entries)


def decode(text: bytes | str) -> SweepLandscape:
    """Return a landscape from the text of a file; raise ValueError or LookupError for other text."""
    found = msgspec.json.decode(text, type=_File)
    variants = [
        MeasuredVariant(kernel, tuple(zip(found.axes[kernel], values, strict=True)))
        for kernel, values in found.variants
    ]
    return SweepLandscape(
        [
            SweepEntry(rows, cols, list(zip(map(variants.__getitem__, numbers), percents, strict=True)))
            for rows, cols, numbers, percents in found.entries
        ]
    )


def expected(
    known: Sequence[SweepLandscape], rows: int, cols: int, itemsize: int
) -> dict[MeasuredVariant, float]:
    """Return the expected speed of each variant near a problem.

    It is the logarithm of a share of the fastest.
    """
    weights: defaultdict[MeasuredVariant, float] = defaultdict(float)
    sums: defaultdict[MeasuredVariant, float] = defaultdict(float)
    for entry, nearness in _nearest(known, rows, cols, itemsize):
        for variant, share in entry.shares.items():
            there, here = row_fit(variant, entry.cols), row_fit(variant, cols)
            moved = share + _WASTE * math.log(there.waste / here.waste)
            weight = nearness * (1.0 if here.steps == there.steps else _OTHER_STEPS)
            weights[variant] += weight
            sums[variant] += weight * moved
    return {one: sums[one] / weight - _DOUBT / (weight + _FAINT) for one, weight in weights.items()}


def _nearest(
    known: Sequence[SweepLandscape], rows: int, cols: int, itemsize: int
) -> Iterator[tuple[SweepEntry, float]]:
    """Yield the entries that apply to a problem, and the weight of each: 1 for the problem itself."""

    def bytes_of(entry: SweepEntry) -> int:
        return entry.rows * entry.cols * itemsize

    size = max(rows * cols * itemsize, 1)
    odd = cols % 4 != 0
    for landscape in known:
        similar = [entry for entry in landscape.entries if (entry.cols % 4 != 0) == odd]
        few = [entry for entry in similar if bytes_of(entry) <= FEW_BYTES] if size <= FEW_BYTES else []
        chosen = few or [entry for entry in similar if bytes_of(entry) > FEW_BYTES]

        def distance(entry: SweepEntry, few: bool = bool(few)) -> float:
            along = abs(math.log(cols / entry.cols))
            if few:
                return (along + _ROWS_FEW * abs(math.log(max(rows, 1) / entry.rows))) / _NEAR_FEW
            sizes = abs(math.log(min(size, _LARGE_BYTES) / min(bytes_of(entry), _LARGE_BYTES)))
            return (along + _SIZE * sizes) / (_NEAR_ODD if odd else _NEAR)

        for entry in sorted(chosen, key=distance)[:_NEIGHBOURS]:
            yield entry, math.exp(-distance(entry) / landscape.reach - landscape.apart)


class RowFit(NamedTuple):
    """The Vecs of an invocation, and the ratio of columns in all of them to columns of the row."""

    steps: int
    waste: float


@lru_cache(maxsize=4096)
def row_fit(variant: MeasuredVariant, cols: int) -> RowFit:
    """Return the fit of a row in a variant's invocations.

    It is neutral for kernels that do not store the row.
    """
    constants = dict(variant.constants)
    if "vector_width" not in constants or "part_steps" in constants:
        return RowFit(0, 1.0)
    width, threads = constants["vector_width"], constants["threads_per_row"]
    if width == 8:
        steps, held = 2 * math.ceil(cols / (8 * threads)), 8 * math.ceil(cols / (8 * threads)) * threads
    else:
        # The vec4s, or words, of a row that is not aligned include columns of its neighbours.
        span = cols + width - 1 if cols % width else cols
        steps = math.ceil(span / (width * threads))
        held = width * steps * threads
    return RowFit(steps, held / cols)
