{#- The sums over rows (dweight, dbias, dresidual_bias), and the store of a chunk of them. -#}
{% from "lib/dtype.wgsl" import chunked, shifted, word_type, per_word, encoded with context %}
{% set summed = (["dweight"] if has_weight else []) + (["dbias"] if has_bias else []) + (["dresidual_bias"] if has_residual_bias else []) %}
{#- A walk down columns that accumulates `dweight` and `dbias`. At its end, the sums of `deep` invocations are added for
    each of `wide` chunks. `share` is the number of an invocation among these, `chunk` is its chunk of columns. -#}
{% macro walk_memory() %}
{% for name in summed %}
var<workgroup> {{ name }}_sums: array<vec4<f32>, {{ workgroup_size }}>;
{% endfor %}
{% endmacro %}
{% macro end_walk(wide, deep) %}
{% for name in summed %}
        {{ name }}_sums[place] = {{ name }};
{% endfor %}
        workgroupBarrier();
{% for power in range(10, -1, -1) if 2 ** power < deep %}
        if (share < {{ 2 ** power }}u) {
{% for name in summed %}
            {{ name }}_sums[place] += {{ name }}_sums[place + {{ wide * 2 ** power }}u];
{% endfor %}
        }
        workgroupBarrier();
{% endfor %}
        if (share == 0u && chunk < CHUNKS) {
{% for name in summed %}
            store_{{ name }}(chunk, {{ name }}_sums[place]);
{% endfor %}
        }
{% endmacro %}
{#- Declarations at module scope. -#}
{% macro column_stores() %}
{% for name in summed %}
{% set tensor = (tensors | selectattr("name", "eq", name) | first) %}
fn store_{{ name }}(chunk: u32, value: vec4<f32>) {
{% if chunked and not shifted %}
    {{ name }}[chunk] = {{ encoded(tensor.dtype, "value") }};
{% elif (per_word(tensor.dtype) | int) == 1 %}
{% for c in "xyzw" %}
    if (4u * chunk + {{ loop.index0 }}u < COLS) { {{ name }}[4u * chunk + {{ loop.index0 }}u] = {{ word_type(tensor.dtype) }}(value.{{ c }}); }
{% endfor %}
{% else %}
    let columns = vec4(4u * chunk) + vec4(0u, 1u, 2u, 3u);
    let bits = {{ encoded(tensor.dtype, "select(vec4(0.0), value, columns < vec4(COLS))") }};
    {{ name }}[2u * chunk] = bits.x;
    if (columns.z < COLS) { {{ name }}[2u * chunk + 1u] = bits.y; }
{% endif %}
}

{% endfor %}
{% endmacro %}
