"""Suggested commands, as a shell reads them, and the form of values in messages."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patience import HANG_S
from webnorm.errors import (
    UnknownName,
    counted,
    listing,
    one_line,
    path_argument,
    shell_command,
    shell_word,
    shown,
    size_in_bytes,
    sizes_in_bytes,
    unknown,
)

BASH = shutil.which("bash")
WORDS = [
    "",
    "plain",
    "a b",
    "it's",
    '"$HOME"',
    "`id`",
    "\\",
    "*",
    "~",
    "#",
    "-x",
    "é",
    "a\nb",
    "\t",
    "100%\r",
    "\udcff",
    "\udcffa1",
    "\x1b[1m",
    "u\u2028",
    "\u202e",
    "naïve\n",
    "'\n'",
    "\\\n\\",
    "$'\n'",
]


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
def test_a_shell_reads_the_words() -> None:
    command = f"printf '%s\\0' {shell_command(WORDS)}"
    done = subprocess.run([str(BASH), "-c", command], capture_output=True, timeout=HANG_S, check=True)
    assert done.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in WORDS]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_every_screen_shows_a_word_of_a_command_unchanged(word: str) -> None:
    quoted = shell_word(word)
    assert quoted.isprintable() and one_line(quoted) == quoted


@pytest.mark.parametrize(("path", "argument"), [("-x/a", "./-x/a"), ("x-", "x-"), ("/-x", "/-x")])
def test_no_path_is_taken_for_an_option(path: str, argument: str) -> None:
    assert path_argument(Path(path)) == argument


@pytest.mark.parametrize(
    "value", [[[1 / 3] * 40] * 9, {("k" * 90, "l" * 90, i): ["v" * 90] * 9 for i in range(9)}]
)
def test_a_value_is_short_whatever_it_holds(value: object) -> None:
    text = shown(value)
    assert text[:2] == repr(value)[:2] and text.isprintable() and len(text) <= 400


def test_a_size_has_a_unit_that_can_be_read() -> None:
    sizes = (1, 1000, 1 << 20, 10**7, (1 << 30) - 1, 1 << 31, 40 * 10**15)
    shown_sizes = "1 byte", "1000 bytes", "1 MiB", "9.5 MiB", "1 GiB", "2 GiB", "37,252,903 GiB"
    assert tuple(map(size_in_bytes, sizes)) == shown_sizes
    assert sizes_in_bytes(1 << 31, 1 << 20) == ("2 GiB", "1 MiB")
    assert sizes_in_bytes(1 << 31, (1 << 31) - 1) == ("2,147,483,648 bytes", "2,147,483,647 bytes")


def test_long_lists_of_names_end_with_their_number() -> None:
    names = [f"name_{number:03}" for number in range(100)]
    error = str(unknown("case", "zzz", names))
    assert error.startswith("unknown case 'zzz'; expected one of name_000, ")
    assert error.endswith(", ... (100 in all)") and len(error) < 300


def test_a_list_keeps_its_first_name() -> None:
    long = listing(["x" * 300])
    assert long.startswith("xxx") and "[of 300 characters]" in long and "in all" not in long
    two = listing(["x" * 300, "y" * 300])
    assert two == f"{long}, ... (2 in all)"


def test_an_unknown_name_carries_its_suggestions() -> None:
    error = unknown("op", "layernorm", ("layer_norm", "rms_norm"))
    assert isinstance(error, UnknownName)
    assert (error.problem, error.suggested) == ("unknown op 'layernorm'", ("layer_norm",))
    other = unknown("op", "zzz", ("layer_norm",), problem="it is 'did you mean'")
    assert isinstance(other, UnknownName)
    assert (other.problem, other.suggested) == ("it is 'did you mean'", ())


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("float64", "expected one of"),
        ("float23", "did you mean 'float32'?"),
        ("flaot16", "did you mean 'float16'?"),
    ],
)
def test_other_digits_are_another_name(name: str, hint: str) -> None:
    assert f"unknown dtype {name!r}; {hint}" in str(unknown("dtype", name, ("float32", "float16")))


def test_of_names_too_many_to_list_the_nearest_is_suggested() -> None:
    names = [f"name_{number:03}" for number in range(100)]
    assert "did you mean 'name_09" in str(unknown("case", "name_0999", names))


def test_a_count_has_its_noun() -> None:
    assert [counted(number, "earlier run") for number in (0, 1, 2)] == [
        "0 earlier runs",
        "1 earlier run",
        "2 earlier runs",
    ]
