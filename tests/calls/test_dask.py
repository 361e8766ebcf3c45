"""The functions on dask arrays give the results of one call on NumPy arrays, for any chunks."""

from __future__ import annotations

import importlib
import inspect
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import webnorm
from fuzzing import examples
from odd import ODD, normal, refusal_of
from patience import HANG_S
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.op.dtypes import DTYPES, Array
from webnorm.op.op import make_inputs
from webnorm.op.registry import OPS
from webnorm.ops.norms.problem import NormOptions, NormProblem

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
lazy: Any = pytest.importorskip("webnorm.dask")

NAMES = ("layer_norm", "rms_norm", "layer_norm_backward", "rms_norm_backward")
LEADING, COLS = (6, 5), 40
# The allowed difference of two right answers: a few last bits for float32, one last bit for other types.
APART = {"float32": 1e-5, "float16": 2**-10, "bfloat16": 2**-7, "float8_e4m3fn": 2**-3, "int8": 1.0}


def chunks(size: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw sizes that add up to a total. Some blocks have no rows."""
    cuts = st.lists(st.integers(0, size), max_size=4).map(sorted)
    return cuts.map(lambda at: tuple(int(n) for n in np.diff([0, *at, size])))


def assert_alike(found: Any, wanted: Any) -> None:
    """Compare a dask array, and its shape and dtype before the computation, with a NumPy array or None."""
    if wanted is None:
        assert found is None
        return
    got = found.compute()
    assert type(got) is np.ndarray and found._meta.dtype == found.dtype == got.dtype == wanted.dtype
    assert (
        np.array_equal(found.shape, got.shape) and got.shape == wanted.shape and found._meta.ndim == got.ndim
    )
    apart = APART[got.dtype.name]
    np.testing.assert_allclose(got.astype(float), wanted.astype(float), rtol=apart, atol=apart)


def never(block: Array) -> Array:
    raise AssertionError("computed")


def unread(*shape: int, chunks: Any = 2) -> Any:
    """Return a dask array whose blocks must not be computed."""
    return da.zeros(shape, chunks=chunks, dtype=np.float32).map_blocks(
        never, dtype=np.float32, meta=np.empty((0,) * len(shape), np.float32)
    )


# Failing chunks are already short, and shrinking them takes minutes.
@given(st.data())
@settings(examples(8), phases=[Phase.generate])
def test_gradients_are_the_reference_for_any_chunks(device: Device, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES[2:]))
    op, options = OPS[name], NormOptions(saved_stats=True, dh=True, residual_bias=True)
    problem = NormProblem(rows=30, cols=COLS, options=options)
    arrays = make_inputs(op, problem)
    answers = op.reference(arrays, problem)
    here = {n: a.reshape(*LEADING, -1) if a.ndim == 2 else a for n, a in arrays.items()}
    given = {
        n: da.from_array(a, chunks=(data.draw(chunks(6)), data.draw(chunks(5)), -1) if a.ndim == 3 else 7)
        for n, a in here.items()
    }
    gradients = getattr(lazy, name)(
        given.pop("dy"), x := given.pop("x"), COLS, **given, bias_grad=True, residual_bias_grad=True
    )
    assert gradients[0].chunks == x.chunks
    scheduler = data.draw(st.sampled_from(("threads", "synchronous")))
    found = dask.compute(*gradients, scheduler=scheduler, num_workers=4)
    for got, (output, answer) in zip(found, answers.items(), strict=True):
        error = np.abs(got.reshape(answer.value.shape) - answer.value)
        size = answer.error_scale if answer.abs_sum is None else answer.abs_sum
        assert (error <= 2e-6 * size).all(), output


FORWARD: dict[str, dict[str, Any]] = {
    "plain": {},
    "stats": {"return_stats": True, "max_workgroups": 2},
    "int8": {"out_dtype": "int8", "residual": True, "zero_centered_weight": True},
    "float8": {"out_dtype": DTYPES["float8_e4m3fn"], "scale": 0.5},
    "wider": {"out_dtype": "float32"},
}


@pytest.mark.parametrize("name", NAMES[:2])
@pytest.mark.parametrize("asked", FORWARD)
def test_options_are_those_of_one_call(name: str, asked: str, device: Device) -> None:
    """The largest |y| is in the last block only."""
    x, residual = normal(2, *LEADING, 8, 5, dtype="bfloat16")
    weight, bias = normal(2, 8, 5)
    x[-1, -1, 0, 0] = 1000
    options = {"eps": 1e-3, "bias": bias, **FORWARD[asked]}
    others = {"residual": residual} if options.pop("residual", False) else {}
    one = getattr(webnorm, name)(x, (8, 5), weight, **options, **others)
    found = getattr(lazy, name)(
        da.from_array(x, chunks=(4, 2, 8, 5)),
        (8, 5),
        da.from_array(weight, chunks=3),
        **options,
        **{n: da.from_array(a, chunks=3) for n, a in others.items()},
    )
    assert isinstance(found, webnorm.NormOutput) == isinstance(one, webnorm.NormOutput)
    for output in ("y", "h", "stats", "mean", "mean_low", "rstd", "y_scale", "amax", "scale_inv"):
        pair = [getattr(out, output) if isinstance(out, webnorm.NormOutput) else out for out in (found, one)]
        assert_alike(*pair)


def test_blocks_of_narrow_types_are_added_wide(device: Device) -> None:
    """The sum of a block overflows float16, but the total does not."""
    x = normal(64, COLS, dtype="float16")
    dy = np.full_like(x, 60000)
    dy[2:62] = 2**-12
    dy[62:] *= -1
    given = [da.from_array(array, chunks=(2, -1)) for array in (dy, x)]
    for weight in (None, np.ones(COLS, np.float16)):
        _, dweight, dbias = lazy.layer_norm_backward(*given, COLS, weight)
        assert dweight is None or dweight.compute().dtype == np.float16
        np.testing.assert_array_equal(dbias.compute(), np.float16(60 * 2**-12))


@pytest.mark.parametrize("leading", [(), (0,), (3, 0)])
def test_no_rows_and_no_leading_dimensions(leading: tuple[int, ...], device: Device) -> None:
    x = normal(*leading, COLS)
    lazy_x = da.from_array(x)
    assert_alike(lazy.layer_norm(lazy_x, COLS), webnorm.layer_norm(x, COLS))
    gradients = lazy.layer_norm_backward(lazy_x, lazy_x, COLS, x.sum(tuple(range(len(leading)))))
    wanted = webnorm.layer_norm_backward(x, x, COLS, x.sum(tuple(range(len(leading)))))
    for pair in zip(gradients, wanted, strict=True):
        assert_alike(*pair)


def test_unknown_numbers_of_rows(device: Device) -> None:
    x = normal(12, COLS)
    x[:4, 0] = -1
    whole = da.from_array(x, chunks=(4, COLS))
    some = whole[whole[:, 0] > 0]
    kept = x[x[:, 0] > 0]
    again = pickle.loads(pickle.dumps(some))
    out = lazy.rms_norm(some, COLS, residual=again, return_stats=True, out_dtype="int8")
    one = webnorm.rms_norm(kept, COLS, residual=kept, return_stats=True, out_dtype="int8")
    np.testing.assert_array_equal(out.y, one.y)
    np.testing.assert_array_equal(out.y_scale, one.y_scale)
    _, dweight = lazy.rms_norm_backward(some, some, COLS, x[0], stats=out.stats)
    wanted: Any = webnorm.rms_norm_backward(kept, kept, COLS, x[0], stats=one.stats)
    np.testing.assert_allclose(dweight, wanted[1], 1e-5)
    others = whole[whole[:, 1] > 0]
    late = lazy.rms_norm(some, COLS, residual=others)
    with pytest.raises(webnorm.WebnormError, match="residual has shape"):
        late.y.compute()
    parted = some.rechunk({0: (np.nan,) * 3}), da.concatenate([others, others])
    said = refusal_of(lambda: lazy.rms_norm(parted[0], COLS, residual=parted[1]))
    assert said is not None and "compute_chunk_sizes()" in said
    assert refusal_of(lambda: lazy.rms_norm(some, 7)) == (
        f"x has shape (nan, {COLS}); expected it to end in normalized_shape (7,)"
    )


@pytest.mark.parametrize("name", NAMES)
def test_everything_is_known_before_anything_is_computed(name: str) -> None:
    x, weight = unread(4, 3, COLS, chunks=(3, 1, COLS)), da.zeros(COLS, dtype=np.float32)
    if "backward" in name:
        dx, dweight, *_ = getattr(lazy, name)(x, x, COLS, weight)
        assert dx.chunks == x.chunks and dweight.shape == (COLS,)
        return
    out = getattr(lazy, name)(x, COLS, weight, residual=x, return_stats=True, out_dtype="int8")
    width = 3 if name == "layer_norm" else 1
    assert out.y.chunks == out.h.chunks == x.chunks and out.y.dtype == out.y._meta.dtype == np.int8
    assert out.stats.chunks == (*x.chunks[:2], (width,)) and out.y_scale.chunks == x.chunks[:2]


@pytest.mark.parametrize("name", NAMES)
def test_the_arguments_are_those_of_the_functions(name: str) -> None:
    there, here = (inspect.signature(getattr(module, name)).parameters for module in (webnorm, lazy))
    assert [(one.name, one.kind, one.default) for one in there.values()] == [
        (one.name, one.kind, one.default) for one in here.values()
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"x": (2, 41)},
        {"x": "float64"},
        {"normalized_shape": ()},
        {"weight": (39,)},
        {"weight": "float64"},
        {"bias": "float16"},
        {"residual": (3, 40)},
        {"residual": "int32"},
        {"residual_bias": (40,)},
        {"eps": -1.0},
        {"scale": 2.0},
        {"out_dtype": "int4"},
        {"zero_centered_weight": True},
        {"max_workgroups": -1},
        {"kernel": "registres"},
        {"kernel": "tiles"},
        {"kernel": 5},
    ],
    ids=str,
)
def test_a_mistake_raises_the_same_error_at_once(wrong: dict[str, Any], device: Device) -> None:
    def of(kind: Callable[[Array], Any]) -> Callable[[], Any]:
        made: dict[str, Any] = {"x": kind(normal(2, COLS)), "normalized_shape": COLS}
        for name, value in wrong.items():
            (argument,) = wrong
            if argument in ("x", "weight", "bias", "residual", "residual_bias"):
                shape = (
                    value if isinstance(value, tuple) else (2, COLS) if name in ("x", "residual") else (COLS,)
                )
                dtype = value if isinstance(value, str) else "float32"
                made[name] = kind(np.ones(shape, dtype))
            else:
                made[name] = value
        module = webnorm if kind is np.asarray else lazy
        return lambda: module.layer_norm(**made)

    said = refusal_of(of(np.asarray))
    assert said is not None and refusal_of(of(da.from_array)) == said


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: lazy.layer_norm(unread(4, 6, 4, chunks=2), (6, 4)),
            "x has chunks ((2, 2, 2), (2, 2)) along normalized_shape (6, 4); expected one each: "
            "x.rechunk({-2: -1, -1: -1})",
        ),
        (
            lambda: lazy.layer_norm(np.ones((2, 4), np.float32), 4),
            "x is a numpy.ndarray; expected a dask array",
        ),
        (
            lambda: lazy.layer_norm(unread(2, 4, chunks=4), 4, [1]),
            "weight is a list; expected a NumPy array or a dask array",
        ),
        (
            lambda: lazy.layer_norm(da.ma.masked_less(unread(2, 4, chunks=4), 0), 4),
            "x is a dask array of MaskedArray blocks; expected NumPy arrays",
        ),
        (
            lambda: lazy.layer_norm(unread(2, 4, chunks=4), 4, device=5),
            "device is 5; expected None: each process that computes blocks opens its own, which "
            "WEBNORM_ADAPTER selects",
        ),
        (
            lambda: webnorm.layer_norm(unread(2, 4), 4),
            "x is a dask array; expected a NumPy array or a GpuArray: for dask arrays, call "
            "webnorm.dask.layer_norm and the like",
        ),
    ],
)
def test_errors_of_dask_arrays_alone(call: Callable[[], Any], message: str) -> None:
    assert refusal_of(call) == message


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm_backward"])
def test_odd_arguments_are_one_line_or_work(name: str) -> None:
    x = unread(2, COLS, chunks=(1, -1))
    right: dict[str, Any] = {"x": x, "normalized_shape": COLS} | ({"dy": x} if "backward" in name else {})
    for parameter in inspect.signature(getattr(lazy, name)).parameters:
        for one in ODD.values():
            refusal_of(lambda given={**right, parameter: one}: getattr(lazy, name)(**given))  # type: ignore[misc]


@pytest.mark.slow
def test_workers_of_their_own(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions run in several threads of a nanny's worker, which is a daemonic process."""
    distributed = pytest.importorskip("distributed")
    # The time that a nanny waits for its process to end.
    monkeypatch.setattr(distributed.Nanny.close, "__defaults__", (HANG_S, "nanny-close"))
    x = normal(8, COLS, dtype="bfloat16")
    blocks = da.from_array(x, chunks=(1, -1))
    with (
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=3,
            # The cluster of another test may use the default port.
            dashboard_address="127.0.0.1:0",
            local_directory=str(tmp_path),
        ) as cluster,
        distributed.Client(cluster),
    ):
        out = lazy.layer_norm(blocks, COLS, residual=blocks, out_dtype="float8_e4m3fn")
        gradients = lazy.layer_norm_backward(blocks, blocks, COLS)
        y, h, amax, dx, dbias = dask.compute(out.y, out.h, out.amax, gradients[0], gradients[2])
    one = webnorm.layer_norm(x, COLS, residual=x, out_dtype="float8_e4m3fn")
    right_dx, _, right_dbias = webnorm.layer_norm_backward(x, x, COLS)
    wanted: Any = (one.y, one.h, one.amax, right_dx, right_dbias)
    for got, right in zip((y, h, amax, dx, dbias), wanted, strict=True):
        assert got.dtype == right.dtype
        np.testing.assert_allclose(got.astype(float), right.astype(float), rtol=2**-7, atol=1e-5)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drop the functions' modules, so that the next import runs them again."""
    for name in ("webnorm.dask", lazy.layer_norm.__module__):
        monkeypatch.delitem(sys.modules, name)


def test_without_dask_one_line_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask.array", None)
    forget(monkeypatch)
    with pytest.raises(
        ImportError, match=r"^webnorm\.dask needs dask\.array, .*install 'webnorm\[cluster\]'$"
    ):
        importlib.import_module("webnorm.dask")


def test_a_dask_that_its_settings_break_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.yaml").write_text("{{{ : garbage")
    monkeypatch.setenv("DASK_CONFIG", str(tmp_path))
    for name in [one for one in sys.modules if one.partition(".")[0] == "dask"]:
        monkeypatch.delitem(sys.modules, name)
    forget(monkeypatch)
    with pytest.raises(
        WebnormError, match=r"cannot be imported \(ValueError: .*a\.yaml.* malformed"
    ) as raised:
        importlib.import_module("webnorm.dask")
    assert isinstance(raised.value, ImportError) and "\n" not in str(raised.value)
