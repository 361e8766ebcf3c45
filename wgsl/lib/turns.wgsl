{#- For invocations that work on several rows in turn. -#}
{% from "lib/looped.wgsl" import looped with context %}
{% if looped %}

// The set of workgroup memory for the reductions of this row, 0 or 1.
var<private> turn: u32;

fn next_turn() {
    turn = 1u - turn;
}
{% endif %}
