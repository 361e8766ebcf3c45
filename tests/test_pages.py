"""Commands of the documentation and the output that it shows after them."""

from __future__ import annotations

from pages import Command, missing_lines, transcript

BLOCK = """\
$ webnorm check --kernel 'welford*'  # patterns work
kernel   pass  FAIL
  welford   12     -
...
$ webnorm baselines
"""
PRINTED = """\
kernel              pass  FAIL
layer_norm
  welford             40     -
  welford_subgroup     7     -
1 registers  24.1 us ±1 % 5.09 100 % ████▌ 1.2e-06 pass few samples
"""


def test_prompts_separate_commands_from_their_output() -> None:
    check, baselines = transcript(BLOCK)
    assert check.words == ["webnorm", "check", "--kernel", "welford*"]
    assert check.output == ("kernel   pass  FAIL", "  welford   12     -", "...")
    assert baselines == Command("webnorm baselines")
    assert transcript("webnorm list\nwebnorm doctor\n") == [
        Command("webnorm list"),
        Command("webnorm doctor"),
    ]


def test_shown_lines_are_looked_for_in_any_order() -> None:
    assert missing_lines(["  welford   12     -", "...", "kernel pass FAIL", ""], PRINTED) == []
    assert missing_lines(["registers 3.5 ms ±20 % 7.1 97 % █ 2.0e-05 pass"], PRINTED) == []
    assert missing_lines(["1= registers 24.1 us ±1 % 5.09 100 % 1.2e-06 pass"], PRINTED) == []
    assert missing_lines(["  welford_... 7 -"], PRINTED) == []
    assert missing_lines(["naive  46  44*"], "naive  59*  51") == []


def test_a_line_that_was_not_printed_is_missing() -> None:
    assert missing_lines(["  naive   12     -", "  welford   many     -"], PRINTED) == [
        "  naive   12     -",
        "  welford   many     -",
    ]
    assert missing_lines(["registers 24.1 us ±1 % 5.09 100 % 1.2e-06 FAIL"], PRINTED) != []
