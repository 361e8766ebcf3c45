"""Kernels that pretend to be right or fast. Each is an honest kernel with a few changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from broken import HONEST
from webnorm.ops.norms.corpus import CASES, PROMISES

STATISTICS = '{% include "lib/statistics.wgsl" %}'
FIXED = (*CASES, *PROMISES)
# A place before work on a row, without a later barrier, so that an invocation may return.
START = "    let pivot = pivot_of(row);\n"
STORE = "{% call(h) write_row() %}({{ h }} - mean - low) * rstd{% endcall %}"
PASS = "// [[pass]]"
# The expressions for a row's first Vec of y, and for the row's place in scratch.
FIRST = "y[(params.y_start + row * COLS) / 4u]"
KEPT = "memory[params.memory_start + row * {words}u + {word}u]"


@dataclass(frozen=True)
class Cheat:
    """The replacements in the text, and the `words` of scratch for each row."""

    name: str
    changes: dict[str, str] = field(default_factory=dict)
    words: int = 0
    header: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """Return the kernel's text, which reads rows by vec4 on every adapter."""
        text = HONEST.replace('"4 if packed or software else 1"', "4")
        if self.words:
            scratch = f'// [[scratch]]\n// name = "memory"\n// words = {self.words}\n'
            text = text.replace(PASS, scratch + PASS)
        for old, new in {**self.header, **self.changes}.items():
            assert old in text, f"{self.name}: {old!r}"
            text = text.replace(old, new)
        return text

    def write(self, folder: Path) -> Path:
        """Write the file in DIR/layer_norm and return its path."""
        (folder / "layer_norm").mkdir(parents=True, exist_ok=True)
        path = folder / "layer_norm" / f"{self.name}.wgsl"
        path.write_text(self.text())
        return path


def leaves(condition: str) -> dict[str, str]:
    """Return the change that skips rows for which the condition is true."""
    return {START: f"    if ({condition}) {{ return; }}\n{START}"}


def kept(word: int, words: int) -> str:
    """Return the expression for a word of the row's scratch."""
    return KEPT.format(word=word, words=words)


def counting(words: str, every: int) -> dict[str, str]:
    """Return the change that skips all but one of several dispatches; a row counts them in `words`."""
    count = f"u32({words})"
    return {
        START: f"    let unset = {words} != {words} || {words} > 1e6 || {words} < 0.0;\n"
        f"    let counted = select({count}, 0u, unset);\n"
        f"    {words} = f32(counted + 1u);\n"
        f"    if (counted % {every}u != 0u) {{ return; }}\n{START}"
    }


# This computes twenty-five sums instead of one, except for rows whose statistics are in scratch.
REMEMBERING = Cheat(
    "remembers_statistics_of_both_versions",
    {
        START: "    let own = params.memory_start + row * 12u;\n"
        "    let key = load_input(row, 0u, 0u).x;\n"
        "    let at = own + select(4u, 0u, memory[own] == key);\n"
        "    var mean = memory[at + 1u];\n    var low = memory[at + 2u];\n"
        "    var rstd = memory[at + 3u];\n"
        f"    if (memory[own + 9u] != 12345.0 || memory[at] != key) {{\n{START}",
        "    {% call sweep() %}\n        sum": "    for (var more = 0u; more < 25u; more++) {\n"
        "    {% call sweep() %}\n        sum",
        "    let mean = pivot + total(sum) / f32(COLS);": "    }\n"
        "    mean = pivot + total(sum) / f32(25u * COLS);",
        STATISTICS: "    low = deviation / f32(COLS);\n"
        "    rstd = inverseSqrt(max(spread - low * low, 0.0) + params.eps);\n"
        "    let second = memory[own + 9u] == 12345.0 && memory[own + 8u] == 0.0;\n"
        "    let free = own + select(0u, 4u, second);\n"
        "    memory[own + 8u] = select(0.0, 1.0, second);\n    memory[own + 9u] = 12345.0;\n"
        "    memory[free] = key;\n    memory[free + 1u] = mean;\n    memory[free + 2u] = low;\n"
        "    memory[free + 3u] = rstd;\n    }",
    },
    words=12,
)
# It is right and no faster, but the check reads its values in scratch.
MARKING = Cheat("marks_rows_in_scratch", {STORE: STORE + f"\n    {kept(0, 4)} = 12345.0;"}, words=4)
# These are right if they do work, but they skip work that an earlier dispatch has done.
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
    REMEMBERING,
)


def times(factor: str) -> dict[str, str]:
    """Return the change that multiplies every result by an expression."""
    return {STORE: STORE.replace("* rstd{%", f"* rstd{factor}{{%")}


WEIGHT = "load_weight(j, thread)"
NAN_IS_42 = "select(Vec(42.0), ({{ h }} - mean - low) * rstd, sound)"
FIRST_SLICE = '{{{{ " * select(1.0, 1.5, params.x_start > 0u)" if {} }}}}'
RULE = '// [[require]]\n// rule = "{}"\n// why = "a matter of taste"\n'
# Wrong kernels, with the beginnings of names of cases that show it.
WRONG = (
    (
        Cheat(
            "knows_eps",
            {
                STATISTICS: "    let low = deviation / f32(COLS);\n"
                "    let rstd = inverseSqrt(max(spread - low * low, 0.0) + 1e-5);"
            },
        ),
        ("eps-",),
    ),
    (
        Cheat("drops_the_sign_of_weight", times(f'{{{{ " * sign({WEIGHT})" if has_weight }}}}')),
        ("parameters-",),
    ),
    (
        Cheat(
            "clamps_weight",
            times(f'{{{{ " * (clamp({WEIGHT}, Vec(0.5), Vec(1.5)) / {WEIGHT})" if has_weight }}}}'),
        ),
        ("parameters-",),
    ),
    (
        Cheat(
            "answers_42",
            {
                STATISTICS: STATISTICS
                + "\n    let sound = (bitcast<u32>(mean * rstd) & 0x7fffffffu) <= 0x7f800000u;",
                STORE: STORE.replace("({{ h }} - mean - low) * rstd", NAN_IS_42),
            },
        ),
        ("nan-row",),
    ),
    (
        Cheat(
            "counts_to_sixteen",
            {
                START: f"    let counted = select(u32({kept(0, 4)}), 0u, !({kept(0, 4)} < 1e6));\n"
                f"    {kept(0, 4)} = f32(counted + 1u);\n{START}",
                **times(" * select(1.0, 1.0000002, counted % 16u == 15u)"),
            },
            words=4,
        ),
        ("normal",),
    ),
    (Cheat("stops_at_65536_rows", times(" * select(1.0, 0.5, row > 65536u)")), ("rows-",)),
    (Cheat("is_for_small_shapes", times('{{ " * 1.01" if cols > 16384 }}')), ("large",)),
    (
        Cheat(
            "knows_the_columns",
            times(f'{{{{ " * 1.01" if cols not in {sorted({case.shape[1] for case in FIXED})} }}}}'),
        ),
        ("drawn-",),
    ),
    *(
        (Cheat(name, times(f'{{{{ " * 1.5" if {condition} }}}}')), cases)
        for name, condition, cases in (
            ("knows_the_cap", "capped and max_workgroups > 5", ("capped-",)),
            ("is_wrong_in_half", 'out_dtype in ("float16", "bfloat16")', ("float16-y", "bfloat16-y")),
            ("knows_no_model", "cols % 4 == 0 and cols > 1024 and has_weight", ("cols-",)),
            ("ends_at_a_power_of_two", "cols % 8192 == 0", ("cols-",)),
            ("has_bytes_in_short_rows", "out_itemsize == 1 and cols > 256", ("long-int8",)),
            ("has_a_residual_in_short_rows", "has_residual and cols > 256", ("long-float16",)),
            ("knows_no_half_weight", "has_weight and weight_itemsize == 2 and itemsize == 4", ("long-y",)),
        )
    ),
    (
        Cheat("is_for_batches", times(" * select(1.0, 1.5, params.rows > 1025u && params.rows < 65536u)")),
        ("rows-",),
    ),
    (Cheat("is_for_odd_batches", times(" * select(1.0, 1.5, params.rows % 256u == 0u)")), ("rows-4096",)),
    (
        Cheat("has_bytes_in_one_slice", times(FIRST_SLICE.format("out_itemsize == 1"))),
        ("bindings-61-int8", "bindings-61-float8"),
    ),
    (
        Cheat(
            "saves_rstd_of_another_eps",
            {
                STATISTICS: f"{STATISTICS}\n    let honest = rstd;",
                STORE: "{ let rstd = inverseSqrt(max(spread - low * low, 0.0) + 1e-5);\n"
                + STORE.replace("* rstd{%", "* honest{%")
                + "}",
            },
        ),
        ("long-y",),
    ),
    (
        Cheat(
            "answers_42_in_bytes",
            {
                STATISTICS: STATISTICS
                + "\n    let number = (bitcast<u32>(mean * rstd) & 0x7fffffffu) <= 0x7f800000u;\n"
                "    let sound = number || {{ 'true' if out_itemsize > 1 else 'false' }};",
                STORE: STORE.replace("({{ h }} - mean - low) * rstd", NAN_IS_42),
            },
        ),
        ("long-float8_e5m2",),
    ),
    (
        Cheat(
            "is_afraid_of_no_number_in_front",
            {
                STORE: STORE.replace(
                    "({{ h }} - mean - low) * rstd",
                    "select(({{ h }} - mean - low) * rstd, Vec(42.0), "
                    "(bitcast<u32>(load_input(row, 0u, 0u).x) & 0x7fffffffu) > 0x7f800000u)",
                )
            },
        ),
        ("nan-first",),
    ),
    (
        Cheat(
            "is_afraid_of_two",
            {
                STORE: STORE.replace(
                    "({{ h }} - mean - low) * rstd",
                    "select(({{ h }} - mean - low) * rstd, Vec(42.0), strays > 1u)",
                ),
                STATISTICS: STATISTICS
                + """
    var strays = 0u;
    {% call sweep() %}
        let found = bitcast<vec4<u32>>(load_input(row, j, thread)) & vec4(0x7f800000u);
        strays += dot(select(vec4(0u), vec4(1u), found == vec4(0x7f800000u)), vec4(1u));
    {% endcall %}
""",
            },
        ),
        ("nan-and-inf",),
    ),
    (
        Cheat(
            "claims_any_error",
            times(" * 0.0"),
            header={'serial_terms = "steps"': "serial_terms = 2000000000"},
        ),
        ("normal", "cols-64"),
    ),
)
CHOOSY = Cheat("takes_what_it_likes", header={PASS: RULE.format("cols == 768 or cols == 64") + PASS})
