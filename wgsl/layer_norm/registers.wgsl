// /// webnorm
// ops = ["layer_norm", "rms_norm"]
// summary = "The row stays in registers: one read, exact sweeps over registers, one write."
// differs = "Reads x once, supports any storage type and any option; short rows share a workgroup, and a sum takes one barrier."
// rung = 7
// layout = "row_in_registers"
// [features]
// subgroups = "subgroups"
// [tune]
// threads_per_row = [4, 8, 16, 32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024]
// rows_per_workgroup = [1, 2, 4, 8, 16]
// vector_width = [4, 8, 2, 1]
// parameters_first = [false, true]
// parked = [0, 2, 4, 6, 8, 10, 12]
// sweeps = [2, 1]
// subgroups = [true, false]
// [default]
// rows_per_workgroup = [["software", [["span > 256", 1], 4]], ["threads_per_row > 32", 1], 4]
// subgroups = "has_subgroups"
// [derive]
// reduction_bytes = "16 * (1 + capped) * (workgroup_size // (4 if subgroups else 1) + 1)"
// workgroup_bytes = "(parked > 0) * (4 * itemsize * parked * workgroup_size + reduction_bytes)"
// [[require]]
// rule = "vector_width < 8 or (itemsize == 2 and cols % 8 == 0)"
// why = "vector_width 8 needs float16 or bfloat16 (16 bytes per access) and a multiple of eight columns"
// [[require]]
// rule = "vector_width != 2 or (itemsize == 2 and input_itemsize == 2 and out_itemsize == 2)"
// why = "vector_width 2 needs float16 or bfloat16 (one word per access)"
// [[require]]
// rule = "vector_width != 2 or cols % 2 == 0 or rows_per_workgroup % 2 == 0"
// why = "with an odd number of columns two rows share a word: rows_per_workgroup must be even"
// [[require]]
// rule = "1024 % threads_per_row == 0 or (subgroups and rows_per_workgroup == 1)"
// why = "threads_per_row that is not a power of two needs subgroups and one row per workgroup"
// [[require]]
// rule = "parked == 0 or (parked <= steps and vector_width >= 4 and not has_residual)"
// why = "parked is at most the number of an invocation's Vecs, needs vector_width 4 or 8, and excludes a residual"
// [[require]]
// rule = "has_mean or sweeps == 2"
// why = "sweeps 1 needs a norm with a mean: it finds mean and variance in one sweep"
// [accuracy]
// serial_terms = "steps"
// ///

// Specialised for the number of columns and unrolled, because registers have no addresses. All loads are issued before
// the first sum, and each value has its own name. The memory traffic equals a copy's, so the two sweeps and the
// second word of the mean cost almost nothing.
{% from "lib/moments.wgsl" import moment_reductions, held_moments, held_scale, held_normalized with context %}
{% from "lib/park.wgsl" import parking, first_parked, load_and_park, held, again with context %}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/write.wgsl" import fetch_parameters, write_registers with context %}
{% include "lib/norm.wgsl" %}

{{ moment_reductions() }}
{{ parking() }}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

{{ load_and_park() }}
{{ fetch_parameters() if parameters_first }}

{{ held_moments(held, again, first_parked, "pivot_of(row)") }}
{{ held_scale(first_parked) }}
    {% call(j) write_registers() %}{{ held_normalized(j, first_parked, again) }}{% endcall %}

    {% endcall %}
}
