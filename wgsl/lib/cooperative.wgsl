{#- Rows that several workgroups share in one dispatch. Each workgroup keeps its part in registers, stores the moments of
    the part as a record of `parts`, and waits for the records of the row's other parts.

    WGSL has no barrier between workgroups, does not order accesses to different words, and does not promise that another
    workgroup ever runs. So every word of a record is complete by itself: 0 means that it is missing. And a workgroup waits
    for a limited time: then it computes a missing record itself, from the part in memory ("decoupled fallback", Smith,
    Levien and Owens 2025). All workgroups compute a record in the same order, so they get the same bits. The text sets
    `atomic_scratch` to ["parts"], and `clear_parts` is its first pass. -#}
{% from "lib/split.wgsl" import part_moments, moments, row_count with context %}
{% from "lib/place.wgsl" import locate with context %}
{% set moment_names = ["part_mean", "part_low", "part_spread"] if has_mean else ["part_spread"] %}
{% macro cooperative_functions() %}
const TRIES = {{ tries }}u;  // reads of a missing record before a workgroup computes it itself

// The words of the row's records, and the number of the first part whose record is missing.
var<workgroup> row_words: array<u32, {{ moments * row_parts }}>;
var<workgroup> first_missing: u32;

@compute @workgroup_size({{ workgroup_size }})
fn clear_parts(
    {% include "lib/builtins.wgsl" %}
) {
{{ locate("place") }}
    let word = workgroup * {{ workgroup_size }}u + place;
    if (word < {{ row_count }} * {{ moments }}u * PARTS) {
        atomicStore(&parts[params.parts_start + word], 0u);
    }
}

// A word of a record: never 0, also for a NaN whose bits are all set.
fn word_of(value: f32) -> u32 {
    return max(~bitcast<u32>(value), 1u);
}

fn value_of(word: u32) -> f32 {
    return bitcast<f32>(~word);
}

// Reads the records of the row into row_words. Returns the number of the first missing part, or PARTS.
fn read_records(row: u32, place: u32) -> u32 {
    for (var other = place; other < PARTS; other += {{ workgroup_size }}u) {
        let at = {{ moments }}u * other;
        let begin = params.parts_start + row * {{ moments }}u * PARTS + at;
        var missing = true;
        for (var trial = 0u; trial < TRIES && missing; trial++) {
{% for k in range(moments) %}
            let word{{ k }} = atomicLoad(&parts[begin + {{ k }}u]);
{% endfor %}
            missing = {% for k in range(moments) %}word{{ k }} == 0u{{ " || " if not loop.last }}{% endfor %};
{% for k in range(moments) %}
            row_words[at + {{ k }}u] = {{ "word" ~ k if k else "select(word0, 0u, missing)" }};
{% endfor %}
        }
    }
    workgroupBarrier();
    if (place == 0u) {
        var least = PARTS;
        for (var other = PARTS; other > 0u; other--) {
            least = select(least, other - 1u, row_words[{{ moments }}u * (other - 1u)] == 0u);
        }
        first_missing = least;
    }
    return workgroupUniformLoad(&first_missing);
}
{% endmacro %}
{#- The moments of all parts of the row, in row_words. The caller's text loads a part, whose steps begin at `first`, into
    variables, which have the workgroup's own part in the end. `unpacked` is text that declares the elements `held`0,
    `held`1, ... if these are not the variables. -#}
{% macro shared_moments(held, unpacked="") %}
    var measured = part;
    var wanted = part;
    // Nearly always once: the other parts of the row have their own workgroups.
    for (var round = 0u; round <= PARTS && wanted < PARTS; round++) {
        measured = wanted;
        let part = wanted;
        let first = part * STEPS;
{{ caller() }}
{{ unpacked }}
{{ part_moments(held) }}
        if (place == 0u) {
            let at = params.parts_start + (row * PARTS + part) * {{ moments }}u;
{% for name in moment_names %}
            atomicStore(&parts[at + {{ loop.index0 }}u], word_of({{ name }}));
{% endfor %}
        }
        storageBarrier();  // The workgroup finds its own record.
        wanted = read_records(row, place);
    }
    if (measured != part) {
{{ caller() }}
    }
{% endmacro %}
{#- The statistics of a row from row_words, as `joined_parts` in lib/split.wgsl. Every invocation adds up all parts. -#}
{% macro joined_words() %}
{% if has_mean %}
    let mean = value_of(row_words[0]);
    var low = 0.0;
    for (var other = 0u; other < PARTS; other++) {
        let distance = (value_of(row_words[3u * other]) - mean) + value_of(row_words[3u * other + 1u]);
        low += distance * (columns_in(other) * PER_COLUMN);
    }
    var variance = 0.0;
    for (var other = 0u; other < PARTS; other++) {
        let distance = (value_of(row_words[3u * other]) - mean) + value_of(row_words[3u * other + 1u]) - low;
        variance += value_of(row_words[3u * other + 2u]) + distance * (distance * (columns_in(other) * PER_COLUMN));
    }
{% else %}
    var variance = 0.0;
    for (var other = 0u; other < PARTS; other++) {
        variance += value_of(row_words[other]);
    }
{% endif %}
    let rstd = inverseSqrt(variance + params.eps);
{% endmacro %}
