{#- The assignment of rows to workgroups and invocations. -#}
{% from "lib/dtype.wgsl" import shifted, lanes with context %}
{% from "lib/place.wgsl" import locate with context %}
{#- Text: the number of rows. An op whose rows are not its batch sets `row_count`. -#}
{% set row_count = row_count if row_count is defined else "params.rows" %}
{#- The invocation's row within a group of rows. Rows past the last are clamped to it instead of returning early, because
    every invocation has to reach the barriers and subgroup operations. `row_exists` guards the store. -#}
{% macro locate_row(group) %}
{% if rows_per_workgroup == 1 %}
    let row_index = {{ group }};
{% else %}
    let row_index = {{ group }} * {{ rows_per_workgroup }}u + place / THREADS;
{% endif %}
    let row_exists = row_index < {{ row_count }};
    let row = min(row_index, {{ row_count }} - 1u);
{% if shifted %}
    row_shift = (params.x_start + row_index * COLS) % {{ lanes }}u;
{% endif %}
{% if tracing %}
    traced_row = select(traced_past, row, row_exists);
{% endif %}
{% endmacro %}
{#- The body of an entry point, `{% call each_row() %} body {% endcall %}`: once for its row, or for several rows in turn
    if the number of workgroups is capped. -#}
{% macro each_row() %}
{% set body = caller() %}
{{ locate("thread" ~ body) }}
{% if capped is defined and capped %}
    let workgroup_count = workgroups.x * workgroups.y;
    for (var group = workgroup; group * {{ rows_per_workgroup }}u < {{ row_count }}; group += workgroup_count) {
{{ locate_row("group") }}
{{ body }}
        next_turn();
    }
{% else %}
{{ locate_row("workgroup") }}
{{ body }}
{% endif %}
{% endmacro %}
