"""The measurements of the H200: the files are valid, and the choices follow the data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from bench.sweep.landscape import SweepPoint, left_out, to_json
from testbed import GPU, KERNELS
from webnorm.errors import WebnormError
from webnorm.kernels.headers.variants import Variant, header_names
from webnorm.op.dtypes import DTYPES, STORAGE
from webnorm.op.registry import OPS
from webnorm.ops.norms import measured
from webnorm.ops.norms.measured import (
    MeasuredVariant,
    SweepEntry,
    SweepLandscape,
    decode,
    expected,
    known_of,
    ranked,
    row_fit,
)
from webnorm.ops.norms.op import OPS as NORM_OPS
from webnorm.ops.norms.problem import NormOptions, NormProblem

NORMS = [op.name for op in NORM_OPS]
FILES = sorted(path.stem for path in measured.FOLDER.glob("*.json"))


def variant(threads: int, width: int = 4) -> MeasuredVariant:
    return MeasuredVariant("registers", (("threads_per_row", threads), ("vector_width", width)))


FEW, MANY = variant(64), variant(256)


def entry(cols: int, percents: Mapping[MeasuredVariant, float], x_bytes: int = 64 << 20) -> SweepEntry:
    return SweepEntry(x_bytes // (4 * cols), cols, list(percents.items()))


def first(known: SweepLandscape, cols: int, x_bytes: int = 64 << 20) -> MeasuredVariant:
    shares = expected([known], x_bytes // (4 * cols), cols, 4)
    return max(shares, key=shares.__getitem__)


def test_every_op_and_storage_type_has_a_file() -> None:
    assert {f"{op}-{dtype}" for op in NORMS for dtype in STORAGE} <= set(FILES)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", FILES)
def test_measured_variants_exist_and_run(name: str) -> None:
    op, dtype, *kind = name.split("-")
    known = decode((measured.FOLDER / f"{name}.json").read_bytes())
    kernels = {kernel.name: kernel for kernel in KERNELS if kernel.op.name == op}
    assert len({(entry.rows, entry.cols) for entry in known.entries}) == len(known.entries)
    pairs = {"residual": "residual", "own_stats": "saved_stats=false"}
    options = OPS[op].defaults.changed([pairs[one] for one in kind])
    assert isinstance(options, NormOptions)
    for there in known.entries:
        problem = NormProblem(rows=there.rows, cols=there.cols, dtype=dtype, options=options)
        for one in there.shares:
            kernel = kernels[one.kernel]
            constants = dict(one.constants)
            assert list(constants) == list(kernel.tune)
            assert all(value in kernel.tune[axis] for axis, value in constants.items()), (there, one)
            assert Variant(kernel, constants).refusal(problem, GPU) is None, (there, one)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", STORAGE)
@pytest.mark.parametrize("op", NORMS)
def test_columns_that_are_left_out_are_chosen_well(op: str, dtype: str) -> None:
    """On large problems with rows of whole vectors, the model is clearly better than a guess."""
    itemsize = DTYPES[dtype].itemsize
    losses = [
        lost
        for there, lost in left_out(known_of(op, dtype), itemsize)
        if there.cols % 8 == 0 and there.rows * there.cols * itemsize >= 32 << 20
    ]
    assert len(losses) > 30
    assert statistics.mean(losses) < 2 and statistics.median(losses) < 1


def test_the_nearest_entry_counts_most() -> None:
    known = SweepLandscape([entry(1024, {FEW: 90, MANY: 80}), entry(2048, {FEW: 70, MANY: 80})])
    assert first(known, 1024) == first(known, 1032) == FEW
    assert first(known, 2048) == first(known, 2040) == MANY


def test_a_share_is_of_the_fastest_there_whatever_all_of_them_lose() -> None:
    """Shares are relative to the fastest variant of their entry.

    A slow entry says as much about the order as a fast one.
    """
    slow = SweepLandscape([entry(1024, {FEW: 45, MANY: 40}), entry(1088, {MANY: 90, FEW: 95})])
    assert first(slow, 1056) == FEW
    assert expected([slow], 16384, 1024, 4)[FEW] == pytest.approx(0, abs=0.02)


def test_variants_of_a_kernel_that_a_rule_names_are_compared_with_each_other() -> None:
    apart = MeasuredVariant(measured.ONE_DISPATCH, (("threads_per_row", 64),))
    other = MeasuredVariant(measured.ONE_DISPATCH, (("threads_per_row", 128),))
    known = SweepLandscape([entry(1024, {FEW: 45, MANY: 40, apart: 90, other: 60}), entry(2048, {FEW: 70})])
    plain, own = known.of(None), known.of(measured.ONE_DISPATCH)
    assert first(plain, 1024) == FEW and plain.entries[0].shares[FEW] == 0
    assert first(own, 1024) == apart and set(expected([own], 16384, 1024, 4)) == {apart, other}
    assert [there.cols for there in own.entries] == [1024]


def test_columns_past_the_row_cost_time() -> None:
    """A row of 1024 columns fits 256 invocations with one Vec each.

    At 1032 columns each has a second, mostly empty Vec.
    """
    assert row_fit(MANY, 1024) == (1, 1.0) and row_fit(MANY, 1032) == (2, 2048 / 1032)
    assert row_fit(variant(64, 8), 1024) == (4, 1.0) and row_fit(variant(64, 8), 1016) == (4, 1024 / 1016)
    # A row with an odd number of columns may start anywhere, so its Vecs also contain neighbours' columns.
    assert row_fit(variant(256, 4), 1023).steps == 2
    # A kernel that walks along the row has no fit.
    assert row_fit(MeasuredVariant("split_row", (("part_steps", 2), ("vector_width", 4))), 1000) == (0, 1.0)
    known = SweepLandscape([entry(1024, {FEW: 90, MANY: 92})])
    assert first(known, 1024) == MANY and first(known, 1032) == FEW


def test_rows_that_no_vector_divides_are_compared_with_their_like() -> None:
    known = SweepLandscape([entry(1024, {FEW: 90, MANY: 80}), entry(1157, {FEW: 70, MANY: 80})])
    assert first(known, 1025) == MANY and first(known, 1156) == FEW


def test_few_bytes_are_compared_with_few_bytes() -> None:
    known = SweepLandscape([entry(1024, {FEW: 90, MANY: 80}), entry(1280, {FEW: 70, MANY: 80}, 1 << 20)])
    assert first(known, 1024) == FEW and first(known, 1024, 1 << 20) == MANY


def test_distant_measurements_count_less() -> None:
    known = SweepLandscape([entry(1024, {FEW: 90}), entry(1400, {FEW: 89, MANY: 90})])
    assert first(known, 1024) == FEW


def test_a_residual_has_what_was_measured_with_it_before_what_was_not() -> None:
    plain = SweepLandscape([entry(1024, {FEW: 90, MANY: 80})])
    own = SweepLandscape([entry(1024, {FEW: 80, MANY: 90})])
    shares = expected(measured.related_landscapes(plain, own), 16384, 1024, 4)
    assert shares[MANY] > shares[FEW]
    alone = expected(measured.related_landscapes(plain, SweepLandscape()), 16384, 1024, 4)
    assert alone[FEW] > alone[MANY]


def test_a_gradient_that_finds_its_statistics_has_data_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without such data the rules use the data of the other gradients."""
    monkeypatch.setattr(measured, "FOLDER", tmp_path)
    op = OPS["layer_norm_backward"]

    def first_of(pairs: Sequence[str]) -> MeasuredVariant:
        known_of.cache_clear()
        measured._ranked.cache_clear()
        problem = NormProblem(rows=16384, cols=1024, options=op.defaults.changed(pairs))
        return ranked(op.name, header_names(op, problem, GPU))[0]

    def put(name: str, percents: Mapping[MeasuredVariant, float]) -> None:
        point = SweepPoint(16384, 1024)
        point.percents = dict(percents)
        (tmp_path / f"{name}.json").write_text(to_json([point]))

    try:
        put("layer_norm_backward-float32", {FEW: 90, MANY: 80})
        assert first_of(["saved_stats=false"]) == first_of([]) == FEW
        put("layer_norm_backward-float32-own_stats", {FEW: 60, MANY: 80})
        assert first_of(["saved_stats=false"]) == MANY
        assert first_of([]) == FEW
    finally:
        known_of.cache_clear()
        measured._ranked.cache_clear()


def test_longer_rows_than_were_measured_follow_rules() -> None:
    names = header_names(OPS["layer_norm"], NormProblem(rows=64, cols=1 << 17), GPU)
    assert not ranked("layer_norm", names)
    assert ranked("layer_norm", {**names, "cols": 1 << 15})


def test_an_op_of_which_nothing_is_known_has_no_order() -> None:
    names = header_names(OPS["layer_norm"], NormProblem(rows=64, cols=1024), GPU)
    assert not ranked("copy", names)


@pytest.mark.parametrize("text", ["", "{}", '{"axes": {}, "variants": [["a", [1]]], "entries": []}'])
def test_a_file_that_is_damaged_is_named(text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "layer_norm-float64.json").write_text(text)
    monkeypatch.setattr(measured, "FOLDER", tmp_path)
    with pytest.raises(WebnormError, match=r"layer_norm-float64\.json is not what webnorm came with"):
        known_of("layer_norm", "float64")


def test_an_expectation_is_a_logarithm_of_a_share() -> None:
    known = SweepLandscape([entry(1024, {FEW: 50, MANY: 100})])
    shares = expected([known], 16384, 1024, 4)
    assert shares[FEW] - shares[MANY] == pytest.approx(math.log(0.5))
