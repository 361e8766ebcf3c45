// /// webnorm
// ops = ["layer_norm", "rms_norm"]
// summary = "The row stays in registers: one read, exact sweeps over registers, one write."
// differs = "Reads x once, of any storage type and with any option; short rows share a workgroup, and a sum takes one barrier."
// rung = 7
// layout = "row_per_workgroup"
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
// threads_per_row = "(4 if span <= 256 else (16 if span <= 1024 else (32 if span <= 2048 else (64 if span <= 4096 else (256 if span <= 16384 else 512))))) if software else ((32 if span <= 512 else (64 if span <= 1024 else (128 if span <= 2048 else min(256 if span <= 16384 else 1024, max_invocations)))) if itemsize == 2 else (32 if span <= 256 else (128 if span <= 1024 else (256 if span <= 2048 else min(512 if span <= 32768 else 1024, max_invocations)))))"
// rows_per_workgroup = "(1 if span > 256 else 4) if software else (1 if threads_per_row > 32 else 4)"
// subgroups = "has_subgroups"
// [derive]
// steps = "2 * ceil_div(cols, threads_per_row * 8) if vector_width == 8 else ceil_div(span if vector_width == 4 else cols + cols % vector_width, threads_per_row * vector_width)"
// scalars = "steps * min(vector_width, 4)"
// sweep = 0
// workgroup_bytes = "(parked > 0) * (4 * itemsize * parked * workgroup_size + 16 * (1 + capped) * (workgroup_size // (4 if subgroups else 1) + 1))"
// [[require]]
// rule = "vector_width < 8 or (itemsize == 2 and cols % 8 == 0)"
// why = "eight columns at a time are 16 bytes of float16 or bfloat16, in rows of a multiple of eight columns"
// [[require]]
// rule = "vector_width != 2 or (itemsize == 2 and out_itemsize == 2)"
// why = "two columns at a time are a word of float16 or bfloat16"
// [[require]]
// rule = "vector_width != 2 or cols % 2 == 0 or rows_per_workgroup % 2 == 0"
// why = "rows of an odd number of columns share words with the next: an even rows_per_workgroup"
// [[require]]
// rule = "1024 % threads_per_row == 0 or (subgroups and rows_per_workgroup == 1)"
// why = "a number of invocations that is no power of two needs subgroups, and a workgroup to itself"
// [[require]]
// rule = "parked == 0 or (parked <= steps and vector_width >= 4 and not has_residual)"
// why = "parked counts Vecs of four columns of x, of those that an invocation has"
// [[require]]
// rule = "has_mean or sweeps == 2"
// why = "sweeps counts those that find a mean and the spread about it; of squares alone there is one"
// [[require]]
// rule = "scalars <= 64"
// why = "more than 64 columns per invocation do not stay in registers, and are more terms than one float32 sum should add"
// [accuracy]
// serial_terms = "steps"
// ///

// Specialised on the number of columns and unrolled, since registers have no addresses: every load is
// issued before the first sum, and each value lives in a name of its own. Memory is touched as often as by
// a copy, so the two sweeps and the second word of the mean cost next to nothing.
{% from "lib/moments.wgsl" import moment_reductions, held_moments, held_scale, held_normalised with context %}
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
    {% call(j) write_registers() %}{{ held_normalised(j, first_parked, again) }}{% endcall %}

    {% endcall %}
}
