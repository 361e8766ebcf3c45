"""The page's float64 results, verdicts and storage types match Python's."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save

from patience import HANG_S
from testbed import KERNELS, kernel_named
from webnorm.choice.defaults import default_variant
from webnorm.gpu import buffers, schedule, timing
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.traits import BROWSER
from webnorm.kernels.rendering.render import MOST_BUFFERS, Shader, render_shader
from webnorm.lab.results import tables
from webnorm.lab.verify.accuracy import Accuracy, assess, tolerance
from webnorm.lab.verify.deviations import rounded_to
from webnorm.op.corpus import Case, problems
from webnorm.op.dtypes import DTYPES, NARROWING, STORAGE, Array
from webnorm.op.op import Expected, ExpectedOutputs, Float64Array, Op, Task, make_inputs
from webnorm.op.registry import OPS
from webnorm.ops.norms import reference
from webnorm.ops.norms.case import OPTION_CASES
from webnorm.ops.norms.corpus import CASES
from webnorm.ops.norms.op import OPS as NORM_OPS
from webnorm.ops.norms.op import has_mean
from webnorm.ops.norms.problem import NormOptions, NormProblem
from webnorm.web.folder import write_folder
from webnorm.web.package import native
from webnorm.web.package.bundle import Bundle, BundledShader
from webnorm.web.pages import page_files

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None, reason="node is not installed: install Node.js 20 or later"
)
NARROW = tuple(name for name in NARROWING if name not in ("float32", "int8"))
# The error of sums of about 1e5 float64 terms in another order.
CLOSE = 1e-12
# The last digit of float32, in which sizes of large outputs are stored.
CLOSE_SIZES = 2.0**-23


class Page:
    """Calls of functions in the page's modules, in one run of node; web/call.mjs describes the files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_folder(page_files("verify"), folder)
        (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")

    def call(self, *calls: list[Any]) -> list[Any]:
        data = bytearray()

        def sent(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {name: sent(one) for name, one in value.items()}
            if isinstance(value, list | tuple):
                return [sent(one) for one in value]
            dtype = "buffer" if isinstance(value, bytearray) else None
            if isinstance(value, np.ndarray):
                dtype, value = value.dtype.name, value.tobytes()
            if not isinstance(value, bytes | bytearray):
                return value
            place = {"at": len(data), "bytes": len(value), "dtype": dtype}
            data.extend(value)
            return place

        (self.folder / "calls.json").write_text(json.dumps(sent(calls), allow_nan=False), encoding="utf-8")
        (self.folder / "calls.bin").write_bytes(data)
        driver = Path(__file__).parent / "call.mjs"
        run = subprocess.run(
            ["node", str(driver), str(self.folder)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=HANG_S,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        arrays = np.fromfile(self.folder / "results.bin", np.float64)

        def received(value: dict[str, Any]) -> Any:
            if value.keys() != {"at", "count"}:
                return value
            return arrays[value["at"] : value["at"] + value["count"]]

        text = (self.folder / "results.json").read_text(encoding="utf-8")
        results: list[Any] = json.loads(text, object_hook=received)
        return results


@pytest.fixture
def page(tmp_path: Path) -> Page:
    return Page(tmp_path)


def codes_of(dtype: str) -> Array:
    """Return every code of a type, in order."""
    bits = 8 * DTYPES[dtype].itemsize
    return np.arange(2**bits).astype(f"uint{bits}")


def numbers_of(dtype: str) -> Float64Array:
    """Return the number of every code."""
    # ml_dtypes warns of signalling NaNs.
    with np.errstate(invalid="ignore"):
        return codes_of(dtype).view(DTYPES[dtype]).astype(np.float64)


def assert_same_bits(got: Float64Array, expected: Float64Array) -> None:
    """Check that all numbers are equal, including the sign of zeros."""
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(expected[expected == 0]))


def magnitudes_of(dtype: str) -> Float64Array:
    """Return the finite numbers of a type from 0 up, which have the codes 0, 1, 2 and so on."""
    numbers = numbers_of(dtype)
    return numbers[: int(np.argmax(~np.isfinite(numbers)))]


def nearest_even(value: Float64Array, dtype: str) -> Float64Array:
    """Return `value` rounded once, by looking up its two neighbours.

    rounded_to does not do this for float64 values in bfloat16 and float8: ml_dtypes rounds them to float32
    first.
    """
    numbers = magnitudes_of(dtype)
    largest = numbers[-1]
    if dtype.startswith("float8"):
        value = np.clip(value, -largest, largest)
    size = np.abs(value)
    # The number after the largest one represents infinity.
    numbers = np.append(numbers, 2 * largest - numbers[-2])
    above = np.clip(np.searchsorted(numbers, size), 1, len(numbers) - 1)
    up, down = numbers[above] - size, size - numbers[above - 1]
    at = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, above - 1)
    rounded = np.where(at == len(numbers) - 1, np.inf, numbers[at])
    return np.where(np.isnan(value), np.nan, np.copysign(rounded, value))


def hard_values(dtype: str) -> Float64Array:
    """Return all numbers and boundaries of a type with their neighbours, random values and extremes."""
    numbers = magnitudes_of(dtype)
    boundaries = (numbers + np.append(numbers[1:], 2 * numbers[-1] - numbers[-2])) / 2
    exact = np.concatenate([numbers, boundaries])
    rng = np.random.default_rng(0)
    spread = numbers[-1] * 2.0 ** rng.uniform(-40, 2, 50000) * rng.random(50000)
    extremes = np.array([5e-324, 2.0**-1022, 1e300, np.finfo(np.float64).max, np.inf, np.nan])
    values = np.concatenate([exact, np.nextafter(exact, 0), np.nextafter(exact, np.inf), spread, extremes])
    return np.concatenate([values, -values])


def test_every_code_is_decoded_and_encoded(page: Page) -> None:
    dtypes = (*NARROW, "int8")
    decoded = page.call(*(["storage", "decode", codes_of(dtype).tobytes(), dtype] for dtype in dtypes))
    for dtype, got in zip(dtypes, decoded, strict=True):
        assert_same_bits(got, numbers_of(dtype))
    encoded = page.call(*(["storage", "encode", numbers_of(dtype), dtype] for dtype in dtypes))
    for dtype, got in zip(dtypes, encoded, strict=True):
        codes = got.astype(np.int8 if dtype == "int8" else codes_of(dtype).dtype)
        assert_same_bits(codes.view(DTYPES[dtype]).astype(np.float64), rounded_to(numbers_of(dtype), dtype))


def test_values_are_rounded_once_to_nearest_even(page: Page) -> None:
    values = {dtype: hard_values(dtype) for dtype in NARROW}
    encoded = page.call(*(["storage", "encode", value, dtype] for dtype, value in values.items()))
    for (dtype, value), got in zip(values.items(), encoded, strict=True):
        decoded = got.astype(codes_of(dtype).dtype).view(DTYPES[dtype]).astype(np.float64)
        assert_same_bits(decoded, nearest_even(value, dtype))
        with np.errstate(over="ignore"):
            narrow = value if dtype == "float16" else value.astype(np.float32).astype(np.float64)
            assert_same_bits(nearest_even(narrow, dtype), rounded_to(narrow, dtype))


def test_one_value_is_rounded_as_an_array_is(page: Page) -> None:
    special = [0.5, -0.5, 1.5, 2.5, 126.5, 1e9, -1e9, 0.1, -1e-50, 1 / 3, 65519.9, 65520.0, 464.1, 61440.0]
    cases = [(value, dtype) for value in special for dtype in NARROWING]
    got = page.call(*(["storage", "roundTo", value, dtype] for value, dtype in cases))
    for (value, dtype), rounded in zip(cases, got, strict=True):
        with np.errstate(over="ignore"):
            assert float(rounded) == rounded_to(np.array([value]), dtype)[0], (value, dtype)


def test_float32_and_int8(page: Page) -> None:
    values = np.array([0.5, 1.5, -2.5, 127.4, 128.0, -1e9, 1e300, -0.0, 1.0 + 2.0**-24, np.inf])
    wide, small = page.call(*(["storage", "encode", values, dtype] for dtype in ("float32", "int8")))
    with np.errstate(over="ignore"):
        assert_same_bits(wide, rounded_to(values, "float32"))
    np.testing.assert_array_equal(small, rounded_to(values, "int8"))


def test_wrong_bytes_and_types_are_refused(page: Page) -> None:
    odd, unknown = page.call(
        ["storage", "decode", b"123", "float16"], ["storage", "encode", np.zeros(1), "F16"]
    )
    assert odd == {"error": "3 bytes are not a whole number of float16"}
    assert unknown["error"].startswith('dtype is "F16"; expected one of float32, float16, bfloat16')


def safetensors_file(header: object, data: bytes) -> bytearray:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return bytearray(len(text).to_bytes(8, "little") + text + data)


def assert_same_tensors(read: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    assert read["tensors"].keys() == arrays.keys()
    for name, array in arrays.items():
        tensor = read["tensors"][name]
        assert (tensor["dtype"], tensor["shape"]) == (array.dtype.name, list(array.shape))
        assert tensor["bytes"].astype(np.uint8).tobytes() == array.tobytes()


def test_a_safetensors_file_is_read(page: Page) -> None:
    rng = np.random.default_rng(0)
    arrays = {name: (rng.standard_normal((3, 5)) * 3).astype(dtype) for name, dtype in DTYPES.items()}
    arrays |= {"one": np.full((), 7.0, np.float32), "none": np.zeros((0, 4), ml_dtypes.bfloat16)}
    (read,) = page.call(["storage", "readSafetensors", bytearray(save(arrays, {"what": "a test"}))])
    assert read["metadata"] == {"what": "a test"}
    assert_same_tensors(read, arrays)


def test_the_vectors_of_an_export_are_read(page: Page) -> None:
    op, problem = (
        OPS["layer_norm"],
        NormProblem(rows=1, cols=61, dtype="bfloat16", options=NormOptions(residual=True)),
    )
    for vector in native.draw_vectors(Task(op, problem)):
        (read,) = page.call(["storage", "readSafetensors", bytearray(vector.encoded())])
        assert read["metadata"]["what"] == vector.what
        expected = {name: answer.value.astype(np.float32) for name, answer in vector.answers.items()}
        assert_same_tensors(
            read, {**vector.arrays, **{f"expected.{name}": array for name, array in expected.items()}}
        )


def test_a_damaged_safetensors_file_is_refused(page: Page) -> None:
    def one(**changes: object) -> dict[str, object]:
        return {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}

    whole = safetensors_file(one(), bytes(8))
    damaged = {
        "it has 3 bytes": whole[:3],
        "its header needs": whole[:20],
        "x needs 8 bytes, but its place is 0 to 8 of 7": whole[:-1],
        "its tensors need 8 bytes, but it contains 9": whole + b"\0",
        "its header is not JSON": safetensors_file(b"{", b""),
        "its header is not an object": safetensors_file(None, b""),
        "x has the unknown type I64": safetensors_file(one(dtype="I64"), bytes(8)),
        "x needs 12 bytes, but": safetensors_file(one(shape=[3]), bytes(8)),
        "the shape or the offsets of x are missing": safetensors_file(one(shape=[-2]), bytes(8)),
        "the shape or the offsets of x are missing or invalid": safetensors_file(
            one(data_offsets=[0]), bytes(8)
        ),
        "x has the unknown type undefined": safetensors_file({"x": None}, b""),
    }
    read = page.call(*(["storage", "readSafetensors", file] for file in (whole, *damaged.values())))
    assert "tensors" in read[0]
    for why, refusal in zip(damaged, read[1:], strict=True):
        assert refusal["error"].startswith(f"not a whole safetensors file: {why}")


def manifest_of(op: Op, problem: NormProblem, *shaders: Shader) -> dict[str, Any]:
    bundled = tuple(
        BundledShader(f"shader-{i}", "portable", one, one.text, one.text) for i, one in enumerate(shaders)
    )
    return Bundle("test", Task(op, problem), (problem.cols,), "", bundled).manifest()


def problem_of(op: Op, problem: NormProblem) -> dict[str, Any]:
    """Return the problem that the page's problemOf makes from the manifest."""
    manifest = manifest_of(op, problem)
    sizes = {"rows": problem.rows, "cols": problem.cols}
    return {**manifest["problem"], "op": op.name, "has_mean": has_mean(op), **sizes}


def test_the_problem_is_read_from_the_manifest(page: Page) -> None:
    op, problem = (
        OPS["rms_norm"],
        NormProblem(rows=3, cols=5, eps=1e-6, options=NormOptions(out_dtype="int8")),
    )
    (got,) = page.call(["answers", "problemOf", manifest_of(op, problem), 3, 5])
    assert got == problem_of(op, problem)


def fields_of(answer: Expected) -> dict[str, Float64Array]:
    """Return the arrays of an answer in float64, broadcast to the shape of its value."""
    return {
        field: np.broadcast_to(array, answer.value.shape).astype(np.float64)
        for field, array in vars(answer).items()
        if array is not None
    }


def assert_same_answer(name: str, got: Mapping[str, Any], answer: Expected) -> None:
    """Assert equality in units of the sum's terms, since cancellation leaves no other digits."""
    assert tuple(got["shape"]) == answer.value.shape, name
    expected = {field: array.ravel() for field, array in fields_of(answer).items()}
    assert expected.keys() == got.keys() - {"shape"}
    in_float32 = answer.error_scale.dtype == np.float32
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.nan_to_num(
            expected["error_scale"] + np.abs(expected.get("abs_sum", 0.0)), nan=0.0, posinf=0.0
        )
        for field, array in expected.items():
            own = CLOSE_SIZES if in_float32 and field in ("error_scale", "mean_error_scale") else CLOSE
            limit = CLOSE * size + own * np.abs(array)
            agrees = (np.abs(got[field] - array) <= limit) | (got[field] == array)
            agrees |= np.isnan(got[field]) & np.isnan(array)
            assert agrees.all(), f"{name}.{field}: {got[field][~agrees][:3]} is not {array[~agrees][:3]}"


def with_h(op: Op, problem: NormProblem, arrays: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """Yield the inputs, and again with an h that is not the nearest rounding, as implementations write it."""
    yield dict(arrays)
    if problem.options.residual:
        h = reference.add_residual(arrays) * (1.0 + 1e-3)
        yield {**arrays, "h": h.astype(DTYPES[problem.input_dtype])}


def assert_same_answers(
    page: Page, given: Sequence[tuple[str, Op, NormProblem, Mapping[str, Array]]]
) -> None:
    found = page.call(
        *(["answers", "answersOf", arrays, problem_of(op, problem)] for _, op, problem, arrays in given)
    )
    for (name, op, problem, arrays), got in zip(given, found, strict=True):
        with np.errstate(over="ignore", invalid="ignore"):
            answers = op.reference(arrays, problem)
        assert got.keys() == answers.keys(), (name, got)
        for output, answer in answers.items():
            assert_same_answer(f"{op.name} {name} {problem.dtype} {output}", got[output], answer)


def given_from(
    cases: Sequence[Case], op: Op, dtypes: Sequence[str]
) -> list[tuple[str, Op, NormProblem, Mapping[str, Array]]]:
    return [
        (case.name, op, problem, arrays)
        for case, problem in problems(cases, op, dtypes)
        for arrays in with_h(op, problem, case.draw(Task(op, problem)))
    ]


@pytest.mark.parametrize("op", [OPS["copy"], *NORM_OPS], ids=lambda op: op.name)
def test_the_answers_to_every_option(page: Page, op: Op) -> None:
    given = given_from(OPTION_CASES, op, STORAGE)
    assert op.is_copy or len(given) > 25
    if op.is_copy:
        problem = NormProblem(rows=3, cols=5, dtype="bfloat16")
        given = [("copy", op, problem, make_inputs(op, problem))]
    assert_same_answers(page, given)


@pytest.mark.parametrize("op", NORM_OPS, ids=lambda op: op.name)
def test_the_answers_to_hard_rows(page: Page, op: Op) -> None:
    given = given_from([case for case in CASES if case not in OPTION_CASES], op, ("float32",))
    assert len(given) > 30
    assert_same_answers(page, given)


def shader_of(kernel: Kernel, problem: NormProblem) -> Shader:
    return render_shader(default_variant(kernel, problem, BROWSER), problem, "browser", BROWSER)


def tolerance_call(shader: Shader) -> list[Any]:
    manifest = manifest_of(shader.variant.kernel.op, shader.problem, shader)
    return ["verdicts", "tolerance", manifest["shaders"][0], manifest, shader.problem.rows]


def test_the_tolerances_of_every_kernel(page: Page) -> None:
    shaders = [
        shader_of(kernel, problem)
        for kernel in KERNELS
        for rows in (1, 5000)
        for cols in (61, 4096)
        for problem in (kernel.op.problem(rows, cols),)
        if default_variant(kernel, problem, BROWSER).refusal(problem, BROWSER) is None
    ]
    assert len(shaders) > 50
    for shader, got in zip(shaders, page.call(*map(tolerance_call, shaders)), strict=True):
        expected = asdict(tolerance(shader))
        # These fields are only for warnings, which pages do not show.
        del expected["best"], expected["best_of"]
        assert got.pop("reason").partition(",")[0] == expected.pop("reason").partition(",")[0]
        assert got == pytest.approx(expected, rel=1e-14), shader.variant


Outputs = dict[str, Array]
Change = Callable[[Outputs, str], None]


def bits_of(array: Array) -> Array:
    return array.view(f"uint{8 * array.itemsize}")


def one_wrong(outputs: Outputs, name: str) -> None:
    outputs[name].flat[outputs[name].size // 2] += 1


def one_nan(outputs: Outputs, name: str) -> None:
    if outputs[name].dtype != np.int8:
        outputs[name].flat[1] = np.nan


def neighbours(outputs: Outputs, name: str) -> None:
    bits_of(outputs[name])[...] += 1


def one_neighbour(outputs: Outputs, name: str) -> None:
    bits_of(outputs[name]).flat[1] += 1


def swapped(outputs: Outputs, name: str) -> None:
    outputs[name][[0, 1]] = outputs[name][[1, 0]]


def infinite(outputs: Outputs, name: str) -> None:
    if outputs[name].dtype not in (np.int8, ml_dtypes.float8_e4m3fn):
        outputs[name].flat[0] = -np.inf


CHANGES: tuple[Change, ...] = (
    one_wrong,
    one_nan,
    neighbours,
    one_neighbour,
    swapped,
    infinite,
)


def right_outputs(op: Op, problem: NormProblem, answers: ExpectedOutputs) -> Outputs:
    """Return the answers as an implementation stores them."""
    outputs = {}
    for tensor in op.outputs(problem):
        value = answers[tensor.name].value
        if tensor.name == "stats" and has_mean(op):
            high = value[:, :1].astype(np.float32)
            value = np.concatenate([high, value[:, :1] - high, value[:, 1:]], axis=1)
        dtype = tensor.dtype(problem)
        outputs[tensor.name] = rounded_to(value, dtype).astype(DTYPES[dtype])
    return outputs


def test_no_header_has_more_terms_than_there_are(page: Page) -> None:
    """More terms give the tolerance of a row in one accumulator, in both languages."""
    kernel = kernel_named("registers", "layer_norm_backward")
    many = replace(kernel, accuracy=replace(kernel.accuracy, serial_terms=10**6, column_terms=10**6))
    problem = NormProblem(rows=37, cols=256)
    shader = render_shader(default_variant(many, problem, BROWSER), problem, "browser", BROWSER)
    (got,) = page.call(tolerance_call(shader))
    expected = asdict(tolerance(shader)) | {"reason": got["reason"]}
    del expected["best"], expected["best_of"]
    assert got == pytest.approx(expected, rel=CLOSE)
    assert got["reason"].startswith("256 terms per accumulator, 37 rows per accumulator")


def test_a_number_is_not_excused_by_an_answer_near_the_largest(page: Page) -> None:
    """If an answer may round to infinity, both roundings are right, and 0 is wrong."""
    kernel = kernel_named("naive", "layer_norm")
    problem = NormProblem(rows=1, cols=4, dtype="float16")
    shader = render_shader(default_variant(kernel, problem, BROWSER), problem, "browser", BROWSER)
    manifest = manifest_of(kernel.op, problem, shader)
    ones = np.ones(4)
    answer = {
        "shape": [1, 4],
        "value": 65519.9 * ones,
        "error_scale": 65519.9 * ones,
        "mean_error_scale": 0 * ones,
    }
    allowed = asdict(tolerance(shader))
    given = {value: np.array([65504.0, value, 65504.0, 65504.0]) for value in (65504.0, np.inf, 0.0)}
    calls = (
        ["verdicts", "assess", {"y": outputs}, {"y": answer}, manifest, allowed] for outputs in given.values()
    )
    assert [one["ok"] for one in page.call(*calls)] == [True, True, False]


def assert_same_verdict(got: Mapping[str, Any], expected: Accuracy, what: str) -> None:
    assert got["ok"] == expected.ok, f"{what}: {got['reason']}, {expected.reason}"
    assert got["non_finite"] == expected.non_finite, what
    assert (got["reason"] is None) == (expected.reason is None)
    assert got["not_compared"] == expected.not_compared, what
    for name in ("max_abs_error", "max_rel_error"):
        assert float(got[name]) == pytest.approx(getattr(expected, name), rel=CLOSE), f"{what}: {name}"
    if 0.0 < expected.max_abs_error < np.inf:
        assert float(got["allowed"]) == pytest.approx(expected.allowed, rel=CLOSE), what
    assert (got["worst"] is None) == (expected.worst is None), what
    if expected.worst is not None:
        assert got["worst"]["output"] == expected.worst.output, what
        assert tuple(got["worst"]["index"]) == expected.worst.index, what
        assert float(got["worst"]["tolerance"]) == pytest.approx(expected.worst.tolerance, rel=CLOSE), what


FORWARD = (
    NormOptions(),
    NormOptions(residual=True, residual_bias=True, return_stats=True),
    NormOptions(residual=True),
    NormOptions(out_dtype="float8_e4m3fn"),
    NormOptions(out_dtype="float8_e5m2"),
    NormOptions(out_dtype="int8"),
)
BACKWARD = (NormOptions(), NormOptions(residual_bias=True, dh=True, saved_stats=True))


def results_of(op: Op, problem: NormProblem) -> Iterator[tuple[str, Outputs, ExpectedOutputs]]:
    """Return the outputs of a right implementation, unchanged and with every change."""
    arrays = make_inputs(op, problem)
    if problem.options.residual:
        arrays["h"] = rounded_to(reference.add_residual(arrays), problem.dtype).astype(DTYPES[problem.dtype])
    answers = {name: Expected(**fields_of(answer)) for name, answer in op.reference(arrays, problem).items()}
    right = right_outputs(op, problem, answers)
    yield "right", right, answers
    for name in right:
        for change in CHANGES:
            changed = {output: array.copy() for output, array in right.items()}
            change(changed, name)
            yield f"{change.__name__} {name}", changed, answers


def verdict_call(shader: Shader, outputs: Outputs, answers: ExpectedOutputs) -> list[Any]:
    given = {
        name: {"shape": list(answer.value.shape), **fields_of(answer)} for name, answer in answers.items()
    }
    allowed = asdict(tolerance(shader))
    manifest = manifest_of(shader.variant.kernel.op, shader.problem)
    return ["verdicts", "assess", outputs, given, manifest, allowed]


CHECKED = (
    ("registers", "layer_norm"),
    ("welford", "layer_norm"),
    ("naive", "rms_norm"),
    ("registers", "layer_norm_backward"),
    ("tiles", "rms_norm_backward"),
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "op"), CHECKED)
def test_the_verdicts(page: Page, name: str, op: str) -> None:
    calls, expected = [], []
    for options in BACKWARD if OPS[op].gradient else FORWARD:
        for dtype in STORAGE:
            problem = NormProblem(rows=9, cols=199, dtype=dtype, distribution="mean100", options=options)
            shader = shader_of(kernel_named(name, op), problem)
            for what, outputs, answers in results_of(OPS[op], problem):
                calls.append(verdict_call(shader, outputs, answers))
                guarded = {output: (array, True) for output, array in outputs.items()}
                expected.append((f"{what} {problem}", assess(guarded, answers, shader)))
    assert {verdict.ok for _, verdict in expected} == {True, False}
    for (what, verdict), got in zip(expected, page.call(*calls), strict=True):
        assert_same_verdict(got, verdict, what)


def test_outputs_that_prove_nothing_are_not_compared(page: Page) -> None:
    """A mean rounded far from 0, and int8 of NaN, prove nothing. Neither right nor wrong outputs pass."""
    calls, expected = [], []
    for name, far, options in (
        ("naive", 1e7, NormOptions()),
        ("registers", np.nan, NormOptions(out_dtype="int8")),
    ):
        op, problem = OPS["layer_norm"], NormProblem(rows=9, cols=61, options=options)
        shader = shader_of(kernel_named(name, op.name), problem)
        arrays = make_inputs(op, problem)
        arrays["x"] = (arrays["x"] + far).astype(np.float32)
        answers = {
            one: Expected(**fields_of(answer)) for one, answer in op.reference(arrays, problem).items()
        }
        with np.errstate(invalid="ignore"):
            outputs = right_outputs(op, problem, answers)
        calls.append(verdict_call(shader, outputs, answers))
        guarded = {output: (array, True) for output, array in outputs.items()}
        expected.append(assess(guarded, answers, shader))
    found = page.call(*calls)
    for got, verdict in zip(found, expected, strict=True):
        assert verdict.not_compared
        assert_same_verdict(got, verdict, verdict.not_compared)
    assert page.call(*(["verdicts", "verdictOn", one] for one in found)) == ["skip", "skip"]


def test_a_copy_has_to_be_exact(page: Page) -> None:
    op, problem = OPS["copy"], NormProblem(rows=4, cols=10, dtype="float16")
    shader = shader_of(kernel_named("copy", "copy"), problem)
    x = make_inputs(op, problem)
    answers = op.reference(x, problem)
    wrong = x["x"].copy()
    bits_of(wrong)[2, 3] += 1
    right, refused = page.call(*(verdict_call(shader, {"y": y}, answers) for y in (x["x"], wrong)))
    assert right["ok"] and right["max_abs_error"] == 0.0
    assert not refused["ok"] and refused["worst"]["index"] == [2, 3]


def test_neighbours_may_not_be_many(page: Page) -> None:
    problem = NormProblem(rows=1000, cols=3, dtype="float16", options=NormOptions(weight=False, bias=False))
    shader = shader_of(kernel_named("registers"), problem)
    calls, expected = [], []
    for many in (0, 2, 20, 1000):
        value = np.ones((1000, 3))
        value[:many] = 1.0 + 2.0**-11 + 3e-7
        answers = {"y": Expected(value, np.ones_like(value), np.zeros_like(value))}
        y = np.ones((1000, 3), np.float16)
        calls.append(verdict_call(shader, {"y": y}, answers))
        expected.append(assess({"y": (y, True)}, answers, shader))
    assert [verdict.ok for verdict in expected] == [True, True, False, True]
    for got, verdict in zip(page.call(*calls), expected, strict=True):
        assert_same_verdict(got, verdict, str(verdict))
        assert got["reason"] == verdict.reason


def test_a_size_that_is_no_number_excuses_nothing(page: Page) -> None:
    problem = NormProblem(rows=2, cols=8, options=NormOptions(weight=False, bias=False))
    shader = shader_of(kernel_named("registers"), problem)
    x = np.stack([np.full(8, 1e38), np.arange(8)]).astype(np.float32)
    with np.errstate(over="ignore"):
        answers = OPS["layer_norm"].reference({"x": x}, problem)
    assert np.isinf(answers["y"].mean_error_scale[0]).all()
    right = answers["y"].value.astype(np.float32)
    wrong = right.copy()
    wrong[0, 5] = 1.0
    near = right.copy()
    near[0, 5] = 1e-6
    no_unit = {"y": Expected(answers["y"].value, np.full((2, 8), np.nan), np.zeros((2, 8)))}
    verdicts = page.call(
        *(verdict_call(shader, {"y": y}, answers) for y in (right, near, wrong)),
        *(verdict_call(shader, {"y": y}, no_unit) for y in (right, wrong)),
    )
    assert [verdict["ok"] for verdict in verdicts] == [True, True, False, False, False]
    assert verdicts[2]["worst"]["index"] == [0, 5]


def test_an_output_of_another_size_is_an_error(page: Page) -> None:
    op, problem = OPS["rms_norm"], NormProblem(rows=2, cols=3)
    shader = shader_of(kernel_named("naive", op.name), problem)
    answers = op.reference(make_inputs(op, problem), problem)
    (refused,) = page.call(verdict_call(shader, {"y": np.zeros(5, np.float32)}, answers))
    assert refused == {"error": "y has 5 elements; expected 6"}


def sample_runs() -> Iterator[list[float]]:
    """Draw samples of different devices: few, equal, noisy, slowing down, on two levels, or zero."""
    rng = np.random.default_rng(5)
    for count in (1, 2, 3, 8, 9, 17, 60):
        yield [7.0] * count
        yield [0.0] * count
        for noise in (1e-3, 0.05, 0.5):
            yield list(100.0 + 100.0 * noise * rng.standard_normal(count))
            yield list(np.linspace(100.0, 130.0, count) * (1.0 + noise * rng.random(count)))
            yield list(np.where(np.arange(count) < count // 2, 100.0, 104.0) + noise * rng.random(count))


def test_statistics_match(page: Page) -> None:
    runs = list(sample_runs())
    with np.errstate(invalid="ignore"):
        for name in ("statistics", "spread", "flags", "drifting", "agree"):
            for run, got in zip(runs, page.call(*(["statistics", name, run] for run in runs)), strict=True):
                found = timing.statistics(run)
                if name == "statistics":
                    assert got == pytest.approx(asdict(found), rel=1e-12), run
                elif name == "flags":
                    assert tuple(got) == timing.flags(run), run
                else:
                    expected = found.spread if name == "spread" else getattr(timing, name)(run)
                    assert float(got) == pytest.approx(float(expected), rel=1e-9), (name, run)


def test_numbers_have_the_same_text(page: Page) -> None:
    """The page differs only in the micro sign, the dash, and exponents without a 0."""
    rng = np.random.default_rng(6)
    values = [0.0, 1.0, 999.96, 1e3, 1e6, 1e9, *(10.0 ** rng.uniform(-9, 11, 300)).tolist(), None]
    columns = {
        "timeText": tables.time_text,
        "errorText": tables.error_text,
        "percentText": tables.percent_text,
    }
    for name, own in columns.items():
        # Times and percentages of devices are neither that small nor that large.
        least, most = (0.0, 1e6) if name == "percentText" else (1e-3 if name == "timeText" else 0.0, 1e12)
        given = [value for value in values if value is None or value == 0 or least <= value < most]
        for value, got in zip(given, page.call(*(["format", name, value] for value in given)), strict=True):
            shown = re.sub(r"e([-+])0(\d)\b", r"e\1\2", own(value)).replace("us", "µs")
            shown = "–" if value is None else shown + (" %" if name == "percentText" else "")
            assert got == shown, (name, value)
    every = [
        NormOptions(),
        NormOptions(weight=False, bias=False),
        NormOptions(residual=True, out_dtype="int8"),
    ]
    every += [
        NormOptions(zero_centered_weight=True, max_workgroups=3),
        NormOptions(weight_dtype="float32", dh=True, weight_offset=-0.375),
        NormOptions(weight_offset=2.0),
    ]
    given = [["format", "optionsText", asdict(options)] for options in every]
    assert page.call(*given) == [str(options) for options in every]


def test_pages_and_exports_assume_the_same_limits(page: Page) -> None:
    """The runtime's default limits match the limits of exports."""
    text = (page.folder / "runtime.js").read_text(encoding="utf-8")
    found = re.search(r"const DEFAULT_LIMITS = \{(.*?)\};", text, re.DOTALL)
    assert found is not None
    assert {name: int(number) for name, number in re.findall(r"(\w+): (\d+)", found[1])} == {
        "maxComputeInvocationsPerWorkgroup": BROWSER.max_invocations,
        "maxComputeWorkgroupSizeX": BROWSER.max_invocations,
        "maxComputeWorkgroupStorageSize": BROWSER.workgroup_storage,
        "maxStorageBuffersPerShaderStage": MOST_BUFFERS,
    }
    # Constants with different names on both sides.
    passes = {name: int(re.search(rf"const {name} = (\d+);", text)[1]) for name in OF_SLICES}  # type: ignore[index]
    assert passes == OF_SLICES


OF_SLICES = {"ACCESS_BYTES": buffers.ACCESS_BYTES, "ELEMENTS_TOGETHER": schedule.ELEMENTS_TOGETHER}
