"""Files of any bytes: readers work, or report the error in one line."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuzzing import examples
from samples import COPIES, FULL, ORIGIN, PLATFORM, REPORT, choice, timed, tuned
from shown import fit
from webnorm.choice import tuning
from webnorm.choice.defaults import choose
from webnorm.cli.terminal.screen import Screen
from webnorm.cli.verbs.bench_view import BenchTable, ShareMatrix, profile_table
from webnorm.cli.verbs.check_view import CheckTable
from webnorm.cli.verbs.compare_view import CompareTable
from webnorm.cli.work import overview
from webnorm.errors import WebnormError
from webnorm.kernels.headers.library import discover
from webnorm.kernels.headers.traits import BROWSER
from webnorm.lab.plot import throughput
from webnorm.lab.report import comparison_text
from webnorm.lab.report.comparison import compare, gate_failures
from webnorm.lab.results import ranking, result, result_files, tables
from webnorm.lab.run import check
from webnorm.op.op import Task
from webnorm.op.registry import OPS
from webnorm.ops.norms.problem import NormProblem
from webnorm.web.package.reader import read_package

OTHERS = (timed("naive", 1500.0, runs=(3, 3, 3)), *REPORT.results, timed("registers", 1200.0))
RESULTS = result_files.to_json(replace(REPORT, results=(*COPIES, *OTHERS), complete=True, origin=ORIGIN))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def tuning_text(folder: Path) -> str:
    path = folder / "whole.json"
    tuning.write(tuned(choice(), choice(op="rms_norm", speedup=None)), path)
    return path.read_text()


NASTY: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        2**53,
        2**64,
        10**30,
        10**400,
        0.0,
        -0.0,
        5e-324,
        1e-30,
        1e30,
        1e308,
        -1e308,
        math.nan,
        math.inf,
        "nan",
        "-inf",
        "",
        "\0",
        "\x1b]0;x\x07",
        "\u202e\u2066",
        "\ud800",
        "we[ird] name",
        "[/]",
        "[bold]x[/]",
        "$x_{$",
        "_hidden",
        "a\nb",
        "規則 🚀",
        ":smile:",
        "x" * 100_000,
        [],
        {},
        [[]],
        {"\x1b": 1},
        ["\x1b"],
        [1e308, 5e-324, 0, -1],
        [None],
    ]
)
VALUES = NASTY | st.integers() | st.floats() | st.text(max_size=20) | st.lists(st.floats(), max_size=9)


def places(data: Any) -> list[tuple[Any, Any]]:
    """Yield every container of a tree with each of its keys."""
    keys = list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    found = [(data, key) for key in keys]
    return found + [place for key in keys for place in places(data[key])]


@st.composite
def mutated(draw: st.DrawFn, text: str) -> str:
    """Return the JSON with a few values replaced, removed, doubled or exchanged."""
    data = json.loads(text)
    for _ in range(draw(st.integers(1, 4))):
        found = places(data)
        if not found:
            break
        holder, key = found[draw(st.integers(0, len(found) - 1))]
        match draw(st.sampled_from(["replace", "replace", "replace", "drop", "move", "double"])):
            case "replace":
                holder[key] = deepcopy(draw(VALUES))
            case "drop":
                del holder[key]
            case "move":
                other, name = found[draw(st.integers(0, len(found) - 1))]
                holder[key] = deepcopy(other[name])
            case "double" if isinstance(holder, list):
                holder.append(deepcopy(holder[key]))
    return json.dumps(data)


@st.composite
def scrambled(draw: st.DrawFn, content: bytes) -> bytes:
    """Return the bytes with some removed, changed, repeated or inserted."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        end = min(len(content), at + draw(st.integers(0, 40)))
        new = draw(
            st.binary(max_size=20) | st.sampled_from([b"[" * 5000, b"9" * 500, b"1e999", b"\xff", b"\0"])
        )
        content = content[:at] + draw(st.sampled_from([new, content[at:end] * 2])) + content[end:]
    return content


def attempt(act: Callable[[], Any]) -> Any:
    """Return the result; None after an error of one line."""
    try:
        return act()
    except WebnormError as error:
        assert fit(str(error)) and 10 < len(str(error)) < 2100
        return None


def shown(renderable: Any) -> str:
    """Check that the text on the screen is fit for a terminal, and return it."""
    out = io.StringIO()
    console = Screen()
    console.file, console.width = out, 100
    console.print(renderable)
    assert fit(out.getvalue().replace("\n", ""))
    return out.getvalue()


def look(read: result.Report, folder: Path) -> None:
    """Compute every view of a report."""
    for title, members in ranking.by_problem(read.results):
        shown(BenchTable(members, title))
        shown(profile_table(members, software=True))
    shown(CheckTable(read.results)) if read.results else None
    shown(ShareMatrix(read.results))
    shown(overview.device_line(read.device))
    assert fit(tables.to_markdown(read).replace("\n", ""))
    tables.to_csv(read)
    again = folder / "again.json"
    again.write_text(result_files.to_json(read))
    assert result_files.to_json(result_files.read(again)) == again.read_text()


def held_against(old: result.Report, new: result.Report) -> None:
    verdicts = compare(old, new, any_device=True)
    shown(CompareTable(verdicts))
    assert fit(comparison_text.to_markdown(verdicts, "old", "new").replace("\n", ""))
    json.loads(comparison_text.to_json(verdicts), parse_constant=lambda literal: pytest.fail(literal))
    gate_failures(verdicts, 5, fail_unclear=True)


def read_results(content: bytes, folder: Path) -> None:
    path = folder / "results.json"
    path.write_bytes(content)
    read = attempt(lambda: result_files.read(path))
    if read is not None:
        look(read, folder)
        whole = folder / "whole-results.json"
        whole.write_text(RESULTS)
        held_against(result_files.read(whole), read)
        held_against(read, result_files.read(whole))
        attempt(lambda: compare(result_files.read(whole), read))


@examples(80)
@given(text=mutated(RESULTS))
@example(text=RESULTS.replace('"limits"', f'"notes": "{"x" * 100_000}", "limits"', 1))
@example(text=RESULTS.replace('"op": "layer_norm"', '"op": "theirs"', 1))
def test_a_tree_that_is_no_longer_a_report(text: str, folder: Path) -> None:
    read_results(text.encode(), folder)


@examples(60)
@given(content=scrambled(RESULTS.encode()))
def test_bytes_that_are_no_longer_a_report(content: bytes, folder: Path) -> None:
    read_results(content, folder)


TIMES = st.sampled_from([1e-9, 1e-3, 1.0, 900.0, 1e6, 9e20]) | st.floats()


@examples(40)
@given(
    medians=st.lists(TIMES, min_size=4, max_size=4),
    samples=st.lists(st.lists(TIMES, min_size=9, max_size=9), min_size=4, max_size=4),
    rates=st.lists(st.floats() | st.none(), min_size=4, max_size=4),
    runs=st.sampled_from([None, (3, 3, 3), (4, 5), (1,) * 9]),
)
def test_times_of_any_size(
    medians: list[float],
    samples: list[list[float]],
    rates: list[float | None],
    runs: tuple[int, ...] | None,
    folder: Path,
) -> None:
    made = [
        replace(
            timed(f"k{at}", 1.0),
            op="copy" if at % 3 == 0 else "layer_norm",
            median_ns=medians[at],
            samples_ns=tuple(samples[at]),
            runs=runs,
            gbps=rates[at],
            percent_of_copy=rates[at],
            p20_ns=medians[(at + 1) % 4],
            upload_ns=medians[at],
            auto="rules",
        )
        for at in range(4)
    ]
    read = replace(REPORT, results=tuple(made))
    look(read, folder)
    held_against(read, replace(read, results=tuple(made[::-1])))
    held_against(
        read, replace(read, results=tuple(replace(one, samples_ns=tuple(samples[0])) for one in made))
    )


WORDS = NASTY.filter(lambda one: isinstance(one, str) and len(one) < 99) | st.text(max_size=9)


@examples(20)
@given(words=st.lists(WORDS, min_size=9, max_size=9))
def test_words_of_any_kind(words: list[str], folder: Path) -> None:
    made = [
        replace(
            one,
            kernel=words[0] + one.kernel,
            constants={words[1]: 1},
            reason=words[2],
            worst=words[3],
            case=words[4],
            flags=(words[5],),
            auto="tuning",
        )
        for one in (*COPIES, *OTHERS)
    ]
    device = {"adapter": words[6], "driver": words[7], "backend": words[8]}
    read = replace(REPORT, device=device, results=tuple(made))
    look(read, folder)
    held_against(read, read)


@pytest.mark.slow
@examples(6)
@given(
    medians=st.lists(TIMES, min_size=3, max_size=3),
    rates=st.lists(st.floats(), min_size=3, max_size=3),
    name=NASTY.filter(lambda one: isinstance(one, str)),
    cols=st.sampled_from([1, 2**53]),
)
def test_pictures_of_any_results(
    medians: list[float], rates: list[float], name: str, cols: int, folder: Path
) -> None:
    made = [
        replace(
            FULL,
            op=op,
            kernel=name + op,
            median_ns=medians[at],
            gbps=rates[at],
            p80_ns=medians[at - 1],
            problem=NormProblem(rows=3, cols=cols + at),
        )
        for at, op in enumerate(("layer_norm", "layer_norm", "copy"))
    ]
    read = replace(REPORT, device={"adapter": name}, results=tuple(made))
    for suffix in ("svg", "png"):
        attempt(partial(throughput.plot, read, folder / f"picture.{suffix}"))


KERNELS = discover()


def read_tuning(content: bytes, folder: Path) -> None:
    path = folder / "tuning.json"
    path.write_bytes(content)
    read = attempt(lambda: tuning.read(path))
    attempt(lambda: tuning.resume(path, PLATFORM))
    if read is not None:
        shown(overview.tuning_table(read))
        read.objection(PLATFORM)
        for problem in (NormProblem(rows=1000, cols=64), NormProblem(rows=1 << 40, cols=64)):
            choose(KERNELS, Task(OPS["layer_norm"], problem), BROWSER, read)
        attempt(lambda: tuning.record([choice()], path, PLATFORM))
    attempt(lambda: tuning.forget(path))


@examples(60)
@given(data=st.data())
def test_a_tree_that_is_no_longer_a_tuning(data: st.DataObject, tuning_text: str, folder: Path) -> None:
    read_tuning(data.draw(mutated(tuning_text)).encode(), folder)


@examples(40)
@given(data=st.data())
def test_bytes_that_are_no_longer_a_tuning(data: st.DataObject, tuning_text: str, folder: Path) -> None:
    read_tuning(data.draw(scrambled(tuning_text.encode())), folder)


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


@examples(100)
@given(content=scrambled(npy(np.ones((2, 3), np.float32))) | scrambled(npy(np.ones(8, np.float16))))
@example(content=npy(np.array([{}, []], dtype=object)))
@example(content=npy(np.zeros(3, dtype=[("\x1b", "f4"), ("b", "f4")])))
@example(content=npy(np.float32(1)))
@example(content=npy(np.zeros((2, 0, 3), np.float32)))
@example(content=npy(np.zeros((3, 0), np.float32)))
@example(content=npy(np.zeros((2, 2), np.float32)).replace(b"(2, 2)", b"(9**9)"))
@example(content=npy(np.zeros((2, 2), np.float32)).replace(b"(2, 2), }" + b" " * 9, b"(50000000000,)}  "))
@example(content=b"\x93NUMPY\x01\x00\x00\x20" + b"(" * 8192)
@example(content=b"PK\x03\x04")
def test_an_array_of_any_bytes(content: bytes, folder: Path) -> None:
    path = folder / "x.npy"
    path.write_bytes(content)
    case = attempt(lambda: check.user_array_case(path))
    if case is not None:
        assert case.shape[1] >= 1 and case.shape[0] >= 0


MANIFEST = json.dumps(
    {
        "schema": 1,
        "op": "layer_norm",
        "has_mean": True,
        "problem": {"dtype": "float32", "eps": 1e-5, "options": {}},
        "tensors": [{"name": "x", "access": "read", "dtype": "float32", "shape": []}],
        "files": {"index.js": "00"},
        "cols": [64],
        "shaders": [],
        "vectors": [{"name": "n", "file": "v", "sha256": "00", "cols": 64, "rows": 1}],
    }
)


@examples(60)
@given(text=mutated(MANIFEST), content=scrambled(MANIFEST.encode()))
def test_a_manifest_of_any_bytes(text: str, content: bytes, folder: Path) -> None:
    for written in (text.encode(), content):
        (folder / "manifest.json").write_bytes(written)
        with pytest.raises(WebnormError) as refused:
            read_package(folder)
        assert fit(str(refused.value))
