// /// webnorm
// ops = ["layer_norm", "rms_norm"]
// summary = "Keeps as much of the row as fits in registers and workgroup memory, and reads the rest again."
// differs = "Supports rows that are too long for registers: it keeps a part of each row in workgroup memory, and reads the kept part only once."
// rung = 8
// layout = "row_per_workgroup"
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [32, 64, 128, 256, 512, 1024]
// held = [0, 2, 4, 8, 12]
// subgroups = [true, false]
// [default]
// threads_per_row = "32 if software else min(1024, max_invocations)"
// held = 8
// subgroups = "has_subgroups"
// [derive]
// vector_width = 4
// sweep = "min(steps, 15000)"
// held_steps = "min(held, steps)"
// reductions = "16 * (1 + capped) * (threads_per_row // (4 if subgroups else 1) + 1)"
// cached_steps = "min(steps - held_steps, max(workgroup_storage - reductions, 0) // (4 * input_itemsize * threads_per_row))"
// [accuracy]
// serial_terms = "steps"
// ///

// Each invocation reads only its own data back, so workgroup memory needs no barrier. Narrow types keep their storage
// format there, which doubles the number of columns that fit.
{% from "lib/moments.wgsl" import moment_reductions, swept_moments, normalized with context %}
{% from "lib/sweep.wgsl" import row_cache, keep_row with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/write.wgsl" import write_row with context %}
{% include "lib/norm.wgsl" %}

{{ moment_reductions() }}

{{ row_cache() }}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{{ keep_row() }}
{{ swept_moments() }}
    {% call(h) write_row() %}{{ normalized(h) }}{% endcall %}

    {% endcall %}
}
