{#- Tiles of a tensor (batch, channels, spatial), see layouts/channel_tiles.toml. A workgroup has a tile of WIDE columns.
    Its invocations with the same column take the column's Vecs in turn, `tile_steps` each. A slot is one of the lanes of
    all columns, so slots number the elements of a Vec of each column. -#}
{% from "lib/dtype.wgsl" import lanes with context %}
{% set first_layout = layout == "channels_first" %}
{#- Pixels that count as one. Without tiles, always 1. -#}
{% set repeats = repeats if repeats is defined else 1 %}
{#- Text: the number of batch elements. An op whose batch is compiled in sets `batch_count`. -#}
{% set batch_count = batch_count if batch_count is defined else "params.batch" %}
{#- Text: the distance in `place` between invocations that follow each other in a column. -#}
{% set stride = "1u" if first_layout else "WIDE" %}
{#- Declarations at module scope: columns of Vecs, and tiles of them. -#}
{% macro column_functions() %}
const COLUMNS = {{ columns }}u;
const POINTS = {{ points }}u;  // Vecs per column
const GROUP_SIZE = channels / groups;

// The element of the tensor with which a Vec begins.
fn column_element(n: u32, column: u32, point: u32) -> u32 {
    return n * (channels * spatial) + {{ lanes }}u * ({{ "column * POINTS + point" if first_layout else "point * COLUMNS + column" }});
}

// The channel of a slot.
fn channel_of_slot(slot: u32) -> u32 {
    return {{ "slot / " ~ lanes ~ "u" if first_layout else ("slot" if repeats == 1 else "slot % channels") }};
}
{% endmacro %}
{% macro tile_functions() %}
{{ column_functions() }}
const WIDE = {{ wide }}u;  // columns per workgroup
const DEEP = {{ deep }}u;  // invocations per column
const TILES = {{ column_tiles }}u;  // workgroups that share the columns
const BLOCKS = {{ blocks }}u;  // workgroups that share the Vecs of a column
const BLOCK = {{ deep * tile_steps }}u;  // Vecs of a column in a workgroup
const SLOTS = {{ slots }}u;
const GROUP_SLOTS = {{ slots // groups }}u;
const CHANNEL_SLOTS = {{ slots // channels }}u;

// Slot i of a group.
fn slot_of_group(group: u32, i: u32) -> u32 {
{% if repeats == 1 %}
    return group * GROUP_SLOTS + i;
{% else %}
    return i / GROUP_SIZE * channels + group * GROUP_SIZE + i % GROUP_SIZE;
{% endif %}
}

// Slot i of a channel.
fn slot_of_channel(channel: u32, i: u32) -> u32 {
    return {{ "channel * CHANNEL_SLOTS + i" if first_layout else "i * channels + channel" }};
}

// The number of Vecs of a column in a block.
fn points_in(block: u32) -> f32 {
    return f32(min(BLOCK, POINTS - block * BLOCK));
}
{% endmacro %}
{#- The Vec of a word of each lane's group, from a scratch buffer with `words` words per group. -#}
{% macro by_group(buffer, words, word) -%}
{% set records = "params." ~ buffer ~ "_start + " ~ words ~ "u * (n * groups + " -%}
{% if first_layout or lanes == 1 -%}
Vec({{ buffer }}[{{ records }}channel_of_slot({{ lanes ~ "u * " if lanes > 1 }}column) / GROUP_SIZE) + {{ word }}u])
{%- else -%}
Vec({% for k in range(lanes) %}{{ buffer }}[{{ records }}channel_of_slot({{ lanes }}u * column + {{ k }}u) / GROUP_SIZE) + {{ word }}u]{{ ", " if not loop.last }}{% endfor %})
{%- endif %}
{%- endmacro %}
{#- The Vec of a function of each lane's channel. -#}
{% macro by_channel(function) -%}
{% if first_layout or lanes == 1 -%}
Vec({{ function }}(channel_of_slot({{ lanes ~ "u * " if lanes > 1 }}column)))
{%- else -%}
Vec({% for k in range(lanes) %}{{ function }}(channel_of_slot({{ lanes }}u * column + {{ k }}u)){{ ", " if not loop.last }}{% endfor %})
{%- endif %}
{%- endmacro %}
{#- The position of an invocation. Workgroups, columns and Vecs past the last are clamped, because every invocation has to
    reach the barriers. -#}
{% macro locate_tile() %}
    let place = invocation;
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
    let batch_index = workgroup / (TILES * BLOCKS);
    let n = min(batch_index, {{ batch_count }} - 1u);
{% if first_layout %}
    let block = workgroup % BLOCKS;
    let column_index = workgroup / BLOCKS % TILES * WIDE + place / DEEP;
    let share = place % DEEP;
{% else %}
    let block = workgroup / TILES % BLOCKS;
    let column_index = workgroup % TILES * WIDE + place % WIDE;
    let share = place / WIDE;
{% endif %}
    let column = min(column_index, COLUMNS - 1u);
    let column_exists = batch_index < {{ batch_count }} && column_index < COLUMNS;
    let first_point = block * BLOCK + share;
{% endmacro %}
{#- `{% call(k) tile_rounds(load) %} text for Vec k of a round {% endcall %}`: the text `load(k)` of all Vecs of a round comes
    first, so that their loads overlap. `element<k>` is the place of the Vec, and `live<k>` is true if it exists. The text
    `after` follows each round. -#}
{% macro tile_rounds(load, after="") %}
    for (var step = 0u; step < {{ tile_steps }}u; step += {{ together }}u) {
{% for k in range(together) %}
        let point{{ k }} = first_point + (step + {{ k }}u) * DEEP;
        let live{{ k }} = point{{ k }} < POINTS;
        let element{{ k }} = column_element(n, column, min(point{{ k }}, POINTS - 1u));
{{ load(k) }}
{% endfor %}
{% for k in range(together) %}
{{ caller(k) }}
{% endfor %}
{{ after }}
    }
{% endmacro %}
{#- Merges what the invocations of a column have in workgroup memory by the function `merge(place, other)`, eight at a time:
    an invocation writes only where it alone reads. -#}
{% macro merge_columns(merge) %}
    workgroupBarrier();
{% set after = [(deep + 7) // 8, (deep + 63) // 64, (deep + 511) // 512] %}
{% for span, left in [(deep, after[0]), (after[0], after[1]), (after[1], after[2])] if span > 1 %}
    // {{ span }} invocations of a column become {{ left }}.
    if (share < {{ left }}u) {
        for (var other = share + {{ left }}u; other < {{ span }}u; other += {{ left }}u) {
            {{ merge }}(place, place + (other - share) * {{ stride }});
        }
    }
    workgroupBarrier();
{% endfor %}
{% endmacro %}
