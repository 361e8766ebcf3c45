{#- Who works on what. `place` numbers the invocations of a workgroup so that subgroups are runs of it and a
    lane is its place within one. WGSL does not promise that of local_invocation_index. -#}
{% from "lib/dtype.wgsl" import shifted, lanes with context %}
{#- `body`: text that follows, where it is known. What it does not name is left out. -#}
{% macro locate(body="thread subgroup_size lane") %}
{% if subgroups %}
    let place = subgroup * subgroup_size + lane;
{% else %}
{% if "subgroup_size" in body %}
    let subgroup_size = 1u;  // without subgroups, every invocation is one of its own
{% endif %}
{% if "lane" in body %}
    let lane = 0u;
{% endif %}
    let place = invocation;
{% endif %}
    let workgroup = workgroup_id.y * workgroups.x + workgroup_id.x;
{% if "thread" not in body %}
{% elif rows_per_workgroup == 1 %}
    let thread = place;
{% else %}
    let thread = place % THREADS;
{% endif %}
{% endmacro %}
{#- The row of a group of rows that this invocation works on. Rows past the last are clamped to it, not left
    early: every invocation has to reach the barriers and subgroup operations. `row_exists` guards the store. -#}
{% macro locate_row(group) %}
{% if rows_per_workgroup == 1 %}
    let row_index = {{ group }};
{% else %}
    let row_index = {{ group }} * {{ rows_per_workgroup }}u + place / THREADS;
{% endif %}
    let row_exists = row_index < params.rows;
    let row = min(row_index, params.rows - 1u);
{% if shifted %}
    row_shift = (params.x_start + row_index * COLS) % {{ lanes }}u;
{% endif %}
{% if tracing %}
    traced_row = select(traced_past, row, row_exists);
{% endif %}
{% endmacro %}
{#- The body of an entry point, `{% call each_row() %} body {% endcall %}`: once for its row, or for every row
    in turn where the number of workgroups is capped. -#}
{% macro each_row() %}
{% set body = caller() %}
{{ locate("thread" ~ body) }}
{% if capped %}
    let workgroup_count = workgroups.x * workgroups.y;
    for (var group = workgroup; group * {{ rows_per_workgroup }}u < params.rows; group += workgroup_count) {
{{ locate_row("group") }}
{{ body }}
        next_turn();
    }
{% else %}
{{ locate_row("workgroup") }}
{{ body }}
{% endif %}
{% endmacro %}
