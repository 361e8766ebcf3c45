"""Detection of races on workgroup memory on any adapter."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cheats import FIRST, PASS, Cheat
from cheats import START as ROW
from hypothesis import given
from hypothesis import strategies as st

import broken
from fuzzing import examples
from testbed import GPU, KERNELS, covering, needs, of_one_file, option_problems, suited
from webnorm.choice.defaults import default_variant
from webnorm.errors import SourceLocation
from webnorm.gpu.buffers import POISON
from webnorm.gpu.compute_programs import _words_of
from webnorm.gpu.device import Device
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import discover
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.kernels.headers.variants import Variant, runnable_variants
from webnorm.kernels.rendering.render import render_shader
from webnorm.kernels.wgsl.tokens import CannotInstrument, TokenizedShader
from webnorm.lab.results.result import FaultKind, Result
from webnorm.lab.run.check import with_expectation
from webnorm.lab.verify import trial
from webnorm.lab.verify.instrumentation import LoopInstrumentation, RaceInstrumentation
from webnorm.lab.verify.problem_buffers import ProblemBuffers
from webnorm.lab.verify.races import RaceOrLoopFault, find_fault
from webnorm.lab.verify.trial import try_variant
from webnorm.op.op import Task, make_inputs
from webnorm.ops.norms.corpus import CASES
from webnorm.ops.norms.problem import NormProblem

TWO_PASS = (wgsl_root() / "layer_norm" / "two_pass.wgsl").read_text()
START = "    let pivot = pivot_of(row);\n"
# Accesses of a row's invocations to shared memory, and the expected messages.
USES = {
    "one writes, others read": ("array<f32, 64>", "if (thread == 0u) { shared_words[0] = 1.0; }", True),
    "with a barrier between": (
        "array<f32, 64>",
        "if (thread == 0u) { shared_words[0] = 1.0; }\n    workgroupBarrier();",
        False,
    ),
    "everyone has a place": ("array<f32, 1024>", "shared_words[place] = 1.0;", False),
    "two have one place": ("array<f32, 1024>", "shared_words[place / 2u] = 1.0;", True),
    "a number, no array": ("f32", "shared_words = f32(place);", True),
    "more is added": ("array<u32, 4>", "shared_words[1] += 1u;", True),
    "an index of memory": (
        "array<u32, 1024>",
        "shared_words[place] = place;\n    shared_words[shared_words[place]] = place;",
        False,
    ),
}
UNCLEAR = {
    "by its address": ("array<f32, 4>", "let where_it_is = &shared_words;\n    (*where_it_is)[0] = 1.0;"),
    "component by component": ("array<vec2<f32>, 4>", "shared_words[0].x = 1.0;"),
    "by an atomic function": ("array<atomic<u32>, 4>", "let seen = atomicLoad(&shared_words[0]);"),
    "arrays of arrays": ("array<array<f32, 2>, 4>", "shared_words[0][1] = 1.0;"),
}


def using(folder: Path, kind: str, use: str) -> Kernel:
    """Return `two_pass` with more workgroup memory, which is read if it contains a number per row."""
    read = "" if "array<array" in kind else READ.get(kind, "")
    text = TWO_PASS.replace("@compute", f"var<workgroup> shared_words: {kind};\n\n@compute")
    text = text.replace(START, f"\n    {use}\n{read}{START}")
    assert text.count("shared_words") >= 2
    path = folder / "layer_norm" / "used.wgsl"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return load(path)


READ = {"array<f32, 64>": "    let seen = shared_words[0];\n"}


def default_of(kernel: Kernel, device: Device, cols: int) -> tuple[Variant, NormProblem]:
    problem = suited(kernel, kernel.op.problem(7, cols))
    variant = default_variant(kernel, problem, device.traits)
    needs(device, variant.features(problem, device.traits))
    return variant, problem


def race_of(kernel: Kernel, device: Device, cols: int) -> str | None:
    variant, problem = default_of(kernel, device, cols)
    found = find_fault(device, variant, problem, make_inputs(kernel.op, problem), ())
    return None if found is None else str(found)


@pytest.mark.opengl
@pytest.mark.parametrize("use", USES)
def test_exactly_the_races_are_found(use: str, device: Device, tmp_path: Path) -> None:
    kind, text, races = USES[use]
    found = race_of(using(tmp_path, kind, text), device, 256)
    assert (found is not None) == races
    if found is not None:
        assert "used.wgsl:" in found and "shared_words[" in found


def copy_watched(device: Device) -> Result:
    """Return the result of a copy whose text has a loop, next to a norm that reads a weight too."""
    norm = next(kernel for kernel in KERNELS if kernel.label == "layer_norm/naive")
    copy = next(kernel for kernel in discover() if kernel.op.is_copy)
    problem = NormProblem(rows=33, cols=1500, dtype="float16")
    board = ProblemBuffers(device, Task(norm.op, problem), make_inputs(norm.op, problem), ())
    variant = default_variant(copy, board.copied, device.traits)
    assert "for (" in render_shader(variant, board.copied, "native", device.traits).text
    return try_variant(board, variant, watch=True)[0]


# A lookup in it raises the KeyError of a mistake of webnorm.
EMPTY: dict[str, str] = {}


def test_a_copy_with_a_loop_is_watched(device: Device) -> None:
    result = copy_watched(device)
    assert (result.status, result.watched, result.unwatched) == ("pass", True, None)


def test_an_exception_of_the_search_is_an_error(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only texts that cannot be instrumented give a reason why races could not be checked."""
    monkeypatch.setattr(LoopInstrumentation, "text", lambda self: EMPTY["weight"])
    result = copy_watched(device)
    assert (result.status, result.reason, result.unwatched) == ("error", "KeyError: 'weight'", None)


def one_pass_at_a_large_mean(device: Device) -> tuple[ProblemBuffers, Variant]:
    """Return a variant that is wrong on the problem of the board."""
    kernel = next(kernel for kernel in KERNELS if kernel.label == "layer_norm/one_pass")
    problem = NormProblem(rows=7, cols=64)
    arrays = make_inputs(kernel.op, problem)
    arrays["x"] = (arrays["x"] + 1e5).astype(np.float32)
    board = ProblemBuffers(device, Task(kernel.op, problem), arrays, ())
    return board, default_variant(kernel, problem, device.traits)


def test_an_exception_of_the_search_does_not_hide_a_wrong_result(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, variant = one_pass_at_a_large_mean(device)
    wrong = try_variant(board, variant)[0]
    assert wrong.status == "fail" and "y[" in (wrong.reason or "")
    monkeypatch.setattr(LoopInstrumentation, "text", lambda self: EMPTY["weight"])
    found = try_variant(board, variant, watch=True)[0]
    assert (found.status, found.worst, found.watched) == ("fail", wrong.worst, None)
    assert found.reason == f"{wrong.reason}; the search for races failed: KeyError: 'weight'"


@pytest.mark.parametrize("kind", ["race", "loop"])
def test_a_race_in_an_unstable_kernel_is_not_expected(
    kind: FaultKind, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, variant = one_pass_at_a_large_mean(device)
    assert with_expectation(try_variant(board, variant, watch=True)[0], variant.kernel, CASES[0]).expected
    fault = RaceOrLoopFault(kind, "a fault", SourceLocation("one_pass.wgsl", 3))
    monkeypatch.setattr(trial, "find_fault", lambda *_: fault)
    found = with_expectation(try_variant(board, variant, watch=True)[0], variant.kernel, CASES[0])
    assert (found.status, found.fault, found.expected) == ("fail", kind, None)
    assert found.reason is not None and found.reason.endswith("; one_pass.wgsl:3: a fault")


def test_a_missing_array_is_a_bug_of_webnorm(device: Device) -> None:
    kernel = next(kernel for kernel in KERNELS if kernel.label == "layer_norm/naive")
    variant, problem = default_of(kernel, device, 256)
    arrays = make_inputs(kernel.op, problem)
    del arrays["weight"]
    with pytest.raises(RuntimeError, match=r"no array weight, which .*naive.* a bug of webnorm"):
        find_fault(device, variant, problem, arrays, ())


def test_a_text_that_the_driver_rejects_is_not_watched(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is a sentence with the compiler's message, and without an exception's name."""
    monkeypatch.setattr(RaceInstrumentation, "text", lambda *_: "fn broken(")
    with pytest.raises(CannotInstrument) as caught:
        race_of(using(tmp_path, *USES["with a barrier between"][:2]), device, 256)
    said = r"the instrumented text does not run: \S*used\.wgsl:\d+: name `const` is a reserved keyword.*"
    assert re.fullmatch(said, str(caught.value))


@pytest.mark.parametrize("use", UNCLEAR)
def test_unsupported_texts_are_not_instrumented(use: str, device: Device, tmp_path: Path) -> None:
    kind, text = UNCLEAR[use]
    with pytest.raises(CannotInstrument):
        race_of(using(tmp_path, kind, text), device, 256)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.label)
def test_webnorms_kernels_do_not_race(kernel: Kernel, device: Device) -> None:
    assert race_of(kernel, device, 768) is None


# Texts for one workgroup of 32: declarations and the body of its function.
TILE = "var<workgroup> tile: array<f32, 32>;"
KEPT = "var<workgroup> kept: f32;"
ROWS = "var<workgroup> index: array<u32, 32>;"
NEXT = "let other = tile[(place + 1u) % 32u];"
WAIT = "workgroupBarrier();"
PUT_AND_GET = "fn put(i: u32, v: f32) { tile[i] = v; } fn got(i: u32) -> f32 { return tile[i]; }"
RACING = {
    "as it is usual": (TILE, f"tile[place] = 1.0; {NEXT}"),
    "on two lines": (TILE, f"tile[place]\n    = 1.0; {NEXT}"),
    "on many lines": (TILE, f"tile\n[\nplace\n]\n=\n1.0\n;\n{NEXT}"),
    "an index in an index": (TILE + ROWS, f"index[place] = place; tile[index[place]]\n = 1.0; {NEXT}"),
    "in parentheses": (TILE, f"(tile[place]) = 1.0; {NEXT}"),
    "in more of them": (TILE, f"((tile[(place)])) += 1.0; {NEXT}"),
    "a number in parentheses": (KEPT, "((kept)) = f32(place);"),
    "slashes in a comment before": (TILE, f"/* // */ tile[place] = 1.0; {NEXT}"),
    "a comment that begins itself": (TILE, f"/*/ */ tile[place] = 1.0; /*/* */ /*/ */*/ {NEXT}"),
    "comments of every kind": (TILE, f"/**/ /***/ /*!*/ tile[place] = 1.0; //! a\n/// b\n{NEXT}"),
    "a comment before what is assigned": (TILE, f"tile[place] /* a // b */ = 1.0; {NEXT}"),
    "a barrier in a comment": (TILE, f"tile[place] = 1.0; /* \n {WAIT} \n */ // {WAIT}\n {NEXT}"),
    "a line that ends otherwise": (TILE, f"// a \v tile[place] = 1.0; // b \x85 {NEXT} // c \u2028"),
    "on the line of a declaration": (TILE + PUT_AND_GET, "put(place, 1.0); let other = got(place + 1u);"),
    "by a short name of the type": (
        f"alias Tile = array<f32, 32>;{TILE[:19]}: Tile;",
        f"tile[place] = 1.0; {NEXT}",
    ),
    "a length by its name": (
        "const N: u32 = 0x20u; var<workgroup> tile: array<vec2<f32>, N,>;",
        f"tile[place] = vec2(1.0); {NEXT}",
    ),
    "a barrier that some kernels have": (TILE, f"tile[place] = 1.0; storageBarrier(); {NEXT}"),
    "a barrier in a loop": (
        TILE,
        f"for (var i = 0u; i < 9u; i++) {{ {WAIT} }} tile[place] = 1.0; {NEXT}",
    ),
    "a barrier that is never reached": (TILE, f"tile[place] = 1.0; if (place > 99u) {{ {WAIT} }} {NEXT}"),
    "a barrier before what is written": (
        f"{TILE} fn late() -> f32 {{ {WAIT} return 1.0; }}",
        f"tile[place] = late(); {NEXT}",
    ),
    "a barrier between reading and writing": (
        f"{TILE} fn late() -> f32 {{ {WAIT} return 1.0; }}",
        "if (place == 1u) { tile[0] = 1.0; } tile[place] += late();",
    ),
    "more is added": (TILE, "tile[3]++;".replace("++", " += 1.0")),
    "one more": (ROWS, "index[3]++;"),
    "shifted": (ROWS, "index[3] >>= 1u;"),
    "next to an and": (ROWS, "index[place] = 1u; let other = place & index[(place + 1u) % 32u];"),
    "behind an and": (ROWS, "index[place] = 1u; if (place < 9u &&index[place + 1u] > 0u) { return; }"),
    "a vector whose parts are read": (
        "var<workgroup> kept: vec4<f32>;",
        "if (place == 1u) { kept = vec4(1.0); } let x = kept.x + kept[1];",
    ),
    "in the head of a loop": (
        TILE,
        "if (place == 1u) { tile[0] = 1.0; } for (var i = tile[0]; i < 1.0; i += 1.0) { }",
    ),
    "a pass that takes nothing": (KEPT, "kept = 1.0;"),
    "a load for all": (KEPT, "let x = workgroupUniformLoad(&kept); kept = x;"),
    "a load for all after a read": (
        KEPT,
        "let x = kept; if (place == 0u) { kept = x; } let y = workgroupUniformLoad(&kept);",
    ),
}
HONEST = {
    "as it is usual": (TILE, f"tile[place] = 1.0; {WAIT} {NEXT}"),
    "a barrier on two lines": (TILE, f"tile[place] = 1.0; workgroupBarrier(\n); {NEXT}"),
    "a semicolon of its own": (TILE, f"tile[place] = 1.0; workgroupBarrier()\n; {NEXT}"),
    "a comment in a barrier": (TILE, f"tile[place] = 1.0; workgroupBarrier /* a */ (/* all */); {NEXT}"),
    "a barrier in the head of a loop": (
        TILE,
        f"tile[place] = 1.0; for (var i = 0u; i < 1u; workgroupBarrier()) {{ i++; }} {NEXT}",
    ),
    "a barrier in a loop": (
        TILE,
        f"for (var i = 0u; i < 9u; i++) {{ tile[place] = 1.0; {WAIT} {NEXT} {WAIT} }}",
    ),
    "a barrier in a function": (f"{TILE} fn wait() {{ {WAIT} }}", f"tile[place] = 1.0; wait(); {NEXT}"),
    "a barrier before what is written": (
        f"{TILE} fn late() -> f32 {{ {WAIT} return 1.0; }}",
        f"{NEXT} tile[place] = late();",
    ),
    "a short name of the type": (
        f"alias Row = array<f32, 32>; alias Tile = Row; {TILE[:19]}: Tile;",
        f"tile[place] = 1.0; {WAIT} {NEXT}",
    ),
    "a vector whose parts are read": (
        "var<workgroup> kept: vec4<f32>;",
        f"if (place == 0u) {{ kept = vec4(1.0); }} {WAIT} let x = kept.x + kept[1];",
    ),
    "a struct": (
        "struct Two { kept: f32, b: f32 } var<workgroup> kept: Two;",
        f"if (place == 0u) {{ kept = Two(1.0, 2.0); }} {WAIT} let other = kept.kept + kept.b;",
    ),
    "a field of that name": (
        f"struct Two {{ @align(8) kept: f32 }} {KEPT}",
        f"if (place == 0u) {{ kept = 1.0; }} {WAIT} let other = Two(kept).kept;",
    ),
    "a builtin of that name": (
        "var<workgroup> local_invocation_index: f32;",
        f"if (place == 0u) {{ local_invocation_index = 1.0; }} {WAIT} let x = local_invocation_index;",
    ),
    "two on one line": (
        f"{KEPT} var<workgroup> more: f32;",
        f"if (place == 0u) {{ kept = 1.0; more = 1.0; }} {WAIT} let other = kept + more;",
    ),
    "brackets in a comment": (TILE, f"tile[place /* ] */] = 1.0; {WAIT} {NEXT}"),
    "a truth": ("var<workgroup> done: bool;", f"if (place == 0u) {{ done = true; }} {WAIT} let x = done;"),
    "whole numbers with a sign": (TILE, f"tile[i32(place)] = 1.0; {WAIT} {NEXT}"),
    "never used": (
        f"{TILE} var<workgroup> unused: array<vec2<f32>, 3>;",
        f"tile[place] = 1.0; {WAIT} {NEXT}",
    ),
    "only where it is": (
        TILE,
        "tile[place] = 1.0; if (place > 0u && place > 99u && tile[place - 1u] > 0.0) { return; }",
    ),
    "of one's own, as often as one likes": (
        TILE,
        "tile[place] = 1.0; tile[place] += tile[place]; tile[place] *= 2.0;",
    ),
    "read by many": (TILE, NEXT),
    "a load for all": (
        KEPT,
        "if (place == 0u) { kept = 1.0; } let x = workgroupUniformLoad( & kept); "
        "if (place == 1u) { kept = x; }",
    ),
}
# Texts without a verdict.
UNSAID = {
    "a pointer": (TILE, "let p = &tile[place]; *p = 1.0;"),
    "a pointer in parentheses": (TILE, "let p = &(tile[place]); *p = 1.0;"),
    "a pointer to more of them": (TILE, "let p = &((tile)); (*p)[0] = 1.0;"),
    "a pointer on two lines": (TILE, "let p = &\n tile[place]; *p = 1.0;"),
    "a pointer that is used at once": (TILE, "*(&tile[place]) = 1.0;"),
    "a pointer with a comment": (TILE, "let p = & /* a */ tile[place]; *p = 1.0;"),
    "a pointer to a number": (KEPT, "let p = &kept; *p = 1.0;"),
    "a pointer that is handed on": (f"{KEPT} fn put(p: ptr<workgroup, f32>) {{ *p = 1.0; }}", "put(&kept);"),
    "an atomic": (
        f"{TILE} var<workgroup> count: atomic<u32>;",
        f"if (place == 0u) {{ atomicStore(&count, 1u); }} tile[place] = f32(atomicLoad( & count)); {NEXT}",
    ),
    "an atomic in a struct": (
        f"{TILE} struct Two {{ a: atomic<u32>, b: u32 }} var<workgroup> both: Two;",
        "tile[place] = f32(atomicAdd(&both.a, 1u) + both.b);",
    ),
    "a load of an element for all": (TILE, "let x = workgroupUniformLoad(&tile[0]);"),
    "as a whole": (TILE, "var other = tile;"),
    "component by component": ("var<workgroup> kept: vec4<f32>;", "kept.x = 1.0;"),
    "a component by its number": ("var<workgroup> kept: vec4<f32>;", "kept[1] = 1.0;"),
    "a component in parentheses": ("var<workgroup> kept: vec4<f32>;", "(kept).x = 1.0;"),
    "an element of an element": ("var<workgroup> two: array<array<f32, 2>, 2>;", "two[0][1] = 1.0;"),
    "in the head of a loop": (TILE, "for (var i = 0u; i < 2u; tile[0] = 1.0) { i++; }"),
    "a barrier of its own": (f"{TILE} fn workgroupBarrier() {{ }}", f"tile[place] = 1.0; {WAIT} {NEXT}"),
    "a variable named as a barrier": (TILE, "let storageBarrier = 1.0;"),
    "a type of its own": (f"{TILE} alias u32 = f32;", "tile[0] = 1.0;"),
    "a minimum of its own": (f"{TILE} fn min(a: u32, b: u32) -> u32 {{ return 0u; }}", "tile[0] = 1.0;"),
    "a barrier for some": (TILE, f"tile[place] = 1.0; subgroupBarrier(); {NEXT}"),
    "a parameter of that name": (
        f"{KEPT} fn twice(kept: f32) -> f32 {{ return kept; }}",
        "kept = twice(1.0);",
    ),
    "a local of that name": (KEPT, "let kept = kept;"),
    "a variable of that name": (KEPT, "var<function> kept = 1.0;"),
    "names of the notes": (f"{TILE} var<private> watch_place: u32;", "tile[place] = 1.0;"),
    "a length to be worked out": ("const N = 8u * 4u; var<workgroup> tile: array<f32, N>;", NEXT),
    "a length with a sum": ("var<workgroup> tile: array<f32, 16 + 16>;", NEXT),
    "an access mode": ("var<workgroup, read_write> tile: array<f32, 32>;", NEXT),
    "no token": (TILE, "tile[place] = 1.0; #"),
    "a comment that does not end": (TILE, "tile[place] = 1.0; /* /* */"),
    "brackets that do not match": (TILE, "tile[(place]) = 1.0;"),
    "a statement that does not end": (TILE, "tile[place] = 1.0"),
}


def small(parts: tuple[str, str]) -> str:
    before, inside = parts
    return (
        f"{before}\n@compute /* fn main() {{ ; */ @workgroup_size(32) // one {{ each;\n"
        f"fn main(@builtin(local_invocation_index) place: u32) {{\n    {inside}\n}}\n"
    )


ENTRY = {"main": 32}


def noted(device: Device, text: str) -> list[int]:
    """Return the number of races, the line and element of the last one, and true for uneven barriers."""
    watched = RaceInstrumentation(text)
    return list(map(int, _words_of(device.handle, watched.text(ENTRY, 0), watched.words(1, 1))[:4]))


def races_seen(device: Device, text: str) -> int:
    seen, _, _, uneven = noted(device, text)
    assert not uneven
    return seen


@pytest.mark.parametrize("name", RACING)
def test_a_race_is_found_in_any_spelling(name: str, device: Device) -> None:
    assert races_seen(device, small(RACING[name]))


@pytest.mark.parametrize("name", HONEST)
def test_no_false_race_in_any_spelling(name: str, device: Device) -> None:
    assert not races_seen(device, small(HONEST[name]))


@pytest.mark.parametrize("name", UNSAID)
def test_ambiguous_names_cannot_be_instrumented(name: str) -> None:
    with pytest.raises(CannotInstrument):
        RaceInstrumentation(small(UNSAID[name])).text(ENTRY, 0)


def test_entry_points_have_to_be_found() -> None:
    text = small(HONEST["as it is usual"])
    many = {f"main{number}": 32 for number in range(16)}
    text += "".join(f"fn {name}() {{ }}" for name in many)
    for entry_points in ({"other": 32}, many):
        with pytest.raises(CannotInstrument):
            RaceInstrumentation(text).text(entry_points, 0)


BETWEEN = (
    "",
    " ",
    "\n",
    "\t",
    "\v",
    "/**/",
    "/* ; { [ ( */",
    "// tile[0] = 1.0; }\n",
    "/*/* // */*/",
    "/*/ */",
)


@st.composite
def spaced(draw: st.DrawFn) -> tuple[str, str]:
    """Draw a text, and the same text with blanks and comments between its tokens."""
    text = small(draw(st.sampled_from([*RACING.values(), *HONEST.values()])))
    code = TokenizedShader(text)
    pieces = []
    for at, token in enumerate(code.tokens):
        before = text[code.tokens[at - 1].start + len(code[at - 1]) : token.start] if at else ""
        joined = not before and token.kind == "mark" and code.tokens[at - 1].kind == "mark"
        part_of_operator = joined and not {token.text, code[at - 1]} & set("()[]{};,")
        blank = " " if before else ""
        pieces.append(blank if part_of_operator else f"{blank}{draw(st.sampled_from(BETWEEN))}")
        pieces.append(token.text)
    return (text, "".join(pieces) + "\n")


def without_lines(text: str) -> list[str]:
    """Return the tokens of an instrumented text without line numbers of notes."""
    words = [token.text for token in TokenizedShader(text).tokens]
    return [re.sub(r"[0-9]+u", "", w) if after == ")" else w for w, after in itertools.pairwise(words)]


@examples(100)
@given(spaced())
def test_blanks_and_comments_change_no_note(texts: tuple[str, str]) -> None:
    plain, drawn = (RaceInstrumentation(text).text(ENTRY, 0) for text in texts)
    assert without_lines(plain) == without_lines(drawn)


@examples(20)
@given(spaced())
def test_blanks_and_comments_change_no_verdict(device: Device, texts: tuple[str, str]) -> None:
    plain, drawn = (races_seen(device, text) > 0 for text in texts)
    assert plain == drawn


@pytest.mark.parametrize(
    "inside",
    [
        f"if (place % 2u == 0u) {{ {WAIT} }} let other = tile[place ^ 1u];",
        f"if (place > 3u) {{ return; }} {WAIT} {NEXT}",
        f"for (var i = 0u; i < place; i++) {{ {WAIT} }} {NEXT}",
        # llvmpipe ends a loop after 65535 rounds.
        f"for (var i = 0u; i < 50000u; i++) {{ {WAIT} {WAIT} {WAIT} }} {NEXT}",
    ],
)
def test_uneven_or_too_many_barriers_give_no_verdict(inside: str, device: Device) -> None:
    *_, uneven = noted(device, small((TILE, f"tile[place] = 1.0; {inside}")))
    assert uneven


def test_notes_name_the_line_of_the_access(device: Device) -> None:
    text = small((TILE, "/* 4\n5 */\n\ntile\n[0] = 1.0;"))
    _, line, element, _ = noted(device, text)
    assert (text.splitlines()[line - 1], element) == ("tile", 0)


def trials_of(kernel: Kernel) -> Iterator[tuple[Variant, NormProblem]]:
    """Yield every pair of constants with some options, and every option with some constants.

    Kernels of one file share the options.
    """
    family = next(family for family in of_one_file(KERNELS) if kernel in family)
    problems = [suited(kernel, problem) for _, problem in option_problems(kernel.op)]
    # Accesses have other widths if two values share a word.
    first_of = {problem.dtype: problem for problem in reversed(problems)}
    variants = [one for problem in first_of.values() for one in runnable_variants(kernel, problem, GPU)]
    waiting = [variant for variant, _ in covering((variant, problems[0]) for variant in variants)]
    for problem in problems[family.index(kernel) :: len(family)]:
        variant = next((one for one in waiting if one.refusal(problem, GPU) is None), None)
        if variant is not None:
            waiting.remove(variant)
        yield variant or default_variant(kernel, problem, GPU), problem
    for variant in waiting:
        yield variant, next(one for one in problems if variant.refusal(one, GPU) is None)


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    "kernel", [kernel for kernel in KERNELS if not kernel.op.is_copy], ids=lambda kernel: kernel.label
)
def test_webnorms_kernels_can_be_watched(kernel: Kernel) -> None:
    for variant, problem in trials_of(kernel):
        shader = render_shader(variant, problem, "native", GPU)
        watched = RaceInstrumentation(shader.text)
        entry_points = {each.entry_point: each.workgroup_size for each in shader.passes}
        text = watched.text(entry_points, len(shader.bindings) + 1)
        assert len(re.findall(r"\bwatch_barrier\(", text)) - 1 == shader.text.count("workgroupBarrier();")
        assert len(watched.memory) == shader.text.count("var<workgroup>")


PASS_OF_HONEST = broken.HONEST[broken.HONEST.index(PASS) : broken.HONEST.index("// [accuracy]")]


def tried(device: Device, folder: Path, before: str, inside: str, runs: int = 1, rows: int = 70) -> Result:
    """A right kernel with further accesses to workgroup memory, which runs several times."""
    changes = {"@compute": f"{before}\n@compute", ROW: f"    {inside}\n{ROW}"}
    header = {PASS: PASS_OF_HONEST * (runs - 1) + PASS}
    kernel = load(Cheat("used", changes, header=header).write(folder))
    problem = NormProblem(rows=rows, cols=64)
    variant = default_variant(kernel, problem, device.traits)
    board = ProblemBuffers(device, Task(kernel.op, problem), make_inputs(kernel.op, problem), ())
    return try_variant(board, variant, watch=True)[0]


def test_a_race_fails_and_an_unwatchable_kernel_does_not(device: Device, tmp_path: Path) -> None:
    racing = tried(
        device, tmp_path, TILE.replace(", 32>", ", 256>"), "tile[place]\n= 1.0; let other = tile[0];"
    )
    assert racing.status == "fail", racing.reason
    assert racing.watched and racing.fault == "race" and "used.wgsl" in (racing.reason or "")
    before, inside = TILE.replace(", 32>", ", 256>"), f"tile[place] = 1.0; if (place > 0u) {{ {WAIT} }}"
    uneven = tried(device, tmp_path, before, inside)
    assert (uneven.status, uneven.watched) == ("pass", False), uneven.reason
    assert racing.unwatched is None and "a barrier that not all invocations" in (uneven.unwatched or "")
    for name in ("a barrier of its own", "a pointer in parentheses", "names of the notes"):
        before, inside = UNSAID[name]
        found = tried(device, tmp_path, before.replace(", 32>", ", 256>"), inside)
        assert (found.status, found.watched) == ("pass", False), found.reason


def test_the_reason_names_the_line_of_the_authors_file(device: Device, tmp_path: Path) -> None:
    before, inside = UNSAID["a pointer in parentheses"]
    found = tried(device, tmp_path, before.replace(", 32>", ", 256>"), inside)
    place = re.match(r"\S*used\.wgsl:(\d+): ", found.unwatched or "")
    assert place is not None, found.unwatched
    (path,) = tmp_path.rglob("used.wgsl")
    assert "&(tile[place])" in path.read_text(encoding="utf-8").splitlines()[int(place[1]) - 1]


@pytest.mark.parametrize("found", [f"== {POISON}u", "== 0u", f"!= {POISON}u"])
def test_kernels_cannot_know_when_they_are_watched(found: str, device: Device, tmp_path: Path) -> None:
    """The previous content of the row of y decides about the barrier."""
    barrier = f"if (bitcast<u32>({FIRST}.x) {found}) {{ {WAIT} }}"
    inside = f"tile[place] = 1.0; {barrier} let other = tile[place ^ 1u];"
    racing = tried(device, tmp_path, TILE.replace(", 32>", ", 256>"), inside, rows=64)
    assert (racing.status, racing.watched) == ("fail", True), racing.reason


def test_passes_with_one_entry_point_are_not_mixed_up(device: Device, tmp_path: Path) -> None:
    """One invocation writes memory in one pass, and others in the next."""
    inside = f"tile[(place + u32({FIRST}.x == 0.0)) % 256u] = 1.0;"
    for runs, watched in ((1, True), (2, False)):
        found = tried(device, tmp_path, TILE.replace(", 32>", ", 256>"), inside, runs, rows=64)
        assert (found.status, found.watched) == ("pass", watched), found.reason


def test_errors_of_the_instrumented_text_are_not_the_variants_fault(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instrumented entry point has a builtin twice, which the compiler rejects."""
    found = tried(device, tmp_path, TILE.replace(", 32>", ", 256>"), "tile[place] = 1.0;")
    assert (found.status, found.watched) == ("pass", True), found.reason
    monkeypatch.setattr("webnorm.kernels.wgsl.tokens._parameter", lambda *_: "")
    found = tried(device, tmp_path, TILE.replace(", 32>", ", 256>"), "tile[place] = 1.0;")
    assert (found.status, found.watched) == ("pass", False), found.reason
    assert found.unwatched is not None and "the instrumented text does not run: " in found.unwatched
