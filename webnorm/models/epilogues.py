"""The computations around a norm that its op includes: weight, bias, modulation, gates, activations, sums."""

from __future__ import annotations

from webnorm.models.norm_match import NormMatch, silu_input
from webnorm.models.onnx_graph import OnnxGraph, OnnxNode, other_input
from webnorm.models.vocabulary import ACTIVATED, ROUNDED, ROUNDING, ZERO_CENTERED

# Reshapes between a norm and its weight, as gated norms of groups have.
_MOST_RESHAPES = 2
_GELU_OPS = ("Gelu", "FastGelu")
_ROW_NORMS = ("layer_norm", "rms_norm")


def extend(found: NormMatch) -> None:
    """Add to a norm what its graph computes before and behind it."""
    if found.op in (*_ROW_NORMS, "group_norm"):
        _add_parameters(found)
    if found.op in _ROW_NORMS:
        _add_modulation(found)
        _add_gate(found)
    if found.op in (*_ROW_NORMS, *ACTIVATED):
        _add_activation(found)
        _add_residual(found)
    if found.op == "softmax":
        _add_scores(found)


# --- parameters


def _add_parameters(found: NormMatch) -> None:
    """Add a weight and a bias that follow in nodes of their own."""
    if not found.weight:
        _add_weight(found)
    if not found.bias and found.op != "rms_norm":
        step = _next(found, "Add")
        if step is not None and _is_affine(found, step[1]):
            found.bias, found.y = step[1], step[0].output(0)
    if found.weight:
        graph = found.graph
        found.weight_dtype = graph.type_of(_root_parameter(graph, found.weight)).dtype


def _add_weight(found: NormMatch) -> None:
    step = _next(found, "Mul")
    if step is None or not _is_affine(found, step[1]):
        return
    node, weight, seen = step
    graph = found.graph
    narrow = graph.type_of(seen).dtype
    wide = graph.type_of(found.node.output(0)).dtype
    if narrow == found.dtype and narrow not in ("", wide) and found.op in ROUNDED:
        found.options.append(ROUNDING)
    offset = graph.made_by(weight, "Add", views=True)
    if offset is not None:
        own = next((one for one in offset.inputs[:2] if graph.scalar(one) == 1), "")
        if own:
            found.options.append(ZERO_CENTERED)
            weight = other_input(offset, (own,))
    found.weight, found.y = weight, node.output(0)


def _root_parameter(graph: OnnxGraph, value: str) -> str:
    return graph.source(value, views=True)


def _next(found: NormMatch, op: str) -> tuple[OnnxNode, str, str] | None:
    """Return the only node behind y if it is of this op, its other input, and y's name there."""
    graph = found.graph
    step = graph.only_reader(found.y)
    for _ in range(_MOST_RESHAPES):
        if step is None or step[0].op not in ("Reshape", "Flatten") or not step[0].output(0):
            break
        step = graph.only_reader(step[0].output(0))
    if step is None or step[0].op != op or len(step[0].inputs) != 2:
        return None
    node, seen = step
    other = other_input(node, (seen,))
    return (node, other, seen) if other and node.output(0) else None


def _is_affine(found: NormMatch, value: str) -> bool:
    """Return whether a value can be a weight or bias: a parameter of more than one element."""
    graph = found.graph
    elements = graph.type_of(_root_parameter(graph, value)).elements or graph.type_of(value).elements
    expected = found.sizes.get("channels") if found.op == "group_norm" else found.cols
    fits = elements == expected or expected is None or (elements is not None and elements % expected == 0)
    return graph.is_parameter(value) and fits and (graph.scalar(value) is None or expected == 1)


# --- modulation and gates


def _add_modulation(found: NormMatch) -> None:
    """Match y * (1 + scale) + shift with a scale and a shift that depend on the input."""
    graph = found.graph
    step = _next(found, "Mul")
    if step is None or graph.is_parameter(step[1]):
        return
    offset = graph.made_by(step[1], "Add", views=True)
    if offset is None or not any(graph.scalar(one) == 1 for one in offset.inputs[:2]):
        return
    shift = graph.only_reader(step[0].output(0))
    if shift is None or shift[0].op != "Add":
        return
    elements, cols, rows = graph.type_of(step[1]).elements, found.cols, found.rows
    if not cols or not rows or (elements is not None and elements % cols):
        return
    batch = (elements or cols) // cols
    if rows % batch:
        return
    found.options.append(f"norm={found.op}")
    found.op, found.y = "modulated_norm", shift[0].output(0)
    found.sizes = {"batch": batch, "rows": rows // batch, "cols": cols}


def _add_gate(found: NormMatch) -> None:
    """Match norm(x) * silu(gate), and norm(x * silu(gate))."""
    graph, cols, rows = found.graph, found.cols, found.rows
    if not cols or not rows:
        return
    order = ""
    step = _next(found, "Mul")
    if step is not None and silu_input(graph, step[1]):
        order, found.y = "norm_first", step[0].output(0)
    else:
        product = graph.made_by(found.x, "Mul", views=True)
        if product is not None and _gated_product(graph, product):
            order = "gate_first"
    if order:
        found.options += [f"norm={found.op}", f"order={order}"]
        found.op = "gated_norm"
        weights = graph.type_of(_root_parameter(graph, found.weight)).elements if found.weight else cols
        heads = max(1, (weights or cols) // cols)
        found.sizes = {"rows": rows // heads, "heads": heads, "cols": cols}


def _gated_product(graph: OnnxGraph, product: OnnxNode) -> bool:
    """Return whether a product has a factor silu(gate), and is not itself a SiLU."""
    if silu_input(graph, product.output(0)):
        return False
    return any(silu_input(graph, one) for one in product.inputs[:2])


# --- activations and sums


def _add_activation(found: NormMatch) -> None:
    """Match an activation that alone reads y. Ops without one get a note."""
    name = _activation(found)
    if name and found.op in ACTIVATED:
        found.options.append(f"activation={name}")
    elif name:
        found.notes.append(f"{name} follows")


def _activation(found: NormMatch) -> str:
    """Return the name of the activation behind a norm, or ""."""
    graph = found.graph
    readers = graph.final_readers(found.y)
    nodes = [node for node, _ in readers]
    if not nodes or found.y in graph.outputs:
        return ""
    names = [node.op for node in nodes]
    if names in (["Swish"], ["Silu"]) or _is_silu(graph, readers):
        return "silu"
    if len(names) == 1 and names[0] in _GELU_OPS:
        tanh = names[0] == "FastGelu" or nodes[0].attributes.get("approximate") == "tanh"
        return "gelu_tanh" if tanh else "gelu"
    if _leads_to(graph, nodes, "Erf"):
        return "gelu"
    return "gelu_tanh" if _leads_to(graph, nodes, "Tanh") else ""


def _is_silu(graph: OnnxGraph, readers: list[tuple[OnnxNode, str]]) -> bool:
    gates = [node for node, _ in readers if node.op == "Sigmoid"]
    products = [node for node, _ in readers if node.op == "Mul"]
    if len(readers) != 2 or len(gates) != 1 or len(products) != 1:
        return False
    return bool(silu_input(graph, products[0].output(0)))


def _leads_to(graph: OnnxGraph, nodes: list[OnnxNode], op: str) -> bool:
    """Return whether a GELU's polynomial of y leads to `op` within its steps, and y's readers are its own."""
    pending, steps = list(nodes), 0
    if not 2 <= len(nodes) <= 5 or any(node.op not in ("Mul", "Div", "Pow", "Add") for node in nodes):
        return False
    while pending and steps < 24:
        node = pending.pop(0)
        steps += 1
        if node.op == op:
            return True
        if node.op in ("Mul", "Div", "Pow", "Add") and node.output(0):
            pending += graph.readers_of(node.output(0))
    return False


def _add_residual(found: NormMatch) -> None:
    """Match the sum of two tensors of x's shape in front of the norm, and a gate of one of them."""
    graph = found.graph
    if "residual" in found.options or found.op == "gated_norm":
        return
    node = graph.made_by(found.x, "Add", views=found.op == "group_norm")
    if node is None or any(graph.is_parameter(one) for one in node.inputs[:2]):
        return
    shapes = {graph.type_of(one).known_shape for one in (*node.inputs[:2], node.output(0))}
    if len(shapes) != 1 or None in shapes:
        return
    found.options.append("residual")
    if found.op == "modulated_norm" and any(_is_gated_by_batch(found, one) for one in node.inputs[:2]):
        found.options.append("gate")


def _is_gated_by_batch(found: NormMatch, value: str) -> bool:
    """Return whether a value is a product with one factor per batch element and column."""
    graph = found.graph
    product = graph.made_by(value, "Mul")
    if product is None or found.sizes["rows"] == 1:
        return False
    size = found.sizes["batch"] * found.sizes["cols"]
    return any(
        graph.type_of(one).elements == size and not graph.is_parameter(one) for one in product.inputs[:2]
    )


# --- softmax


def _add_scores(found: NormMatch) -> None:
    """Add the mask and the scale in front of a softmax."""
    graph = found.graph
    node = graph.made_by(found.x, "Add", "Where", "Mul", "Div")
    if node is not None and node.op == "Where":
        if any(graph.scalar(one) is not None for one in node.inputs[1:3]):
            kept = next((one for one in node.inputs[1:3] if graph.scalar(one) is None), "")
            found.options.append(_mask_name(found, node.input(0)))
            node = graph.made_by(kept, "Mul", "Div") if kept else None
    elif node is not None and node.op == "Add":
        product = _scores(graph, node)
        if product:
            found.options.append(_mask_name(found, other_input(node, (product,))))
            node = graph.made_by(product, "Mul", "Div")
    if node is None or node.op not in ("Mul", "Div"):
        return
    factor = graph.scalar(node.input(1))
    if factor not in (None, 0.0, 1.0) and graph.made_by(node.input(0), "MatMul") is not None:
        found.scalars["scale"] = factor if node.op == "Mul" else 1 / factor


def _mask_name(found: NormMatch, mask: str) -> str:
    """Return the option for a mask: one for all matrices of scores, or one for each."""
    shape = found.graph.type_of(mask).known_shape
    return "batch_mask" if shape is None or any(size != 1 for size in shape[:-2]) else "mask"


def _scores(graph: OnnxGraph, node: OnnxNode) -> str:
    """Return the input of a sum that a MatMul made, with or without a scale; "" if the sum is no mask."""
    for one in node.inputs[:2]:
        scaled = graph.made_by(one, "Mul", "Div")
        inner = scaled.input(0) if scaled is not None else one
        if graph.made_by(inner, "MatMul", "Gemm", "FusedMatMul") is not None:
            return one
    return ""
