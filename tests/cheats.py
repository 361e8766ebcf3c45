"""Kernels that try to look right or fast and are not, each made from `naive` by a few changes of its text."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from webnorm.kernel import wgsl_root

NAIVE = (wgsl_root() / "layer_norm" / "naive.wgsl").read_text()
# Before a row is worked on; no barrier follows, so that an invocation may leave.
START = "    let pivot = pivot_of(row);\n"
STORE = "{% call(h) write_row() %}({{ h }} - mean - low) * rstd{% endcall %}"
PASS = "// [[pass]]"
# The text of a row's first Vec of y, and of the row's place in scratch.
FIRST = "y[(params.y_start + row * COLS) / 4u]"
KEPT = "memory[params.memory_start + row * {words}u + {word}u]"


@dataclass(frozen=True)
class Cheat:
    """What is replaced in the text; `words` of scratch for each row."""

    name: str
    changes: dict[str, str] = field(default_factory=dict)
    words: int = 0
    header: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The kernel's file. Rows are read by vec4 on every adapter."""
        text = NAIVE.replace('"4 if packed or software else 1"', "4")
        if self.words:
            scratch = f'// [[scratch]]\n// name = "memory"\n// words = {self.words}\n'
            text = text.replace(PASS, scratch + PASS)
        for old, new in {**self.header, **self.changes}.items():
            assert old in text, f"{self.name}: {old!r}"
            text = text.replace(old, new)
        return text

    def write(self, folder: Path) -> Path:
        """The file in DIR/layer_norm."""
        (folder / "layer_norm").mkdir(parents=True, exist_ok=True)
        path = folder / "layer_norm" / f"{self.name}.wgsl"
        path.write_text(self.text())
        return path


def leaves(condition: str) -> dict[str, str]:
    """Nothing is done for a row where the condition holds."""
    return {START: f"    if ({condition}) {{ return; }}\n{START}"}


def kept(word: int, words: int) -> str:
    """A word of the row's scratch."""
    return KEPT.format(word=word, words=words)


def counting(words: str, every: int) -> dict[str, str]:
    """All but one of so many dispatches do nothing; `words` is where a row counts them."""
    count = f"u32({words})"
    return {
        START: f"    let unset = {words} != {words} || {words} > 1e6 || {words} < 0.0;\n"
        f"    let counted = select({count}, 0u, unset);\n"
        f"    {words} = f32(counted + 1u);\n"
        f"    if (counted % {every}u != 0u) {{ return; }}\n{START}"
    }


# Right where they work, they leave out what an earlier dispatch has done.
IDLE = (
    Cheat("skips_rows_without_poison", leaves(f"bitcast<u32>({FIRST}.x) != 0x7fc0beefu")),
    Cheat("skips_rows_that_are_numbers", leaves(f"{FIRST}.x == {FIRST}.x")),
    Cheat("skips_every_other_row_that_is_written", leaves(f"{FIRST}.x == {FIRST}.x && row % 2u == 0u")),
    Cheat("counts_in_scratch", counting(kept(0, 4), 16), words=4),
    Cheat("counts_to_two_in_scratch", counting(kept(0, 4), 2), words=4),
    Cheat(
        "tags_rows_in_scratch",
        {
            START: f"    if ({kept(0, 4)} == 12345.0) {{ return; }}\n{START}",
            STORE: STORE + f"\n    {kept(0, 4)} = 12345.0;",
        },
        words=4,
    ),
    Cheat(
        "tags_rows_by_their_input",
        {
            START: f"    if ({kept(0, 4)} == load_input(row, 0u, 0u).x) {{ return; }}\n{START}",
            STORE: STORE + f"\n    {kept(0, 4)} = load_input(row, 0u, 0u).x;",
        },
        words=4,
    ),
    Cheat(
        "knows_both_versions",
        {
            START: "    let key = load_input(row, 0u, 0u).x;\n"
            f"    let known = {kept(1, 4)} == key || {kept(2, 4)} == key;\n"
            f"    if ({kept(0, 4)} == 12345.0 && known) {{ return; }}\n{START}",
            STORE: STORE
            + f"\n    {kept(2, 4)} = {kept(1, 4)};\n    {kept(1, 4)} = key;\n    {kept(0, 4)} = 12345.0;",
        },
        words=4,
    ),
    Cheat(
        "counts_in_the_guard",
        {
            START: "    let guard = arrayLength(&y) - 1u;\n    if (y[guard].w == 12345.0) { return; }\n"
            + START,
            STORE: STORE + "\n    y[guard].w = 12345.0;",
        },
    ),
    Cheat(
        "remembers_statistics_of_both_versions",
        {
            START: "    let own = params.memory_start + row * 12u;\n"
            "    let key = load_input(row, 0u, 0u).x;\n"
            "    let at = own + select(4u, 0u, memory[own] == key);\n"
            "    var mean = memory[at + 1u];\n    var low = memory[at + 2u];\n"
            "    var rstd = memory[at + 3u];\n"
            f"    if (memory[own + 9u] != 12345.0 || memory[at] != key) {{\n{START}",
            "    let mean = pivot": "    mean = pivot",
            '{% include "lib/statistics.wgsl" %}': "    low = deviation / f32(COLS);\n"
            "    rstd = inverseSqrt(max(spread - low * low, 0.0) + params.eps);\n"
            "    let second = memory[own + 9u] == 12345.0 && memory[own + 8u] == 0.0;\n"
            "    let free = own + select(0u, 4u, second);\n"
            "    memory[own + 8u] = select(0.0, 1.0, second);\n    memory[own + 9u] = 12345.0;\n"
            "    memory[free] = key;\n    memory[free + 1u] = mean;\n    memory[free + 2u] = low;\n"
            "    memory[free + 3u] = rstd;\n    }",
        },
        words=12,
    ),
)
