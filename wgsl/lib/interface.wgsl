{#- The shader's interface: features, the uniform, one storage binding per buffer. #}

{% from "lib/dtype.wgsl" import storage, chunked, shifted with context %}
{% from "lib/looped.wgsl" import looped with context %}
{% for feature in features %}
enable {{ feature }};
{% endfor %}
{% for feature in requires %}
requires {{ feature }};
{% endfor %}

{% include "lib/params.wgsl" %}
{% for buffer in buffers %}
@group(0) @binding({{ buffer.index }}) var<storage, {{ buffer.access }}> {{ buffer.name }}: array<{{ storage(buffer) }}>;
{% endfor %}

const COLS = {{ cols }}u;
const PER_COLUMN = 1.0 / f32(COLS);
{% if shifted %}

// Columns of other rows in the row's first chunk: the row's start modulo four elements.
var<private> row_shift: u32;
{% endif %}
{% include "lib/turns.wgsl" %}
