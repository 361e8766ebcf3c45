// /// webnorm
// ops = ["layer_norm", "rms_norm"]
// summary = "One workgroup per row of any length, read again for each sweep, 16 bytes at a time."
// differs = "Has no limit on the row's length. If the rows in progress fit into the cache, all sweeps but the first read from the cache."
// rung = 9
// layout = "row_per_workgroup"
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [1, 32, 64, 128, 256, 512, 1024]
// vector_width = [4, 1]
// subgroups = [true, false]
// [default]
// threads_per_row = [
//     ["software and (scale_block or (has_subgroups and 128 < span <= 32768))", 32],
//     ["software", 1],
//     "min(512, max_invocations)",
// ]
// subgroups = "has_subgroups and threads_per_row > 1"
// [derive]
// rows_per_workgroup = "1 if threads_per_row > 1 else 32"
// sweep = "min(steps, 15000)"
// [[require]]
// rule = "threads_per_row > 1 or not subgroups"
// why = "with one invocation per row there is no exchange of sums: subgroups must be false"
// [accuracy]
// serial_terms = "steps"
// ///

// The kernel for problems that no other kernel accepts: it keeps only a row's sums. On a CPU one invocation per row is
// fastest, because it waits for no other.
{% from "lib/moments.wgsl" import moment_reductions, swept_moments, normalized with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/write.wgsl" import write_row with context %}
{% include "lib/norm.wgsl" %}

{{ moment_reductions() }}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{{ swept_moments() }}
    {% call(h) write_row() %}{{ normalized(h) }}{% endcall %}

    {% endcall %}
}
