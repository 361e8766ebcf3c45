from __future__ import annotations

import itertools
import math
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import commands
from testbed import GPU, KERNELS, NORMS, SOFTWARE, STABLE, kernel_named, problem_of
from webnorm.choice.defaults import best_variant, chosen_variants, default_variant
from webnorm.errors import WebnormError
from webnorm.kernels.headers import header
from webnorm.kernels.headers.header import MOST_WORK, load
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.library import discover, own_kernels, select, select_for, survey
from webnorm.kernels.headers.sources import split_header, wgsl_root
from webnorm.kernels.headers.toml_fields import MOST_ENTRIES, MOST_HEADER
from webnorm.kernels.headers.traits import BROWSER, Traits
from webnorm.kernels.headers.variants import MOST_POINTS, Variant, all_variants, runnable_variants
from webnorm.kernels.rendering.render import render_shader
from webnorm.op.expression import MOST_PARTS, MOST_TEXT, Tree, evaluate, size
from webnorm.op.registry import OPS
from webnorm.ops.norms.problem import NormProblem

HEADER = """// /// webnorm
// summary = "A test."
// differs = "Nothing."
// [tune]
// width = [1, 2, 4]
// [derive]
// double = "width * 2"
// [[require]]
// rule = "width <= cols"
// why = "wider than the row"
// [[pass]]
// entry_point = "main"
// workgroup_size = "width"
// workgroup_count = "rows"
// ///
body {{ double }} s
"""


WHY_AND_SECOND = 'why = "wider than the row"\n// [[require]]\n// '


def write(folder: Path, text: str | bytes, name: str = "mine") -> Path:
    path = folder / "layer_norm" / f"{name}.wgsl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_header_is_read(tmp_path: Path) -> None:
    kernel = load(write(tmp_path, HEADER))
    assert (kernel.name, kernel.op.name, kernel.tune) == ("mine", "layer_norm", {"width": (1, 2, 4)})
    problem = NormProblem(rows=5, cols=2)
    assert default_variant(kernel, problem, GPU).constants == {"width": 1}
    assert [v.refusal(problem, GPU) for v in all_variants(kernel)] == [None, None, "wider than the row"]
    assert next(all_variants(kernel)).names(problem, GPU)["double"] == 2


@pytest.mark.sampled(4)
@pytest.mark.parametrize("traits", [GPU, SOFTWARE, BROWSER], ids=["gpu", "software", "browser"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.label)
def test_runnable_variants_are_those_that_nothing_refuses(kernel: Kernel, traits: Traits) -> None:
    axes = {axis: values[-3:] for axis, values in kernel.tune.items()}
    for cols, dtype in ((64, "float32"), (77, "bfloat16"), (8192, "float16")):
        problem = problem_of(kernel.op, rows=13, cols=cols, dtype=dtype)
        points = itertools.product(*axes.values())
        every = [Variant(kernel, dict(zip(axes, point, strict=True))) for point in points]
        fitting = [variant for variant in every if variant.refusal(problem, traits) is None]
        assert list(runnable_variants(kernel, problem, traits, axes)) == fitting


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ('summary = "A test."', 'summary = "A test', 2, "header is not valid TOML"),
        (
            'summary = "A test."',
            "summary = A test.",
            2,
            "not valid TOML: Invalid value in 'summary = A test.'; expected a number, a list, or a text in",
        ),
        ('differs = "Nothing."', "differs = 3", 3, "expected a sentence"),
        ("[tune]", "[tunes]", 4, "unknown header key 'tunes'; did you mean 'tune'?"),
        ("width = [1, 2, 4]", "width = 4", 5, "expected a list of integers"),
        ("width = [1, 2, 4]", "cols = [4]", 5, "is not an identifier"),
        ('double = "width * 2"', 'double = "widht * 2"', 7, "unknown name 'widht'"),
        ('double = "width * 2"', 'double = "width * "', 7, "unexpected 'end of template'"),
        ('why = "wider than the row"', 'wy = "x"', 10, "unknown require key 'wy'"),
        ('rule = "width <= cols"\n', "", 8, "lacks the key 'rule'"),
        ("[[pass]]", "[pass]", 11, "expected [[pass]] tables"),
        ('workgroup_count = "rows"\n', "", 11, "lacks the key 'workgroup_count'"),
        ('differs = "Nothing."', 'differs = "Nothing."\n// rung = "one"', 4, "rung is 'one'"),
        ("[derive]", "[features]\n// subgrups = 1\n// [derive]", 7, "did you mean 'subgroups'?"),
        ("[derive]", "[default]\n// widht = 1\n// [derive]", 7, "unknown default key 'widht'"),
        ("[derive]", "[default]\n// width = []\n// [derive]", 7, "width is []; expected an expression"),
        ("[derive]", "[default]\n// width = [4]\n// [derive]", 7, "width is [4]; expected an expression"),
        ("[derive]", '[default]\n// width = [["cols"], 4]\n// [derive]', 7, "expected an expression"),
        ("[derive]", '[default]\n// width = [["colz", 1], 4]\n// [derive]', 7, "unknown name 'colz'"),
        ("[derive]", '[default]\n// width = [["cols", [4]], 4]\n// [derive]', 7, "List is not part of the"),
        (
            "[derive]",
            '[default]\n// width = [["cols", 1.5], 4]\n// [derive]',
            7,
            "a constant other than an integer is not part of the",
        ),
        ("[derive]", "[accuracy]\n// serial_term = 1\n// [derive]", 7, "did you mean 'serial_terms'?"),
        ('summary = "A test."', 'summary = "Of a width."\n// width = 3', 3, "unknown header key 'width'"),
        ('double = "width * 2"', 'width = "cols"', 7, "'width' is not an identifier"),
        ('double = "width * 2"', 'cols = "8"', 7, "'cols' is not an identifier"),
        ("width = [1, 2, 4]", "target = [1]", 5, "'target' is not an identifier"),
        ('why = "wider than the row"', WHY_AND_SECOND + 'rule = "duble"\n// why = "."', 12, "'duble'"),
        ('why = "wider than the row"', WHY_AND_SECOND + 'rule = "double"', 11, "lacks the key 'why'"),
        ('why = "wider than the row"', "why = 3", 10, "why is 3; expected a sentence"),
        ('why = "wider than the row"', "why = []", 10, "why is []; expected a sentence"),
        ('rule = "width <= cols"', "rule = [[]]", 9, "rule is [[]]; expected an expression"),
        ('rule = "width <= cols"', "rule = 1.5", 9, "rule is 1.5; expected an expression"),
        ('rule = "width <= cols"', "rule = 2026-01-01", 9, "expected an expression"),
        ('rule = "width <= cols"', f"rule = {10**400}", 9, "rule is a number of 1329 bits"),
        ('rule = "width <= cols"', f"rule = {'9' * 5000}", 9, "header is not valid TOML: Exceeds the limit"),
        ('rule = "width <= cols"', f"rule = {'[' * 5000}{']' * 5000}", 9, "nested too deeply"),
        ('rule = "width <= cols"', f"rule = {'[' * 20}{']' * 20}", 9, "'rule' is nested more than 8 deep"),
        ('rule = "width <= cols"', f'rule = "{"(" * 1900}"', 9, "nested too deeply"),
        ('rule = "width <= cols"', f'rule = "{"+ " * 1500}"', 9, "rule has 3000 characters"),
        ('rule = "width <= cols"', "rule." + "a." * 2000 + "b = 1", 9, "nested more than 8 deep"),
        ('rule = "width <= cols"', 'rule = "width \\u001b"', 9, "expression 'width \\x1b'"),
        ('entry_point = "main"', "entry_point = 3", 12, "entry_point is 3; expected the name"),
        ('entry_point = "main"', 'entry_point = "ma in"', 12, "entry_point is 'ma in'"),
        ('entry_point = "main"', 'entry_point = "__main"', 12, "entry_point is '__main'"),
        ('entry_point = "main"', 'entry_point = "_"', 12, "entry_point is '_'"),
        ('entry_point = "main"', 'entry_point = ""', 12, "entry_point is ''"),
        ('entry_point = "main"', 'entry_point = "3d"', 12, "entry_point is '3d'"),
        (
            'entry_point = "main"',
            'entry_point = "main"\n// bindings = 5',
            13,
            "bindings is 5; expected a list",
        ),
        ('entry_point = "main"', 'entry_point = "main"\n// bindings = [5]', 13, "bindings is [5]; expected"),
        (
            'entry_point = "main"',
            'entry_point = "main"\n// bindings = [[]]',
            13,
            "bindings is [[]]; expected",
        ),
        ('entry_point = "main"', 'entry_point = "main"\n// bindings = "x"', 13, "bindings is 'x'; expected"),
        ('entry_point = "main"', 'entry_point = "main"\n// bindings = ["x", "x"]', 13, "names 'x' twice"),
        ('entry_point = "main"', 'entry_point = "main"\n// bindings = ["z"]', 13, "unknown binding 'z'"),
        ('entry_point = "main"', 'entry_point = "main"\n// per = []', 13, "per is []; expected rows or call"),
        ('entry_point = "main"', 'entry_point = "main"\n// per = "cols"', 13, "unknown per 'cols'"),
        ("[[pass]]", "[[scratch]]\n// name = 3\n// words = 4\n// [[pass]]", 12, "scratch buffer is 3"),
        ("[[pass]]", '[[scratch]]\n// name = "x"\n// words = 4\n// [[pass]]', 12, "'x' is not an identifier"),
        (
            "[[pass]]",
            '[[scratch]]\n// name = "a b"\n// words = 4\n// [[pass]]',
            12,
            "'a b' is not an identifier",
        ),
        ("[[pass]]", "scratch = [3]\n// [[pass]]", 11, "unknown require key 'scratch'"),
        ("width = [1, 2, 4]", "width = [1, 1]", 5, "axis width has 1 twice"),
        ("width = [1, 2, 4]", "width = [true, 1]", 5, "axis width has 1 twice"),
        ("width = [1, 2, 4]", "width = [-1]", 5, "axis width has -1; expected 0 to"),
        ("width = [1, 2, 4]", f"width = [{2**40}]", 5, "axis width has 1099511627776"),
        ("width = [1, 2, 4]", f"width = {list(range(500))}", 5, "axis width has 500 values"),
        ("width = [1, 2, 4]", "width = [[1]]", 5, "expected a list of integers"),
        ("width = [1, 2, 4]", "width = [1.0]", 5, "expected a list of integers"),
        ("width = [1, 2, 4]", "width = []", 5, "expected a list of integers"),
        ("width = [1, 2, 4]", "width = {a = 1}", 5, "expected a list of integers"),
        ("width = [1, 2, 4]", "if = [1]", 5, "'if' is not an identifier"),
        ("width = [1, 2, 4]", "max = [1]", 5, "'max' is not an identifier"),
        ("width = [1, 2, 4]", f"{'w' * 100} = [1]", 5, "has more than 64 characters"),
        ("width = [1, 2, 4]", "'a b' = [1]", 5, "'a b' is not an identifier"),
        ('double = "width * 2"', '"do\\nuble" = 3', 1, "is not an identifier"),
        ('double = "width * 2"', "double = []", 7, "double is []; expected an expression"),
        ('double = "width * 2"', "double = {a = 1}", 7, "expected an expression"),
        ('double = "width * 2"', "\n// ".join(f"d{i} = 1" for i in range(90)), 6, "derive has 90 entries"),
        (
            'differs = "Nothing."',
            'differs = "Nothing."\n// rung = true',
            4,
            "rung is True; expected an integer",
        ),
        (
            'differs = "Nothing."',
            'differs = "Nothing."\n// rung = inf',
            4,
            "rung is inf; expected an integer",
        ),
        ('differs = "Nothing."', 'differs = "Nothing."\n// unstable = 3', 4, "expected a sentence"),
        ('differs = "Nothing."', 'differs = "Nothing."\n// features = 3', 4, "expected a table"),
        ('differs = "Nothing."', 'differs = "Nothing."\n// accuracy = []', 4, "expected a table"),
        ('differs = "Nothing."', f'differs = "{"x" * 3000}"', 3, "differs has 3000 characters"),
        (
            'differs = "Nothing."',
            'differs = "Nothing."\n// differs = "x"',
            4,
            "4: header key 'differs' is given twice; keep one of the two lines",
        ),
        (
            "[derive]",
            "[tune]\n// [derive]",
            6,
            "6: [tune] is given twice in the header; keep one of the two tables, with the keys of both",
        ),
        (
            'differs = "Nothing."',
            'differs = "Nothing."\n// rung = -1',
            4,
            "rung is -1; expected an integer from 0",
        ),
        ('differs = "Nothing."', 'differs = ["Nothing."]', 3, "expected a sentence"),
    ],
)
def test_complaints_have_file_and_line(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    text = HEADER.replace(f"// {old}", f"// {new}" if new else "") if new else HEADER.replace(f"// {old}", "")
    assert text != HEADER
    path = write(tmp_path, text)
    with pytest.raises(WebnormError) as caught:
        load(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert "\n" not in str(caught.value)
    place = caught.value.place
    assert place is not None and (place.file, place.line) == (str(path), line)
    assert (
        1 <= place.column <= place.column + place.length <= len(path.read_text().splitlines()[line - 1]) + 1
    )


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (b"fn main() {}\n", 1, "no header"),
        (HEADER.replace("// ///\nbody", "body").encode(), 1, "the header is not closed"),
        (b"\xff\xfe\x00", 1, "not UTF-8"),
        (HEADER.encode().replace(b"A test", b"\xe9"), 2, "not UTF-8"),
        (HEADER.replace("// [tune]", "[tune]").encode(), 4, "a header line must start with '// '"),
        (HEADER[: HEADER.index("// [[pass]]")].encode() + b"// ///\n", 2, "add at least one [[pass]]"),
        (HEADER.replace("// [tune]", "// \n" * 40_000 + "// [tune]").encode(), 1, "expected at most 32768"),
        (
            HEADER.replace("// [[req", "// [[pass]]\n" * 2500 + "// [[req").encode(),
            1,
            "more than 2000 values",
        ),
        (HEADER.replace("// [[req", "// [[pass]]\n" * 90 + "// [[req").encode(), 8, "pass has 91 entries"),
    ],
)
def test_files_that_are_no_kernels(tmp_path: Path, text: bytes, line: int, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(WebnormError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


CHAIN = "s0 = 10\n" + "\n".join(f'// s{k + 1} = "s{k} * s{k}"' for k in range(39))
DOUBLING = 'd0 = "width"\n' + "\n".join(f'// d{k + 1} = "d{k} + d{k} % 7"' for k in range(39))


def test_a_chain_that_grows_without_bound_ends_at_once(tmp_path: Path) -> None:
    kernel = load(
        write(tmp_path, HEADER.replace('double = "width * 2"', CHAIN).replace("width <=", "s39 <="))
    )
    problem = NormProblem(rows=1, cols=2)
    for call in (
        lambda: default_variant(kernel, problem, GPU).refusal(problem, GPU),
        lambda: render_shader(default_variant(kernel, problem, GPU), problem, "native", GPU),
        lambda: chosen_variants(kernel, problem, GPU, {}),
    ):
        with pytest.raises(WebnormError) as caught:
            call()
        assert str(caught.value).startswith(f"{kernel.path}: ")
        assert "derived s5: " in str(caught.value)


def test_constants_that_look_each_other_up_do_not_grow(tmp_path: Path) -> None:
    text = HEADER.replace('double = "width * 2"', DOUBLING).replace("width <=", "d39 > 0 or width <=")
    kernel = load(write(tmp_path, text))
    problem = NormProblem(rows=1, cols=2)
    every = [v for v in all_variants(kernel) if v.refusal(problem, GPU) is None]
    assert list(runnable_variants(kernel, problem, GPU)) == every


def test_axes_of_too_many_points(tmp_path: Path) -> None:
    axes = "\n// ".join(f"a{k} = [{', '.join(map(str, range(10)))}]" for k in range(20))
    path = write(tmp_path, HEADER.replace("width = [1, 2, 4]", f"width = [1, 2, 4]\n// {axes}"))
    with pytest.raises(
        WebnormError, match=rf":4: the axes have {3 * 10**20} points, and the rules have \d+ parts"
    ):
        load(path)
    # These axes have fewer points, but each point needs much work.
    rules = "\n// ".join(
        f"""[[require]]\n// rule = "{" + ".join(["(cols * 2)"] * 30)} > 0"\n// why = "no" """
        for _ in range(40)
    )
    axes = "\n// ".join(f"a{k} = [{', '.join(map(str, range(10)))}]" for k in range(5))
    text = HEADER.replace("width = [1, 2, 4]", f"width = [1, 2, 4]\n// {axes}")
    text = text.replace("{{ double }}", "{{ double, a0, a1, a2, a3, a4 }}")
    load(write(tmp_path, text))
    with pytest.raises(WebnormError, match=r":4: the axes have 300000 points, and the rules have \d+ parts"):
        load(write(tmp_path, text.replace("[[require]]", f"{rules}\n// [[require]]", 1)))
    kernel = load(write(tmp_path, HEADER))
    tune = {f"a{k}": range(10) for k in range(20)}
    with pytest.raises(WebnormError, match=r"its axes have 1000+ points; the limit is 1048576"):
        next(runnable_variants(kernel, NormProblem(rows=1, cols=2), GPU, tune))


def test_webnorms_own_headers_are_far_within_the_bounds() -> None:
    for kernel in KERNELS:
        _, toml = split_header(kernel.path.read_text(), kernel.path)
        trees = [tree for _, tree in numbers(kernel)] + [require.rule for require in kernel.require]
        points = math.prod(len(values) for values in kernel.tune.values())
        assert 4 * len(toml) < MOST_HEADER
        assert 4 * max(map(len, toml.splitlines())) < MOST_TEXT
        assert 4 * max(map(size, trees)) < MOST_PARTS
        assert 4 * points < MOST_POINTS
        assert 4 * points * sum(map(size, trees)) < MOST_WORK
        for key, most in MOST_ENTRIES.items():
            assert 2 * len(tomllib.loads(toml).get(key, [])) <= most


def numbers(kernel: Kernel) -> Iterator[tuple[str, Tree]]:
    """Yield the expressions of a header, each with a name."""
    yield from kernel.derive.items()
    for each in kernel.passes:
        yield from (
            (name, getattr(each, name)) for name in ("workgroup_size", "workgroup_count", "iterations")
        )
    for one in kernel.scratch:
        yield from (("records", one.records), ("words", one.words))
    yield from (("terms", tree) for tree in (kernel.accuracy.serial_terms, kernel.accuracy.column_terms))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.label)
def test_webnorms_own_numbers_are_exact_in_javascript_too(kernel: Kernel) -> None:
    for rows, cols in ((0, 1), (2**31, 2**18), (2**40, 77)):
        problem = kernel.op.problem(rows, cols)
        for traits in (GPU, SOFTWARE, BROWSER):
            names = default_variant(kernel, problem, traits).names(problem, traits)
            for what, tree in numbers(kernel):
                assert 0 <= evaluate(tree, names) < 2**53, (what, rows, cols)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'workgroup_size = "width"',
            'workgroup_size = "width - 1"',
            "workgroup_size of pass main: width - 1 is 0",
        ),
        (
            'workgroup_size = "width"',
            "workgroup_size = -8",
            "workgroup_size of pass main: -8 is -8; expected 1",
        ),
        ('workgroup_size = "width"', 'workgroup_size = "1 // 0"', "division by zero in 1 // 0"),
        ("[[pass]]", "[[pass]]\n// iterations = -1", "iterations of pass main: -1 is -1; expected 0"),
        ("[[pass]]", "[[pass]]\n// when = 0", "[[pass]]: `when` leaves out every pass for 4x8 float32"),
        ("[[pass]]", '[[scratch]]\n// name = "s"\n// words = -1\n// [[pass]]', "words of s: -1 is -1"),
        (
            "[[pass]]",
            f'[[scratch]]\n// name = "s"\n// words = {2**60}\n// [[pass]]',
            f"words of s: {2**60}; the limit is",
        ),
        ("[derive]", '[derive]\n// steps = "0 - cols"', "derived steps: it is -8; expected 1 or more"),
        ("[derive]", '[derive]\n// vector_width = "0"', "derived vector_width: it is 0; expected 1 or more"),
        ("[derive]", '[accuracy]\n// serial_terms = "0 - cols"\n// [derive]', "serial_terms: 0 - cols is -8"),
        ("[derive]", '[accuracy]\n// column_terms = "1 % 0"\n// [derive]', "column_terms: division by zero"),
        (
            "[derive]",
            '[features]\n// subgroups = "1 // 0"\n// [derive]',
            "feature subgroups: division by zero",
        ),
        ("[derive]", '[default]\n// width = "1 // 0"\n// [derive]', "default width: division by zero"),
        ('"width <= cols"', '"1 // (cols - 8)"', "a rule: division by zero"),
    ],
)
def test_numbers_that_make_no_sense_name_the_header(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in HEADER
    kernel = load(write(tmp_path, HEADER.replace(old, new, 1)))
    problem = NormProblem(rows=4, cols=8)
    with pytest.raises(WebnormError) as caught:
        variant = default_variant(kernel, problem, GPU)
        variant.refusal(problem, GPU)
        render_shader(variant, problem, "native", GPU)
    assert str(caught.value).startswith(f"{kernel.path}: ")
    assert message in str(caught.value)


def test_counts_below_nothing_are_refused_where_they_are_asked_for(tmp_path: Path) -> None:
    scratch = '[[scratch]]\n// name = "s"\n// words = 4\n// records = "2 - rows"\n// [[pass]]'
    text = HEADER.replace('workgroup_count = "rows"', 'workgroup_count = "rows - 3"').replace(
        "[[pass]]", scratch
    )
    kernel, problem = load(write(tmp_path, text)), NormProblem(rows=4, cols=8)
    shader = render_shader(default_variant(kernel, problem, GPU), problem, "native", GPU)
    assert shader.workgroup_count(shader.passes[0], 4) == 1
    with pytest.raises(
        WebnormError, match="workgroup_count of pass main: rows - 3 is -2; expected 0 or more"
    ):
        shader.workgroup_count(shader.passes[0], 1)
    assert shader.records(shader.bindings[-1], 2) == 0
    with pytest.raises(WebnormError, match="records of s: 2 - rows is -2; expected 0 or more"):
        shader.records(shader.bindings[-1], 4)


def test_a_header_without_sense_leaves_the_choice_to_the_others(tmp_path: Path) -> None:
    text = HEADER.replace("[tune]", 'rung = 9\n// preference = "900 // (cols - 8)"\n// [tune]')
    bad = load(write(tmp_path, text, "bad"))
    off = load(write(tmp_path, HEADER.replace("[derive]", '[default]\n// width = "7"\n// [derive]'), "off"))
    problem = NormProblem(rows=4, cols=8)
    alone, reason = best_variant([off], problem, SOFTWARE)
    assert alone is None and f"{off.path}: default width is 7" in reason
    alone, _ = best_variant([bad, off], problem, SOFTWARE)
    assert alone is not None and alone.kernel is bad
    chosen, _ = best_variant([bad, off, *NORMS], problem, SOFTWARE)
    assert chosen == best_variant(NORMS, problem, SOFTWARE)[0]


def broken_folder(folder: Path) -> list[str]:
    """Write a user's folder with a good kernel and others; return the names of the others."""
    write(folder, HEADER, "good")
    write(folder, HEADER.replace("A test.", "Another."), "welford")
    bad: dict[str, str | bytes] = {
        "a": "no header",
        "b": b"\xff",
        "c": HEADER.replace("rows", "rwos"),
        "d": HEADER.replace("[tune]", "x = " + "[" * 5000),
        "naive": HEADER.replace("// summary", "summary"),
    }
    for name, text in bad.items():
        write(folder, text, name)
    (folder / "layer_norm" / "e.wgsl").mkdir()
    return [*bad, "e"]


@pytest.mark.parametrize("op", OPS)
def test_the_kernels_of_one_op(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An op's kernels are the same alone as among all. webnorm builds no other op's kernels for them."""
    wanted = [kernel for kernel in discover() if kernel.op.name == op]
    made: list[str] = []
    make = header._Header.kernel

    def noted(self: header._Header, name: str) -> Kernel:
        made.append(name)
        return make(self, name)

    monkeypatch.setattr(header._Header, "kernel", noted)
    assert own_kernels(op) == wanted
    assert made == [op] * len(wanted)


def test_one_bad_file_does_not_take_the_others_along(tmp_path: Path) -> None:
    bad = broken_folder(tmp_path)
    kernels, broken = survey([tmp_path])
    assert {one.name for one in broken} == {*bad}
    for one in broken:
        assert one.reason.startswith(str(one.path)) and "\n" not in one.reason and one.reason.isprintable()
        assert one.op.name == "layer_norm" and one.path.parent.parent == tmp_path
    found = {kernel.label: kernel for kernel in kernels}
    assert found["layer_norm/good"].path.is_relative_to(tmp_path)
    assert found["layer_norm/welford"].summary == "Another."
    # A request for the user's naive must not get webnorm's.
    assert "layer_norm/naive" not in found and "rms_norm/naive" in found
    with pytest.raises(WebnormError, match=r"naive\.wgsl:2: a header line must start with"):
        select(kernels, "naive", broken=broken)
    with pytest.raises(WebnormError, match=r"a\.wgsl:1: no header"):
        discover([tmp_path])
    # A kernel of a later folder replaces the broken one.
    other = tmp_path / "other"
    other.mkdir()
    write(other, HEADER, "naive")
    kernels, broken = survey([tmp_path, other])
    assert "naive" not in {one.name for one in broken}
    assert select(kernels, "naive").path.is_relative_to(other)


def test_anything_that_goes_wrong_with_a_users_file_is_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, HEADER)

    def failing(path: Path) -> list[Kernel]:
        if path.is_relative_to(tmp_path):
            raise MemoryError("too\nmuch")
        return [load(path)]

    monkeypatch.setattr("webnorm.kernels.headers.library.load_all", failing)
    (one,) = survey([tmp_path])[1]
    assert one.reason == f"{path}: cannot read the kernel: MemoryError too much"
    monkeypatch.setattr("webnorm.kernels.headers.library.wgsl_root", lambda: tmp_path)
    with pytest.raises(MemoryError):
        survey()


def test_list_and_show_leave_bad_files_out(tmp_path: Path, mistake: Callable[[list[str]], str]) -> None:
    bad = broken_folder(tmp_path)
    write(tmp_path, HEADER.replace("[derive]", '[default]\n// width = "1 // 0"\n// [derive]'), "senseless")
    done = commands.webnorm(["list", "--wgsl", ".", "--supported"], tmp_path)
    assert done.returncode == 0
    assert "division" in done.stdout and "good" in done.stdout
    assert done.stderr.count("\n") == len(bad)
    assert all(line.startswith("webnorm: left out: layer_norm/") for line in done.stderr.splitlines())
    assert commands.webnorm(["list", "--wgsl", ".", "--op", "rms_norm"], tmp_path).stderr == ""
    for name in ("good", "welford", "rms_norm/naive"):
        done = commands.webnorm(["show", name, "--wgsl", "."], tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("\n") == len(bad)
    assert mistake(["show", "naive", "--wgsl", "."]).startswith(
        "webnorm: layer_norm/naive.wgsl:2: a header line"
    )


def test_a_default_off_its_axis(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER.replace("// [derive]", '// [default]\n// width = "cols"\n// [derive]'))
    kernel = load(path)
    assert default_variant(kernel, NormProblem(rows=1, cols=2), GPU).constants == {"width": 2}
    with pytest.raises(
        WebnormError, match=r"mine\.wgsl: default width is 3 for 1x3 float32; it must be one of"
    ):
        default_variant(kernel, NormProblem(rows=1, cols=3), GPU)


def test_a_missing_file_and_a_foreign_folder(tmp_path: Path) -> None:
    with pytest.raises(WebnormError, match="No such file"):
        load(tmp_path / "layer_norm" / "none.wgsl")
    path = tmp_path / "layernorm" / "x.wgsl"
    path.parent.mkdir()
    path.write_text(HEADER)
    with pytest.raises(WebnormError, match="did you mean 'layer_norm'"):
        load(path)


def test_a_users_folder(tmp_path: Path) -> None:
    write(tmp_path, HEADER)
    write(tmp_path, HEADER, "naive")
    found = discover([tmp_path])
    assert select(found, "mine").path.parent.parent == tmp_path
    assert select(found, "naive").path.parent.parent == tmp_path
    assert select(found, "layer_norm/registers").name == "registers"
    with pytest.raises(WebnormError, match="expected a folder"):
        discover([tmp_path / "none"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(WebnormError, match="contains no kernel"):
        discover([tmp_path / "empty"])


def test_selecting(tmp_path: Path) -> None:
    assert select(KERNELS, "copy").op.name == "copy"
    loose = tmp_path / "loose.wgsl"
    loose.write_text(HEADER)
    assert select(KERNELS, str(loose)).name == "loose"
    with pytest.raises(WebnormError, match="unknown kernel 'registres'; did you mean 'registers'"):
        select(KERNELS, "registres")
    with pytest.raises(WebnormError, match="unknown kernel 'atuo'; did you mean 'auto'"):
        select(KERNELS, "atuo")
    # Only the lab treats a copy as a kernel.
    with pytest.raises(WebnormError, match="unknown kernel 'nope'; expected one of auto, naive"):
        select(KERNELS, "nope")
    with pytest.raises(WebnormError, match="did you mean 'copy'"):
        select_for(KERNELS, ["cpy"], ["layer_norm"])


def test_chosen_constants() -> None:
    kernel, problem = kernel_named("two_pass"), NormProblem(rows=8, cols=64)
    chosen = chosen_variants(kernel, problem, GPU, {"threads_per_row": (8, 16), "foreign": (1,)})
    assert [variant.constants["threads_per_row"] for variant in chosen] == [8, 16]
    with pytest.raises(WebnormError, match="threads_per_row is 7; kernel layer_norm/two_pass accepts 8, 16,"):
        chosen_variants(kernel, problem, GPU, {"threads_per_row": (7,)})
    every = chosen_variants(kernel, problem, BROWSER, {}, every=True)
    assert {v.constants["threads_per_row"] for v in every} == {8, 16, 32, 64, 128, 256}
    wide = chosen_variants(kernel, problem, BROWSER, {"threads_per_row": (1024,)})
    assert wide[0].refusal(problem, BROWSER) == "needs 1024 invocations per workgroup; the limit is 256"


ALL_COLS = (
    1,
    2,
    3,
    5,
    7,
    31,
    64,
    100,
    199,
    255,
    257,
    512,
    768,
    1023,
    1024,
    2047,
    4095,
    4096,
    5119,
    8192,
    16383,
    16384,
)
NO_SUBGROUPS = Traits(frozenset(), max_invocations=256, workgroup_storage=16384, software=False)


@pytest.mark.parametrize(
    "traits", [GPU, SOFTWARE, BROWSER, NO_SUBGROUPS], ids=["gpu", "software", "browser", "plain"]
)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.label)
def test_defaults_are_legal(kernel: Kernel, traits: Traits) -> None:
    for cols in (*ALL_COLS, 16385, 50000, 1000003):
        problem = kernel.op.problem(3, cols)
        refusal = default_variant(kernel, problem, traits).refusal(problem, traits)
        # The vec4 of an odd row cover up to three columns more.
        held = cols <= (8192 if kernel.op.gradient else 16384) - 3
        in_registers = kernel.name in ("registers", "row_in_registers")
        if kernel.name in ("welford_subgroup", "row_in_registers") and not traits.features:
            lacks = "needs the feature 'subgroups', which the adapter lacks"
            assert refusal == lacks or (refusal and in_registers and not held), cols
        elif kernel.name == "naive" and not kernel.op.gradient and traits.software:
            # llvmpipe ends long loops, and one invocation reads a whole row.
            assert (refusal is None) == (cols <= 4 * (65534 // 3)), cols
        elif kernel.name == "one_dispatch":
            assert (refusal is None) == (cols % 4 == 0 and cols <= 8192), cols
        elif kernel.name == "two_dispatch":
            assert (refusal is None) == (cols % 4 == 0), cols
        elif held or not in_registers:
            assert refusal is None, cols


@pytest.mark.parametrize("traits", [GPU, SOFTWARE, BROWSER, NO_SUBGROUPS])
def test_registers_hold_at_most_64_scalars(traits: Traits) -> None:
    kernel = kernel_named("registers")
    for cols in ALL_COLS:
        problem = NormProblem(rows=3, cols=cols)
        variant = default_variant(kernel, problem, traits)
        text = render_shader(variant, problem, "native", traits).text
        width = 4 if "alias Vec = vec4<f32>;" in text else 1
        held = width * len(re.findall(r"let h\d+ = ", text))
        if variant.refusal(problem, traits) is not None:
            assert cols > 16380  # the vec4 of an odd row cover up to three columns more
            continue
        assert 0 < held <= 64, cols
        assert held * variant.constants["threads_per_row"] >= cols


def test_the_ladder() -> None:
    lessons = ["naive", "one_pass", "two_pass", "welford", "welford_subgroup", "row_in_registers"]
    ladder = [*lessons, "registers", "workgroup_cache", "streaming", "split_row"]
    assert [kernel.name for kernel in NORMS if kernel.name in ladder] == ladder
    assert kernel_named("one_pass").unstable
    assert not any(kernel_named(name).unstable for name in ladder if name != "one_pass")


@pytest.mark.parametrize(("op", "sweeps"), [("layer_norm", 3), ("rms_norm", 2)])
def test_naive_spells_out_each_of_its_loops(op: str, sweeps: int) -> None:
    text = kernel_named("naive", op).path.read_text()
    loops = text.split("for (var j = 0u; j < STEPS; j++) {\n")[1:]
    assert len(loops) == sweeps and "write_row" not in text
    # The last loop writes y.
    assert "store_y(row, row_exists, j, thread, " in loops[-1].split("\n    }\n")[0]


@pytest.mark.parametrize("kernel", STABLE, ids=lambda kernel: kernel.label)
def test_loops_that_llvmpipe_would_cut_short_are_refused(kernel: Kernel) -> None:
    capped = kernel.op.defaults.changed(["max_workgroups=1"])
    # Kernels that take no slices, one_dispatch and two_dispatch, refuse more elements.
    rows, cols = (10**6, 768) if kernel.takes_slices else (16384, 256)
    problem = NormProblem(rows=rows, cols=cols, options=capped)
    assert "65535" in (default_variant(kernel, problem, SOFTWARE).refusal(problem, SOFTWARE) or "")
    assert default_variant(kernel, problem, GPU).refusal(problem, GPU) is None
    free = kernel.op.problem(rows, cols)
    refusal = default_variant(kernel, free, SOFTWARE).refusal(free, SOFTWARE)
    # naive adds a quarter of all rows in one loop.
    assert (refusal is None) == (kernel.label not in ("layer_norm_backward/naive", "rms_norm_backward/naive"))


def test_the_first_test_that_holds_decides_a_default(tmp_path: Path) -> None:
    chosen = 'width = [["cols < 9", [["software", 1], 2]], ["cols < 99", "1 if rows > 5 else 2"], 4]'
    kernel = load(write(tmp_path, HEADER.replace("[derive]", f"[default]\n// {chosen}\n// [derive]")))

    def width(rows: int, cols: int, traits: Traits = GPU) -> int:
        return default_variant(kernel, NormProblem(rows=rows, cols=cols), traits).constants["width"]

    assert (width(1, 8), width(1, 8, SOFTWARE)) == (2, 1)
    assert (width(6, 98), width(5, 98), width(6, 99)) == (1, 2, 4)


def test_webnorms_own_defaults_are_easy_to_read() -> None:
    """Each expression has at most one condition. Several conditions belong in a list of tests."""

    def texts(value: object) -> Iterator[str]:
        for part in value if isinstance(value, list) else ():
            yield from texts(part)
        if isinstance(value, str):
            yield value

    headers = {kernel.path: split_header(kernel.path.read_text(), kernel.path)[1] for kernel in KERNELS}
    headers |= {path: path.read_text() for path in (wgsl_root() / "layouts").iterdir()}
    for path, toml in headers.items():
        for axis, value in tomllib.loads(toml).get("default", {}).items():
            for text in texts(value):
                assert text.count(" if ") <= 1 and len(text) <= 80, (path.name, axis, text)


# --- layouts, and kernels that serve several ops

LAID_OUT = """// /// webnorm
// summary = "A test."
// differs = "Nothing."
// layout = "row_per_workgroup"
// [accuracy]
// serial_terms = "steps"
// ///
"""


def test_a_layout_supplies_what_the_header_does_not_say(tmp_path: Path) -> None:
    kernel = load(write(tmp_path, LAID_OUT))
    assert kernel.tune["threads_per_row"] == (8, 16, 32, 64, 128, 256, 512, 1024)
    names = default_variant(kernel, NormProblem(rows=5, cols=4096), GPU).names(
        NormProblem(rows=5, cols=4096), GPU
    )
    assert names["workgroup_size"] == 256 and names["steps"] == 16
    assert [each.entry_point for each in kernel.passes] == ["main"]


def test_a_header_goes_before_its_layout(tmp_path: Path) -> None:
    """An axis replaces a derived constant, a derived constant replaces an axis, and passes replace passes."""
    own = """// [derive]
// threads_per_row = 64
// [tune]
// vector_width = [4, 1]
// [[require]]
// rule = "steps < 100"
// why = "too long"
// [[pass]]
// entry_point = "main"
// workgroup_size = 32
// workgroup_count = "rows"
// [[pass]]
// entry_point = "second"
// workgroup_size = 1
// workgroup_count = 1
// [accuracy]"""
    kernel = load(write(tmp_path, LAID_OUT.replace("// [accuracy]", own)))
    assert kernel.tune == {"vector_width": (4, 1)} and "vector_width" not in kernel.derive
    assert kernel.derive["threads_per_row"] == 64
    assert [(each.entry_point, each.workgroup_size) for each in kernel.passes] == [
        ("main", 32),
        ("second", 1),
    ]
    assert kernel.require[-1].why == "too long" and len(kernel.require) > 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            'layout = "row_per_workgruop"',
            "unknown layout 'row_per_workgruop'; did you mean 'row_per_workgroup'?",
        ),
        ("layout = 3", "layout is 3; expected one of "),
        ("ops = []", "ops is []; expected a list of ops"),
        ('ops = ["layer_nrom"]', "unknown op 'layer_nrom'; did you mean 'layer_norm'?"),
    ],
)
def test_a_layout_or_an_op_that_there_is_not(tmp_path: Path, line: str, message: str) -> None:
    text = LAID_OUT.replace('// layout = "row_per_workgroup"', f"// {line}")
    path = write(tmp_path, text)
    with pytest.raises(WebnormError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:4: {message}")


def test_a_kernel_for_two_ops_stands_once(tmp_path: Path) -> None:
    path = write(
        tmp_path, LAID_OUT.replace("// layout", '// ops = ["layer_norm", "rms_norm"]\n// layout'), "both"
    )
    kernels, broken = survey([tmp_path])
    assert not broken
    assert [one.label for one in kernels if one.path == path] == ["layer_norm/both", "rms_norm/both"]
    assert load(path).op.name == "layer_norm" and load(path, "rms_norm").op.name == "rms_norm"
    found = select_for(kernels, ["both"], ["layer_norm", "rms_norm"])
    assert [one.label for one in found] == ["layer_norm/both", "rms_norm/both"]
    # If the user has a kernel for one of the ops, it replaces only that op's.
    (tmp_path / "own" / "rms_norm").mkdir(parents=True)
    (tmp_path / "own" / "rms_norm" / "both.wgsl").write_text(LAID_OUT)
    kernels = survey([tmp_path, tmp_path / "own"])[0]
    assert {one.label: one.path == path for one in kernels if one.name == "both"} == {
        "layer_norm/both": True,
        "rms_norm/both": False,
    }


@pytest.mark.parametrize(
    ("added", "complaint"),
    [
        ("[derive]\n// vector_witdh = 4", "nothing reads 'vector_witdh', .*; did you mean 'vector_width'?"),
        ("[derive]\n// stepss = 'cols'", "nothing reads 'stepss', .*; did you mean 'steps'?"),
        ("[derive]\n// Vector_Width = 4", "nothing reads 'Vector_Width', .*; did you mean 'vector_width'?"),
        ("[derive]\n// of_itself = 4\n// by_one = 'of_itself'", "nothing reads 'by_one'"),
        ("[tune]\n// scalers = [1, 2]", "nothing reads 'scalers', .*; did you mean 'scalars'?"),
        ("[tune]\n// unread = [1, 2]\n// [default]\n// unread = 2", "nothing reads 'unread'"),
        ("[[scratch]]\n// name = 'sumss'\n// words = 2", "nothing reads the scratch buffer 'sumss'"),
        ("[default]\n// nothing = 1", "unknown default key 'nothing'"),
        ("[features]\n// subgroup = 1", "unknown feature 'subgroup'; did you mean .* or 'subgroups'?"),
        (
            "[[require]]\n// rule = 'colls > 1'\n// why = 'x'",
            "unknown name 'colls' in .*; did you mean 'cols'?",
        ),
        (
            "[[require]]\n// rules = 'cols > 1'\n// why = 'x'",
            "unknown require key 'rules'; did you mean 'rule'?",
        ),
        ("serial_term = 'steps'", "unknown accuracy key 'serial_term'; did you mean 'serial_terms'?"),
        ("[derives]\n// vector_width = 4", "unknown header key 'derives'; did you mean 'derive'?"),
    ],
)
def test_a_name_that_is_not_known_or_not_read_is_an_error(tmp_path: Path, added: str, complaint: str) -> None:
    path = tmp_path / "layer_norm" / "mine.wgsl"
    path.parent.mkdir()
    text = (wgsl_root() / "layer_norm" / "naive.wgsl").read_text()
    path.write_text(text.replace("// ///\n", f"// {added}\n// ///\n", 1))
    with pytest.raises(WebnormError, match=rf"mine\.wgsl:\d+: {complaint}") as caught:
        load(path)
    assert caught.value.place is not None and caught.value.place.line > 1


@pytest.mark.parametrize(
    ("body", "snippet"),
    [
        ("{{ mine }}", ""),
        ("{% include 'lib/part.wgsl' %}", "{% if mine is defined %}{% endif %}"),
        ("{% from 'lib/part.wgsl' import a with context %}", "{% include 'lib/more.wgsl' %}"),
        ("{% include 'lib/elsewhere.wgsl' %}", ""),
        ("{% include ['lib/part.wgsl'] %}", ""),
    ],
)
def test_a_name_may_be_read_by_any_text_of_the_kernel(tmp_path: Path, body: str, snippet: str) -> None:
    """The text may be in another folder, which the header does not know."""
    path = tmp_path / "layer_norm" / "mine.wgsl"
    for folder in (path.parent, tmp_path / "lib"):
        folder.mkdir()
    (tmp_path / "lib" / "part.wgsl").write_text(snippet)
    (tmp_path / "lib" / "more.wgsl").write_text("{{ mine }}")
    text = (wgsl_root() / "layer_norm" / "naive.wgsl").read_text()
    path.write_text(text.replace("// ///\n", "// [derive]\n// mine = 4\n// ///\n", 1) + body)
    assert "mine" in load(path).derive


def test_webnorms_own_kernels_define_nothing_that_nothing_reads(tmp_path: Path) -> None:
    copy = shutil.copytree(wgsl_root(), tmp_path / "wgsl")
    kernels, broken = survey([copy])
    assert [one.reason for one in broken] == []
    assert sum(kernel.path.is_relative_to(copy) for kernel in kernels) == len(discover())
