"""What is taken out of a rendered text, and what is not."""

from __future__ import annotations

import pytest

from webnorm.kernels.plain import plain

LIBRARY = """\
alias Vec = f32;

// `value` where the column exists.
fn where_live(value: Vec, otherwise: Vec, j: u32) -> Vec {
    return value;
}

fn load_x(row: u32, j: u32) -> Vec {
    let raw = x[row + j];
    return where_live(raw, Vec(), j);
}

fn load_input(row: u32, j: u32) -> Vec {
    return load_x(row, j);
}

// Nobody calls it, but for the next, which nobody calls.
fn unused(value: Vec) -> f32 {
    return value * FACTOR;
}

fn also_unused(value: Vec) -> f32 {
    return unused(value);
}

const FACTOR = 2.0;
"""


def shown(library: str, own: str) -> str:
    lines = [*library.splitlines(), *own.splitlines()]
    files = ["lib/row.wgsl"] * len(library.splitlines()) + ["mine.wgsl"] * len(own.splitlines())
    text, numbers, _ = plain(lines, files, lambda file: file.startswith("lib/"))
    assert len(text) == len(numbers)
    return "\n".join(text)


def body(*lines: str) -> str:
    return "\n".join(["@compute @workgroup_size(1)", "fn main() {", *(f"    {line}" for line in lines), "}"])


def test_what_does_nothing_is_taken_out() -> None:
    assert (
        shown(LIBRARY, body("sum += where_live(load_input(0u, 1u) - mean, Vec(), 1u);"))
        == """\
alias Vec = f32;

fn load_x(row: u32, j: u32) -> Vec {
    return x[row + j];
}

@compute @workgroup_size(1)
fn main() {
    sum += load_x(0u, 1u) - mean;
}"""
    )


@pytest.mark.parametrize(
    ("call", "left"),
    [
        ("y = where_live(a + b, c, 0u) * 2.0;", "y = (a + b) * 2.0;"),
        ("y = 2.0 * where_live(a, c, 0u);", "y = 2.0 * a;"),
        ("y = max(where_live(a - b, c, 0u), c);", "y = max(a - b, c);"),
        ("y = where_live(f(a, b)[k], c, 0u) - where_live(b, c, 0u);", "y = f(a, b)[k] - b;"),
        ("y = where_live(where_live(a - b, c, 0u) / c, c, 0u);", "y = (a - b) / c;"),
    ],
)
def test_brackets_stay_where_they_are_needed(call: str, left: str) -> None:
    assert left in shown(LIBRARY, body(call))


@pytest.mark.parametrize("call", ["y = where_live(1, Vec(), 0u) / 2;", "y = where_live(a,"])
def test_what_may_mean_something_else_stays(call: str) -> None:
    """A literal takes its type from the function; a call over several lines is not taken apart."""
    text = shown(LIBRARY, body(call))
    assert call in text and "fn where_live(" in text


def test_what_is_the_users_own_stays() -> None:
    own = "const MINE = 3.0;\n\nfn same(v: f32) -> f32 {\n    return v;\n}\n\n"
    text = shown("", own + body("let unused = 1.0;", "y = same(2.0);"))
    assert text == own + body("let unused = 1.0;", "y = same(2.0);")


def test_values_of_snippets_that_nobody_uses_are_taken_out() -> None:
    library = body("let lane = 0u;", "let place = lane + 1u;", "let at = next();", "y[2u] = 1.0;")
    assert shown(library, "") == body("let at = next();", "y[2u] = 1.0;")
