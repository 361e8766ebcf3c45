"""Norms in graphs of a few nodes: each form in which exporters write them, and graphs without any."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnx_graphs import FLOAT, Graph, line, lines, onnx, scanned

B, S, D, H = 2, 8, 32, 4
X = (B, S, D)


def centred(g: Graph, x: str, axes: int = -1) -> tuple[str, str]:
    """Return x - mean, and the variance."""
    mean = g.node("ReduceMean", x, g.ints(axes))
    apart = g.node("Sub", x, mean)
    return apart, g.node("ReduceMean", g.node("Pow", apart, g.weight(2.0)), g.ints(axes))


def layer_norm(g: Graph, x: str, width: int = D) -> str:
    apart, variance = centred(g, x)
    root = g.node("Sqrt", g.node("Add", variance, g.weight(1e-5)))
    y = g.node("Mul", g.node("Div", apart, root), g.random(width))
    return g.node("Add", y, g.random(width))


def rms_norm(g: Graph, x: str, width: int = D, eps: float = 1e-6) -> str:
    mean = g.node("ReduceMean", g.node("Pow", x, g.weight(2.0)), g.ints(-1))
    scale = g.node("Reciprocal", g.node("Sqrt", g.node("Add", mean, g.weight(eps))))
    return g.node("Mul", g.random(width), g.node("Mul", x, scale))


def silu(g: Graph, x: str) -> str:
    return g.node("Mul", x, g.node("Sigmoid", x))


def gelu(g: Graph, x: str) -> str:
    inner = g.node("Erf", g.node("Div", x, g.weight(2**0.5)))
    return g.node("Mul", g.node("Mul", x, g.node("Add", inner, g.weight(1.0))), g.weight(0.5))


# --- forms of the decomposed norms


def plain_layer_norm(g: Graph) -> str:
    return layer_norm(g, "x")


def layer_norm_by_power(g: Graph) -> str:
    apart, variance = centred(g, "x")
    y = g.node("Mul", apart, g.node("Pow", g.node("Add", g.weight(1e-6), variance), g.weight(-0.5)))
    return g.node("Mul", y, g.random(D))


def layer_norm_by_quotient(g: Graph) -> str:
    apart, variance = centred(g, "x")
    root = g.node("Sqrt", g.node("Add", variance, g.weight(1e-6)))
    return g.node("Mul", g.node("Div", g.weight(1.0), root), apart)


def layer_norm_with_two_differences(g: Graph) -> str:
    """Subtract the mean once for the variance and once for y, as old exporters do."""
    mean = g.node("ReduceMean", "x", g.ints(2))
    one, two = g.node("Sub", "x", mean), g.node("Sub", "x", mean)
    variance = g.node("ReduceMean", g.node("Mul", two, two), g.ints(2))
    return g.node("Div", one, g.node("Sqrt", g.node("Add", variance, g.weight(1e-12))))


def layer_norm_of_jax(g: Graph) -> str:
    mean = g.node("ReduceMean", "x", g.ints(-1))
    squares = g.node("ReduceMean", g.node("Mul", "x", "x"), g.ints(-1))
    variance = g.node("Max", g.weight(0.0), g.node("Sub", squares, g.node("Mul", mean, mean)))
    factor = g.node("Reciprocal", g.node("Sqrt", g.node("Add", variance, g.weight(1e-6))))
    return g.node("Mul", g.node("Sub", "x", mean), factor)


def layer_norm_of_sums(g: Graph) -> str:
    mean = g.node("Div", g.node("ReduceSum", "x", g.ints(-1)), g.weight(float(D)))
    apart = g.node("Sub", "x", mean)
    squares = g.node("ReduceSum", g.node("Mul", apart, apart), g.ints(-1))
    variance = g.node("Mul", squares, g.weight(1 / D))
    return g.node("Div", apart, g.node("Sqrt", g.node("Add", variance, g.weight(1e-5))))


def plain_rms_norm(g: Graph) -> str:
    return rms_norm(g, "x")


def rms_norm_of_gemma(g: Graph) -> str:
    mean = g.node("ReduceMean", g.node("Mul", "x", "x"), g.ints(-1))
    y = g.node("Div", "x", g.node("Sqrt", g.node("Add", mean, g.weight(1e-6))))
    return g.node("Mul", y, g.node("Add", g.weight(1.0), g.random(D)))


def rms_norm_before_gelu(g: Graph) -> str:
    return gelu(g, rms_norm(g, "x"))


def sum_before_rms_norm(g: Graph) -> str:
    return rms_norm(g, g.node("Add", "x", g.node("Tanh", "x")))


def bias_before_rms_norm(g: Graph) -> str:
    """Add a vector, which is no residual."""
    return rms_norm(g, g.node("Add", "x", g.random(D)))


def modulated(g: Graph) -> str:
    y = layer_norm_by_quotient(g)
    scale, shift = (g.node("Unsqueeze", g.node("MatMul", "c", g.random(4, D)), g.ints(1)) for _ in range(2))
    return g.node("Add", g.node("Mul", y, g.node("Add", scale, g.weight(1.0))), shift)


def gated_behind(g: Graph) -> str:
    return g.node("Mul", rms_norm(g, "x"), silu(g, g.node("MatMul", "x", g.random(D, D))))


def gated_before(g: Graph) -> str:
    return rms_norm(g, g.node("Mul", "x", silu(g, g.node("MatMul", "x", g.random(D, D)))))


def l2_norm_with_clamp(g: Graph) -> str:
    length = g.node("ReduceL2", "x", g.ints(-1))
    return g.node("Div", "x", g.node("Expand", g.node("Clip", length, g.weight(1e-12)), g.ints(*X)))


def l2_norm_of_a_sum(g: Graph) -> str:
    return g.node("Div", "x", g.node("Add", g.node("ReduceL2", "x", g.ints(-1)), g.weight(1e-8)))


def l1_norm(g: Graph) -> str:
    return g.node("Div", "x", g.node("Max", g.node("ReduceL1", "x", g.ints(-1)), g.weight(1e-12)))


def l2_norm_without_eps(g: Graph) -> str:
    return g.node("Div", "x", g.node("Sqrt", g.node("ReduceSumSquare", "x", g.ints(-1))))


def l2_norm_of_gated_delta(g: Graph) -> str:
    total = g.node("Add", g.node("ReduceSum", g.node("Mul", "x", "x"), g.ints(-1)), g.weight(1e-6))
    return g.node("Mul", "x", g.node("Reciprocal", g.node("Sqrt", total)))


def decomposed_softmax(g: Graph) -> str:
    power = g.node("Exp", g.node("Sub", "x", g.node("ReduceMax", "x", g.ints(-1))))
    return g.node("Div", power, g.node("ReduceSum", power, g.ints(-1)))


def masked_softmax(g: Graph) -> str:
    scores = g.node("Div", g.node("MatMul", "x", g.node("Transpose", "x", perm=[0, 2, 1])), g.weight(8.0))
    return g.node("Softmax", g.node("Where", "m", scores, g.weight(-1e9)))


def heads(g: Graph) -> str:
    """Normalize queries and keys of grouped-query attention, in front of the transpose."""
    parts = []
    for count in (H, 2):
        part = g.node("Reshape", g.node("MatMul", "x", g.random(D, count * 8)), g.ints(B, S, count, 8))
        parts.append(g.node("Transpose", rms_norm(g, part, 8), perm=[0, 2, 1, 3]))
    keys = g.node("Unsqueeze", parts[1], g.ints(2))
    keys = g.node("Reshape", g.node("Expand", keys, g.ints(B, 2, H // 2, S, 8)), g.ints(B, H, S, 8))
    return g.node("MatMul", parts[0], g.node("Transpose", keys, perm=[0, 1, 3, 2]))


def heads_behind_the_transpose(g: Graph) -> str:
    """Normalize queries and keys of (batch, heads, tokens, columns), with a weight for each head."""
    parts = []
    for _ in range(2):
        part = g.node("Transpose", g.node("Reshape", "x", g.ints(B, S, H, 8)), perm=[0, 2, 1, 3])
        mean = g.node("ReduceMean", g.node("Mul", part, part), g.ints(-1))
        y = g.node("Div", part, g.node("Sqrt", g.node("Add", mean, g.weight(1e-6))))
        parts.append(g.node("Mul", y, g.random(H, 1, 8)))
    return g.node("MatMul", parts[0], g.node("Transpose", parts[1], perm=[0, 1, 3, 2]))


def gated_residual(g: Graph) -> str:
    """Modulate the norm of a sum whose second term has a factor for each batch element and column, as in DiT."""
    gate = g.node("Unsqueeze", g.node("MatMul", "c", g.random(4, D)), g.ints(1))
    total = g.node("Add", "x", g.node("Mul", gate, g.node("Tanh", "x")))
    y = g.node("LayerNormalization", total, g.node("Constant", value_floats=[1.0] * D), epsilon=1e-6)
    scale, shift = (g.node("Unsqueeze", g.node("MatMul", "c", g.random(4, D)), g.ints(1)) for _ in range(2))
    return g.node("Add", g.node("Mul", y, g.node("Add", g.weight(1.0), scale)), shift)


def batch_masked_softmax(g: Graph) -> str:
    scores = g.node("MatMul", "x", g.node("Transpose", "x", perm=[0, 2, 1]))
    return g.node(
        "Softmax",
        g.node("Add", scores, g.node("Unsqueeze", g.node("MatMul", "c", g.random(4, S)), g.ints(1))),
    )


def one_head(g: Graph) -> str:
    """Normalize only the queries: rows of a norm."""
    queries = rms_norm(g, g.node("Reshape", "x", g.ints(B, S, H, 8)), 8)
    return g.node("MatMul", queries, g.node("Reshape", "x", g.ints(B, S, 8, H)))


ROWS = f"rows={B * S} cols={D} float32"
DECOMPOSED: dict[Callable[[Graph], str], str] = {
    plain_layer_norm: f"1 layer_norm {ROWS} decomposed eps=1e-05",
    layer_norm_by_power: f"1 layer_norm {ROWS} decomposed bias=false eps=1e-06",
    layer_norm_by_quotient: f"1 layer_norm {ROWS} decomposed bias=false weight=false eps=1e-06",
    layer_norm_with_two_differences: f"1 layer_norm {ROWS} decomposed bias=false weight=false eps=1e-12",
    layer_norm_of_jax: f"1 layer_norm {ROWS} decomposed bias=false weight=false eps=1e-06 "
    "(the model computes the variance as mean(x²) - mean(x)²)",
    layer_norm_of_sums: f"1 layer_norm {ROWS} decomposed bias=false weight=false eps=1e-05",
    plain_rms_norm: f"1 rms_norm {ROWS} decomposed eps=1e-06",
    rms_norm_of_gemma: f"1 rms_norm {ROWS} decomposed zero_centered_weight eps=1e-06",
    rms_norm_before_gelu: f"1 rms_norm {ROWS} decomposed eps=1e-06 (gelu follows)",
    sum_before_rms_norm: f"1 rms_norm {ROWS} decomposed residual eps=1e-06",
    bias_before_rms_norm: f"1 rms_norm {ROWS} decomposed eps=1e-06",
    modulated: f"1 modulated_norm batch={B} rows={S} cols={D} float32 decomposed norm=layer_norm eps=1e-06",
    gated_behind: f"1 gated_norm rows={B * S} heads=1 cols={D} float32 decomposed norm=rms_norm "
    "order=norm_first eps=1e-06",
    gated_before: f"1 gated_norm rows={B * S} heads=1 cols={D} float32 decomposed norm=rms_norm "
    "order=gate_first eps=1e-06",
    l2_norm_with_clamp: f"1 l2_norm {ROWS} decomposed eps=1e-12",
    l2_norm_of_gated_delta: f"1 l2_norm {ROWS} decomposed eps_mode=add eps=1e-06",
    l2_norm_of_a_sum: f"1 l2_norm {ROWS} decomposed eps=1e-08 (the model adds 1e-08 to the norm instead)",
    l1_norm: f"1 l2_norm {ROWS} decomposed p=1 eps=1e-12",
    l2_norm_without_eps: f"1 l2_norm {ROWS} decomposed eps_mode=none",
    decomposed_softmax: f"1 softmax batch={B} queries={S} cols={D} float32 decomposed",
    masked_softmax: f"1 softmax batch={B} queries={S} cols={S} float32 fused mask scale=0.125",
    heads: f"1 qk_norm batch={B} tokens={S} q_heads={H} k_heads=2 dim=8 float32 decomposed norm=rms_norm eps=1e-06",
    heads_behind_the_transpose: f"1 qk_norm batch={B} tokens={S} q_heads={H} k_heads={H} dim=8 float32 "
    "decomposed layout=heads_first norm=rms_norm weight_per_head eps=1e-06",
    gated_residual: f"1 modulated_norm batch={B} rows={S} cols={D} float32 fused gate norm=layer_norm residual "
    "eps=1e-06",
    batch_masked_softmax: f"1 softmax batch={B} queries={S} cols={S} float32 fused batch_mask",
    one_head: f"1 rms_norm rows={B * S * H} cols=8 float32 decomposed eps=1e-06",
}


def begun() -> Graph:
    g = Graph(x=X, c=(B, 4), m=(S, S))
    g.types["m"] = onnx.TensorProto.BOOL
    return g


@pytest.mark.sampled(ids=["plain_layer_norm", "modulated", "heads"])
@pytest.mark.parametrize("build", DECOMPOSED, ids=lambda build: build.__name__)
def test_decomposed(build: Callable[[Graph], str], tmp_path: Path) -> None:
    g = begun()
    found = scanned(g.model(build(g)), tmp_path)
    assert [line(use) for use in found.uses] == [DECOMPOSED[build]] and not found.missing


# --- one node


def fused(
    op: str, *weights: str, domain: str = "", inputs: int = 1, **attributes: Any
) -> Callable[[Graph], str]:
    """Return a function that adds a node with some weights of the last axis, and ""s for absent ones."""

    def build(g: Graph) -> str:
        given = [g.random(D, name=name) if name else "" for name in weights]
        return g.node(op, *["x"] * inputs, *given, domain=domain, **attributes)

    return build


MS = "com.microsoft"
IMAGE = (2, 32, 4, 4)
FUSED: dict[str, tuple[Callable[[Graph], str], int, str]] = {
    "layer norm": (fused("LayerNormalization", "g", "b"), 17, f"1 layer_norm {ROWS} fused eps=1e-05"),
    "layer norm of two axes": (
        fused("LayerNormalization", "g", axis=1),
        17,
        f"1 layer_norm rows={B} cols={S * D} float32 fused bias=false eps=1e-05",
    ),
    "rms norm": (fused("RMSNormalization", "g", epsilon=1e-6), 23, f"1 rms_norm {ROWS} fused eps=1e-06"),
    "simplified": (fused("SimplifiedLayerNormalization", "g"), 17, f"1 rms_norm {ROWS} fused eps=1e-05"),
    "skip": (
        fused("SkipLayerNormalization", "g", "b", "added", domain=MS, inputs=2),
        17,
        f"1 layer_norm {ROWS} fused residual residual_bias eps=1e-12",
    ),
    "skip simplified": (
        fused("SkipSimplifiedLayerNormalization", "g", domain=MS, inputs=2, epsilon=1e-6),
        17,
        f"1 rms_norm {ROWS} fused residual eps=1e-06",
    ),
    "l2": (fused("LpNormalization", axis=-1), 17, f"1 l2_norm {ROWS} fused eps_mode=none"),
    "l1": (fused("LpNormalization", p=1), 17, f"1 l2_norm {ROWS} fused eps_mode=none p=1"),
    "softmax": (fused("Softmax", axis=-1), 17, f"1 softmax batch={B} queries={S} cols={D} float32 fused"),
    "softmax of another axis": (
        fused("Softmax", axis=1),
        17,
        f"1 softmax batch={B * D} queries=1 cols={S} float32 fused (over axis 1 of 3: the elements of a row lie apart)",
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FUSED)
def test_fused(name: str, tmp_path: Path) -> None:
    build, opset, expected = FUSED[name]
    g = begun()
    y = build(g)
    model = g.model(y, opset=opset)
    found = scanned(model, tmp_path)
    assert [line(use) for use in found.uses] == [expected]


def group_norm_of_torch(g: Graph) -> str:
    """Write GroupNorm as torch's older exporter does, and SiLU behind it."""
    flat = g.node("Reshape", "x", g.ints(0, 8, -1))
    ones, zeros = g.weight(np.ones(8)), g.weight(np.zeros(8))
    y = g.node(
        "Reshape", g.node("InstanceNormalization", flat, ones, zeros, epsilon=1e-6), g.node("Shape", "x")
    )
    y = g.node("Mul", y, g.random(32, 1, 1))
    return silu(g, g.node("Add", y, g.random(32, 1, 1)))


def group_norm_of_means(g: Graph) -> str:
    flat = g.node("Reshape", "x", g.ints(2, 8, 4, 4, 4))
    axes = g.ints(2, 3, 4)
    apart = g.node("Sub", flat, g.node("ReduceMean", flat, axes))
    variance = g.node("ReduceMean", g.node("Mul", apart, apart), axes)
    y = g.node("Div", apart, g.node("Sqrt", g.node("Add", variance, g.weight(1e-5))))
    return g.node("Mul", g.node("Reshape", y, g.ints(*IMAGE)), g.random(1, 32, 1, 1))


def group_norm_of_onnx(g: Graph) -> str:
    return g.node("GroupNormalization", "x", g.random(32), g.random(32), num_groups=8, epsilon=1e-5)


def channels_last(g: Graph) -> str:
    last = g.node("Transpose", "x", perm=[0, 2, 3, 1])
    weights = g.random(32), g.random(32)
    return g.node("GroupNorm", last, *weights, domain=MS, groups=8, activation=1, epsilon=1e-5)


def instance_norm(g: Graph) -> str:
    return g.node("InstanceNormalization", "x", g.random(32), g.random(32), epsilon=1e-5)


def instance_norm_without_weight(g: Graph) -> str:
    return g.node("InstanceNormalization", "x", g.weight(np.ones(32)), g.weight(np.zeros(32)), epsilon=1e-5)


def mean_variance(g: Graph) -> str:
    return g.node("MeanVarianceNormalization", "x")


def layer_norm_of_channels(g: Graph) -> str:
    """Normalize the channels of each pixel, as ConvNeXt does."""
    mean = g.node("ReduceMean", "x", g.ints(1))
    apart = g.node("Sub", "x", mean)
    variance = g.node("ReduceMean", g.node("Pow", apart, g.weight(2.0)), g.ints(1))
    return g.node("Div", apart, g.node("Sqrt", g.node("Add", variance, g.weight(1e-6))))


GROUPED = "1 group_norm batch=2 channels=32 spatial=16 groups={} float32"
IMAGES: dict[Callable[[Graph], str], tuple[int, str]] = {
    group_norm_of_torch: (17, f"{GROUPED.format(8)} fused activation=silu eps=1e-06"),
    group_norm_of_means: (18, f"{GROUPED.format(8)} decomposed bias=false eps=1e-05"),
    group_norm_of_onnx: (21, f"{GROUPED.format(8)} fused eps=1e-05"),
    instance_norm: (17, f"{GROUPED.format(32)} fused eps=1e-05"),
    instance_norm_without_weight: (17, f"{GROUPED.format(32)} fused bias=false weight=false eps=1e-05"),
    channels_last: (17, f"{GROUPED.format(8)} fused activation=silu layout=channels_last eps=1e-05"),
    mean_variance: (
        17,
        "1 group_norm batch=1 channels=512 spatial=2 groups=32 float32 fused bias=false layout=channels_last "
        "weight=false eps=1e-18",
    ),
    layer_norm_of_channels: (
        18,
        "1 layer_norm rows=32 cols=32 float32 decomposed bias=false weight=false eps=1e-06 "
        "(over axis 1 of 4: the elements of a row lie apart)",
    ),
}


@pytest.mark.sampled(ids=["group_norm_of_torch", "mean_variance"])
@pytest.mark.parametrize("build", IMAGES, ids=lambda build: build.__name__)
def test_images(build: Callable[[Graph], str], tmp_path: Path) -> None:
    opset, expected = IMAGES[build]
    g = Graph(x=IMAGE)
    assert [line(use) for use in scanned(g.model(build(g), opset=opset), tmp_path).uses] == [expected]


# --- types


def test_casts_show_the_type_and_the_rounding(tmp_path: Path) -> None:
    """Llama computes in float32 and rounds before the weight, Gemma behind it."""
    expected = {True: "decomposed rounding=before_weight eps=1e-06", False: "weight_dtype=float32 eps=1e-06"}
    for before, end in expected.items():
        g = Graph(x=X)
        g.types["x"] = onnx.TensorProto.FLOAT16
        wide = g.node("Cast", "x", to=FLOAT)
        mean = g.node("ReduceMean", g.node("Pow", wide, g.weight(2.0)), g.ints(-1))
        y = g.node("Div", wide, g.node("Sqrt", g.node("Add", mean, g.weight(1e-6))))
        if before:
            y = g.node("Mul", g.node("Cast", y, to=10), g.random(D, dtype=np.float16))
        else:
            y = g.node("Cast", g.node("Mul", y, g.random(D)), to=10)
        (use,) = scanned(g.model(y), tmp_path).uses
        assert (use.op, use.dtype) == ("rms_norm", "float16") and line(use).endswith(end)


# --- functions and subgraphs


def test_functions_are_read(tmp_path: Path) -> None:
    """A function that is called twice contains its norm twice."""
    body = Graph()
    mean = body.node("ReduceMean", body.node("Mul", "x", "x"), "axes")
    y = body.node("Div", "x", body.node("Sqrt", body.node("Add", mean, "eps")))
    function = onnx.helper.make_function(
        "own", "Norm", ["x", "axes", "eps"], [y], body.nodes, [onnx.helper.make_opsetid("", 18)]
    )
    g = Graph(x=X)
    axes, eps = g.ints(-1), g.weight(1e-6)
    first = g.node("Norm", "x", axes, eps, domain="own")
    second = g.node("Norm", first, axes, eps, domain="own")
    g.functions = [function]
    found = scanned(g.model(second), tmp_path)
    assert [line(use) for use in found.uses] == [f"2 rms_norm {ROWS} decomposed weight=false eps=1e-06"]


def test_subgraphs_are_read(tmp_path: Path) -> None:
    """Both branches count, and read values of the graph around them."""
    g = Graph(x=X, c=())
    g.types["c"] = onnx.TensorProto.BOOL
    weight = g.random(D)
    branches = {}
    for name in ("then_branch", "else_branch"):
        inner = Graph()
        y = inner.node("LayerNormalization", "x", weight, epsilon=1e-5)
        info = onnx.helper.make_tensor_value_info(y, FLOAT, X)
        branches[name] = onnx.helper.make_graph(inner.nodes, name, [], [info])
    found = scanned(g.model(g.node("If", "c", **branches)), tmp_path)
    assert [line(use) for use in found.uses] == [f"2 layer_norm {ROWS} fused bias=false eps=1e-05"]


# --- graphs without norms


def batch_norm(g: Graph) -> str:
    return g.node("BatchNormalization", "x", g.random(S), g.random(S), g.random(S), g.random(S))


def pooling(g: Graph) -> str:
    return g.node("ReduceMean", "x", g.ints(1))


def variance_alone(g: Graph) -> str:
    return centred(g, "x")[1]


def deviation_alone(g: Graph) -> str:
    return g.node("Sqrt", g.node("Add", centred(g, "x")[1], g.weight(1e-5)))


def exponentials(g: Graph) -> str:
    power = g.node("Exp", "x")
    return g.node("Div", power, g.node("ReduceMax", power, g.ints(-1)))


def other_tensor_divided(g: Graph) -> str:
    """Divide something else than the tensor that the statistic is of."""
    mean = g.node("ReduceMean", g.node("Mul", "x", "x"), g.ints(-1))
    return g.node("Div", g.node("Tanh", "x"), g.node("Sqrt", g.node("Add", mean, g.weight(1e-6))))


def other_mean(g: Graph) -> str:
    """Subtract the mean over one axis, and divide by the deviation over another."""
    apart = g.node("Sub", "x", g.node("ReduceMean", "x", g.ints(1)))
    mean = g.node("ReduceMean", g.node("Mul", apart, "x"), g.ints(-1))
    return g.node("Div", apart, g.node("Sqrt", g.node("Add", mean, g.weight(1e-6))))


def cubes(g: Graph) -> str:
    mean = g.node("ReduceMean", g.node("Pow", "x", g.weight(3.0)), g.ints(-1))
    return g.node("Div", "x", g.node("Sqrt", g.node("Add", mean, g.weight(1e-6))))


def scaled_attention(g: Graph) -> str:
    return g.node("Div", "x", g.node("Sqrt", g.weight(64.0)))


NOTHING = (
    batch_norm,
    pooling,
    variance_alone,
    deviation_alone,
    exponentials,
    other_tensor_divided,
    other_mean,
    cubes,
    scaled_attention,
)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("build", NOTHING, ids=lambda build: build.__name__)
def test_no_false_norms(build: Callable[[Graph], str], tmp_path: Path) -> None:
    g = begun()
    found = scanned(g.model(build(g)), tmp_path)
    assert [line(use) for use in found.uses] == [] and not found.missing


# --- dimensions


def test_symbolic_dimensions(tmp_path: Path) -> None:
    g = Graph(x=("batch", "sequence", D), m=(S, S), c=(B, 4))
    model = g.model(layer_norm(g, "x"))
    found = scanned(model, tmp_path)
    assert [line(use) for use in found.uses] == lines(
        f"1 layer_norm rows=128 cols={D} float32 decomposed eps=1e-05"
    )
    assert found.assumed == {"batch": 1, "sequence": 128}
    (use,) = (found := scanned(model, tmp_path, sequence=7, batch=3)).uses
    assert (use.sizes, found.assumed) == ({"rows": 21, "cols": D}, {})


def test_rows_of_a_norm_after_an_unknown_node(tmp_path: Path) -> None:
    """The shape behind a node of a foreign domain is unknown, and so the norm is reported as missing."""
    g = Graph(x=X)
    found = scanned(g.model(layer_norm(g, g.node("Own", "x", domain="own"))), tmp_path)
    assert found.uses == () and [one.partition(" at ")[0] for one in found.missing] == ["layer_norm"]
