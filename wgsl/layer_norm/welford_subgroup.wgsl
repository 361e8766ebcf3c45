// /// webnorm
// summary = "Welford's sweep with subgroup shuffles, scalar or vec4, several rows to a workgroup."
// differs = "Joins means and deviations in registers through shuffles (welford uses workgroup memory), and reads 16 bytes at a time."
// rung = 5
// layout = "row_per_workgroup"
// [features]
// subgroups = true
// [tune]
// threads_per_row = [4, 8, 16, 32, 64, 128, 256, 512, 1024]
// rows_per_workgroup = [1, 2, 4, 8, 16]
// vector_width = [4, 1]
// [default]
// threads_per_row = [["software", [["cols <= 65536", "max(8, scale_block // 4)"], 1024]], ["cols <= 256", 32], ["cols <= 2048", 128], 256]
// rows_per_workgroup = "1 if software or threads_per_row > 32 else 4"
// [derive]
// subgroups = 1
// [accuracy]
// serial_terms = "steps + 12"
// rounded_mean = true
// ///

// The same arithmetic as welford. Lanes of a subgroup read each other's registers, without memory or barriers. A row
// shorter than a subgroup shares it with other rows; a longer row uses workgroup memory once.
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

// Joins runs of `lanes` lanes, in pairs at growing distances. Both lanes of a pair join in the same order, so that all
// lanes get the same bits.
fn across_lanes(own: Moments, lanes: u32, lane: u32) -> Moments {
    var value = own;
    for (var distance = 1u; distance < lanes; distance *= 2u) {
        let other = subgroupShuffleXor(value, distance);
        let is_upper = (lane & distance) != 0u;
        value = joined(select(value, other, is_upper), select(other, value, is_upper));
    }
    return value;
}

var<workgroup> partials: array<Moments, {{ workgroup_size // 4 }}>;  // no subgroup has fewer than 4 lanes

// The moments of all invocations of the row: joined over its lanes, and then over its `count` subgroups if there are
// several. Every subgroup reads the moments of all subgroups. A lane reads one of them, or several if there are more
// subgroups than lanes. With fewer, lanes read some twice and join only `count` of them.
fn row_moments(own: Moments, place: u32, lane: u32, subgroup_size: u32) -> Moments {
    var value = across_lanes(own, min(subgroup_size, THREADS), lane);
    if (subgroup_size < THREADS) {
        if (lane == 0u) {
            partials[place / subgroup_size] = value;
        }
        workgroupBarrier();
        let count = THREADS / subgroup_size;
        let first = place / THREADS * count;  // a workgroup may have several rows
        value = partials[first + lane % count];
        for (var i = lane + subgroup_size; i < count; i += subgroup_size) {
            value = joined(value, partials[first + i]);
        }
        value = across_lanes(value, min(count, subgroup_size), lane);
        workgroupBarrier();  // before the next ones are written
    }
    return value;
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
    let moments = row_moments(own, place, lane, subgroup_size);
    let mean = moments.x;
    let rstd = inverseSqrt(moments.y + params.eps);

    {% call(h) write_row(low="0.0") %}({{ h }} - mean) * rstd{% endcall %}

    {% endcall %}
}
