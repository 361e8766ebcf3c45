// /// webnorm
// ops = ["layer_norm", "rms_norm"]
// summary = "As much of the row as fits stays in registers and workgroup memory; the rest is read again."
// differs = "Takes rows that are too long for registers alone, and reads once what it can keep."
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
// cached_steps = "min(steps - held_steps, max(workgroup_storage - reductions, 0) // (4 * itemsize * threads_per_row))"
// [accuracy]
// serial_terms = "steps"
// ///

// Each invocation reads back what it wrote itself, so that workgroup memory needs no barrier. Narrow types lie in
// it as they are stored, twice as many columns to a byte.
{% from "lib/moments.wgsl" import moment_reductions, swept_moments, normalised with context %}
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
    {% call(h) write_row() %}{{ normalised(h) }}{% endcall %}

    {% endcall %}
}
