// The functions that count the rounds of loops. The notes of a loop are four words: how often it was entered, how
// often it ended by itself, the most rounds seen so far (a power of two), and the most rounds at its end. A loop that
// the driver ends is missing in the second: code after the loop cannot detect that, because compilers assume that a
// loop only ends by its own `break`. The constants and the notes are declared before this text.
//
// Tint demands barriers in uniform control flow, and takes private variables for non-uniform. For Tint each loop is
// therefore ended by its own rounds only. They are counted in a variable of the loop's function, which is uniform in
// uniform control flow.

var<private> rounds_of: array<u32, rounds_loops>;
var<private> rounds_all: u32;
var<private> rounds_over: bool;

fn rounds_note(loop_number: u32) -> u32 {
    return rounds_first + rounds_words * loop_number;
}

fn rounds_enter(loop_number: u32) {
    rounds_of[loop_number] = 0u;
    if (!rounds_over) { atomicAdd(&rounds_notes[rounds_note(loop_number)], 1u); }
}

// A loop ends by itself.
fn rounds_end(loop_number: u32) {
    if (rounds_over) { return; }
    let at = rounds_note(loop_number);
    atomicAdd(&rounds_notes[at + 1u], 1u);
    atomicMax(&rounds_notes[at + 3u], rounds_of[loop_number]);
}

// A round begins. The result is true for a round too many. ENDED is too_many for Tint; otherwise it is rounds_over, so
// that then all loops end.
fn rounds_begin(loop_number: u32, own: ptr<function, u32>) -> bool {
    *own += 1u;
    rounds_of[loop_number] += 1u;
    rounds_all += 1u;
    let count = rounds_of[loop_number];
    if (!rounds_over && (count & (count - 1u)) == 0u) {
        atomicMax(&rounds_notes[rounds_note(loop_number) + 2u], count);
    }
    let too_many = *own > rounds_most;
    rounds_over = rounds_over || too_many || rounds_all > rounds_most_of_all;
    return ENDED;
}

fn rounds_goes_on(loop_number: u32, goes_on: bool, own: ptr<function, u32>) -> bool {
    if (!goes_on) { rounds_end(loop_number); }
    return goes_on && !rounds_begin(loop_number, own);
}

fn rounds_ends(loop_number: u32, ends: bool) -> bool {
    if (ends) { rounds_end(loop_number); }
    return ends;
}
