{#- The norm of a row of any finite numbers: the root of the sum of squares, or the sum of absolute values.

    Each invocation adds up its columns three times: as they are, times 2^-80 and times 2^96. The sum that neither
    overflows nor loses digits is chosen after the reduction (Blue 1978, with whole sums). So no maximum has to be known
    first, and one reduction is enough. float16 needs only the first sum.

    `sums_of(h)` is text for a Vec's terms. The kernel adds them up in `plain`, `shrunk` and `grown`. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% from "lib/direct.wgsl" import total with context %}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% set scaled = dtype != "float16" %}
{% set type = "vec3<f32>" if scaled else "f32" %}
{% macro norm_functions() %}
const SHRINK = {{ 0.5 ** 80 }};
const GROW = {{ 2.0 ** 96 }};

fn term(h: Vec) -> Vec {
    return {{ "abs(h)" if p == "1" else "h * h" }};
}

// The divisor of a row is 1 / (factor * reciprocal). The product of these numbers may overflow. A norm below eps
// is constant.
struct RowNorm {
    factor: f32,
    reciprocal: f32,
    constant: bool,
}

fn row_norm(sums: {{ type }}) -> RowNorm {
    var norm: RowNorm;
    norm.factor = 1.0;
    var sum = {{ "sums.x" if scaled else "sums" }};
{% if scaled %}
    // Where eps decides, the digits of a small sum do not matter.
    let size = {{ {"clamp": "max(sums.x, " ~ ("params.eps" if p == "1" else "params.eps * params.eps") ~ ")",
                   "add": "sums.x + params.eps", "none": "sums.x"}[eps_mode] }};
    if (size > {{ 2.0 ** 126 }}) {
        norm.factor = SHRINK;
        sum = sums.y;
    } else if (size < {{ 0.5 ** 70 }}) {
        norm.factor = GROW;
        sum = sums.z;
    }
{% endif %}
{% if eps_mode == "add" %}
    sum += params.eps * norm.factor{{ " * norm.factor" if p == "2" }};
{% endif %}
    let root = {{ "sum" if p == "1" else "sqrt(sum)" }};
{% if eps_mode == "clamp" %}
    let least = params.eps * norm.factor;
    norm.constant = root < least;
    norm.reciprocal = 1.0 / select(root, least, norm.constant);
{% elif eps_mode == "none" %}
    norm.reciprocal = select(1.0 / root, 0.0, root == 0.0);
{% else %}
    norm.reciprocal = 1.0 / root;
{% endif %}
    return norm;
}

{{ row_reduction("sum_terms", type) }}
{% endmacro %}
{#- Declares the sums. -#}
{% macro declare_sums() %}
    var plain = Vec();
{% if scaled %}
    var shrunk = Vec();
    var grown = Vec();
{% endif %}
{% endmacro %}
{#- Adds the terms of `h`, the text of a Vec. -#}
{% macro add_terms(h) %}
    plain += term({{ h }});
{% if scaled %}
    shrunk += term({{ h }} * SHRINK);
    grown += term({{ h }} * GROW);
{% endif %}
{% endmacro %}
{#- Text: the invocation's sums. -#}
{% macro own_sums() -%}
{{ "vec3(" ~ total("plain") ~ ", " ~ total("shrunk") ~ ", " ~ total("grown") ~ ")" if scaled else total("plain") }}
{%- endmacro %}
{#- Text: a Vec divided by the norm. -#}
{% macro divided(h) -%}
{{ h }}{{ " * norm.factor" if scaled }} * norm.reciprocal
{%- endmacro %}
