// The functions that note an access. The notes of an element contain the largest and the smallest number of the
// invocations that wrote it and that read it. Each is combined with the number of barriers that the last of these
// invocations had passed.
//
// A barrier only orders accesses if all invocations reach it: an invocation that has passed a barrier checks that
// all others have reached as many. The constants and watch_notes are declared before this text.

var<private> watch_place: u32;
var<private> watch_group: u32;
var<private> watch_barriers: u32;
var<private> watch_passed: u32;
var<private> watch_pass: u32;
var<private> watch_size: u32;

fn watch_barrier() {
    let at = watch_head + watch_group * watch_of_workgroup + watch_pass;
    atomicAdd(&watch_notes[at], 1u);
    storageBarrier();
    workgroupBarrier();
    watch_barriers += 1u;
    watch_passed += watch_size;
    let too_many = (watch_barriers & watch_last_barrier) == 0u;
    if (too_many || atomicLoad(&watch_notes[at]) < watch_passed) { atomicStore(&watch_notes[3], 1u); }
}

fn watch_leave(at: u32) {
    atomicMax(&watch_notes[at], (watch_barriers << watch_places) | watch_place);
    atomicMax(&watch_notes[at + 1u], (watch_barriers << watch_places) | (watch_last_place - watch_place));
}

fn watch_others(at: u32) -> bool {
    let largest = atomicLoad(&watch_notes[at]);
    let smallest = atomicLoad(&watch_notes[at + 1u]);
    return (largest >> watch_places == watch_barriers && (largest & watch_last_place) != watch_place)
        || (smallest >> watch_places == watch_barriers
        && watch_last_place - (smallest & watch_last_place) != watch_place);
}

fn watch_report(element: u32, line: u32) {
    atomicAdd(&watch_notes[0], 1u);
    atomicStore(&watch_notes[1], line);
    atomicStore(&watch_notes[2], element);
}

fn watch_notes_of(element: u32) -> u32 {
    return watch_head + watch_passes + watch_group * watch_of_workgroup + watch_of_element * element;
}

fn watch_read(first: u32, last: u32, index: u32, line: u32) -> u32 {
    let element = first + min(index, last);
    let at = watch_notes_of(element);
    watch_leave(at + 2u);
    if (watch_others(at)) { watch_report(element, line); }
    return index;
}

fn watch_write(first: u32, last: u32, index: u32, line: u32) {
    let element = first + min(index, last);
    let at = watch_notes_of(element);
    watch_leave(at);
    if (watch_others(at) || watch_others(at + 2u)) { watch_report(element, line); }
}
