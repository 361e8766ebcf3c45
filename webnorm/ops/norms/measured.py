"""What variants reached on one NVIDIA H200, by numbers of columns, and what follows for those between.

LayerNorm's gradient of float16 that finds its statistics itself was timed on one H100.

The files beside this hold percents of a copy as `python -m bench.sweep.landscape` takes them from a sweep:
for each op and storage type, entries (rows and columns) with what each variant that was tried there reached.
A problem lies between entries; how near a variant would come to the fastest is read off the nearest of them,
moved by what its columns change: how much of the last Vecs lies past the row. docs/performance.md has the
reason for each number here, and how far choices are from the best where nothing was measured.

Nothing here says what may run: that is asked of a variant's kernel, for any adapter.
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

# A share falls with the part of an invocation's columns that is the row's, but less than in proportion: what
# lies past the row is issued, and moves no bytes.
_WASTE = 0.15
# How much an entry counts falls by e where columns differ by so much (in logarithms), or the bytes of x by
# more: waves of workgroups, and the time in which the card fills and empties, change slowly.
_NEAR = 0.065
_NEAR_ODD = 0.15
_SIZE = 0.03
# An entry in which the invocations had another number of Vecs tells less: registers, and loads on their way,
# are others.
_OTHER_STEPS = 0.1
# What is known from far away, or once, is believed less: so much is taken off, over what its entries count
# and a little.
_DOUBT, _FAINT = 0.01, 0.05
_NEIGHBOURS = 6
# An x of so many bytes is as good as a larger one; and one of so few does not fill a card: it has entries of
# its own, which lie farther apart.
_LARGE_BYTES, FEW_BYTES = 256 << 20, 16 << 20
_NEAR_FEW, _ROWS_FEW = 0.25, 0.5
# With a residual, or where a gradient finds its statistics itself, variants compare otherwise; what was
# measured so counts from three times as far away, and what was not less by e to the power of the second.
_REACH_OWN, _APART_PLAIN = 3.0, 2.0
# Kinds of problems, by what their files are called.
PLAIN, RESIDUAL, OWN_STATS = "", "residual", "own_stats"
# A rule names this kernel wherever it is the fastest: its variants are compared with each other alone.
ONE_DISPATCH = "one_dispatch"
# Rows of more columns are for kernels that do not hold them, and follow rules.
MOST_COLS = 34000


class MeasuredVariant(NamedTuple):
    """A variant of a kernel, by its constants."""

    kernel: str
    constants: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class SweepEntry:
    """A problem's rows and columns, and what variants reached there, in any unit."""

    rows: int
    cols: int
    reached: Sequence[tuple[MeasuredVariant, float]]

    @cached_property
    def shares(self) -> Mapping[MeasuredVariant, float]:
        """How near each came to the fastest: logarithms of shares.

        What all of them lose to a copy, because x is small or because of the columns, says nothing of their
        order elsewhere. A call looks at few of the entries.
        """
        most = max(percent for _, percent in self.reached)
        return {variant: math.log(percent / most) for variant, percent in self.reached}


@dataclass(frozen=True)
class SweepLandscape:
    """The entries of an op and a storage type, how far they reach, and how far all are from a problem."""

    entries: Sequence[SweepEntry] = ()
    reach: float = 1.0
    apart: float = 0.0

    def of(self, kernel: str | None) -> SweepLandscape:
        """What it tells of the kernel `ONE_DISPATCH`, or for None of the others."""
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
    """Variants for a problem, the one of which most is expected first; none where nothing is known.

    `names` are the problem's own and the adapter's. The variants are those of `kernel`, which is
    `ONE_DISPATCH`, or for None those of the others.
    """
    if names["cols"] > MOST_COLS:
        return ()
    # The order depends on nothing else, and calls ask for the same again.
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
    """The kind of problems whose data lie apart from the op's plain ones; empty for these."""
    if op.endswith("_backward"):
        return PLAIN if saved_stats else OWN_STATS
    return RESIDUAL if residual else PLAIN


def file_name(op: str, dtype: str, kind: str) -> str:
    """What the file of an op, a storage type and a kind of problems is called, without its suffix."""
    return "-".join(filter(None, (op, dtype, kind)))


@lru_cache(maxsize=32)
def known_of(op: str, dtype: str, kind: str = PLAIN, kernel: str | None = None) -> Sequence[SweepLandscape]:
    """The landscapes that tell something of an op in a storage type, and of a kernel as `ranked` takes it."""
    return known_from(lambda name: _landscape(FOLDER / f"{name}.json"), op, dtype, kind, kernel)


def known_from(
    read: Callable[[str], SweepLandscape], op: str, dtype: str, kind: str, kernel: str | None
) -> Sequence[SweepLandscape]:
    """The same of other files, which `read` takes by the name that `file_name` gives them."""
    plain = read(file_name(op, dtype, PLAIN)).of(kernel)
    own = read(file_name(op, dtype, kind)).of(kernel) if kind else SweepLandscape()
    return related_landscapes(plain, own) if own.entries else [plain]


def related_landscapes(plain: SweepLandscape, own: SweepLandscape) -> Sequence[SweepLandscape]:
    """What is known of problems of a kind, of which fewer were measured."""
    return [replace(own, reach=_REACH_OWN), replace(plain, apart=_APART_PLAIN)]


def _landscape(path: Path) -> SweepLandscape:
    """What a file holds; without one nothing."""
    if not path.exists():
        return SweepLandscape()
    try:
        return decode(path.read_bytes())
    except (OSError, ValueError, LookupError) as error:
        raise WebnormError(f"{path} is not what webnorm came with: {error}; install it again") from error


@cache
def measured_cols() -> frozenset[int]:
    """Numbers of columns of which any file knows something."""
    found = (_landscape(path) for path in FOLDER.glob("*.json"))
    return frozenset(entry.cols for known in found for entry in known.entries)


def decode(text: bytes | str) -> SweepLandscape:
    """A landscape from the text of a file; ValueError or LookupError where it is none."""
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
    """For each variant near a problem how near it should come to the fastest: the logarithm of a share."""
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
    """The entries that a problem is compared with, and how much each counts: 1 for the problem itself."""

    def bytes_of(entry: SweepEntry) -> int:
        return entry.rows * entry.cols * itemsize

    size = max(rows * cols * itemsize, 1)
    odd = cols % 4 != 0
    for landscape in known:
        alike = [entry for entry in landscape.entries if (entry.cols % 4 != 0) == odd]
        few = [entry for entry in alike if bytes_of(entry) <= FEW_BYTES] if size <= FEW_BYTES else []
        chosen = few or [entry for entry in alike if bytes_of(entry) > FEW_BYTES]

        def distance(entry: SweepEntry, few: bool = bool(few)) -> float:
            along = abs(math.log(cols / entry.cols))
            if few:
                return (along + _ROWS_FEW * abs(math.log(max(rows, 1) / entry.rows))) / _NEAR_FEW
            sizes = abs(math.log(min(size, _LARGE_BYTES) / min(bytes_of(entry), _LARGE_BYTES)))
            return (along + _SIZE * sizes) / (_NEAR_ODD if odd else _NEAR)

        for entry in sorted(chosen, key=distance)[:_NEIGHBOURS]:
            yield entry, math.exp(-distance(entry) / landscape.reach - landscape.apart)


class RowFit(NamedTuple):
    """Vecs of an invocation, and how many columns all of them have for each of the row's."""

    steps: int
    waste: float


@lru_cache(maxsize=4096)
def row_fit(variant: MeasuredVariant, cols: int) -> RowFit:
    """How a row lies in a variant's invocations; kernels that do not hold it have nothing to fit."""
    constants = dict(variant.constants)
    if "vector_width" not in constants or "part_steps" in constants:
        return RowFit(0, 1.0)
    width, threads = constants["vector_width"], constants["threads_per_row"]
    if width == 8:
        steps, held = 2 * math.ceil(cols / (8 * threads)), 8 * math.ceil(cols / (8 * threads)) * threads
    else:
        # Vecs of four, or words, of a row that starts anywhere also hold columns of its neighbours.
        span = cols + width - 1 if cols % width else cols
        steps = math.ceil(span / (width * threads))
        held = width * steps * threads
    return RowFit(steps, held / cols)
