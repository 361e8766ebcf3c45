"""Mutants of the kernels of elementwise ops and matrix-vector products. Each must fail its check."""

# Each mutant is a line of a table.
# fmt: off

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A mistake in a kernel: `new` replaces each `old` in its text."""

    kernel: str
    name: str
    old: str
    new: str


GELU = (
    Mutant("naive", "fifth digit of a coefficient", '"0.282086418"', '"0.282096418"'),
    Mutant("naive", "erf of x in place of x / sqrt(2)", "abs(x) * 0.7071067812", "abs(x)"),
    Mutant("naive", "exponent without its half", "exp(-0.5 * x * x)", "exp(-x * x)"),
    Mutant(
        "naive", "tails swapped", "select(1.0 - tail, tail, x < 0.0)", "select(tail, 1.0 - tail, x < 0.0)"
    ),
    Mutant("naive", "tail not halved", "0.5 * polynomial * t", "polynomial * t"),
    Mutant("naive", "fifth digit of sqrt(2 / pi)", "0.7978845608", "0.7978145608"),
    Mutant("naive", "third digit of 0.044715", "0.044715", "0.044815"),
    Mutant("naive", "square in place of the cube", "0.044715 * x * x * x", "0.044715 * x * x"),
    Mutant("naive", "sign of the exponent", "clamp(-2.0 * u", "clamp(2.0 * u"),
    Mutant(
        "naive", "last element left out", "if (i >= params.rows * cols)", "if (i + 1u >= params.rows * cols)"
    ),
    Mutant("naive", "factor x missing", "x * normal_cdf(x)", "normal_cdf(x)"),
    Mutant("vectors", "last coefficient left out", ', "0.282086418"]', "]"),
    Mutant("vectors", "fourth digit of the first coefficient", "0.059068944", "0.059078944"),
    Mutant("vectors", "clamp that is too narrow", "Vec(-80.0), Vec(80.0)", "Vec(-8.0), Vec(8.0)"),
    Mutant("vectors", "stride counted in vec4", "j * workgroup_size * vector_width", "j * workgroup_size"),
    Mutant(
        "vectors",
        "last vec4 read one too early",
        "end - {{ vector_width }}u",
        "end - {{ 2 * vector_width }}u",
    ),
    Mutant(
        "vectors",
        "workgroup count rounded down",
        "ceil_div(rows * cols, per_workgroup)",
        "max(1, rows * cols // per_workgroup)",
    ),
    Mutant(
        "vectors", "guard one vec4 short", "if (i{{ j }} < end)", "if (i{{ j }} + {{ vector_width }}u < end)"
    ),
)
SWIGLU = (
    Mutant(
        "naive",
        "gate and up swapped",
        "activation(load_gate(i)) * load_up(i)",
        "activation(load_up(i)) * load_gate(i)",
    ),
    Mutant("naive", "exp of the wrong sign", "exp(-abs(x))", "exp(abs(x))"),
    Mutant(
        "naive",
        "exp that overflows",
        "let e = exp(-abs(x));",
        "let e = exp(x) + 0.0 * x; if (true) { return x * (e / (1.0 + e)); }",
    ),
    Mutant(
        "naive", "logistic function of the wrong sign", "select(1.0, e, x < 0.0)", "select(e, 1.0, x < 0.0)"
    ),
    Mutant("naive", "factor x missing", "return x * select", "return select"),
    Mutant("naive", "sixth digit of 1", "/ (1.0 + e)", "/ (1.00001 + e)"),
    Mutant("naive", "leaky relu", "max(x, 0.0)", "max(x, 0.001 * x)"),
    Mutant("naive", "third digit of 0.044715", "0.044715", "0.044815"),
    Mutant("naive", "up of the element before", "load_up(i)", "load_up(max(i, 1u) - 1u)"),
    Mutant(
        "naive",
        "sum in place of the product",
        "activation(load_gate(i)) * load_up(i)",
        "activation(load_gate(i)) + load_up(i)",
    ),
    Mutant(
        "vectors",
        "up not clamped like gate",
        "load }}_up(last{{ j }})",
        "load }}_up(min(i{{ j }}, end - {{ vector_width }}u) / 8u * 4u)",
    ),
    Mutant("vectors", "up of another access", "* up{{ j }});", "* up{{ (j + 1) % accesses }});"),
    Mutant("vectors", "exponent not doubled", "clamp(-2.0 * u", "clamp(-u"),
    Mutant("vectors", "minimum in place of the maximum", "max(x, Vec())", "min(x, Vec())"),
    Mutant("vectors", "stride counted in vec4", "j * workgroup_size * vector_width", "j * workgroup_size"),
    Mutant(
        "vectors",
        "activation applied to the product",
        "activation(gate{{ j }}) * up{{ j }}",
        "activation(gate{{ j }} * up{{ j }})",
    ),
)
ROPE = (
    Mutant(
        "naive",
        "turned the wrong way round",
        "a * cos_value - b * sin_value",
        "a * cos_value + b * sin_value",
    ),
    Mutant("naive", "cos and sin swapped", "let cos_value = load_cos", "let cos_value = load_sin"),
    Mutant("naive", "second element not turned", "a * sin_value + b * cos_value", "b * cos_value"),
    Mutant(
        "naive",
        "first and second element swapped",
        "a * sin_value + b * cos_value",
        "b * sin_value + a * cos_value",
    ),
    Mutant("naive", "partner one element too near", "first + pairs;", "first + pairs - 1u;"),
    Mutant(
        "naive",
        "angle by head in place of token",
        "load_sin(token * pairs + pair)",
        "load_sin(head % params.tokens * pairs + pair)",
    ),
    Mutant("naive", "angle of the first token", "load_cos(token * pairs + pair)", "load_cos(pair)"),
    Mutant(
        "naive",
        "stride of the tables",
        "load_cos(token * pairs + pair)",
        "load_cos(token * (pairs - 1u) + pair)",
    ),
    Mutant("naive", "interleaved pairs that overlap", "head_dim + 2u * pair", "head_dim + pair"),
    Mutant("naive", "one pair too few", "if (i >= params.tokens", "if (i + 1u >= params.tokens"),
    Mutant("naive", "layouts swapped", '{% if layout == "halves" %}', '{% if layout != "halves" %}'),
    Mutant(
        "vectors", "sign lost in the second pair", "vec4(-s.x, s.x, -s.y, s.y)", "vec4(-s.x, s.x, s.y, s.y)"
    ),
    Mutant("vectors", "cos in the order of halves", "c.xxyy", "c.xyxy"),
    Mutant("vectors", "partners not swapped", "high{{ j }}.yxwz", "high{{ j }}"),
    Mutant("vectors", "last head left out", "heads - 1u)", "max(heads, 2u) - 2u)"),
    Mutant(
        "vectors",
        "heads of a group overlap",
        "{{ head_groups }}u * {{ heads_per_invocation }}u",
        "{{ head_groups }}u * {{ [heads_per_invocation - 1, 1] | max }}u",
    ),
    Mutant("vectors", "distance of the halves", "vector_width * runs if", "vector_width * (runs - 1) if"),
    Mutant(
        "vectors",
        "head groups rounded down",
        'head_groups = "ceil_div(heads, heads_per_invocation)"',
        'head_groups = "max(1, heads // heads_per_invocation)"',
    ),
)
MATVEC_INT8 = (
    Mutant("naive", "scale missing", "load_scale(row) * sum", "sum"),
    Mutant("naive", "scale of the next row", "load_scale(row)", "load_scale(min(row + 1u, params.n - 1u))"),
    Mutant("naive", "unsigned weights", "f32(load_w(row * k + i))", "f32(load_w(row * k + i) & 255)"),
    Mutant("naive", "last term left out", "i < k;", "i < k - 1u;"),
    Mutant("naive", "first term left out", "var i = 0u", "var i = 1u"),
    Mutant("naive", "stride of the rows", "row * k + i", "row * (k - 1u) + i"),
    Mutant("naive", "transposed weights", "row * k + i", "(i * params.n + row) % (params.n * k)"),
    Mutant("naive", "scale subtracted", "load_scale(row) * sum", "sum - load_scale(row)"),
    Mutant("naive", "sixth digit of the scale", "load_scale(row) * sum", "1.00001 * load_scale(row) * sum"),
    Mutant(
        "rows_in_registers",
        "sums not joined",
        "let sums = joined(own, place, lane, subgroup_size);",
        "let sums = own;",
    ),
    Mutant(
        "rows_in_registers",
        "every row gets the first's sum",
        '"[" ~ r ~ "]" if rows > 1',
        '"[0]" if rows > 1',
    ),
    Mutant("rows_in_registers", "last component not added", 'sum" ~ r ~ ".w)"', 'sum" ~ r ~ ".z)"'),
    Mutant(
        "rows_in_registers",
        "terms past the end added",
        "select(Vec(), {{ load }}_x(i{{ j }}), is_inside{{ j }})",
        "{{ load }}_x(i{{ j }})",
    ),
    Mutant(
        "rows_in_registers",
        "steps overlap",
        "start += {{ stride * words }}u",
        "start += {{ stride * words - vector_width }}u",
    ),
    Mutant(
        "rows_in_registers",
        "invocations begin one element apart",
        "var start = {{ vector_width }}u * thread",
        "var start = thread",
    ),
    Mutant(
        "rows_in_registers",
        "row before the last left out",
        "store_y(row{{ r }}, load_scale(row{{ r }})",
        "store_y(max(row{{ r }}, 1u) - 1u, load_scale(row{{ r }})",
    ),
    Mutant(
        "rows_in_registers",
        "workgroup count rounded down",
        "ceil_div(n, rows_per_workgroup * rows)",
        "max(1, n // (rows_per_workgroup * rows))",
    ),
    Mutant(
        "rows_in_registers",
        "one row of a group twice",
        "min(first + {{ r }}u, params.n - 1u)",
        "min(first, params.n - 1u)",
    ),
)
MATVEC_INT4 = (
    Mutant("naive", "zero point of 7", "f32(code) - 8.0", "f32(code) - 7.0"),
    Mutant("naive", "zero point missing", "(f32(code) - 8.0)", "f32(code)"),
    Mutant("naive", "nibbles from the highest down", "4u * (i % 8u)", "28u - 4u * (i % 8u)"),
    Mutant("naive", "nibbles of each byte swapped", "4u * (i % 8u)", "4u * ((i % 8u) ^ 1u)"),
    Mutant("naive", "three bits of a code", "4u * (i % 8u), 4u)", "4u * (i % 8u), 3u)"),
    Mutant("naive", "groups of 64", "+ i / 32u)", "+ i / 64u)"),
    Mutant("naive", "stride of the scales", "row * (k / 32u)", "row * (k / 64u)"),
    Mutant("naive", "scale missing", "load_scale(row * (k / 32u) + i / 32u) * ", ""),
    Mutant("naive", "last term left out", "i < k;", "i < k - 1u;"),
    Mutant("naive", "scale of the group before", "+ i / 32u)", "+ (max(i, 32u) - 32u) / 32u)"),
    Mutant("rows_in_registers", "halves of a word swapped", "{{ j % 2 * 16 }}u", "{{ (1 - j % 2) * 16 }}u"),
    Mutant(
        "rows_in_registers",
        "scale of another part",
        'part{{ " / 4u" if words == 1 }}',
        'part{{ " / 8u" if words == 1 }}',
    ),
    Mutant("rows_in_registers", "the first four of x twice", "part + {{ 4 * j }}u", "part"),
    Mutant("rows_in_registers", "nibbles one bit off", "vec4(0u, 4u, 8u, 12u)", "vec4(0u, 4u, 8u, 11u)"),
    Mutant("rows_in_registers", "last part left out", "part < {{ parts }}u", "part + 1u < {{ parts }}u"),
    Mutant(
        "rows_in_registers",
        "a component added twice",
        "sum{{ r }}.z + sum{{ r }}.w",
        "sum{{ r }}.z + sum{{ r }}.z",
    ),
    Mutant(
        "rows_in_registers",
        "sums not joined",
        "let sums = joined(own, place, lane, subgroup_size);",
        "let sums = own;",
    ),
    Mutant(
        "rows_in_registers", "every row with the first's scale", "fma(vec4(scale{{ r }})", "fma(vec4(scale0)"
    ),
    Mutant("rows_in_registers", "parts visited twice", "part += THREADS", "part += THREADS / 2u"),
)
DEPTHWISE_CONV1D = (
    Mutant(
        "naive",
        "causal padding one too short",
        "const before = taps - 1u;",
        "const before = max(taps, 2u) - 2u;",
    ),
    Mutant("naive", "same padding with the odd zero before", "(taps - 1u) / 2u", "taps / 2u"),
    Mutant("naive", "paddings swapped", '{% if padding == "causal" %}', '{% if padding != "causal" %}'),
    Mutant("naive", "filter flipped", "channel * taps + tap)", "channel * taps + taps - 1u - tap)"),
    Mutant("naive", "last tap left out", "tap < taps;", "tap < taps - 1u;"),
    Mutant("naive", "channel by sequence", "i / length % channels", "i / (length * channels) % channels"),
    Mutant("naive", "reads the row behind", "padded - before < length", "padded - before <= length"),
    Mutant(
        "naive",
        "reads the row before",
        "padded >= before && padded - before < length",
        "padded - before < length || (padded < before && i - position > before)",
    ),
    Mutant("naive", "bias subtracted", "sum += load_bias(channel)", "sum -= load_bias(channel)"),
    Mutant("naive", "bias of the first channel", "load_bias(channel)", "load_bias(0u)"),
    Mutant(
        "naive",
        "stride of the weights",
        "load_w(channel * taps + tap)",
        "load_w(channel * (taps - 1u) + tap)",
    ),
    Mutant(
        "vectors",
        "one block of taps too few",
        'blocks = "ceil_div(phase + taps, 4)"',
        'blocks = "max(1, ceil_div(phase + taps, 4) - 1)"',
    ),
    Mutant("vectors", "last tap left out", "tap - {{ phase }}u < taps", "tap - {{ phase }}u + 1u < taps"),
    Mutant("vectors", "zeros outside the row missing", "select(vec4(0.0), x, inside)", "x"),
    Mutant(
        "vectors", "window one element off", "vec4({{ a }}.zw, {{ b }}.xy)", "vec4({{ a }}.yzw, {{ b }}.x)"
    ),
    Mutant("vectors", "weights in reverse", "found[{{ k }}u]", "found[{{ 3 - k }}u]"),
    Mutant(
        "vectors",
        "window one vec4 further right",
        "chunk - {{ lead }}u, inside",
        "chunk + 1u - {{ lead }}u, inside",
    ),
    Mutant(
        "vectors", "window not moved on", "x{{ j }} = x{{ j + 1 }};", "x{{ j }} = x{{ [j + 1, 1] | min }};"
    ),
    Mutant("vectors", "guard of one vec4 less", "if (first + {{ j }}u <", "if (first + {{ j }}u + 1u <"),
)
MUTANTS: dict[str, tuple[Mutant, ...]] = {
    "gelu": GELU,
    "swiglu": SWIGLU,
    "rope": ROPE,
    "matvec_int8": MATVEC_INT8,
    "matvec_int4": MATVEC_INT4,
    "depthwise_conv1d": DEPTHWISE_CONV1D,
}
