from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import pytest
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from webnorm.errors import WebnormError
from webnorm.lab.plot.style import SETTINGS
from webnorm.lab.plot.throughput import _figure, panels, plot
from webnorm.lab.results.result import Report, Result
from webnorm.lab.run import bench
from webnorm.lab.run.bench import with_share_of_copy
from webnorm.ops.norms.problem import NormOptions, NormProblem


def result(kernel: str, gbps: float, rows: int = 64, cols: int = 1024, n: int = 1) -> Result:
    size = 8 * rows * cols
    median = size / gbps
    return Result(
        op="copy" if kernel == "copy" else "layer_norm",
        kernel=kernel,
        constants={"n": n},
        problem=NormProblem(rows=rows, cols=cols),
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


def drawn(results: Iterable[Result], adapter: str = "Some GPU") -> Figure:
    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        return _figure(panels(list(results)), adapter)


def texts(figure: Figure) -> list[Text]:
    """Return every drawn text, without invisible labels of ticks."""
    found, draw = [], Text.draw

    def record(text: Text, renderer: RendererBase) -> None:
        found.append(text)
        draw(text, renderer)

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        patch.setattr(Text, "draw", record)
        figure.draw_without_rendering()
    return [text for text in found if text.get_visible() and text.get_text()]


def words(path: Path) -> list[str]:
    """Return every text in an SVG."""
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


@pytest.mark.slow
def test_equal_reports_give_equal_files(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        plot(report(sweep([64], [256, 1024])), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_one_size_is_drawn_as_rows_with_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "one.svg"
    plot(report(with_share_of_copy(sweep([64], [1024]))), path)
    shown = words(path)
    for word in ("layer_norm, rows 64, cols 1024", "naive", "50", "25 %", "180", "copy (roofline)", "200"):
        assert word in shown
    (ax,) = drawn(sweep([64], [1024])).axes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["naive", "registers", "copy (roofline)"]


def test_one_kernel_is_a_point_in_a_small_picture() -> None:
    figure = drawn([result("naive", 50.0)])
    assert figure.get_size_inches()[1] < 2.5
    assert not figure.axes[0].patches
    assert drawn(sweep([64], [1024])).get_size_inches()[1] > figure.get_size_inches()[1]


def test_lines_are_labelled_at_their_ends_in_their_colours() -> None:
    results = with_share_of_copy(sweep([64], [256])) + with_share_of_copy(sweep([64], [1024]))
    (ax,) = drawn([one for one in results if (one.kernel, one.problem.cols) != ("naive", 1024)]).axes
    labels = {text.get_text(): text for text in ax.texts if isinstance(text, Annotation)}
    ends = {text: tuple(map(float, label.xy)) for text, label in labels.items()}
    assert ends == {
        "copy (roofline)  100 %": (1024, 200),
        "naive  25 % at 256": (256, 50),
        "registers  90 %": (1024, 180),
    }
    lines = [(np.asarray(line.get_xydata()).tolist(), line.get_color()) for line in ax.lines]
    colours = {tuple(points[-1]): colour for points, colour in lines if points}
    assert all(label.get_color() == colours[ends[text]] for text, label in labels.items())


def test_a_kernel_has_one_colour_in_all_panels() -> None:
    figure = drawn([*sweep([64], [256]), *sweep([512], [256, 1024])[::-1]])
    for kernel in ("naive", "registers"):
        colours = [text.get_color() for text in texts(figure) if text.get_text() == kernel]
        assert len(colours) == 2 and len({*colours}) == 1


@pytest.mark.parametrize("cols", [[1024], [1024, 2048]])
def test_rings_mark_what_auto_chooses(cols: list[int]) -> None:
    chosen = [replace(result("registers", 150.0, cols=n, n=2), auto="rules") for n in cols]
    figure = drawn([*sweep([64], cols), *chosen])
    (rings,) = (line for line in figure.axes[0].lines if line.get_markerfacecolor() == "none")
    values = rings.get_xdata() if len(cols) == 1 else rings.get_ydata()
    assert np.asarray(values).tolist() == [150.0] * len(cols)
    assert [text.get_text() for text in figure.legends[0].texts] == ["auto's choice"]


@pytest.mark.parametrize(
    ("chosen", "said", "marked"),
    [([], "auto's choice (not timed)", 0), ([512], "auto's choice (where timed)", 1)],
)
def test_the_legend_says_if_auto_was_not_timed(chosen: list[int], said: str, marked: int) -> None:
    """The user selected the kernels by name, or auto's choice was wrong."""
    found = sweep([64], [256, 512, 1024])
    found += [replace(result("registers", 150.0, cols=n, n=2), auto="rules") for n in chosen]
    failed = replace(result("lost", 1.0, cols=256), status="fail", auto="rules")
    figure = drawn([*found, failed])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.texts] == [said]
    (entry,) = legend.get_lines()
    assert (entry.get_markersize() > 0) == bool(marked)
    rings = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == "none"]
    assert [np.asarray(line.get_xdata()).tolist() for line in rings if chosen] == [chosen] * marked


def test_copies_alone_have_no_legend() -> None:
    assert not drawn([result("copy", 200.0, cols=n) for n in (256, 512)]).legends


@pytest.mark.slow
def test_a_picture_has_no_background(tmp_path: Path) -> None:
    plot(report(sweep([64], [256, 1024])), tmp_path / "a.png")
    assert matplotlib.image.imread(tmp_path / "a.png")[0, 0].tolist()[3] == 0
    plot(report(sweep([64], [256, 1024])), tmp_path / "a.svg")
    assert "#ffffff" not in (tmp_path / "a.svg").read_text()


HOSTILE = (
    "",
    "_hidden",
    "a$\\alpha$ & <b>",
    "\u65e5\u672c",
    "\u202e\n\x1b[31m",
    "W" * 900,
    "copy (roofline)",
)
MANY = [f"kernel_{at}" for at in range(42)]
LONG = NormOptions(bias=False, weight=False, residual=True, return_stats=True, out_dtype="float16")


def of_kernels(kernels: Iterable[str], cols: Iterable[int], rows: int = 64) -> list[Result]:
    """Return results with close rates, and the copy."""
    rates = {"copy": 200.0} | {kernel: 180.0 + at / 8 for at, kernel in enumerate(kernels)}
    found = [result(kernel, gbps, rows, n) for n in cols for kernel, gbps in rates.items()]
    return [replace(one, percent_of_copy=one.gbps and one.gbps / 2, auto="rules") for one in found]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "results",
    [
        of_kernels(HOSTILE, [1024]),
        of_kernels(MANY, [1024]),
        of_kernels(MANY, [256, 257, 1024, 65536, 1 << 20]),
        of_kernels(HOSTILE[:3], range(128, 4096, 128)),
        [
            replace(one, problem=replace(one.problem, dtype=dtype, options=LONG))
            for rows in (1, 1 << 20)
            for dtype in ("float32", "float16")
            for one in of_kernels(HOSTILE, [256, 8192][: rows // 2 + 1], rows)
        ],
    ],
    ids=["hostile names", "many kernels", "many lines", "many columns", "panels"],
)
def test_no_text_covers_another_or_is_cut_off(results: list[Result]) -> None:
    figure = drawn(results, "Adapter " * 9)
    boxes = {text: Text.get_window_extent(text) for text in texts(figure)}
    assert len(boxes) > 10
    for text, box in boxes.items():
        assert figure.bbox.contains(box.x0, box.y0) and figure.bbox.contains(box.x1, box.y1), text
    for (one, box), (other, another) in combinations(boxes.items(), 2):
        assert not box.overlaps(another), (one, other)


@pytest.mark.sampled(3)
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
    (panel,) = panels(results)
    point = panel.lines["registers"][1024]
    assert point.gbps == 150.0
    assert point.low == pytest.approx(150 / 1.25)
    assert point.high == pytest.approx(150 / 0.9)


def test_panels_are_per_rows_and_options_with_the_roofline_of_their_shape() -> None:
    results = sweep([512, 64], [256, 1024])
    bare = replace(results[1], problem=replace(results[1].problem, options=NormOptions(bias=False)))
    other_copies = [result("copy", 10.0, rows, 1024) for rows in (1, 8192)]
    found = panels([*results, bare, *other_copies])
    assert [panel.family.batch_size for panel in found] == [64, 512, 512]
    assert [list(panel.copy) for panel in found] == [[256, 1024]] * 3
    assert {point.gbps for panel in found for point in panel.copy.values()} == {200.0}
    assert sorted(len(panel.lines) for panel in found) == [1, 2, 2]


@pytest.mark.parametrize("name", ["a.pdf", "a", "a.svgz"])
def test_another_suffix_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(WebnormError, match=r"must be \.svg or \.png"):
        plot(report(sweep([64], [256])), tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_a_report_without_times_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WebnormError, match="both right and timed"):
        plot(report([]), tmp_path / "a.svg")
    assert os.listdir(tmp_path) == []


def without_matplotlib(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "matplotlib.py").write_text("raise ModuleNotFoundError(name='matplotlib')")
    monkeypatch.syspath_prepend(str(folder))


def test_without_matplotlib_the_error_names_the_command_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_matplotlib(tmp_path, monkeypatch)
    said = r"^a plot needs matplotlib, which is not installed: \S+ -m pip install matplotlib$"
    with pytest.raises(WebnormError, match=said):
        plot(report(sweep([64], [256])), tmp_path / "a.svg")


def test_drawing_is_checked_before_anything_is_timed(
    tmp_path: Path, mistake: Callable[[list[str]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_matplotlib(tmp_path, monkeypatch)
    monkeypatch.setattr(bench, "run", lambda *_: pytest.fail("timed"))
    assert "pip install matplotlib" in mistake(["bench", "--plot", "a.svg"])


def test_an_unwritable_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WebnormError, match="cannot write"):
        plot(report(sweep([64], [256])), tmp_path / "absent" / "a.svg")
