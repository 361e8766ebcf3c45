"""Exports on a second engine: Dawn in node, on Chromium's SwiftShader.

The drivers in web/ run there, each many cases in one process; web/engine.mjs has their helpers.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packages import bundle_with_immediates

import dawn
from immediates import ROWS, SUMS
from patience import HANG_S
from testbed import KERNELS, STABLE, assess_outputs, compute, kernel_named, option_problems, rows_of, widened
from webnorm.engines import node_webgpu
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.variants import SOFTWARE_ITERATIONS
from webnorm.kernels.rendering.render import Shader
from webnorm.lab.verify.accuracy import tolerance
from webnorm.op import expression
from webnorm.op.dtypes import DTYPES, STORAGE, Array
from webnorm.op.op import Expected, Op, Task, ToleranceFactors, make_inputs
from webnorm.op.registry import OPS
from webnorm.ops.norms.case import OPTION_CASES
from webnorm.ops.norms.case import NormCase as Case
from webnorm.ops.norms.corpus import CASES
from webnorm.ops.norms.op import OPS as NORM_OPS
from webnorm.ops.norms.op import has_mean
from webnorm.ops.norms.problem import NormOptions, NormProblem
from webnorm.web.folder import write_folder
from webnorm.web.package import native
from webnorm.web.package.bundle import Bundle, bundle_of
from webnorm.web.package.native import native_text
from webnorm.web.package.npm import package_files
from webnorm.web.package.request import ExportRequest, request_for
from webnorm.web.pages import page_files

DRIVERS = Path(__file__).parent
NO_SETTINGS = dict.fromkeys(("--dtype", "--eps", "--scale", "--name", "--minify"))
NORMS = NORM_OPS


pytestmark = pytest.mark.skipif(dawn.missing() is not None, reason=dawn.missing() or "")


class Engine:
    """A folder with the modules of an export, in which drivers run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_folder(page_files("verify"), folder)
        (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
        (folder / "kept").mkdir()

    def put(self, name: str, data: object) -> None:
        (self.folder / name).write_text(json.dumps(data), encoding="utf-8")

    def drive(self, driver: str) -> Any:
        """Run a driver and return its results; an unhandled error or rejection is a failure."""
        run = subprocess.run(
            ["node", str(DRIVERS / driver), str(node_webgpu.webgpu()), str(self.folder)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=HANG_S,
            check=False,
            env={**os.environ, **dawn.ENVIRONMENT},
        )
        assert run.returncode == 0, run.stderr[-2000:]
        result = json.loads((self.folder / "found.json").read_text(encoding="utf-8"))
        assert result["faults"] == []
        return result["found"]


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path)


Inputs = Mapping[str, Array]


@dataclass(frozen=True)
class Run:
    """Shaders of a bundle, all by default, on some inputs; `eps` overrides the bundle's value."""

    bundle: Bundle
    inputs: Sequence[tuple[NormProblem, Inputs]]
    shaders: Sequence[str] = ()
    eps: float | None = None


def bundle_for(op: Op, problem: NormProblem, kernel: Kernel | None = None) -> Bundle:
    return bundle_of(
        ExportRequest(
            op=op,
            cols=(problem.cols,),
            kernels=tuple(one for one in KERNELS if one.op == op),
            kernel=kernel,
            dtype=problem.dtype,
            scalars=problem.scalars,
            options=problem.options,
            # A kernel may need subgroups.
            partial=True,
        )
    )


def drawn(op: Op, problem: NormProblem, rows: Sequence[int]) -> list[tuple[NormProblem, Inputs]]:
    """Draw inputs for several numbers of rows. Values with few digits would give ties in int8."""
    kind = "normal" if problem.out_dtype == "int8" else "triton"
    given = [replace(problem, rows=count, distribution=kind, seed=count) for count in rows]
    return [(one, make_inputs(op, one)) for one in given]


def json_of(bundle: Bundle) -> dict[str, Any]:
    return {"manifest": bundle.manifest(), "texts": bundle.texts}


def write_inputs(engine: Engine, name: str, problem: NormProblem, arrays: Inputs) -> None:
    (engine.folder / name).write_bytes(native.TestVector("", "", problem, arrays, {}).encoded())


def write_runs(engine: Engine, runs: Sequence[Run], keep: bool = False) -> None:
    described = []
    for at, run in enumerate(runs):
        engine.put(f"bundle-{at}.json", json_of(run.bundle))
        inputs = []
        for number, (problem, arrays) in enumerate(run.inputs):
            name = f"{at}-{number}.safetensors"
            write_inputs(engine, name, problem, arrays)
            inputs.append({"file": name, "rows": problem.rows})
        place = {"bundle": f"bundle-{at}.json", "vectors": inputs, "keep": keep}
        shaders = run.shaders or list(run.bundle.texts)
        described.append({**place, "shaders": shaders, **({} if run.eps is None else {"eps": run.eps})})
    engine.put("runs.json", described)


def assert_right(engine: Engine, runs: Sequence[Run], keep: bool = False) -> list[dict[str, Any]]:
    """Assert that every shader is right on all inputs, unless SwiftShader has too few invocations for it."""
    write_runs(engine, runs, keep)
    found: list[dict[str, Any]] = engine.drive("outputs.mjs")
    wrong = []
    for one in found:
        run = runs[one["run"]]
        what = f"{run.bundle.task.problem} {one['shader']}"
        if "skipped" in one:
            assert "maxComputeInvocationsPerWorkgroup" in one["skipped"], f"{what}: {one['skipped']}"
        elif not one["ok"] or one["encoded"]:
            rows = run.inputs[one["vector"]][0].rows
            wrong.append(f"{what}, {rows} rows: {one['reason'] or one['encoded']}")
    assert not wrong, f"{len(wrong)} of {len(found)}:\n" + "\n".join(wrong[:20])
    done = {(one["run"], one["vector"]) for one in found if "vector" in one}
    assert done == {(at, number) for at, run in enumerate(runs) for number in range(len(run.inputs))}
    return found


by_op_and_dtype = pytest.mark.parametrize(
    ("op", "dtype"), list(itertools.product(NORMS, STORAGE)), ids=lambda value: getattr(value, "name", value)
)


def exported(op: Op, problem: NormProblem) -> Bundle | None:
    """Return None if the options need more buffers than the default limit."""
    try:
        return bundle_for(op, problem)
    except WebnormError as error:
        assert "leave options out" in str(error)
        return None


# Options without a case in the corpus.
MORE_OPTIONS = (
    NormOptions(weight=False),
    NormOptions(bias=False),
    NormOptions(weight=False, bias=False),
    *(NormOptions(out_dtype=dtype) for dtype in STORAGE),
    NormOptions(weight=False, bias=False, return_stats=True, residual=True, out_dtype="float8_e5m2"),
    NormOptions(weight=False, bias=False, dh=True, residual_bias=True),
    NormOptions(weight_dtype="bfloat16", max_workgroups=1),
)


def norms_turn(op: Op, dtype: str, at: int) -> bool:
    """Return True if this op takes an item. A norm and its gradient share the items of a list."""
    return (at + STORAGE.index(dtype) + has_mean(op)) % 2 == 0


def asked_options(op: Op, dtype: str) -> Iterator[tuple[NormProblem, list[tuple[NormProblem, Inputs]]]]:
    """Yield the corpus's problems with options, with their inputs, and more problems without inputs.

    Each set of options meets the type in one of the two norms, or in one of their gradients.
    """
    own = [(case, problem) for case, problem in option_problems(op) if problem.dtype == dtype]
    for at, (case, problem) in enumerate(own):
        if norms_turn(op, dtype, at):
            yield problem, [(problem, case.draw(Task(op, problem)))]
    for at, options in enumerate(MORE_OPTIONS):
        if not norms_turn(op, dtype, at):
            continue
        cols = (61, 70, 64)[(at + STORAGE.index(dtype)) % 3]
        problem = NormProblem(rows=1, cols=cols, dtype=dtype, options=options)
        try:
            op.check(problem)
        except WebnormError:
            continue
        yield problem, []


# The classes of adapters whose shaders take turns, so that each class meets all options, columns and types.
# A gradient's shader takes up to a second to compile, four times as long as a norm's.
TURNS: Mapping[bool, tuple[tuple[str, ...], ...]] = {
    False: (("software", "portable"), ("subgroups",)),
    True: (("portable",), ("software",), ("subgroups",)),
}


def taking_turns(bundle: Bundle, turn: int) -> list[str]:
    """Return the shaders of some classes, or the fallback if a bundle has none for a class."""
    turns = TURNS[bundle.task.op.gradient]
    classes = turns[turn % len(turns)]
    own = [one.name for one in bundle.shaders if one.adapter_class in classes]
    return own or [bundle.shaders[-1].name]


@pytest.mark.sampled(6)
@by_op_and_dtype
def test_every_option(engine: Engine, op: Op, dtype: str) -> None:
    asked = list(asked_options(op, dtype))
    runs = []
    for turn, (problem, given) in enumerate(asked, NORMS.index(op) + STORAGE.index(dtype)):
        bundle = exported(op, problem)
        if bundle is not None:
            inputs = [*drawn(op, problem, (0, 1, 2, 37)), *given]
            runs.append(Run(bundle, inputs, taking_turns(bundle, turn)))
    assert len(asked) - len(runs) <= 2
    assert len(runs) > (3 if op.gradient else 10)
    assert_right(engine, runs)


# These rows share words, begin off multiples of vec4, have remaining columns, or need several loads.
COLS = (1, 3, 61, 64, 70, 199, 257, 768, 1023, 4096)


@pytest.mark.slow
@pytest.mark.parametrize("op", NORMS, ids=lambda op: op.name)
def test_numbers_of_columns(engine: Engine, op: Op) -> None:
    runs = []
    options = replace(op.defaults, saved_stats=False)
    for at, cols in enumerate(COLS):
        # A type changes the start of rows, which matters for short rows. Gradients get their types with
        # options.
        every = cols < 300 and not op.gradient
        dtypes = [dtype for dtype in STORAGE if norms_turn(op, dtype, at)] if every else [STORAGE[at % 3]]
        for turn, dtype in enumerate(dtypes, NORMS.index(op) + at):
            bundle = bundle_for(op, NormProblem(rows=1, cols=cols, dtype=dtype, options=options))
            rows = (1, 6, 37) if cols < 300 else (5,)
            runs.append(Run(bundle, drawn(op, bundle.task.problem, rows), taking_turns(bundle, turn)))
    assert_right(engine, runs)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("op", NORMS, ids=lambda op: op.name)
def test_every_kernel(engine: Engine, op: Op) -> None:
    runs = []
    kernels = [kernel for kernel in STABLE if kernel.op == op and kernel.takes_slices]
    assert len(kernels) > 1
    names = sorted({kernel.name for kernel in KERNELS})
    for kernel, dtype in itertools.product(kernels, STORAGE):
        turn = names.index(kernel.name) + STORAGE.index(dtype)
        if not norms_turn(op, dtype, names.index(kernel.name)):
            continue
        problem = NormProblem(rows=1, cols=(61, 70, 256)[turn % 3], dtype=dtype)
        bundle = bundle_for(op, replace(problem, options=replace(op.defaults, saved_stats=False)), kernel)
        runs.append(Run(bundle, drawn(op, bundle.task.problem, (0, 1, 37)), taking_turns(bundle, turn)))
    assert_right(engine, runs)


def corpus_runs(op: Op, dtype: str, cases: Sequence[Case]) -> list[Run]:
    """Run each case with the chosen shader and the fallback, or with one of them for a gradient."""
    given: dict[tuple[int, NormOptions], list[tuple[NormProblem, Inputs]]] = {}
    for case, problem in widened(cases, op, dtype):
        given.setdefault((problem.cols, problem.options), []).append((problem, rows_of([case], op, problem)))
    runs = []
    for at, inputs in enumerate(given.values()):
        bundle = bundle_for(op, inputs[0][0])
        shaders = [bundle.shaders[0].name, bundle.shaders[-1].name]
        if op.gradient:
            shaders = shaders[at % 2 :][:1]
        # An eps that differs from the bundle's is an option of the norm.
        inputs.sort(key=lambda one: one[0].eps)
        for eps, group in itertools.groupby(inputs, lambda one: one[0].eps):
            runs.append(Run(bundle, list(group), shaders, eps))
    return runs


# Another test covers the numbers of columns.
HARD_CASES = tuple(
    case
    for case in CASES
    if case not in OPTION_CASES and (not case.name.startswith("cols-") or case.name == "cols-65537")
)
CORPUS = (("layer_norm", "float32"), ("layer_norm_backward", "float32"), ("rms_norm", "float16"))


@pytest.mark.slow
@pytest.mark.parametrize(("op", "dtype"), CORPUS)
def test_the_corpus(engine: Engine, op: str, dtype: str) -> None:
    runs = corpus_runs(OPS[op], dtype, HARD_CASES)
    assert sum(len(run.inputs) for run in runs) > 20
    assert_right(engine, runs)


def kept(engine: Engine, at: int, shader: str, number: int, problem: NormProblem, op: Op) -> dict[str, Array]:
    """Read the outputs that a driver stored."""
    outputs = {}
    for tensor in op.outputs(problem):
        raw = (engine.folder / f"kept/{at}.{shader}.{number}.{tensor.name}").read_bytes()
        dtype = DTYPES[tensor.dtype(problem)]
        outputs[tensor.name] = np.frombuffer(raw, dtype).reshape(tensor.shape_in(problem))
    return outputs


SAMPLE = (
    (
        "layer_norm",
        NormProblem(rows=1, cols=61, dtype="float16", options=NormOptions(residual=True, return_stats=True)),
    ),
    ("layer_norm", NormProblem(rows=1, cols=70, options=NormOptions(out_dtype="float8_e4m3fn"), scale=64.0)),
    ("rms_norm", NormProblem(rows=1, cols=768, dtype="bfloat16", options=NormOptions(bias=False))),
    ("rms_norm", NormProblem(rows=1, cols=199, options=NormOptions(out_dtype="int8"))),
    ("layer_norm_backward", NormProblem(rows=1, cols=61, dtype="float16", options=NormOptions(dh=True))),
    ("rms_norm_backward", NormProblem(rows=1, cols=257, options=NormOptions(bias=False, saved_stats=True))),
)


def assert_alike(one: Array, other: Array, answer: Expected, allowed: ToleranceFactors) -> None:
    """Assert that outputs differ by at most twice the tolerance; in narrow types most are equal."""
    if one.dtype != np.float32:
        assert (one != other).sum() <= 8 + 0.01 * one.size
        return
    if one.shape != answer.value.shape:
        # The mean is stored in two words.
        one, other = (np.stack([each[:, 0] + each[:, 1], each[:, 2]], axis=1) for each in (one, other))
    limit = allowed.base * answer.error_scale + allowed.slope * answer.mean_error_scale
    if answer.abs_sum is not None:
        limit = limit + allowed.adding * answer.abs_sum
    assert (np.abs(one.astype(np.float64) - other) <= 2 * limit + 1e-37).all()


@pytest.mark.slow
def test_both_engines_agree(engine: Engine, device: Device) -> None:
    """Compare exported texts on wgpu's adapter and on Dawn's. Both must be right, and close to each other.

    The test leaves out texts that need features that wgpu's adapter lacks.
    """
    runs = []
    for name, problem in SAMPLE:
        bundle = bundle_for(OPS[name], problem)
        runs.append(Run(bundle, drawn(OPS[name], problem, (37,))))
    assert_right(engine, runs, keep=True)
    compared = 0
    for at, run in enumerate(runs):
        ((problem, arrays),) = run.inputs
        op = run.bundle.task.op
        for one in run.bundle.shaders:
            if "1024" in one.name or not one.shader.features <= device.traits.features:
                continue
            shader = replace(native_text(one.shader), problem=problem)
            dawn = {name: (array, True) for name, array in kept(engine, at, one.name, 0, problem, op).items()}
            assert assess_outputs(shader, arrays, dawn).ok, f"{problem} {one.name}"
            native = compute(device, shader, arrays)
            assert assess_outputs(shader, arrays, native).ok
            h = {"h": native["h"][0]} if "h" in native else {}
            answers = op.reference({**arrays, **h}, problem)
            for tensor in op.outputs(problem):
                name = tensor.name
                assert_alike(dawn[name][0], native[name][0], answers[name], tolerance(shader))
            compared += 1
    assert compared >= (3 if "subgroups" in device.traits.features else 2) * len(SAMPLE)


def test_a_nan_does_not_reach_its_neighbour(engine: Engine) -> None:
    """WGSL does not define pack2x16float if one of two numbers is not a finite float16."""
    op, problem = (
        OPS["layer_norm"],
        NormProblem(rows=1, cols=64, dtype="float16", options=NormOptions(residual=True)),
    )
    given = [(one.problem, one.arrays) for one in native.draw_vectors(Task(op, problem))]
    assert_right(engine, [Run(bundle_for(op, problem), given)])


# --- slices ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sliced:
    """A problem on a device with reduced limits: bytes of a binding, workgroups per dimension."""

    op: str
    problem: NormProblem
    bound_bytes: int = 1 << 27
    workgroups: int = 65535
    least: int = 2
    kernel: str | None = None


SCATTERED = NormOptions(residual=True, residual_bias=True, return_stats=True)
GRADIENT = NormOptions(dh=True, residual_bias=True, saved_stats=True)
SLICED = (
    Sliced(
        "layer_norm",
        NormProblem(rows=200, cols=61, dtype="float16", options=SCATTERED),
        bound_bytes=4096,
        least=7,
    ),
    Sliced("layer_norm", NormProblem(rows=301, cols=1, dtype="bfloat16"), bound_bytes=512, least=2),
    Sliced("layer_norm", NormProblem(rows=101, cols=3, options=SCATTERED), bound_bytes=768, least=2),
    Sliced(
        "layer_norm",
        NormProblem(rows=83, cols=70, options=NormOptions(out_dtype="int8")),
        bound_bytes=2048,
        least=14,
    ),
    Sliced(
        "layer_norm",
        NormProblem(rows=200, cols=61, options=NormOptions(out_dtype="float8_e5m2")),
        workgroups=2,
    ),
    Sliced(
        "rms_norm",
        NormProblem(rows=90, cols=199, dtype="bfloat16", options=SCATTERED),
        bound_bytes=3000,
        least=9,
    ),
    Sliced(
        "rms_norm",
        NormProblem(rows=77, cols=64, options=NormOptions(out_dtype="float8_e4m3fn")),
        workgroups=1,
    ),
    Sliced(
        "rms_norm",
        NormProblem(rows=57, cols=257, options=NormOptions(max_workgroups=2)),
        bound_bytes=5000,
        least=10,
    ),
    Sliced("layer_norm", NormProblem(rows=93, cols=61, dtype="float16"), workgroups=1, kernel="naive"),
    Sliced("layer_norm_backward", NormProblem(rows=200, cols=61, dtype="float16"), 8192, 3),
    # The first slice has fewer workgroups than the last slice.
    Sliced("layer_norm_backward", NormProblem(rows=601, cols=3, options=GRADIENT), 1024, 16),
    Sliced("layer_norm_backward", NormProblem(rows=150, cols=3, options=GRADIENT), 1024, 3),
    Sliced(
        "layer_norm_backward", NormProblem(rows=60, cols=199, dtype="bfloat16", options=GRADIENT), 10240, 5
    ),
    Sliced("rms_norm_backward", NormProblem(rows=120, cols=64, options=NormOptions(bias=False)), 8192, 3),
    Sliced("layer_norm_backward", NormProblem(rows=120, cols=61, dtype="float16"), 8192, 16, kernel="naive"),
    Sliced("rms_norm_backward", NormProblem(rows=1200, cols=70, options=GRADIENT), 9000, 23, kernel="tiles"),
)


def limits_for(one: Sliced, shader: Shader) -> dict[str, int]:
    """Sums per workgroup must fit a binding; if they do not, workgroups split the rows."""
    sums = [b for b in shader.bindings if b.records is not None and not b.batched]
    fits = all(shader.records(b, one.problem.rows) * b.inner_bytes <= one.bound_bytes for b in sums)
    return {
        "maxStorageBufferBindingSize": one.bound_bytes if fits else 1 << 27,
        "maxComputeWorkgroupsPerDimension": one.workgroups,
    }


@pytest.mark.slow
def test_slices(engine: Engine) -> None:
    """A norm that is cut to fit a device gives the same bits, and a cut gradient is right.

    The sums of a gradient are finished once. The classes of adapters take turns.
    """
    asked: list[dict[str, Any]] = []
    cases, begun = [], []
    carriers: dict[bool, set[str]] = {False: set(), True: set()}
    for at, one in enumerate(SLICED):
        op = OPS[one.op]
        kernel = None if one.kernel is None else kernel_named(one.kernel, one.op)
        bundle = bundle_for(op, one.problem, kernel)
        engine.put(f"sliced-{at}.json", json_of(bundle))
        write_inputs(engine, f"{at}.safetensors", *drawn(op, one.problem, (one.problem.rows,))[0])
        own = taking_turns(bundle, at)
        for shader_entry in (shader_entry for shader_entry in bundle.shaders if shader_entry.name in own):
            carriers[op.gradient].add(shader_entry.adapter_class)
            limits = limits_for(one, shader_entry.shader)
            place: dict[str, Any] = {"bundle": f"sliced-{at}.json", "file": f"{at}.safetensors"}
            asked.append({**place, "shader": shader_entry.name, "rows": one.problem.rows, "limits": limits})
            cases.append((one, shader_entry))
    engine.put("slices.json", asked)
    for (one, shader_entry), found in zip(cases, engine.drive("slices.mjs"), strict=True):
        what = f"{one} {shader_entry.name}: {found}"
        assert found["whole"] is None and found["split"] is None and found["encoded"] is None, what
        assert found["over"] == [], what
        assert found["equal"] or OPS[one.op].gradient, what
        for each in shader_entry.shader.passes:
            count = found["dispatches"][each.entry_point]
            assert count == 1 if each.per == "call" else count >= one.least, what
            begun.append((each.entry_point, each.per))
    assert {("open_amax", "call"), ("finish", "call"), ("main", "slice")} <= set(begun)
    assert all({"software", "portable", "subgroups"} <= classes for classes in carriers.values())


@pytest.mark.parametrize(("op", "problem"), [("layer_norm", ROWS), ("layer_norm_backward", SUMS)])
def test_parameters_as_immediates(engine: Engine, op: str, problem: NormProblem) -> None:
    """They give the bits of a uniform, and each slice has its own."""
    kernel = kernel_named("naive", op)
    bundle = bundle_with_immediates(kernel, problem)
    given = drawn(kernel.op, problem, (problem.rows, 5))
    assert_right(engine, [Run(bundle, given)], keep=True)
    immediate, uniform = (one.name for one in bundle.shaders)
    for number, (one, _) in enumerate(given):
        expected = kept(engine, 0, uniform, number, one, kernel.op)
        for name, array in kept(engine, 0, immediate, number, one, kernel.op).items():
            assert array.tobytes() == expected[name].tobytes(), name
    limits = {"maxStorageBufferBindingSize": 8192, "maxComputeWorkgroupsPerDimension": 16}
    case = {"bundle": "bundle-0.json", "file": "0-0.safetensors", "rows": problem.rows, "limits": limits}
    engine.put("slices.json", [{**case, "shader": name} for name in (immediate, uniform)])
    for found in engine.drive("slices.mjs"):
        assert (found["whole"], found["split"], found["encoded"], found["over"]) == (None, None, None, [])
        assert found["equal"] or kernel.op.gradient
        assert max(found["dispatches"].values()) > 1


def test_loops_that_mesa_would_end(engine: Engine) -> None:
    """On a software adapter, slices are so small that a workgroup finishes one in 65535 iterations."""
    problem = NormProblem(rows=450_000, cols=1, options=NormOptions(max_workgroups=1))
    op = OPS["layer_norm"]
    bundle = bundle_for(op, problem)
    engine.put("bundle.json", json_of(bundle))
    write_inputs(engine, "x.safetensors", *drawn(op, problem, (problem.rows,))[0])
    limits = {"maxComputeWorkgroupsPerDimension": 65535}
    shader = bundle.shaders[0].shader
    place: dict[str, Any] = {
        "bundle": "bundle.json",
        "shader": bundle.shaders[0].name,
        "file": "x.safetensors",
    }
    case = {**place, "rows": problem.rows, "limits": limits}
    infos = ({"description": "llvmpipe (LLVM 15)"}, {"vendor": "nvidia"})
    engine.put("slices.json", [{**case, "info": info} for info in infos])
    mesa, gpu = engine.drive("slices.mjs")
    iterations = expression.evaluate(shader.passes[0].iterations, {**shader.names, "rows": problem.rows})
    assert iterations > SOFTWARE_ITERATIONS
    assert mesa["dispatches"]["main"] >= iterations / SOFTWARE_ITERATIONS and gpu["dispatches"]["main"] == 1
    for found in (mesa, gpu):
        assert found["equal"] and found["whole"] is None and found["over"] == []


# --- use of a norm ---------------------------------------------------------------------------------


def test_calls(engine: Engine) -> None:
    options = NormOptions(residual=True, out_dtype="float8_e4m3fn")
    forward = NormProblem(rows=1, cols=61, dtype="float16", options=options, scale=4.0)
    engine.put("bundle.json", json_of(bundle_for(OPS["layer_norm"], forward)))
    gradient = NormProblem(rows=1, cols=61, options=NormOptions(dh=True))
    engine.put("gradient.json", json_of(bundle_for(OPS["layer_norm_backward"], gradient)))
    found = engine.drive("calls.mjs")
    assert len(found) > 20
    assert {what: why for what, why in found.items() if why is not None} == {}


def test_errors(engine: Engine) -> None:
    request = request_for("layer_norm", [61, 64], [], "auto", (), {**NO_SETTINGS, "--dtype": "float16"})
    engine.put("bundle.json", json_of(bundle_of(request)))
    gradient = request_for("layer_norm_backward", [61], [], "auto", (), {**NO_SETTINGS, "--dtype": "float16"})
    engine.put("gradient.json", json_of(bundle_of(gradient)))
    found = engine.drive("errors.mjs")
    assert len(found) > 50

    assert unexpected(found) == []


def unexpected(found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the messages that differ from the expected text, or from a pattern in slashes."""

    def matches(expected: str, got: str | None) -> bool:
        if got is None or not expected.startswith("/"):
            return got == expected
        pattern, _, flags = expected[1:].rpartition("/")
        return bool(re.search(pattern.replace("\\/", "/"), got, re.IGNORECASE if flags == "i" else 0))

    return [one for one in found if not matches(one["expected"], one["got"])]


def test_request_device(engine: Engine) -> None:
    request = request_for("layer_norm", [64], [], "auto", (), NO_SETTINGS)
    write_folder(package_files(request), engine.folder / "package")
    found = engine.drive("device.mjs")
    assert len(found["refused"]) == 16 and unexpected(found["refused"]) == []
    assert all("\n" not in one["got"] for one in found["refused"])
    assert found["asked"]["adapter"] == {"powerPreference": "low-power"}
    device = found["asked"]["device"]
    assert sorted(device["requiredFeatures"]) == ["subgroups", "timestamp-query"]
    assert device["requiredLimits"] == {
        "maxBufferSize": 2**31,
        "maxStorageBufferBindingSize": 2**30,
        "maxBindGroups": 3,
    }
    given = found["given"]
    assert given["features"] == ["subgroups", "timestamp-query"]
    assert given["binding"] == given["widest"] and given["right"]


# --- choosing --------------------------------------------------------------------------------------

LIMITS = {
    "maxComputeInvocationsPerWorkgroup": 256,
    "maxComputeWorkgroupSizeX": 256,
    "maxComputeWorkgroupStorageSize": 16384,
    "maxStorageBuffersPerShaderStage": 8,
    "maxBufferSize": 1 << 28,
    "maxStorageBufferBindingSize": 1 << 27,
}
WIDE = {"maxComputeInvocationsPerWorkgroup": 1024, "maxComputeWorkgroupSizeX": 1024}
SUBGROUPS = ["subgroups"]


def a_shader(name: str, invocations: int, features: list[str], software: bool = False) -> dict[str, Any]:
    limits = {"maxComputeInvocationsPerWorkgroup": invocations, "maxComputeWorkgroupSizeX": invocations}
    language = ["subgroup_id"] if features else []
    entry = {"name": name, "cols": 8, "limits": limits, "features": features, "language_features": language}
    return entry | ({"software": True} if software else {})


CARRIED = [
    a_shader("soft-sub", 8, SUBGROUPS, software=True),
    a_shader("soft", 8, [], software=True),
    a_shader("wide-sub", 512, SUBGROUPS),
    a_shader("sub", 256, SUBGROUPS),
    a_shader("wide", 512, []),
    a_shader("plain", 256, []),
    a_shader("other", 1, []) | {"cols": 9},
]
NEEDS_SUBGROUPS = "needs the feature subgroups, which the device was created without"
NEEDS_512 = "needs maxComputeInvocationsPerWorkgroup 512; the device has 256"
FOR_SOFTWARE = ("soft-sub is for software adapters", "soft is for software adapters")
SOFT = f"soft-sub {NEEDS_SUBGROUPS}"
CHOICES: tuple[tuple[list[str], dict[str, int], dict[str, Any] | None, str, str, tuple[str, ...]], ...] = (
    (SUBGROUPS, WIDE, {"vendor": "nvidia"}, "wide-sub", " (subgroups)", FOR_SOFTWARE),
    (SUBGROUPS, WIDE, None, "wide-sub", " (subgroups)", FOR_SOFTWARE),
    (SUBGROUPS, {}, {"vendor": "apple"}, "sub", " (subgroups)", (*FOR_SOFTWARE, f"wide-sub {NEEDS_512}")),
    (
        [],
        {},
        {"vendor": "intel"},
        "plain",
        "",
        (*FOR_SOFTWARE, f"wide-sub {NEEDS_SUBGROUPS}", f"sub {NEEDS_SUBGROUPS}", f"wide {NEEDS_512}"),
    ),
    (SUBGROUPS, {}, {"architecture": "swiftshader"}, "soft-sub", " (subgroups, a software adapter)", ()),
    (SUBGROUPS, {}, {"isFallbackAdapter": True}, "soft-sub", " (subgroups, a software adapter)", ()),
    ([], WIDE, {"description": "Microsoft Basic Render Driver"}, "soft", " (a software adapter)", (SOFT,)),
    ([], {}, {"description": "llvmpipe (LLVM 15.0)"}, "soft", " (a software adapter)", (SOFT,)),
)


def test_choices(engine: Engine) -> None:
    engine.put("bundle.json", {"manifest": {"op": "layer_norm", "shaders": CARRIED}})
    asked = [(features, LIMITS | limits, info) for features, limits, info, *_ in CHOICES]
    asked.append(([], LIMITS | {"maxComputeInvocationsPerWorkgroup": 4}, {}))
    choices = [
        {"bundle": "bundle.json", "features": features, "limits": limits, "info": info, "cols": 8}
        for features, limits, info in asked
    ]
    # This browser has an older WGSL than its features.
    choices.insert(-1, {**choices[0], "language": ["packed_4x8_integer_dot_product"]})
    descriptors = [
        {"bundle": "bundle.json", "features": features, "limits": LIMITS | limits}
        for features, limits in ((SUBGROUPS, WIDE), (["shader-f16"], WIDE), (SUBGROUPS, {}))
    ]
    engine.put("asked.json", {"trees": [], "choices": choices, "descriptors": descriptors})
    found = engine.drive("answers.mjs")
    *chosen, old, none = found["choices"]
    for (*_, shader, needs, refused), got in zip(CHOICES, chosen, strict=True):
        assert got["shader"] == shader
        assert got["refused"] == list(refused)
        assert got["reason"] == "; ".join([f"{shader} is the first that fits{needs}", *refused])
    lacks = [f"{name} needs WGSL's subgroup_id, which this browser lacks" for name in ("wide-sub", "sub")]
    assert (old["shader"], old["refused"]) == ("wide", [*FOR_SOFTWARE, *lacks])
    assert none["error"].startswith("layer_norm: no shader for 8 columns fits this device: soft-sub is for ")
    assert none["error"].endswith("; plain needs maxComputeInvocationsPerWorkgroup 256; the device has 4")
    buffers = {name: LIMITS[name] for name in ("maxBufferSize", "maxStorageBufferBindingSize")}
    assert found["descriptors"] == [
        {"requiredFeatures": SUBGROUPS, "requiredLimits": buffers | dict.fromkeys(WIDE, 512)},
        {"requiredFeatures": [], "requiredLimits": buffers | dict.fromkeys(WIDE, 512)},
        {"requiredFeatures": SUBGROUPS, "requiredLimits": buffers},
    ]


OPTIONAL = ["subgroups", "subgroup-size-control", "shader-f16"]
SIZED = ["subgroups", "subgroup-size-control"]
LANGUAGE = ["subgroup_id", "linear_indexing"]
FIRST_TO_LAST = (
    a_shader("sizes", 64, SIZED) | {"subgroup_sizes": [16, 32], "language_features": LANGUAGE},
    a_shader("language", 64, []) | {"language_features": ["linear_indexing"]},
    a_shader("f16", 64, ["shader-f16"]) | {"language_features": []},
    a_shader("plain", 64, []),
)
LISTS_NONE = "language needs WGSL's linear_indexing, which this browser does not list"


@pytest.mark.parametrize(
    "features, sizes, language, shader, last_refusal",
    [
        (OPTIONAL, (4, 128), LANGUAGE, "sizes", None),
        (OPTIONAL, (16, 32), LANGUAGE, "sizes", None),
        (OPTIONAL, (16, 32), None, "f16", LISTS_NONE),
        (OPTIONAL, (32, 32), LANGUAGE, "language", "sizes needs subgroups of 16; the device has 32 to 32"),
        (OPTIONAL, (8, 16), LANGUAGE, "language", "sizes needs subgroups of 32; the device has 8 to 16"),
        (OPTIONAL, (0, 0), LANGUAGE, "language", "sizes needs subgroups of 16; the device has unknown sizes"),
        (OPTIONAL, None, LANGUAGE, "language", "sizes needs subgroups of 16; the device has unknown sizes"),
        (["shader-f16"], None, None, "f16", LISTS_NONE),
        (
            ["shader-f16"],
            None,
            ["packed_4x8_integer_dot_product"],
            "f16",
            "language needs WGSL's linear_indexing, which this browser lacks",
        ),
        ([], None, None, "plain", "f16 needs the feature shader-f16, which the device was created without"),
        (
            SUBGROUPS,
            (4, 128),
            LANGUAGE,
            "language",
            "sizes needs the feature subgroup-size-control, which the device was created without",
        ),
    ],
)
def test_choices_with_optional_features(
    features: list[str],
    sizes: tuple[int, int] | None,
    language: list[str] | None,
    shader: str,
    last_refusal: str | None,
    engine: Engine,
) -> None:
    engine.put("bundle.json", {"manifest": {"op": "layer_norm", "shaders": FIRST_TO_LAST}})
    info = {} if sizes is None else {"subgroupMinSize": sizes[0], "subgroupMaxSize": sizes[1]}
    one = {"bundle": "bundle.json", "features": features, "limits": LIMITS, "info": info, "cols": 8}
    choices = [one | ({} if language is None else {"language": language})]
    engine.put("asked.json", {"trees": [], "choices": choices, "descriptors": [one]})
    found = engine.drive("answers.mjs")
    (chosen,) = found["choices"]
    assert chosen["shader"] == shader
    assert chosen["refused"][-1:] == ([] if last_refusal is None else [last_refusal])
    # A device gets the features that its shaders can use. An adapter does not list language features.
    fits = sizes is not None and sizes[0] <= 16 and sizes[1] >= 32 and "subgroup-size-control" in features
    expected = {*(SIZED if fits else ()), *{"shader-f16"}.intersection(features)}
    assert {*found["descriptors"][0]["requiredFeatures"]} == expected


def random_tree(rng: random.Random, depth: int) -> expression.Tree:
    if depth == 0 or rng.random() < 0.15:
        leaves: list[expression.Tree] = [rng.randint(-3, 9), rng.randint(0, 70_000), "rows", "cols", "zero"]
        return rng.choice(leaves)
    operator = rng.choice(["+", "-", "*", "//", "%", "==", "!=", "<", "<=", ">", ">=", *OTHER_OPERATORS])
    count = {"if": 3, "min": rng.randint(2, 4), "max": rng.randint(2, 4)}.get(operator, 2)
    return [operator, *(random_tree(rng, depth - 1) for _ in range(count))]


OTHER_OPERATORS = ("if", "and", "or", "min", "max", "ceil_div")


def test_expressions_have_pythons_value(engine: Engine) -> None:
    rng = random.Random(3)
    names = {"rows": 4097, "cols": 768, "zero": 0}
    trees: list[tuple[expression.Tree, int]] = []
    while len(trees) < 4000:
        tree = random_tree(rng, rng.randint(1, 4))
        try:
            value = expression.evaluate(tree, names)
        except WebnormError:
            continue
        # JavaScript's numbers have 53 bits; sizes of buffers and grids need fewer.
        if magnitude(tree, names) < 2**53:
            trees.append((tree, value))
    asked = {"trees": [[tree, names] for tree, _ in trees], "choices": [], "descriptors": []}
    engine.put("asked.json", asked)
    found = engine.drive("answers.mjs")["trees"]
    assert found == [value for _, value in trees]


def magnitude(tree: expression.Tree, names: Mapping[str, int]) -> int:
    """Return the largest value in a tree; 0 for a part that divides by zero."""
    try:
        own = abs(expression.evaluate(tree, names))
    except WebnormError:
        own = 0
    return max([own, *(magnitude(part, names) for part in tree[1:])]) if isinstance(tree, list) else own


# --- packages --------------------------------------------------------------------------------------

PACKAGES = (
    (
        "layer_norm",
        (61, 768),
        ("out_dtype=float8_e4m3fn", "residual"),
        {"--dtype": "bfloat16", "--scale": 16.0},
    ),
    ("rms_norm_backward", (70,), ("dh",), {"--minify": True, "--dtype": "float16"}),
)


@pytest.mark.parametrize(("op", "cols", "options", "settings"), PACKAGES, ids=lambda value: str(value)[:20])
def test_packages(
    engine: Engine,
    op: str,
    cols: tuple[int, ...],
    options: tuple[str, ...],
    settings: dict[str, Any],
) -> None:
    """Run index.js of an export on a device with its descriptor, and on one without features."""
    request = request_for(op, cols, options, "auto", (), {**NO_SETTINGS, **settings})
    write_folder(package_files(request), engine.folder / "package")
    found = engine.drive("package.mjs")
    manifest = json.loads((engine.folder / "package/manifest.json").read_text(encoding="utf-8"))
    own = f"create{''.join(word.capitalize() for word in op.split('_'))}"
    assert found["exports"] == sorted(
        [own, "create", "deviceDescriptor", "manifest", "requestDevice", "texts"]
    )
    for count in cols:
        shaders = [shader for shader in manifest["shaders"] if shader["cols"] == count]
        first = next(shader for shader in shaders if not shader["features"])
        assert found["chosen"][str(count)] == {"described": shaders[0]["name"], "bare": first["name"]}
    assert len(found["vectors"]) == 2 * len(manifest["vectors"])
    for one in found["vectors"]:
        assert one["reason"] is None and one["expected"] is None, one
