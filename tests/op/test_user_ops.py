"""User ops: op.py, its errors, the resulting problems and corpus, and kernels of plain WGSL."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import webnorm
from commands import webnorm as webnorm_command
from user_folders import KERNEL, OP, write_op
from webnorm.choice.defaults import default_variant
from webnorm.cli.verbs import export
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.gpu.pipelines import compile_shader
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.traits import BROWSER, IMMEDIATES
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering.render import render_shader
from webnorm.lab.run.submission import json_schema
from webnorm.op import op_trial
from webnorm.op.corpus import whole_corpus
from webnorm.op.op import Op
from webnorm.op.registry import load_op
from webnorm.web.folder import LAB_INDEX
from webnorm.web.package.request import request_for

DOCS = Path(webnorm.__file__).parents[1] / "docs"
# Ops that webnorm refuses without a child process.
QUICK = pytest.mark.usefixtures("untried")


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Import op.py without trying it in a child process first."""
    monkeypatch.setenv(op_trial._INSIDE, "1")


def changed(old: str, new: str, text: str = OP) -> str:
    assert old in text
    return text.replace(old, new)


BODY = "return 2 * x"
DECLARED = 'tensor("y", "rows cols")'


# --- errors

REFUSED = [
    (
        changed(f"[{DECLARED}],", f'[{DECLARED}],\n    options=[option("x"), option("x")],'),
        "op.py:5: two of the sizes, tensors, scalars and options are called 'x'",
    ),
    (
        changed(f"outputs=[{DECLARED}],", ""),
        "op.py:5: define_op lacks the argument 'outputs'; add it",
    ),
    *(
        (
            changed(f"[{DECLARED}],", f"[{DECLARED}],\n    {name}={value},"),
            f"op.py:5: {name} is {value!r}; expected a list such as [{example}",
        )
        for name, value, example in (
            ("scalars", {"scale": 1.0}, 'scalar("scale", 1.0)]'),
            ("options", 3, 'option("'),
            ("require", 4, 'require("'),
            ("cases", {"x": [1]}, 'case("'),
        )
    ),
    (
        changed(f"[{DECLARED}]", DECLARED),
        'op.py:5: outputs is one tensor(...); expected a list such as [tensor("y", "rows cols")]',
    ),
    (
        changed(f"[{DECLARED}],", f'[{DECLARED}],\n    scalars=["scale"],'),
        "op.py:5: one of scalars is 'scale'; expected scalar(\"scale\", 1.0)",
    ),
    (
        changed('{"rows": 16, "cols": 8}', '["rows", "cols"]'),
        "op.py:5: sizes is ['rows', 'cols']; expected a dict such as {\"rows\": 4096, ",
    ),
    (
        changed(DECLARED, 'tensor("y", "rows, cols")'),
        "op.py:8: the shape of y is 'rows, cols': unexpected ',' in expression 'rows,'; "
        "expected dimensions separated by blanks, such as 'rows cols'",
    ),
    (
        f"{OP}\n\n@op.mistake\ndef wrong(x):\n    return x\n",
        "op.py:17: the text of a mistake is <function wrong at ",
    ),
    (
        changed("op = define_op", "def tensor(a, b):\n    pass\n\n\ntensor(1)\nop = define_op"),
        "op.py:9: TypeError: tensor() missing 1 required positional argument: 'b'",
    ),
    (changed("sizes=", "size="), "op.py:5: define_op has no argument 'size'; did you mean 'sizes'?"),
    (changed(BODY, "return None"), "op.py:12: doubled returns None for y; expected an array of numbers"),
    (changed("op = define_op", "1 / 0\nop = define_op"), "op.py:5: ZeroDivisionError: division by zero"),
    (changed(BODY, "return 2 *"), "op.py:14: invalid syntax"),
    (
        changed("op = define_op", "import sys; sys.exit(3)\nop = define_op"),
        "op.py:5: ends the process; remove the call of exit",
    ),
    (changed('"rows": 16', '"rows": 0'), "op.py:5: size rows is 0; expected an int of 1 or more"),
    (changed('tensor("x"', 'tensor("fn"'), "op.py:7: the name of a tensor is 'fn', which is a word of WGSL"),
    (changed('"cols": 8', '"axis": 8'), "op.py:5: the name of a size is 'axis'"),
    (changed(DECLARED, 'tensor("cols", "rows cols")'), "op.py:5: two of the sizes, tensors"),
    (
        changed(DECLARED, 'tensor("y", "rows columns")'),
        "unknown name 'columns' in 'columns'; did you mean 'cols'?",
    ),
    (
        changed(DECLARED, 'tensor("y", "rows cols*")'),
        "op.py:8: the shape of y is 'rows cols*': expression 'cols*'",
    ),
    (changed(DECLARED, 'tensor("y", "rows cols", dtype="float128")'), "unknown dtype of y 'float128'"),
    (changed(f"[{DECLARED}]", "[]"), "op.py:5: the op has no inputs or no outputs"),
    (changed("def doubled(x)", "def doubled(z)"), "the reference has the unknown parameter 'z'"),
    (changed("@op.reference", ""), "op.py:5: the op has no reference"),
    (OP.partition("op = ")[0], "op.py defines 0 ops; expected one"),
    (OP.partition("\n")[2], "expected a docstring that says what the op computes"),
    ("", "op.py defines 0 ops; expected one"),
    *(
        (
            changed(f"[{DECLARED}],", f'[{DECLARED}],\n    options=[option("{name}")],'),
            f"op.py:9: the name of an option is '{name}', which is a word of WGSL, Python or webnorm",
        )
        for name in ("flags", "sizes", "as")
    ),
    (
        changed(f"[{DECLARED}],", f'[{DECLARED}],\n    options=[option("a", "b")],'),
        "option a has the values ('b',)",
    ),
    (
        changed(f"[{DECLARED}],", f"[{DECLARED}],\n    relative_tolerance=-1,"),
        "op.py:5: relative_tolerance is -1; expected a number of 0 or more",
    ),
    (
        changed(f"[{DECLARED}],", f'[{DECLARED}],\n    batch="cols",'),
        "batch is 'cols', which is not the first",
    ),
]


@QUICK
@pytest.mark.parametrize(("text", "said"), REFUSED, ids=[said[:30] for _, said in REFUSED])
def test_invalid_ops_are_rejected_with_their_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(WebnormError) as error:
        load_op(write_op(tmp_path / "twice", text))
    assert said in str(error.value) and str(tmp_path / "twice") in str(error.value)
    assert "\n" not in str(error.value)


TRIED = [
    (
        changed(
            "return 2 * x", "return np.arange(9.0)[x]", changed('"rows cols")]', '"rows cols", "int32")]')
        ),
        "keeps the numbers of x below rows",
    ),
    (
        changed(
            f"[{DECLARED}],", f'[{DECLARED}],\n    cases=[case("c", {{"x": lambda rng, shape: np.ones(3)}})],'
        ),
        "case 'twice-c': x has the shape (3,)",
    ),
    (changed(BODY, "return 2 * x.foo"), "op.py:14: AttributeError"),
    (changed(BODY, "return (2 * x).T"), "op.py:12: y has the shape"),
    (changed(BODY, 'return "abc"'), "op.py:12: doubled returns 'abc' for y; expected an array"),
    (
        f"{OP}\n\n@op.mistake('sums up')\ndef wrong(x):\n    return x.sum(-1)\n",
        "op.py:17: y has the shape (8,); expected (8, 9) (rows cols)",
    ),
    (f"{OP}\n\n@op.mistake('fails')\ndef wrong(x):\n    return x.foo\n", "op.py:19: AttributeError"),
    (changed(BODY, "return x, x"), "op.py:12: doubled returns 2 arrays; expected y"),
    (
        changed(BODY, "return x + np.random.rand()"),
        "op.py:12: for 1x2 float32 the reference returns another y",
    ),
    (changed(BODY, "return np.sqrt(x)"), "y has NaN on drawn inputs"),
    (changed(BODY, "b = np.ones(1 << 34); return 2 * x"), "MemoryError"),
    (changed("op = define_op", "import os; os.abort()\nop = define_op"), "its process ended with status -6"),
    (
        changed(f"[{DECLARED}],", f'[{DECLARED}],\n    require=[require("cols < 0", "never")],'),
        "no sizes up to 64 satisfy its requirements",
    ),
    (
        changed(f"[{DECLARED}],", f'[{DECLARED}],\n    cases=[case("c", {{"x": [1, 2]}})],'),
        "case 'c': x has the shape (2,)",
    ),
    (
        changed(
            'tensor("x", "rows cols")', 'tensor("x", "rows cols", draw=lambda rng, shape: rng.random(3))'
        ),
        "a draw gave an array of shape (3,)",
    ),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("text", "said"), TRIED, ids=[said[:30] for _, said in TRIED])
def test_errors_in_the_child_are_one_line(text: str, said: str, tmp_path: Path) -> None:
    folder = write_op(tmp_path / "twice", text)
    with pytest.raises(WebnormError) as error:
        load_op(folder)
    assert said in str(error.value) and "\n" not in str(error.value)
    # webnorm does not try the op again until its files change.
    with pytest.raises(WebnormError, match=r"op.py"):
        load_op(folder)


@pytest.mark.slow
def test_a_loop_ends_with_its_processor_time(tmp_path: Path) -> None:
    text = changed(BODY, "\n    while True:\n        pass")
    with pytest.raises(WebnormError, match="more than 10 s of processor time"):
        load_op(write_op(tmp_path / "twice", text))


@QUICK
def test_the_names_of_webnorms_ops_are_taken(tmp_path: Path) -> None:
    with pytest.raises(WebnormError, match="layer_norm is an op of webnorm"):
        load_op(write_op(tmp_path / "layer_norm"))
    load_op(write_op(tmp_path / "a" / "twice"))
    with pytest.raises(WebnormError, match="has an op twice, too"):
        load_op(write_op(tmp_path / "b" / "twice"))


# --- results of an op.py


@QUICK
def test_the_batch_is_found_by_trying(tmp_path: Path) -> None:
    assert load_op(write_op(tmp_path / "twice")).problem_type.BATCH == "rows"
    summed = changed(BODY, "return np.cumsum(x, 0)")
    assert load_op(write_op(tmp_path / "summed", summed)).problem_type.BATCH == ""


@QUICK
def test_problems_and_ops_travel(tmp_path: Path) -> None:
    op = load_op(write_op(tmp_path / "twice"))
    problem = op.problem(3, 5, dtype="float16")
    assert pickle.loads(pickle.dumps((op, problem))) == (op, problem)
    assert op.problem_type.from_json(json.loads(json.dumps(problem.as_json()))) == problem


@QUICK
def test_a_changed_op_is_loaded_anew(tmp_path: Path) -> None:
    folder = write_op(tmp_path / "twice")
    first = load_op(folder)
    assert load_op(folder) is first
    (folder / "op.py").write_text(changed(BODY, "return 3 * x"))
    second = load_op(folder)
    x = {"x": np.ones((2, 3), np.float32)}
    assert second.reference(x, second.problem(2, 3))["y"].value.max() == 3.0


@QUICK
def test_the_corpus_has_sizes_values_and_cases_of_its_own(tmp_path: Path) -> None:
    text = changed(
        f"[{DECLARED}],", f'[{DECLARED}],\n    cases=[case("mine", {{"x": [[1.0, 2.0]]}}, source="a bug")],'
    )
    op = load_op(write_op(tmp_path / "twice", text))
    cases = {case.name: case for case in whole_corpus(1) if case.problem(op) is not None}
    assert {
        "twice-rows-61",
        "twice-cols-257",
        "twice-large",
        "twice-mine",
        "twice-cut-bindings",
    } <= cases.keys()
    assert cases["twice-mine"].shape == (1, 2) and cases["twice-mine"].source == "a bug"
    sources = [cases[f"twice-cut-{split}"].source for split in ("bindings", "dispatches")]
    assert sources == ["rows cut into slices", "dispatches in two dimensions"]


def test_a_case_can_be_selected_by_its_name() -> None:
    """A comma separates names, so none contains one, not even with two options."""
    names = [case.name for case in whole_corpus(1, ["modulated_norm"])]
    assert [name for name in names if "," in name or " " in name] == []
    assert "modulated_norm-residual+gate-8" in names


MANY_SIZES = {
    "six": ({name: 8 for name in "abcdef"}, "a b c d e f", ""),
    # `require` bounds the size `window` by another size.
    "pooled": (
        {name: 8 for name in ("batch", "channels", "depth", "height", "width", "window")},
        "batch channels depth height width",
        'require=[require("window <= width", "it fits")],',
    ),
}


@pytest.mark.parametrize("name", MANY_SIZES)
def test_many_sizes_leave_no_length_out(name: str, tmp_path: Path) -> None:
    """The product of six sizes of 8 is too large for a case. Then other sizes are smaller."""
    sizes, shape, more = MANY_SIZES[name]
    text = changed('sizes={"rows": 16, "cols": 8},', f"sizes={sizes}, {more}")
    text = changed('tensor("y", "rows cols")', f'tensor("y", "{shape}")', text)
    if name == "pooled":
        text = changed(
            'inputs=[tensor("x", "rows cols")]',
            f'inputs=[tensor("x", "{shape}"), tensor("k", "window")]',
            text,
        )
        text = changed("doubled(x):\n    return 2 * x", "doubled(x, k):\n    return 2 * x + k.sum()", text)
    op = load_op(
        write_op(tmp_path / "twice", changed('"rows cols"', f'"{shape}"', text) if name == "six" else text)
    )
    found = [case.problem(op) for case in whole_corpus(1) if case.problem(op) is not None]
    for size in sizes:
        lengths = {problem.sizes[size] for problem in found}
        assert lengths >= {1, 3, 61, 64, 257}, size
    ordinary = [problem for problem in found if problem.distribution == "normal"]
    vectors = [problem for problem in ordinary if all(length % 4 == 0 for length in problem.sizes.values())]
    assert vectors and len({*vectors[-1].sizes.values()}) > 2
    assert {problem.distribution for problem in found} == {*op.problem_type.DISTRIBUTIONS}
    names = [case.name for case in whole_corpus(1) if case.problem(op) is not None]
    assert len(names) == len({*names})


CHOICE = changed(
    f"[{DECLARED}],", f'[{DECLARED}],\n    options=[option("activation", "relu", "mish"), option("gate")],'
)


def test_a_value_of_a_choice_is_not_taken_for_an_option(tmp_path: Path) -> None:
    webnorm.load_op(write_op(tmp_path / "twice", CHOICE))
    for given, said in (
        ("mish", "unknown option 'mish'; did you mean activation=mish?"),
        ("gat", "unknown option 'gat'; did you mean 'gate'?"),
        ("bias", "twice has no option bias; its options are activation, gate"),
    ):
        with pytest.raises(WebnormError, match=rf"^{re.escape(said)}"):
            webnorm.check(op="twice", options=[given])


def test_an_unknown_case_lists_those_of_the_op(tmp_path: Path) -> None:
    webnorm.load_op(write_op(tmp_path / "twice"))
    with pytest.raises(
        WebnormError, match=r"^unknown case 'zzz'; expected one of all, twice-cols-1,"
    ) as caught:
        webnorm.check(op="twice", cases="zzz")
    assert "shift" not in str(caught.value)
    with pytest.raises(WebnormError, match=r"^unknown case 'zzz'; expected one of all, bfloat16-y-256, "):
        webnorm.check(cases="zzz")


@pytest.mark.parametrize("asked", ["*shift*", "shift-1e4", ["shift-1e4", "cols-*"]])
def test_cases_of_other_ops_are_refused_by_their_names(tmp_path: Path, asked: str | list[str]) -> None:
    webnorm.load_op(write_op(tmp_path / "twice", CHOICE))
    given = asked if isinstance(asked, str) else ",".join(asked)
    said = f"no case of twice matches '{given}'; `webnorm check --cases` with the same --op lists them"
    with pytest.raises(WebnormError, match=rf"^{re.escape(said)}$"):
        webnorm.check(op="twice", cases=asked)


def test_an_op_without_options_lists_none_of_other_ops(tmp_path: Path) -> None:
    webnorm.load_op(write_op(tmp_path / "twice"))
    for options in (["foo"], ["foo=1", "bias"]):
        for verb in (webnorm.check, webnorm.bench):
            with pytest.raises(WebnormError, match=r"^twice has no option foo; it has no options$"):
                verb(op="twice", options=options)


def test_the_cases_of_an_op_are_listed(tmp_path: Path) -> None:
    write_op(tmp_path / "kernels" / "twice")
    (tmp_path / "kernels" / "other").mkdir()
    listed = webnorm_command(["check", "--cases", "--op", "kernels/twice"], tmp_path).stdout
    names = [line.split()[0] for line in listed.splitlines()]
    assert names[0] == "case" and len(names) > 10 and all(one.startswith("twice-") for one in names[1:])
    known = webnorm_command(["check", "--cases", "--wgsl", "kernels"], tmp_path).stdout
    assert "twice-spike" in known and "shift-1e4" in known


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["check", "--op", "twice"], "--op kernels/twice"),
        (["bench", "--op", "kernels"], "--op kernels/twice"),
        (["export", "twice", "--out", "dist"], "kernels/twice"),
        (["bench", "--op", "layer_nor"], "'layer_norm'"),
    ],
)
def test_the_folder_of_an_op_is_suggested(words: list[str], meant: str, tmp_path: Path) -> None:
    write_op(tmp_path / "kernels" / "twice")
    done = webnorm_command(words, tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("webnorm: unknown op '") and f"did you mean {meant}" in done.stderr


def test_the_folder_of_a_cases_op_is_suggested(tmp_path: Path) -> None:
    write_op(tmp_path / "kernels" / "twice")
    done = webnorm_command(["check", "--case", "twice-spike"], tmp_path)
    assert "unknown case 'twice-spike'; did you mean --op kernels/twice?" in done.stderr


def test_a_folder_of_ops_lists_them(tmp_path: Path) -> None:
    folder = write_op(tmp_path / "twice")
    with pytest.raises(WebnormError, match=f"contains no op.py; expected {re.escape(str(folder))}$"):
        webnorm.load_op(tmp_path)


@pytest.mark.parametrize(
    ("name", "likely"),
    [
        ("twise", "did you mean {folder}/twice?"),
        ("layer_nrm", "did you mean layer_norm, an op of webnorm?"),
        ("layer_norm", "layer_norm is an op of webnorm, which needs no folder"),
        ("lse", "expected a folder that contains op.py"),
    ],
)
def test_the_likely_op_is_suggested_for_a_missing_folder(name: str, likely: str, tmp_path: Path) -> None:
    write_op(tmp_path / "twice")
    with pytest.raises(WebnormError) as caught:
        webnorm.load_op(tmp_path / name)
    assert str(caught.value) == f"{tmp_path / name}: no such folder; {likely.format(folder=tmp_path)}"


def test_a_name_that_the_library_reads_is_an_error(tmp_path: Path) -> None:
    text = changed(
        '{% include "lib/tensors.wgsl" %}',
        '{% from "lib/place.wgsl" import locate with context %}\n{% include "lib/tensors.wgsl" %}\n'
        "fn unused(workgroup_id: vec3u, workgroups: vec3u, invocation: u32) { {{ locate() }} }",
        KERNEL,
    ).replace("// [[pass]]", "// [derive]\n// subgroups = 0\n// [[pass]]")
    webnorm.load_op(write_op(tmp_path / "twice", naive=text))
    (one,) = webnorm.check(op="twice", cases="twice-rows-61").report.results
    assert "'rows_per_workgroup' is undefined; the library uses it: define it in [tune] or [derive]" in (
        one.reason or ""
    )


# --- kernels are checked


EACH_COLUMN = """
        for (var j = i * cols; j < (i + 1u) * cols; j++) {
            store_y(j, 2.0 * load_x(j));
        }
"""


def statuses(op: str, **options: Any) -> set[tuple[str, str]]:
    return {(one.kernel, one.status) for one in webnorm.check(op=op, **options).report.results}


def test_workgroups_that_ignore_the_second_dimension_fail(tmp_path: Path) -> None:
    """Even workgroups of many rows get dispatches in two dimensions."""
    rows = changed('"ceil_div(rows * cols, 64)"', '"ceil_div(rows, 256)"', KERNEL).replace("64", "256")
    rows = changed("        store_y(i, 2.0 * load_x(i));", EACH_COLUMN, rows).replace("rows * cols", "rows")
    flat = changed("group.y * groups.x + group.x", "group.x", rows)
    webnorm.load_op(write_op(tmp_path / "twice", naive=rows, flat=flat))
    assert statuses("twice", cases="twice-cut-bindings") == {("naive", "pass"), ("flat", "pass")}
    assert statuses("twice", cases="twice-cut-dispatches") == {("naive", "pass"), ("flat", "fail")}


def test_a_right_kernel_passes_and_a_wrong_one_fails(tmp_path: Path) -> None:
    wrong = changed("2.0 * load_x(i)", "2.00001 * load_x(i)", KERNEL)
    last = changed("i < params.rows * cols", "i + 1u < params.rows * cols", KERNEL)
    folder = write_op(tmp_path / "twice", naive=KERNEL, wrong=wrong, last=last)
    webnorm.load_op(folder)
    found = statuses(
        "twice", dtype=["float32", "float16"], cases=["twice-rows-61", "twice-cols-3", "twice-cut-*"]
    )
    assert found == {("naive", "pass"), ("wrong", "fail"), ("wrong", "pass"), ("last", "fail")}


LEAKY = changed(
    BODY,
    "return np.where(x > 0, x, slope * x) if act == 'leaky' else np.logaddexp(x, 0)",
)
LEAKY = changed("doubled(x)", "doubled(x, slope, act)", LEAKY)
LEAKY = changed(
    f"[{DECLARED}],",
    f'[{DECLARED}],\n    scalars=[scalar("slope", 0.25)], options=[option("act", "leaky", "softplus")],',
    LEAKY,
)
SOFTPLUS = "max(x, 0.0) + log(1.0 + exp(-abs(x)))"
LEAKY_KERNEL = changed(
    "2.0 * load_x(i)",
    "{% if act == 'softplus' %}" + SOFTPLUS + "{% else %}select(params.slope * x, x, x > 0.0){% endif %}",
    changed("store_y(", "let x = load_x(i);\n        store_y(", KERNEL),
)


def test_wrong_paths_of_a_kernel_are_reached(tmp_path: Path) -> None:
    """The cases have unusual scalars and options, and sizes that are all multiples of 4."""
    kernels = {
        "right": LEAKY_KERNEL,
        "constant": changed("params.slope", "0.25", LEAKY_KERNEL),
        "overflows": changed(SOFTPLUS, "log(1.0 + exp(x))", LEAKY_KERNEL),
        "both": changed(
            "store_y(i, ", "store_y(i, f32(1u + u32(cols % 4u + params.rows % 4u == 0u)) * ", LEAKY_KERNEL
        ),
    }
    webnorm.load_op(write_op(tmp_path / "leaky", LEAKY, **kernels))
    results = webnorm.check(op="leaky").report.results
    assert {one.kernel for one in results if one.status == "fail"} == {"constant", "overflows", "both"}
    assert not [one for one in results if one.status in ("error", "skip")]


def test_a_kernel_is_wrong_with_other_constants(tmp_path: Path) -> None:
    """A check covers constants that a tuning may choose: the least and the greatest value of each axis."""
    tuned = changed(
        "// [[pass]]", '// [tune]\n// factor = [1, 2, 4]\n// [default]\n// factor = "2"\n// [[pass]]', KERNEL
    )
    right = changed("2.0 * load", "2.0 * {{ factor }}.0 / {{ factor }}.0 * load", tuned)
    wrong = changed("2.0 * load", "{{ [factor, 2] | max }}.0 * load", tuned)
    folder = write_op(tmp_path / "twice", right=right, wrong=wrong)
    webnorm.load_op(folder)
    found = webnorm.check(op="twice", seed=1).results
    bad = [one for one in found if one.status != "pass"]
    assert {(one.kernel, one.case, one.constants["factor"]) for one in bad} == {
        ("wrong", f"twice-{size}-{length}", 4) for size in ("rows", "cols") for length in (257, 1024)
    }
    assert {one.constants["factor"] for one in found if one.case == "twice-rows-257"} == {1, 2, 4}
    assert not [
        one for one in webnorm.check(op="twice", constants={"factor": 2}).results if one.status != "pass"
    ]
    evaluation = webnorm.evaluate(wrong, folder, budget=None)
    assert (evaluation.status, evaluation.failed) == ("fail", 4) and str(evaluation.message).endswith(
        "with factor=4"
    )
    assert evaluation.wrong[0].constants == {"factor": 4}


def test_one_tensor_is_read_in_vectors(tmp_path: Path) -> None:
    """An output that kernels otherwise write by element keeps its store if its length is a multiple of 4."""
    op = changed('tensor("y", "rows cols")', 'tensor("y", "rows cols//4")').replace(
        "return 2 * x", "return x.reshape(len(x), -1, 4).sum(-1)"
    )
    op = changed("outputs=", 'require=[require("cols % 4 == 0", "sums of four")],\n    outputs=', op)
    kernel = changed("// [[pass]]", '// [derive]\n// vector_width = "4"\n// [[pass]]', KERNEL)
    kernel = changed("rows * cols, 64", "rows * (cols // 4), 64", kernel)
    kernel = changed("params.rows * cols", "params.rows * (cols / 4u)", kernel)
    kernel = changed("2.0 * load_x(i)", "dot(load4_x(4u * i), vec4(1.0))", kernel)
    included = '{% include "lib/tensors.wgsl" %}'
    right = changed(included, f'{{% set vector_tensors = ["x"] %}}\n{included}', kernel)
    webnorm.load_op(write_op(tmp_path / "twice", op, right=right, without=kernel))
    found = webnorm.check(op="twice", dtype="all", seed=1).results
    assert {one.status for one in found if one.kernel == "right"} == {"pass"}
    assert {one.status for one in found if one.kernel == "without"} == {"pass", "error"}


def test_the_default_of_other_adapters_is_tried(tmp_path: Path) -> None:
    """Only a GPU, or only a software adapter, uses the middle of this axis."""
    tuned = changed(
        "// [[pass]]",
        '// [tune]\n// factor = [1, 2, 3, 4]\n// [default]\n// factor = "2 if software else 3"\n// [[pass]]',
        KERNEL,
    )
    wrong = [changed("2.0 * load", f"{{{{ 5 if factor == {at} else 2 }}}}.0 * load", tuned) for at in (2, 3)]
    webnorm.load_op(write_op(tmp_path / "twice", two=wrong[0], three=wrong[1]))
    found = webnorm.check(op="twice", cases="twice-cols-257", seed=1).results
    assert {one.kernel for one in found if one.status == "fail"} == {"two", "three"}


@pytest.mark.parametrize("default", ["2 if software else 7", "7 if software else 2"])
def test_a_default_off_its_axis_is_an_error_on_every_adapter(default: str, tmp_path: Path) -> None:
    """Another kind of adapter may use the default, but it is an error here too. The check continues.

    Other kernels still get their results.
    """
    header = f'// [tune]\n// factor = [1, 2]\n// [default]\n// factor = "{default}"\n// [[pass]]'
    wrong = changed("2.0 * load", "2.0 * {{ factor }}.0 / {{ factor }}.0 * load", KERNEL)
    wrong = changed("// [[pass]]", header, wrong)
    folder = write_op(tmp_path / "twice", right=KERNEL, wrong=wrong)
    webnorm.load_op(folder)
    found = webnorm.check(op="twice", cases="twice-cols-257", seed=1).results
    reasons = {one.kernel: one.reason for one in found if one.status == "error"}
    assert reasons.keys() == {"wrong"} and "default factor is 7" in str(reasons["wrong"])
    assert {one.kernel for one in found if one.status == "pass"} >= {"right"}
    evaluation = webnorm.evaluate(wrong, folder, budget=None)
    assert evaluation.status in ("fail", "error") and "default factor is 7" in str(evaluation.message)


@pytest.mark.parametrize("step", [4, 64])
def test_a_kernel_may_take_only_multiples(step: int, tmp_path: Path) -> None:
    """Rejected cases run with larger sizes, so that the verdict covers the whole corpus."""
    rule = f'[[require]]\n// rule = "cols % {step} == 0"\n// why = "whole tiles"\n// [[pass]]'
    webnorm.load_op(write_op(tmp_path / "twice", naive=changed("[[pass]]", rule, KERNEL)))
    assert statuses("twice") == {("naive", "pass")}


@pytest.mark.parametrize("name", ["index", "at", "raw", "word", "value", "codes", "code", "shift", "bits"])
def test_a_tensor_may_have_the_name_of_a_variable(name: str, tmp_path: Path) -> None:
    """A name inside load_ and store_ hides neither a buffer nor a size nor a scalar."""
    op = OP.replace('"x"', f'"{name}"').replace("(x)", f"({name})").replace("* x", f"* {name}")
    kernel = changed("load_x", f"load_{name}", KERNEL)
    webnorm.load_op(write_op(tmp_path / "twice", op, naive=kernel))
    assert statuses("twice", dtype="all", cases="twice-rows-61") == {("naive", "pass")}
    turned = OP.replace('"y"', f'"{name}"')
    webnorm.load_op(write_op(tmp_path / "turned", turned, naive=changed("store_y", f"store_{name}", KERNEL)))
    assert statuses("turned", dtype="all", cases="turned-rows-61") == {("naive", "pass")}


def test_an_op_is_a_function_on_arrays(tmp_path: Path) -> None:
    twice = webnorm.load_op(write_op(tmp_path / "twice"))
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    np.testing.assert_array_equal(twice(x), 2 * x)
    narrow = webnorm.GpuArray.from_numpy(x.astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(twice(narrow).numpy().astype(np.float32), 2 * x)
    for arguments, said in (
        ((x.astype(np.float64),), "x has dtype float64; expected float32, float16, bfloat16"),
        ((x[0],), "expected 2 dimensions: rows cols"),
        ((), r"twice needs the array x \(rows cols\); pass it$"),
        ((x, x), "twice takes x in order, not 2 arguments$"),
        ((x.tolist(),), "x is a list; expected a NumPy array or a GpuArray"),
    ):
        with pytest.raises(WebnormError, match=said):
            twice(*arguments)
    with pytest.raises(WebnormError, match="unknown argument 'bias'"):
        twice(x, bias=x)
    scaled = changed(f"[{DECLARED}],", f'[{DECLARED}],\n    scalars=[scalar("scale", 1.0)],')
    scaled = scaled.replace("option, ", "option, scalar, ")
    with pytest.raises(WebnormError, match="scaled takes x in order, not 2 arguments; pass scale by name"):
        webnorm.load_op(write_op(tmp_path / "scaled", scaled))(x, x)


PLAIN = """// A kernel of some app.
struct Dims { rows: u32, cols: u32 }
@group(1) @binding(3) var<uniform> dims: Dims;
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(2) @binding(7) var<storage, read_write> result: array<f32>;

@compute @workgroup_size(8, 8)
fn double(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < dims.cols && id.y < dims.rows) {
        result[id.y * dims.cols + id.x] = 2.0 * x[id.y * dims.cols + id.x];
    }
}
"""
TOML = 'workgroup_count = ["ceil_div(cols, 8)", "ceil_div(rows, 8)"]\n[bindings]\nresult = "y"\n'


def test_plain_wgsl_is_a_kernel(tmp_path: Path) -> None:
    folder = write_op(tmp_path / "twice", plain=PLAIN)
    (folder / "plain.toml").write_text(TOML)
    webnorm.load_op(folder)
    assert statuses("twice", cases=["twice-rows-61", "twice-cols-257"]) == {("plain", "pass")}
    # This op has only one type, and cannot be cut.
    assert statuses("twice", dtype="float16", cases="twice-rows-61") == {("plain", "skip")}
    assert statuses("twice", cases="twice-cut-bindings") == {("plain", "skip")}


UNIFORM = "@group(1) @binding(3) var<uniform> dims: Dims;"
IMMEDIATE = changed(UNIFORM, "var<immediate> dims: Dims;", PLAIN)
# A struct of 32 bytes with 16 bytes of members.
ALIGNED = changed("{ rows: u32, cols: u32 }", "{ cols: u32, both: vec3u }", IMMEDIATE).replace(
    "dims.rows", "dims.both.y"
)


@pytest.mark.parametrize(
    ("text", "toml", "words"),
    [
        (IMMEDIATE, "", 2),
        (
            f"requires immediate_address_space;\n{IMMEDIATE}",
            "[features]\nimmediate_address_space = true\n",
            2,
        ),
        (ALIGNED, 'both = ["cols", "rows", "cols"]\n', 8),
    ],
    ids=["plain", "directive", "aligned"],
)
def test_plain_wgsl_with_immediates(text: str, toml: str, words: int, tmp_path: Path, device: Device) -> None:
    folder = write_op(tmp_path / "twice", plain=text)
    (folder / "plain.toml").write_text(TOML + toml)
    load_op(folder)
    kernel = load(folder / "plain.wgsl", "twice")
    assert kernel.features == {IMMEDIATES: 1}
    # Dawn compares the bytes of the layout with the size of the struct.
    assert kernel.plain is not None and len(kernel.plain.words) == words
    refusal = Variant(kernel, {}).refusal(kernel.op.problem(3, 5), BROWSER)
    assert refusal == "needs the feature 'immediate_address_space', which the engine's WGSL lacks"
    expected = "pass" if IMMEDIATES in device.traits.features else "skip"
    assert statuses("twice", cases=["twice-rows-61", "twice-cols-257"]) == {("plain", expected)}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "store_y",
            "store_x",
            ":15: no definition in scope for identifier: `store_x`; did you mean `store_y`?",
        ),
        ("params.rows", "params.row", ":14: invalid field accessor `row`; did you mean `rows`?"),
        (
            "params.rows * cols",
            "params.cols",
            ":14: invalid field accessor `cols`; write only `cols`, which is a",
        ),
        ('"main"', '"mian"', ":4: no entry point `mian`; did you mean `main`?"),
    ],
)
def test_a_misspelt_name_of_a_kernel_has_a_suggestion(
    tmp_path: Path, device: Device, old: str, new: str, said: str
) -> None:
    op = load_op(write_op(tmp_path / "twice", naive=changed(old, new, KERNEL)))
    problem = op.problem(4, 8)
    variant = default_variant(load(tmp_path / "twice" / "naive.wgsl"), problem, device.traits)
    shader = render_shader(variant, problem, "native", device.traits)
    with pytest.raises(WebnormError) as error:
        compile_shader(device, shader)
    assert f"naive.wgsl{said}" in str(error.value) and error.value.place is not None


@QUICK
@pytest.mark.parametrize(
    ("old", "new", "toml", "said"),
    [
        (
            "x: array",
            "z: array",
            TOML,
            "plain.wgsl:4: storage variable z is not a tensor: expected one of x, y",
        ),
        ("", "", "", "plain.wgsl:1: the number of workgroups of double is unknown"),
        (
            "rows: u32, cols: u32 }",
            "rows: u32, cols: array<u32, 4> }",
            TOML,
            "cols is array<u32,4>; expected u32, i32 or f32",
        ),
        ("cols: u32 }", "width: u32 }", TOML, "member width of Dims is not a size or scalar"),
        ("x: array<f32>", "x: array<bool>", TOML, "the type array<bool> is not an array of f32"),
        ("@group(1) @binding(3)", "@binding(3)", TOML, "dims lacks @group and @binding with numbers"),
        (
            UNIFORM,
            f"{UNIFORM}\nvar<immediate> more: u32;",
            TOML,
            "plain.wgsl:4: the text has both a uniform and an immediate variable; use one struct",
        ),
        (
            "",
            "",
            f"{TOML}[features]\nimmediate_address_space = true\n",
            "plain.toml:5: feature 'immediate_address_space' is declared, but the text has no var<immediate>",
        ),
        ("", "", 'workgroup_count = "rowz"\n', "plain.toml:1: unknown name 'rowz'"),
        (
            "result",
            "x2",
            'workgroup_count = "1"\n[bindings]\nx2 = "x"\n',
            "two storage variables are bound to x",
        ),
    ],
)
def test_unsupported_plain_wgsl_is_an_error(old: str, new: str, toml: str, said: str, tmp_path: Path) -> None:
    folder = write_op(tmp_path / "twice", plain=changed(old, new, PLAIN) if old else PLAIN)
    if toml:
        (folder / "plain.toml").write_text(toml)
    with pytest.raises(WebnormError) as error:
        load(folder / "plain.wgsl", "twice")
    assert said in str(error.value)


# --- evaluations by programs


def test_an_evaluation_says_what_is_wrong(tmp_path: Path) -> None:
    folder = write_op(tmp_path / "twice")
    right = webnorm.evaluate(KERNEL, folder, budget=None, seed=1)
    assert (right.status, right.failed, right.seed, right.median_ns) == ("pass", 0, 1, None)
    wrong = webnorm.evaluate(changed("2.0 * load", "3.0 * load", KERNEL), folder, budget=None)
    assert wrong.status == "fail" and wrong.passed < wrong.failed and "expected" in str(wrong.message)
    refused = webnorm.evaluate(changed("2.0 * load", "2.0x * load", KERNEL), folder, budget=None)
    assert (refused.status, refused.line) == ("error", 15) and "submission.wgsl:15" in str(refused.message)
    assert str(tmp_path) not in str(refused.message)
    file = folder / "mine.wgsl"
    file.write_text(changed("2.0 * load", "2.0x * load", KERNEL))
    assert str(webnorm.evaluate(str(file), folder, budget=None).message).startswith(f"{file}:15:")
    # A header cannot excuse its kernel.
    excused = changed('"One invocation per element."', '"Mine."\n// unstable = "it is"', KERNEL)
    excused = changed("2.0 * load", "3.0 * load", excused)
    assert webnorm.evaluate(excused, folder, budget=None).status == "fail"


def test_a_wrong_integer_is_explained(tmp_path: Path) -> None:
    """The message states the error as a number, and no tolerance if there is none."""
    counts = changed(DECLARED, 'tensor("y", "rows", dtype="int32")')
    counts = changed("return 2 * x", "return (x > 0).sum(1)", counts)
    folder = write_op(tmp_path / "positive", counts)
    body = """if (i < params.rows) {
        var count = 0;
        for (var at = 1u; at < cols; at++) { count += i32(load_x(i * cols + at) > 0.0); }
        store_y(i, count);
    }"""
    start, end = KERNEL.index("    if (i <"), KERNEL.rindex("}")
    text = f"{KERNEL[:start]}    {body}\n{KERNEL[end:]}".replace("rows * cols", "rows")
    found = webnorm.evaluate(text, folder, budget=None)
    assert found.status == "fail"
    assert re.search(r"^y\[\d+\] is \d+, expected \d+: off by 1, allowed 0($|;| \(after)", str(found.message))
    assert "NaN" not in str(found.hint)


def test_an_evaluation_has_times(tmp_path: Path) -> None:
    text = changed("2.0 * load_x(i)", "load_x(i) + load_x(i)", KERNEL)
    found = webnorm.evaluate(text, write_op(tmp_path / "twice"), budget=0.1, sizes={"rows": 8})
    assert found.status == "pass" and found.best_kernel == "naive" and found.timed == "twice, 8x8 float32"
    assert found.median_ns and found.percent_of_copy and found.time_over_best
    # Other programs may use the device while this test runs.
    assert found.device_shared is not None


def test_a_kernel_of_the_op_is_not_compared_with_itself(tmp_path: Path) -> None:
    """Two measurements of the same kernel would differ only by noise."""
    slower = changed("2.0 * load_x(i)", "load_x(i) + load_x(i)", KERNEL)
    folder = write_op(tmp_path / "twice", naive=KERNEL, slower=slower)
    asked: dict[str, Any] = {"budget": 0.1, "sizes": {"rows": 8}}
    found = {name: webnorm.evaluate(folder / f"{name}.wgsl", folder, **asked) for name in ("naive", "slower")}
    assert {name: one.best_kernel for name, one in found.items()} == {"naive": "slower", "slower": "naive"}
    (folder / "slower.wgsl").unlink()
    alone = webnorm.evaluate(folder / "naive.wgsl", folder, **asked)
    assert alone.status == "pass" and alone.percent_of_copy
    assert alone.best_kernel is None and alone.time_over_best is None


def test_the_published_schema_describes_an_evaluation() -> None:
    assert json.loads((DOCS / "evaluation.schema.json").read_text()) == json_schema()


@pytest.mark.slow
def test_eight_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    folder = write_op(tmp_path / "twice")
    texts = {
        number: KERNEL if number % 2 else changed("2.0 * load", "2.0001 * load", KERNEL)
        for number in range(8)
    }
    for number, text in texts.items():
        (tmp_path / f"{number}.wgsl").write_text(text)
    command = [sys.executable, "-m", "webnorm", "evaluate", "--op", str(folder), "--json", "--budget", "0.1"]
    running = {
        number: subprocess.Popen([*command, str(tmp_path / f"{number}.wgsl")], stdout=subprocess.PIPE)
        for number in texts
    }
    found = {number: json.loads(process.communicate()[0]) for number, process in running.items()}
    assert {number: one["status"] for number, one in found.items()} == {
        number: "pass" if number % 2 else "fail" for number in texts
    }
    assert {process.returncode for process in running.values()} == {0, 1}
    assert any(one["device_shared"] for one in found.values() if one["status"] == "pass")


# --- norms as a user's ops

NORM = '''"""LayerNorm as an op of a user's."""
from dataclasses import replace

from webnorm.ops.norms.op import OPS as NORMS

OPS = (replace(next(op for op in NORMS if op.name == "layer_norm"), name="mine"),)
'''


@QUICK
def test_a_norm_moves_into_a_users_folder(tmp_path: Path) -> None:
    """The norm uses only the public protocol of ops."""
    own = Path(webnorm.__file__).parents[1] / "wgsl" / "layer_norm"
    folder = write_op(
        tmp_path / "my_norm",
        NORM,
        two_pass=(own / "two_pass.wgsl").read_text(),
        one_pass=(own / "one_pass.wgsl").read_text(),
    )
    op: Op = load_op(folder)
    assert op.name == "my_norm"
    asked: dict[str, Any] = {"cases": ["normal", "shift-1e4", "cols-1", "residual-61"], "seed": 3}
    moved = webnorm.check(["two_pass", "one_pass"], op="my_norm", **asked)
    there = webnorm.check(["two_pass", "one_pass"], op="layer_norm", **asked)

    def verdicts(found: Any) -> list[tuple[Any, ...]]:
        return sorted((one.kernel, one.case, one.status, one.max_abs_error) for one in found.report.results)

    assert verdicts(moved) == verdicts(there)
    assert {status for _, _, status, _ in verdicts(moved)} == {"pass", "fail"}


def test_a_lab_names_the_ops_that_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    webnorm.load_op(write_op(tmp_path / "twice"))
    export._name_left_out({LAB_INDEX: b'{"bundles": []}'}, (), Path("lab"))
    assert "lab does not contain twice: the lab's page computes" in capsys.readouterr().err


def test_an_export_names_every_size_that_it_lacks(tmp_path: Path) -> None:
    """The message names all of them at once, with values to copy."""
    text = changed('"cols": 8}', '"cols": 8, "depth": 4}').replace('"rows cols"', '"rows cols depth"')
    webnorm.load_op(write_op(tmp_path / "twice", text))

    def said(**sizes: int | tuple[int, ...]) -> str:
        with pytest.raises(WebnormError) as error:
            request_for(
                "twice", (), (), "auto", (), dict.fromkeys(("--dtype", "--eps", "--scale")), sizes=sizes
            )
        return str(error.value)

    assert said().startswith("--size cols and --size depth are missing; ")
    assert said().endswith("such as --size cols=8 --size depth=4")
    assert said(cols=8).startswith("--size depth is missing; ")
    assert said(cols=(8, 12), depth=4) == "--size cols has 2 values; expected one: only depth takes several"


def test_a_draw_function_gets_sizes_as_integers(tmp_path: Path) -> None:
    """An array's shape takes no float."""
    draw = "lambda rng, shape, cols: np.broadcast_to(rng.random((1, cols)), shape)"
    text = changed('tensor("x", "rows cols")', f'tensor("x", "rows cols", draw={draw})')
    load_op(write_op(tmp_path / "sized", text))
