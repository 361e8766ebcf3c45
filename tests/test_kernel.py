from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from lab import GPU, KERNELS, NORMS, SOFTWARE, STABLE, kernel_named
from webnorm.device import BROWSER, Traits
from webnorm.errors import WebnormError
from webnorm.kernel import (
    Kernel,
    Variant,
    all_variants,
    chosen_variants,
    default_variant,
    discover,
    load,
    runnable_variants,
    select,
    select_for,
)
from webnorm.problem import Problem
from webnorm.render import render_shader

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
body
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
    problem = Problem(rows=5, cols=2)
    assert default_variant(kernel, problem, GPU).constants == {"width": 1}
    assert [v.refusal(problem, GPU) for v in all_variants(kernel)] == [None, None, "wider than the row"]
    assert next(all_variants(kernel)).names(problem, GPU)["double"] == 2


@pytest.mark.parametrize("traits", [GPU, SOFTWARE, BROWSER], ids=["gpu", "software", "browser"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.label)
def test_runnable_variants_are_those_that_nothing_refuses(kernel: Kernel, traits: Traits) -> None:
    axes = {axis: values[-3:] for axis, values in kernel.tune.items()}
    for cols, dtype in ((64, "float32"), (77, "bfloat16"), (8192, "float16")):
        problem = Problem(rows=13, cols=cols, dtype=dtype, options=kernel.op.defaults)
        points = itertools.product(*axes.values())
        every = [Variant(kernel, dict(zip(axes, point, strict=True))) for point in points]
        fitting = [variant for variant in every if variant.refusal(problem, traits) is None]
        assert list(runnable_variants(kernel, problem, traits, axes)) == fitting


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ('summary = "A test."', 'summary = "A test', 2, "header is not TOML"),
        ('differs = "Nothing."', "differs = 3", 3, "expected a sentence"),
        ("[tune]", "[tunes]", 4, "unknown header key 'tunes'; did you mean 'tune'?"),
        ("width = [1, 2, 4]", "width = 4", 5, "expected a list of integers"),
        ("width = [1, 2, 4]", "cols = [4]", 5, "no free identifier"),
        ('double = "width * 2"', 'double = "widht * 2"', 7, "unknown name 'widht'"),
        ('double = "width * 2"', 'double = "width * "', 7, "unexpected 'end of template'"),
        ('why = "wider than the row"', 'wy = "x"', 10, "unknown require key 'wy'"),
        ('rule = "width <= cols"\n', "", 8, "lacks the key 'rule'"),
        ("[[pass]]", "[pass]", 11, "expected [[pass]] tables"),
        ('workgroup_count = "rows"\n', "", 11, "lacks the key 'workgroup_count'"),
        ('differs = "Nothing."', 'differs = "Nothing."\n// rung = "one"', 4, "rung is 'one'"),
        ("[derive]", "[features]\n// subgrups = 1\n// [derive]", 7, "did you mean 'subgroups'?"),
        ("[derive]", "[default]\n// widht = 1\n// [derive]", 7, "unknown default key 'widht'"),
        ("[derive]", "[accuracy]\n// serial_term = 1\n// [derive]", 7, "did you mean 'serial_terms'?"),
        ('summary = "A test."', 'summary = "Of a width."\n// width = 3', 3, "unknown header key 'width'"),
        ('double = "width * 2"', 'width = "cols"', 7, "'width' is no free identifier"),
        ('double = "width * 2"', 'cols = "8"', 7, "'cols' is no free identifier"),
        ("width = [1, 2, 4]", "target = [1]", 5, "'target' is no free identifier"),
        ('why = "wider than the row"', WHY_AND_SECOND + 'rule = "duble"\n// why = "."', 12, "'duble'"),
        ('why = "wider than the row"', WHY_AND_SECOND + 'rule = "double"', 11, "lacks the key 'why'"),
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


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (b"fn main() {}\n", 1, "no header"),
        (HEADER.replace("// ///\nbody", "body").encode(), 1, "no header"),
        (b"\xff\xfe\x00", 1, "not UTF-8"),
        (HEADER.encode().replace(b"A test", b"\xe9"), 2, "not UTF-8"),
        (HEADER.replace("// [tune]", "[tune]").encode(), 4, "a header line starts with '// '"),
        (HEADER[: HEADER.index("// [[pass]]")].encode() + b"// ///\n", 2, "at least one [[pass]]"),
    ],
)
def test_files_that_are_no_kernels(tmp_path: Path, text: bytes, line: int, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(WebnormError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_default_off_its_axis(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER.replace("// [derive]", '// [default]\n// width = "cols"\n// [derive]'))
    kernel = load(path)
    assert default_variant(kernel, Problem(rows=1, cols=2), GPU).constants == {"width": 2}
    with pytest.raises(
        WebnormError, match=r"mine\.wgsl: default width is 3 for 1x3 float32; expected one of"
    ):
        default_variant(kernel, Problem(rows=1, cols=3), GPU)


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
    with pytest.raises(WebnormError, match="holds no kernel"):
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
    # Only the lab takes a copy for a kernel.
    with pytest.raises(WebnormError, match="unknown kernel 'nope'; there is: auto, naive"):
        select(KERNELS, "nope")
    with pytest.raises(WebnormError, match="did you mean 'copy'"):
        select_for(KERNELS, ["cpy"], ["layer_norm"])


def test_chosen_constants() -> None:
    kernel, problem = kernel_named("two_pass"), Problem(rows=8, cols=64)
    chosen = chosen_variants(kernel, problem, GPU, {"threads_per_row": (8, 16), "foreign": (1,)})
    assert [variant.constants["threads_per_row"] for variant in chosen] == [8, 16]
    with pytest.raises(
        WebnormError, match="threads_per_row is 7 for kernel layer_norm/two_pass; expected one of"
    ):
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
        problem = Problem(rows=3, cols=cols, options=kernel.op.defaults)
        refusal = default_variant(kernel, problem, traits).refusal(problem, traits)
        if kernel.name == "welford_subgroup" and not traits.features:
            assert refusal == "needs the feature 'subgroups', which the adapter lacks"
        elif kernel.name == "one_dispatch":
            assert (refusal is None) == (cols % 4 == 0 and cols <= 8192), cols
        elif kernel.name != "registers" or cols <= (8192 if kernel.op.backward else 16384) - 3:
            assert refusal is None, cols


@pytest.mark.parametrize("traits", [GPU, SOFTWARE, BROWSER, NO_SUBGROUPS])
def test_registers_hold_at_most_64_scalars(traits: Traits) -> None:
    kernel = kernel_named("registers")
    for cols in ALL_COLS:
        problem = Problem(rows=3, cols=cols)
        variant = default_variant(kernel, problem, traits)
        text = render_shader(variant, problem, "native", traits).text
        width = 4 if "alias Vec = vec4<f32>;" in text else 1
        held = width * len(re.findall(r"let h\d+ = ", text))
        if variant.refusal(problem, traits) is not None:
            assert cols > 16380  # the vec4 of an odd row span up to three columns more
            continue
        assert 0 < held <= 64, cols
        assert held * variant.constants["threads_per_row"] >= cols


def test_the_ladder() -> None:
    ladder = ["naive", "one_pass", "two_pass", "welford", "welford_subgroup", "registers"]
    assert [kernel.name for kernel in NORMS if kernel.name in ladder] == ladder
    assert kernel_named("one_pass").unstable
    assert not any(kernel_named(name).unstable for name in ladder if name != "one_pass")


@pytest.mark.parametrize("kernel", STABLE, ids=lambda kernel: kernel.label)
def test_loops_that_llvmpipe_would_cut_short_are_refused(kernel: Kernel) -> None:
    capped = kernel.op.defaults.changed(["max_workgroups=1"])
    # one_dispatch takes no more elements.
    rows, cols = (10**6, 768) if kernel.takes_slices else (16384, 256)
    problem = Problem(rows=rows, cols=cols, options=capped)
    assert "65535" in (default_variant(kernel, problem, SOFTWARE).refusal(problem, SOFTWARE) or "")
    assert default_variant(kernel, problem, GPU).refusal(problem, GPU) is None
    free = Problem(rows=rows, cols=cols, options=kernel.op.defaults)
    refusal = default_variant(kernel, free, SOFTWARE).refusal(free, SOFTWARE)
    # naive adds a quarter of all rows in one loop.
    assert (refusal is None) == (kernel.label not in ("layer_norm_backward/naive", "rms_norm_backward/naive"))
