{#- Mean and variance in one sweep. Welford (Technometrics 1962) adds one value, Chan, Golub and LeVeque
    (1979) join two runs. The second moment is kept divided by COLS: a sum of squares of 1e18 would
    overflow float32. Each join rounds the mean as an added value does: two of a Vec's runs and up to ten of invocations are
    the twelve that the headers' serial_terms add. -#}
{% from "lib/sweep.wgsl" import sweep with context %}
{% from "lib/reduce.wgsl" import row_reduction with context %}
{% from "lib/dtype.wgsl" import chunked with context %}
// Mean, sum of squared deviations / COLS, number of values.
alias Moments = vec3<f32>;

fn joined(a: Moments, b: Moments) -> Moments {
    let count = a.z + b.z;
    let share = b.z / max(count, 1.0);
    let delta = b.x - a.x;
    return Moments(a.x + delta * share, a.y + b.y + delta * (delta * PER_COLUMN * (a.z * share)), count);
}

{{ row_reduction("joined_row", "Moments", merge="joined") }}

// The invocation's own columns, a run for each component of a Vec, then joined.
fn own_moments(row: u32, thread: u32) -> Moments {
    var mean = Vec();
    var spread = Vec();
    var count = Vec();
    {% call sweep() %}
        let value = load_input(row, j, thread);
        let delta = value - mean;
        let next = mean + delta / (count + Vec(1.0));
        spread += where_live(delta * ((value - next) * PER_COLUMN), Vec(), j, thread);
        mean = where_live(next, mean, j, thread);
        count += where_live(Vec(1.0), Vec(), j, thread);
    {% endcall %}
{% if chunked %}
    return joined(
        joined(Moments(mean.x, spread.x, count.x), Moments(mean.y, spread.y, count.y)),
        joined(Moments(mean.z, spread.z, count.z), Moments(mean.w, spread.w, count.w)),
    );
{% else %}
    return Moments(mean, spread, count);
{% endif %}
}
