"""Strange op files: webnorm either computes the op or rejects the file in one line."""

from __future__ import annotations

import itertools
import random
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import webnorm
from fuzzing import examples
from user_folders import KERNEL
from webnorm.errors import WebnormError
from webnorm.kernels.headers.sources import FORBIDDEN
from webnorm.op import op_trial
from webnorm.op.corpus import problems
from webnorm.op.dtypes import STORAGE
from webnorm.op.op import Op, Task
from webnorm.op.op_folders import load_op_folder
from webnorm.op.reference_trial import try_reference
from webnorm.op.registry import unregister

GALLERY = Path(webnorm.__file__).parents[1] / "examples" / "ops"
NAME = "fuzzed"
# Tokens that op files contain, and other tokens.
WORD = re.compile(r'"[^"\n]*"|\w+|[^\w\s]')
STRANGE = (
    "0",
    "-1",
    "1e400",
    "None",
    '""',
    '"rows"',
    '"rows cols"',
    "[]",
    "{}",
    "op",
    "x",
    "np.nan",
    "'\\x00'",
    "2**31",
)
MOST_CASES = 12


@pytest.fixture(autouse=True)
def no_op() -> None:
    unregister(NAME)


def loaded(folder: Path, text: str) -> Op | None:
    """Return the op of a text, or None if it is rejected with one printable line."""
    unregister(NAME)
    (folder / "op.py").write_text(text)
    try:
        return load_op_folder(folder)
    except WebnormError as error:
        message = str(error)
        assert message.startswith(str(folder)) and "op.py" in message, message
        assert not FORBIDDEN.search(message) and not re.search(r"[\n\r\t]", message)
        assert len(message) < 2000, message
        return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz") / NAME
    folder.mkdir()
    (folder / "naive.wgsl").write_text(KERNEL)
    return folder


def used(op: Op) -> None:
    """Draw the op's cases, compute them, and derive the allowed errors."""
    for case, problem in itertools.islice(problems(op.hook("cases")(1), op, list(STORAGE)), MOST_CASES):
        task = Task(op, problem)
        arrays = case.draw(task)
        for name, expected in op.reference(arrays, problem).items():
            assert expected.value.shape == op.named[name].shape_in(problem)
            assert np.all(np.asarray(expected.error_scale) >= 0)
        assert op.minimum_bytes(problem) >= 0 and 0 <= op.one_sidedness(problem) <= 1
        assert op.problem_type.from_json(problem.as_json()) == problem


# --- files after the reference page

SIZES = st.sampled_from(
    ["rows", "cols", "fn", "dtype", "x", "depth_2", "Größe", "_a", "axis", "1st", "value"]
)
COUNTS = st.sampled_from(["1", "16", "[4, 8]", "0", "-3", "2.5", "'8'", "[]", "True", "10**30"])
SHAPES = st.sampled_from(
    [
        "rows cols",
        "rows",
        "cols rows",
        "",
        "rows cols+1",
        "rows cols//2",
        "rows cols/0",
        "rows 1 cols",
        "rows -cols",
    ]
)
TYPES = st.sampled_from(["float32", "dtype", "int32", "uint8", "int8", "bfloat16", "float64", "bool", ""])
DRAWS = st.sampled_from(
    [
        "normal(0, 1)",
        "normal(0, -1)",
        "uniform(0, 1)",
        "uniform(1, 0)",
        'integers(0, "cols")',
        "integers(3, 3)",
        "7",
    ]
)
BODIES = st.sampled_from(
    [
        "2 * x",
        "x.T",
        "x[0]",
        "x.sum(1)",
        "x + np.random.rand()",
        "np.log(x)",
        "x / 0",
        "x.astype(str)",
        "None",
        "[x, x]",
        "np.sort(x)",
        "x.__imul__(2)",
        "undefined",
        "x.astype(np.int64) % 7",
        "np.where(x > 0, x, slope)",
        "np.full(x.shape, np.inf)",
        "[[1], [2, 3]]",
        "np.float32(x)",
        "1j * x",
    ]
)
MORE = st.sampled_from(
    [
        "",
        'scalars=[scalar("slope", 0.5)],',
        'scalars=[scalar("slope", "much")],',
        'options=[option("mode", "a", "b")],',
        'options=[option("mode", "a", "a")],',
        'require=[require("cols % 4 == 0", "vectors")],',
        'require=[require("cols > 10**9", "long rows")],',
        'cases=[case("c", {"x": [[1.0, 2.0]]}, source="s")],',
        'cases=[case("c", {"z": 1}, source="s")],',
        'cases=[case("c", {}, sizes={"rows": 3}, source="")],',
        'bytes="rows*cols",',
        'bytes="rows*",',
        'flops="-1",',
        'batch="cols",',
        'batch="rows",',
        "tolerance=1e-3,",
        "tolerance=-1,",
        "relative_tolerance=1e-3,",
        "unknown=1,",
    ]
)


@st.composite
def op_files(draw: Any) -> str:
    """Draw an op.py whose parts are mostly right."""

    def part(right: str, others: st.SearchStrategy[str]) -> str:
        return right if draw(st.integers(0, 7)) else draw(others)

    sizes = {"rows": part("8", COUNTS), "cols": part("[4, 6]", COUNTS)}
    if draw(st.booleans()):
        sizes[part("depth", SIZES)] = part("2", COUNTS)
    said = ", ".join(f"{name!r}: {count}" for name, count in sizes.items())
    x, y = (f"{name!r}, {part('rows cols', SHAPES)!r}, {part('dtype', TYPES)!r}" for name in "xy")
    drawn = part("normal()", DRAWS)
    more = draw(MORE)
    body = part("2 * x", BODIES)
    named = [name for name in ("slope", "mode") if f'("{name}"' in more or name in body]
    parameters = part(
        ", ".join(["x", *named]), st.sampled_from(["x", "x, slope", "x, mode", "x, rows", "", "z"])
    )
    return "\n".join(
        [
            '"""Drawn."""',
            "import numpy as np",
            "from webnorm.op import case, define_op, integers, normal, option, require",
            "from webnorm.op import scalar, tensor, uniform",
            f"op = define_op(sizes={{{said}}}, "
            f"inputs=[tensor({x}, draw={drawn})], outputs=[tensor({y})], {more})",
            "@op.reference",
            f"def computed({parameters}):",
            f"    return {body}",
            "",
        ]
    )


@examples(60)
@given(op_files())
def test_drawn_op_files(folder: Path, text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # The draws contain no loops and no gigabytes, so no child process is necessary.
        patch.setenv(op_trial._INSIDE, "1")
        op = loaded(folder, text)
    if op is None:
        return
    try:
        try_reference(op)
    except WebnormError as error:
        assert not re.search(r"[\n\r\t]", str(error))
        return
    used(op)


# --- changed files of the gallery

FILES = sorted(GALLERY.glob("*/op.py"))


@pytest.mark.slow
@examples(12)
@given(st.sampled_from(FILES), st.integers(0, 2**32))
def test_changed_op_files(folder: Path, file: Path, seed: int) -> None:
    """Remove, double or replace words of an op of the gallery. A child process loads each result."""
    rng = random.Random(seed)
    text = file.read_text()
    words = list(WORD.finditer(text))
    for word in sorted(rng.sample(words, rng.choice([1, 1, 2])), key=lambda one: -one.start()):
        other = rng.choice([*STRANGE, "", word[0] * 2, rng.choice(words)[0]])
        text = text[: word.start()] + other + text[word.end() :]
    for kernel in file.parent.glob("*.wgsl"):
        shutil.copy(kernel, folder)
    op = loaded(folder, text)
    if op is not None:
        used(op)
