from __future__ import annotations

import pytest

from webnorm.errors import WebnormError
from webnorm.op import selection
from webnorm.op.registry import OPS
from webnorm.op.selection import dtypes_named, ops_named, select_names, sizes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("768", (768,)),
        ("768,1024,768", (768, 1024)),
        ("4k", (4096,)),
        ("1K, 1m", (1024, 1 << 20)),
        ("256..2k", (256, 512, 1024, 2048)),
        ("256..2047", (256, 512, 1024)),
        ("1k..2k+512", (1024, 1536, 2048)),
        ("1..1000*10", (1, 10, 100, 1000)),
        ("7,8..16", (7, 8, 16)),
        ("0..3+1", (0, 1, 2, 3)),
        ("-1", (-1,)),
        ("4,8", (4, 8)),
        ("64,128,256", (64, 128, 256)),
        ("100,200", (100, 200)),
        ("8,0", (8, 0)),
        ("16, 384", (16, 384)),
    ],
)
def test_sizes(text: str, expected: tuple[int, ...]) -> None:
    assert sizes(text, "--cols") == expected


@pytest.mark.parametrize(
    "text",
    ["many", "1..", "..8", "8..4", "1..8*1", "1..8+0", "0..8", "1,,2", "", "²", "9" * 5000, "1.5", "1..2..3"],
)
def test_invalid_sizes_are_errors(text: str) -> None:
    with pytest.raises(WebnormError, match=r"--cols is .*; expected"):
        sizes(text, "--cols")


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("4,096", "write 4096"),
        ("1,000", "write 1000"),
        (" 12,000,384 ", "write 12000384"),
        ("1,024,2,048", "write thousands without a comma"),
        ("1,024..4k", "write thousands without a comma"),
        ("16,384", "write 16384, or '16, 384' for a list"),
        ("1,048,576", "write 1048576"),
    ],
)
def test_a_comma_between_thousands_is_an_error(text: str, instead: str) -> None:
    """A user who means 4096 would get the sizes 4 and 96."""
    with pytest.raises(WebnormError) as caught:
        sizes(text, "--cols")
    assert str(caught.value) == f"--cols is {text!r}; a comma separates values, so {instead}"


def test_a_range_has_an_end() -> None:
    with pytest.raises(WebnormError, match="expected at most 10000 numbers"):
        sizes("1..1m+1", "--rows")


def test_names() -> None:
    known = ("naive", "welford", "welford_subgroup")
    assert select_names("naive,welford", known, "kernel") == ("naive", "welford")
    assert select_names("welf*, naive", known, "kernel") == ("welford", "welford_subgroup", "naive")
    assert select_names("all", known, "kernel") == known
    for wrong, problem in (("welfrod", "unknown kernel"), ("welfrod*", "no kernel matches")):
        with pytest.raises(WebnormError, match=rf"{problem} .*; did you mean 'welford'"):
            select_names(wrong, known, "kernel")


def test_all_ops_are_without_the_copy_which_has_a_name() -> None:
    assert ops_named(None) == ("layer_norm",)
    assert {*ops_named("all")} == {*OPS} - {"copy"} > {"layer_norm", "rms_norm", "layer_norm_backward"}
    assert ops_named("rms*") == ("rms_norm", "rms_norm_backward") and ops_named("copy") == ("copy",)
    assert dtypes_named("all") == ("float32", "float16", "bfloat16") and dtypes_named("*16") == dtypes_named(
        "float16,bfloat16"
    )


def test_a_pattern_longer_than_any_name_is_not_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(selection, "fnmatchcase", lambda name, pattern: asked.append(pattern))
    assert not selection.matches("[31m\n" * 100_000, "naive") and asked == []
    selection.matches("nai*", "naive")
    assert asked == ["nai*"]
