// The end of a text with traces: a trace adds a record to a buffer, and only counts when that is full.
// traced_records, traced_most, traced_numbers and traced_wanted are declared before.

const traced_no_row = 0xffffffffu;  // the row is unknown
const traced_past = 0xfffffffeu;  // a row past the last one, whose results are discarded
const traced_nowhere = 0x80000000u;  // columns past the row's end

var<private> traced_row: u32 = traced_no_row;
var<private> traced_workgroup: u32;
var<private> traced_invocation: u32;

struct TracedRecords {
    count: atomic<u32>,
    numbers: array<i32, traced_numbers>,  // of the filter
    words: array<u32>,
}

fn traced_put(site: u32, column: u32, value: vec4<u32>) {
    if (traced_row == traced_past || column == traced_nowhere || !traced_wanted()) { return; }
    let number = atomicAdd(&traced_records.count, 1u);
    if (number >= traced_most) { return; }
    let at = number * 9u;
    traced_records.words[at] = site;
    traced_records.words[at + 1u] = traced_workgroup;
    traced_records.words[at + 2u] = traced_invocation;
    traced_records.words[at + 3u] = traced_row;
    traced_records.words[at + 4u] = column;
    traced_records.words[at + 5u] = value.x;
    traced_records.words[at + 6u] = value.y;
    traced_records.words[at + 7u] = value.z;
    traced_records.words[at + 8u] = value.w;
}

// As in headers: division rounds down, and the remainder is not negative. The divisor is above 0.
fn traced_mod(a: i32, b: i32) -> i32 {
    return (a % b + b) % b;
}

fn traced_div(a: i32, b: i32) -> i32 {
    return (a - traced_mod(a, b)) / b;
}

fn traced_ceil_div(a: i32, b: i32) -> i32 {
    return -traced_div(-a, b);
}
