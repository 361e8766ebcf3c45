// /// webnorm
// summary = "The row stays in registers, unrolled: one read, two exact sweeps over registers, one write."
// differs = "Reads x once (welford_subgroup reads it twice), and needs no division per element."
// rung = 6
// layout = "row_in_registers"
// [features]
// subgroups = true
// [derive]
// subgroups = 1
// vector_width = 4
// [accuracy]
// serial_terms = "steps"
// ///

// Registers have no addresses, so the template unrolls each loop over the row, and each Vec has its own name. The layout
// refuses rows with more than 64 columns per invocation, which would not fit registers.
{#- The extras are additional outputs, written for some options. Without such options they are empty. #}
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/write.wgsl" import begin_extras, write_extras, end_extras, scaling with context %}
{% include "lib/norm.wgsl" %}

var<workgroup> partials: array<vec2<f32>, {{ workgroup_size // 4 }}>;  // no subgroup has fewer than 4 lanes

// Sums over the row's invocations: first over each subgroup, then over the subgroups' sums.
fn row_sums(own: vec2<f32>, place: u32, lane: u32, subgroup_size: u32) -> vec2<f32> {
    let sums = subgroupAdd(own);
    if (lane == 0u) { partials[place / subgroup_size] = sums; }
    workgroupBarrier();
    var others = vec2<f32>();
    for (var i = lane; i < (THREADS - 1u) / subgroup_size + 1u; i += subgroup_size) {
        others += partials[i];
    }
    workgroupBarrier();  // before the next ones are written
    return subgroupAdd(others);
}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

    // The only read of the row. No load waits for another.
{% for j in range(steps) %}
    let h{{ j }} = load_input(row, {{ j }}u, thread);
{% endfor %}

    // The mean, as in two_pass: differences from a value of the row are small where the row is far from 0.
    let pivot = pivot_of(row);
    var sum = Vec();
{% for j in range(steps) %}
    sum += where_live(h{{ j }} - pivot, Vec(), {{ j }}u, thread);
{% endfor %}
    let mean = pivot + row_sums(vec2(total(sum) * PER_COLUMN, 0.0), place, lane, subgroup_size).x;

    // The variance. The sum of the distances gives the rounding error of the mean: the exact mean is mean + low.
    var distances = Vec();
    var squares = Vec();
{% for j in range(steps) %}
    let d{{ j }} = where_live(h{{ j }} - mean, Vec(), {{ j }}u, thread);
    distances += d{{ j }};
    squares += d{{ j }} * (d{{ j }} * PER_COLUMN);
{% endfor %}
    let sums = row_sums(vec2(total(distances), total(squares)), place, lane, subgroup_size);
    let low = sums.x / f32(COLS);
    let variance = select(sums.y, max(sums.y - low * low, 0.0), sums.y < 1e38);
    let rstd = inverseSqrt(variance + params.eps);

{{ begin_extras("(h - mean - low) * rstd") }}
{% for j in range(steps) %}
    let y{{ j }} = affine((d{{ j }} - low) * rstd, {{ j }}u, thread);
{{ write_extras(j ~ "u", "h" ~ j, "y" ~ j) }}
    store_y(row, row_exists, {{ j }}u, thread, y{{ j }}{{ scaling }});
{% endfor %}
{{ end_extras() }}

    {% endcall %}
}
