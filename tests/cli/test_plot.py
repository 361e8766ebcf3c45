from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from webnorm.cli import plot as plotting
from webnorm.cli.plot import _panels, plot
from webnorm.errors import WebnormError
from webnorm.lab import bench
from webnorm.lab.results import Report, Result
from webnorm.norms.problem import Options, Problem


def result(kernel: str, gbps: float, rows: int = 64, cols: int = 1024, n: int = 1) -> Result:
    size = 8 * rows * cols
    median = size / gbps
    return Result(
        op="copy" if kernel == "copy" else "layer_norm",
        kernel=kernel,
        constants={"n": n},
        problem=Problem(rows=rows, cols=cols),
        status="pass",
        median_ns=median,
        p20_ns=0.9 * median,
        p80_ns=1.25 * median,
        bytes=size,
        gbps=gbps,
    )


def sweep(rows: Iterable[int], cols: Iterable[int]) -> list[Result]:
    sizes = [(m, n) for m in rows for n in cols]
    kernels = {"copy": 200.0, "naive": 50.0, "registers": 180.0}
    return [result(kernel, gbps, m, n) for m, n in sizes for kernel, gbps in kernels.items()]


def report(results: Iterable[Result]) -> Report:
    return Report(device={"adapter": "Some GPU"}, results=tuple(results))


def words(path: Path) -> list[str]:
    """Every text in an SVG."""
    return [node.text or "" for node in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def test_a_sweep_is_drawn_with_its_device_kernels_sizes_and_roofline(tmp_path: Path) -> None:
    path = tmp_path / "sweep.svg"
    plot(report(sweep([64], [256, 1024, 4096, 8192])), path)
    shown = words(path)
    for word in (
        "Some GPU, float32",
        "layer_norm, rows 64",
        "naive",
        "registers",
        "copy (roofline)",
        "cols (N)",
    ):
        assert word in shown
    assert {"256", "1024", "4096", "8192"} <= set(shown)
    assert os.listdir(tmp_path) == ["sweep.svg"]


def test_equal_reports_give_equal_files(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        plot(report(sweep([64], [256, 1024])), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_one_size_is_drawn_as_bars_with_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "one.svg"
    plot(report(sweep([64], [1024])), path)
    shown = words(path)
    for word in ("layer_norm, rows 64, cols 1024", "naive", "50", "180", "copy 200"):
        assert word in shown


@pytest.mark.parametrize(
    "results",
    [sweep([1, 64, 512, 4096], [256, 1024]), sweep([64], range(128, 4096, 128)), [result("copy", 9.0)]],
    ids=["panels", "long", "copy alone"],
)
def test_other_reports_are_drawn_as_a_png(tmp_path: Path, results: list[Result]) -> None:
    path = tmp_path / "picture.PNG"
    plot(report(results), path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_line_is_the_best_right_variant_at_each_size() -> None:
    results = [
        result("registers", 100.0, n=1),
        result("registers", 150.0, n=2),
        replace(result("registers", 500.0, n=3), status="fail"),
        replace(result("registers", 400.0, n=4), median_ns=math.nan),
        replace(result("registers", math.nan, n=5), median_ns=1.0),
    ]
    with pytest.raises(WebnormError):
        plot(report(results[2:]), Path("never.svg"))
    (panel,) = _panels(results)
    point = panel.lines["registers"][1024]
    assert point.gbps == 150.0
    assert point.low == pytest.approx(150 / 1.25)
    assert point.high == pytest.approx(150 / 0.9)


def test_panels_are_per_rows_and_options_with_the_roofline_of_their_shape() -> None:
    results = sweep([512, 64], [256, 1024])
    bare = replace(results[1], problem=replace(results[1].problem, options=Options(bias=False)))
    other_copies = [result("copy", 10.0, rows, 1024) for rows in (1, 8192)]
    panels = _panels([*results, bare, *other_copies])
    assert [panel.family.rows for panel in panels] == [64, 512, 512]
    assert [list(panel.copy) for panel in panels] == [[256, 1024]] * 3
    assert {point.gbps for panel in panels for point in panel.copy.values()} == {200.0}
    assert sorted(len(panel.lines) for panel in panels) == [1, 2, 2]


@pytest.mark.parametrize("name", ["a.pdf", "a", "a.svgz"])
def test_another_suffix_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(WebnormError, match=r"expected \.svg or \.png"):
        plot(report(sweep([64], [256])), tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_nothing_timed_is_told(tmp_path: Path) -> None:
    with pytest.raises(WebnormError, match="both right and timed"):
        plot(report([]), tmp_path / "a.svg")
    assert os.listdir(tmp_path) == []


def test_without_matplotlib_the_command_to_install_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plotting, "find_spec", lambda name: None)
    with pytest.raises(WebnormError, match=r"^a plot needs matplotlib: \S+ -m pip install matplotlib$"):
        plot(report(sweep([64], [256])), tmp_path / "a.svg")


def test_before_anything_is_timed_it_is_known_that_nothing_can_be_drawn(
    mistake: Callable[[list[str]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plotting, "find_spec", lambda name: None)
    monkeypatch.setattr(bench, "run", lambda *_: pytest.fail("timed"))
    assert "pip install matplotlib" in mistake(["bench", "--plot", "a.svg"])


def test_an_unwritable_path_is_told(tmp_path: Path) -> None:
    with pytest.raises(WebnormError, match="cannot write"):
        plot(report(sweep([64], [256])), tmp_path / "absent" / "a.svg")
