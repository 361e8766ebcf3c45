{#- The shader's interface: features, the uniform, one storage binding per tensor.
    `access_width` is 4 when rows start on multiples of four elements, else 1. #}

{% set element = "vec4<f32>" if access_width == 4 else "f32" %}
{% if target == "browser" %}
{% for feature in features %}
enable {{ feature }};
{% endfor %}
{% endif %}

// `start` is the element of each per-row binding at which the slice's first row begins.
struct Params { rows: u32, start: u32, eps: f32 }
@group(0) @binding(0) var<uniform> params: Params;
{% for binding in bindings %}
@group(0) @binding({{ binding.index }}) var<storage, {{ binding.access }}> {{ binding.name }}: array<{{ element }}>;
{% endfor %}
{% if count_cost %}
@group(0) @binding({{ bindings|length + 1 }}) var<storage, read_write> cost: array<atomic<u32>>;
{% endif %}

const COLS = {{ cols }}u;
const PER_COLUMN = 1.0 / f32(COLS);
{% if subgroups and target == "browser" %}

var<workgroup> subgroups_drawn: atomic<u32>;  // see lib/locate.wgsl
{% endif %}
