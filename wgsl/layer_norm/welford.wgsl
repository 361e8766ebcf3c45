// /// webnorm
// summary = "One workgroup per row, mean and variance in one stable sweep, joined in workgroup memory."
// differs = "Stable in one sweep fewer than two_pass, but with a division per element, and less accurate if the mean is large."
// rung = 4
// layout = "row_per_workgroup"
// [accuracy]
// serial_terms = "steps + 12"
// rounded_mean = true
// ///

// Mean and squared deviations are updated value by value (Welford, Technometrics 1962), and then joined pairwise across
// invocations (Chan, Golub and LeVeque, 1979). The mean is rounded to float32 each time, which limits the accuracy:
// once per step, and up to twelve times in the joins of a Vec's runs and of 1024 invocations.
{% from "lib/locate.wgsl" import each_row with context %}
{% from "lib/write.wgsl" import write_row with context %}
{% include "lib/norm.wgsl" %}

// Mean, sum of squared deviations / COLS, number of values.
alias Moments = vec3<f32>;

// The joint mean is the weighted mean of the two. The joint sum of squared deviations is the sum of both plus
// delta² · count_a · count_b / count, divided by COLS like the others.
fn joined(a: Moments, b: Moments) -> Moments {
    let count = a.z + b.z;
    let share = b.z / max(count, 1.0);  // 0 of 0 where neither has a column
    let delta = b.x - a.x;
    return Moments(a.x + delta * share, a.y + b.y + delta * (delta * PER_COLUMN * (a.z * share)), count);
}

var<workgroup> partials: array<Moments, {{ workgroup_size }}>;

// The moments of all invocations of the row, by a tree: each level halves the number of moments.
fn row_moments(own: Moments, thread: u32) -> Moments {
    partials[thread] = own;
    for (var left = THREADS / 2u; left > 0u; left /= 2u) {
        workgroupBarrier();
        if (thread < left) {
            partials[thread] = joined(partials[thread], partials[thread + left]);
        }
    }
    workgroupBarrier();
    let moments = partials[0];
    workgroupBarrier();  // before the next ones are written
    return moments;
}

@compute @workgroup_size({{ workgroup_size }})
fn main(
    {% include "lib/builtins.wgsl" %}
) {
    {% call each_row() %}

    var own_mean = Vec();
    var own_spread = Vec();
    var count = Vec();
    for (var j = 0u; j < STEPS; j++) {
        let value = load_input(row, j, thread);
        let delta = value - own_mean;
        let next = own_mean + delta / (count + Vec(1.0));
        // The sum of squares grows by the distance from the old mean times the distance from the new mean.
        own_spread += where_live(delta * ((value - next) * PER_COLUMN), Vec(), j, thread);
        own_mean = where_live(next, own_mean, j, thread);
        count += where_live(Vec(1.0), Vec(), j, thread);
    }
{% if vector_width == 4 %}
    // Each component of the Vec has its own run of values.
    let own = joined(
        joined(Moments(own_mean.x, own_spread.x, count.x), Moments(own_mean.y, own_spread.y, count.y)),
        joined(Moments(own_mean.z, own_spread.z, count.z), Moments(own_mean.w, own_spread.w, count.w)),
    );
{% else %}
    let own = Moments(own_mean, own_spread, count);
{% endif %}
    let moments = row_moments(own, thread);
    let mean = moments.x;
    let rstd = inverseSqrt(moments.y + params.eps);

    {% call(h) write_row(low="0.0") %}({{ h }} - mean) * rstd{% endcall %}

    {% endcall %}
}
