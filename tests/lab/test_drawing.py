"""Matplotlib's settings do not change pictures, and a broken matplotlib is an error of one line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from test_plot import report, sweep

from commands import webnorm
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.lab.plot import drawing
from webnorm.lab.plot.throughput import plot
from webnorm.lab.report.findings import Findings

# Code of broken installations, and the errors about them.
BROKEN = {
    "raise ModuleNotFoundError(name='matplotlib')": "needs matplotlib, which is not installed",
    "raise ImportError('libc.so.6:\\nno such file')": r"\(ImportError: libc.so.6: no such file\)",
    "import a_part_of_it_that_is_gone": r"\(ModuleNotFoundError: No module named 'a_part_of_it",
    "raise AttributeError('_ARRAY_API not found')": r"\(AttributeError: _ARRAY_API not found\)",
    "def": r"\(SyntaxError: invalid syntax \(__init__.py, line 1\)\)",
    "raise RuntimeError": r"\(RuntimeError:\)",
    "raise SystemExit('bye')": r"\(SystemExit: bye\)",
    "raise KeyboardInterrupt": "matplotlib failed: KeyboardInterrupt",
    "import os; os._exit(3)": "matplotlib ended its process with exit status 3",
    "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)": "ended its process with exit status -11",
    "print('noise')": r"\(ImportError: it has no rc_context\)",
    "rc_context = 0": r"matplotlib\.figure, which cannot be imported",
}


def install(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace matplotlib by this code."""
    package = folder / "site" / "matplotlib"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(code)
    monkeypatch.syspath_prepend(str(package.parent))


@pytest.mark.slow
@pytest.mark.parametrize("form", ("svg", pytest.param("png", marks=pytest.mark.slow)))
def test_settings_of_matplotlib_do_not_change_a_picture(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = report(sweep([64], [256, 1024]))
    plot(found, tmp_path / f"plain.{form}")
    monkeypatch.chdir(tmp_path)
    Path("matplotlibrc").write_bytes(b"text.usetex: True\nsvg.fonttype: path\nno such line\n\xff")
    Path("config", "matplotlib").mkdir(parents=True)
    Path("config", "matplotlib", "matplotlibrc").write_bytes(b"backend: nothing\n\xff")
    hostile = {
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "MATPLOTLIBRC": str(tmp_path / "matplotlibrc"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PYTHONWARNINGS": "error",
        "DISPLAY": "nowhere:1",
        "SOURCE_DATE_EPOCH": "1",
    }
    for name, value in hostile.items():
        monkeypatch.setenv(name, value)
    plot(found, tmp_path / f"hostile.{form}")
    assert Path(f"hostile.{form}").read_bytes() == Path(f"plain.{form}").read_bytes()
    assert {name: os.environ[name] for name in hostile} == hostile


def test_modules_are_found_where_this_process_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("raise RuntimeError('found')", tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["site", *sys.path[1:]])
    with pytest.raises(WebnormError, match="RuntimeError: found"):
        drawing.check_drawing("svg")


def test_output_at_the_start_of_python_is_not_part_of_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coverage tool's hook may print such text. "c" is an opcode of Python's pickle."""
    (tmp_path / "sitecustomize.py").write_text("print('collecting\\nstatistics', flush=True)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    drawing.check_drawing("svg")


@pytest.mark.parametrize(("code", "said"), BROKEN.items(), ids=map(str, range(len(BROKEN))))
def test_a_broken_matplotlib_is_one_line(
    code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(code, tmp_path, monkeypatch)
    with pytest.raises(WebnormError, match=said) as raised:
        plot(report(sweep([64], [256])), tmp_path / "a.svg")
    assert "\n" not in str(raised.value) and os.listdir(tmp_path) == ["site"]


def test_a_page_has_its_tables_and_the_reason_for_no_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("raise RuntimeError('<broken>')", tmp_path, monkeypatch)
    page = Findings(report(sweep([64], [256])))._repr_html_()
    assert "<table>" in page and "RuntimeError: &lt;broken&gt;" in page and "<svg" not in page


def test_results_are_shown_and_kept_before_they_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Device
) -> None:
    install("raise RuntimeError('late')", tmp_path, monkeypatch)
    monkeypatch.setattr(drawing, "check_drawing", lambda _: None)
    words = ["bench", "--kernel", "registers", "--rows", "4", "--cols", "64", "--budget", "0.01"]
    done = webnorm([*words, "--json", "a.json", "--plot", "a.svg"], tmp_path)
    assert done.returncode == 2 and "registers" in done.stdout
    assert done.stderr.count("\n") == 1 and "RuntimeError: late" in done.stderr
    assert (tmp_path / "a.json").exists() and not (tmp_path / "a.svg").exists()
