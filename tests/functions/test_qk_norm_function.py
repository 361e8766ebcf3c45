"""The function qk_norm on contiguous arrays, views of packed arrays, device arrays, and mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import webnorm
from webnorm.functions import head_norms
from webnorm.functions.head_rows import head_rows
from webnorm.gpu.device import Device
from webnorm.op.dtypes import DTYPES, STORAGE, Array
from webnorm.op.op import Float64Array

BATCH, TOKENS, HEADS, KEY_HEADS, DIM = 2, 5, 4, 2, 8
RNG = np.random.default_rng(11)
PACKED = RNG.standard_normal((BATCH, TOKENS, (HEADS + 2 * KEY_HEADS) * DIM), dtype=np.float32) + 1
Q = np.ascontiguousarray(PACKED[..., : HEADS * DIM]).reshape(BATCH, TOKENS, HEADS, DIM)
K = np.ascontiguousarray(PACKED[..., -KEY_HEADS * DIM :]).reshape(BATCH, TOKENS, KEY_HEADS, DIM)
WEIGHT_Q, WEIGHT_K, BIAS_Q, BIAS_K = RNG.standard_normal((4, DIM), dtype=np.float32)


def heads_of(packed: Array, begin: int, heads: int) -> Array:
    """Return a view of heads whose first column in the rows of `packed` is `begin`."""
    part = packed[..., begin : begin + heads * DIM]
    found = part.reshape(*packed.shape[:2], heads, DIM)
    assert np.shares_memory(found, packed)
    return found


def packed_views(packed: Array) -> tuple[Array, Array]:
    return heads_of(packed, 0, HEADS), heads_of(packed, HEADS * DIM, KEY_HEADS)


def normalized(
    x: Array, weight: Any = 1.0, bias: Any = 0.0, eps: float = 1e-6, norm: str = "rms_norm"
) -> Float64Array:
    wide = x.astype(np.float64)
    if norm == "layer_norm":
        wide = wide - wide.mean(-1, keepdims=True)
    squares = (wide**2).sum(-1, keepdims=True)
    root = np.sqrt((squares if norm == "l2_norm" else squares / x.shape[-1]) + eps)
    factor, offset = (np.asarray(one).astype(np.float64) for one in (weight, bias))
    found: Float64Array = wide / root * factor + offset
    return found


def close(found: Any, expected: Float64Array, tolerance: float = 4e-6) -> None:
    got = np.asarray(found).astype(np.float64)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def sent(q: Array, k: Array | None, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Call `qk_norm`, compare its outputs, and return the arguments that the op got."""
    calls: list[dict[str, Any]] = []

    def op_function(name: str) -> Callable[..., Any]:
        def called(**given: Any) -> Any:
            calls.append(given)
            return webnorm.op_function(name)(**given)

        return called

    monkeypatch.setattr(head_norms, "op_function", op_function)
    found = webnorm.qk_norm(q) if k is None else webnorm.qk_norm(q, k)
    for y, x in zip((found,) if k is None else found, (q, k), strict=False):
        assert x is not None
        close(y, normalized(x))
    return calls[0]


# --- memory


def test_contiguous_arrays_are_read_in_place(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    given = sent(Q, K, monkeypatch)
    assert (given["q_gap"], given["k_gap"]) == (0, 0) and not given.get("qkv")
    assert np.shares_memory(given["q"], Q) and np.shares_memory(given["k"], K)


def test_keys_behind_queries_are_read_in_the_same_rows(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = sent(*packed_views(PACKED), monkeypatch)
    assert given["qkv"] is True and "k" not in given and given["q_gap"] == KEY_HEADS * DIM
    assert np.shares_memory(given["q"], PACKED) and given["q"].size == PACKED.size


def test_views_of_one_axis_of_three_are_read_in_place(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = RNG.standard_normal((BATCH, TOKENS, 3, HEADS, DIM), dtype=np.float32)
    given = sent(packed[:, :, 0], packed[:, :, 1], monkeypatch)
    assert given["qkv"] is True and np.shares_memory(given["q"], packed)
    # The values lie between the keys and the queries, and the last row of the keys ends behind the array.
    given = sent(packed[:, :, 0], packed[:, :, 2], monkeypatch)
    assert given["q_gap"] == 2 * HEADS * DIM and np.shares_memory(given["q"], packed)
    assert given["k_gap"] == 0 and not np.shares_memory(given["k"], packed)


def test_queries_alone_are_read_with_their_gap(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    given = sent(packed_views(PACKED)[0], None, monkeypatch)
    assert given["q_gap"] == 2 * KEY_HEADS * DIM and np.shares_memory(given["q"], PACKED)


def test_a_single_token_has_no_rows(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = RNG.standard_normal((1, 1, 3, HEADS, DIM), dtype=np.float32)
    given = sent(packed[:, :, 0], packed[:, :, 1], monkeypatch)
    assert (given["q_gap"], given["k_gap"]) == (0, 0) and not given.get("qkv")
    assert np.shares_memory(given["q"], packed) and np.shares_memory(given["k"], packed)


def test_gaps_are_not_read(device: Device) -> None:
    packed = PACKED.copy()
    packed[..., (HEADS + KEY_HEADS) * DIM :] = np.nan
    q, k = packed_views(packed)
    for y, x in zip(webnorm.qk_norm(q, k), (q, k), strict=True):
        close(y, normalized(x))


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda q: q[:, ::-1], id="reversed tokens"),
        pytest.param(lambda q: q[:, :, ::2], id="every other head"),
        pytest.param(lambda q: q[..., ::2], id="every other column"),
        pytest.param(lambda q: q[:, 1:], id="without the first token"),
        pytest.param(lambda q: q[:, :, 1:], id="without the first head"),
        pytest.param(lambda q: np.asfortranarray(q), id="Fortran order"),
        pytest.param(lambda q: np.ascontiguousarray(q.swapaxes(1, 2)).swapaxes(1, 2), id="heads first"),
        pytest.param(lambda q: q[:1, :1], id="one token"),
        pytest.param(lambda q: q[:, :1], id="one token of each sequence"),
        pytest.param(lambda q: q[:1, :, :1, :1], id="one column"),
        pytest.param(lambda q: q[::2], id="every other sequence"),
    ],
)
def test_other_views(view: Callable[[Array], Array], device: Device) -> None:
    for array in (Q, packed_views(PACKED)[0]):
        close(webnorm.qk_norm(view(array)), normalized(view(array)))


def test_rows_that_end_behind_the_array_are_copied() -> None:
    # The last token's row has no gap behind it in the memory that the array owns.
    short = PACKED.reshape(-1)[: -KEY_HEADS * DIM].copy()
    strides = (PACKED.strides[0], PACKED.strides[1], 4 * DIM, 4)
    view = np.lib.stride_tricks.as_strided(short, Q.shape, strides)
    rows = head_rows(view)
    assert rows.gap == 0 and not np.shares_memory(rows.array, short)


# --- arguments


@pytest.mark.parametrize("kind", STORAGE)
@pytest.mark.parametrize("norm", ["rms_norm", "layer_norm", "l2_norm"])
def test_norms_in_every_type(norm: str, kind: str, device: Device) -> None:
    q, k = packed_views(PACKED.astype(DTYPES[kind]))
    yq, yk = webnorm.qk_norm(q, k, WEIGHT_Q, WEIGHT_K, BIAS_Q, BIAS_K, 1e-5, norm=norm)
    assert yq.dtype == yk.dtype == q.dtype
    tolerance = {"float32": 4e-6, "float16": 2e-3, "bfloat16": 2e-2}[kind]
    close(yq, normalized(q, WEIGHT_Q, BIAS_Q, 1e-5, norm), tolerance)
    close(yk, normalized(k, WEIGHT_K, BIAS_K, 1e-5, norm), tolerance)


def test_parameters_of_each_head_and_an_offset(device: Device) -> None:
    weight_q = RNG.standard_normal((HEADS, DIM), dtype=np.float32)
    weight_k = RNG.standard_normal((KEY_HEADS, DIM), dtype=np.float32)
    yq, yk = webnorm.qk_norm(*packed_views(PACKED), weight_q, weight_k, weight_offset=1.0)
    q, k = packed_views(PACKED)
    close(yq, normalized(q, weight_q + 1))
    close(yk, normalized(k, weight_k + 1))
    close(webnorm.qk_norm(Q, bias_q=BIAS_Q), normalized(Q, bias=BIAS_Q))


def test_heads_first(device: Device) -> None:
    yq, yk = webnorm.qk_norm(Q, K, layout="heads_first")
    close(yq, normalized(Q).swapaxes(1, 2))
    close(yk, normalized(K).swapaxes(1, 2))


def test_device_arrays(device: Device) -> None:
    q, k, weight = (webnorm.GpuArray.from_numpy(one, device) for one in (Q, K, WEIGHT_Q))
    yq, yk = webnorm.qk_norm(q, k, weight, weight)
    assert isinstance(yq, webnorm.GpuArray) and isinstance(yk, webnorm.GpuArray)
    close(yq, normalized(Q, WEIGHT_Q))
    close(yk, normalized(K, WEIGHT_Q))


@pytest.mark.parametrize("layout", ["tokens_first", "heads_first"])
def test_without_tokens(layout: str, device: Device) -> None:
    for q, k in ((Q[:0], K[:0]), (Q[:, :0], K[:, :0])):
        yq, yk = webnorm.qk_norm(q, k, layout=layout)
        wanted = q if layout == "tokens_first" else q.swapaxes(1, 2)
        assert yq.shape == wanted.shape and yq.dtype == np.float32 and yk.size == 0
    assert isinstance(webnorm.qk_norm(webnorm.GpuArray.from_numpy(Q[:, :0], device)), webnorm.GpuArray)


# --- mistakes

OVERLAP = np.lib.stride_tricks.as_strided(Q, Q.shape, (Q.strides[0], 4 * DIM, 4 * DIM, 4))
MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: webnorm.qk_norm(Q[0]), "q has shape (5, 4, 8); expected (batch, tokens, heads, dim)"),
    (lambda: webnorm.qk_norm(Q[..., :0]), "q has shape (2, 5, 4, 0); expected elements to normalize"),
    (lambda: webnorm.qk_norm(Q.astype(np.float64)), "q has dtype float64; expected float32"),
    (lambda: webnorm.qk_norm(None), "q is None"),  # type: ignore[call-overload]
    (lambda: webnorm.qk_norm(Q, K[:1]), "k has shape (1, 5, 2, 8); expected (2, 5, heads, 8), as q has it"),
    (lambda: webnorm.qk_norm(Q, K.astype(np.float16)), "k has dtype float16; expected q's float32"),
    (lambda: webnorm.qk_norm(OVERLAP), "strides (640, 32, 32, 4), whose elements overlap; pass q.copy()"),
    (lambda: webnorm.qk_norm(Q, np.broadcast_to(K[:, :1], K.shape)), "pass k.copy()"),
    (lambda: webnorm.qk_norm(Q, K, WEIGHT_Q), "weight_q is given, but weight_k is not; expected both"),
    (lambda: webnorm.qk_norm(Q, K, None, WEIGHT_K), "weight_k is given, but weight_q is not; expected both"),
    (lambda: webnorm.qk_norm(Q, None, WEIGHT_Q, WEIGHT_K), "weight_k is given, but k is not"),
    (lambda: webnorm.qk_norm(Q, weight_q=WEIGHT_Q[:3]), "weight_q has shape (3,); expected (8,) or (4, 8)"),
    (lambda: webnorm.qk_norm(Q, None, WEIGHT_Q, bias_q=np.ones((4, 8), np.float32)), "parameters alike"),
    (lambda: webnorm.qk_norm(Q, eps=-1.0), "eps is -1.0"),
    (lambda: webnorm.qk_norm(Q, norm="batch_norm"), "unknown norm 'batch_norm'"),
    (lambda: webnorm.qk_norm(Q, layout="dim_first"), "unknown layout 'dim_first'"),
    (lambda: webnorm.qk_norm(Q, kernel="fast"), "unknown kernel 'fast'"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES, ids=lambda one: one if isinstance(one, str) else "")
def test_mistakes_of_qk_norm(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(webnorm.WebnormError) as caught:
        call()
    assert message in str(caught.value) and "\n" not in str(caught.value)
