"""`check --engine` runs kernels in browsers, node, Deno and Dawn, and says in one line what went wrong.

The engines that go wrong here are scripts with a user's own command, such as `python SCRIPT {url}`.
"""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_divergent import EXPECTED, FOLDER, OPS, verdict_of

import webnorm
from bench.family_accuracy import engine_errors
from commands import webnorm as command
from patience import until
from webnorm.cli.work.jobs import BAD_USAGE, INCONCLUSIVE, OK, WRONG
from webnorm.engines import catalog, host
from webnorm.errors import WebnormError
from webnorm.gpu.backend import wgpu
from webnorm.gpu.device import Device
from webnorm.lab.process.engine_device import open_engine
from webnorm.lab.process.worker import Worker
from webnorm.ops.rows import HI_LO_TOLERANCE

ENGINES = ("dawn", *catalog.PORTABLE)
# The drivers of the columns of `divergent/expected.toml`. Firefox does not name its adapter.
DRIVERS = {
    **dict.fromkeys(("dawn", "chromium", "node"), "swiftshader"),
    **dict.fromkeys(("firefox", "deno"), "llvmpipe"),
}
HELLO = """
import json, struct, sys, urllib.request
def post(body):
    request = urllib.request.Request(sys.argv[1] + "messages", body, method="POST")
    with urllib.request.urlopen(request) as answer:
        return answer.read()
def message(header):
    text = json.dumps(header).encode()
    return struct.pack("<I", len(text)) + text
FACTS = {"engine": "fake", "error": None, "adapter": {"description": "a fake adapter"}, "features": [],
         "language_features": [],
         "subgroup_sizes": [4, 128], "limits": LIMITS}
"""


def missing(engine: str) -> str | None:
    """Return why an engine cannot run here, or None."""
    if engine in webnorm.engine_names():
        return None
    fix = catalog.engine_fix(engine) if engine in catalog.PORTABLE else None
    return fix.missing if fix else f"{engine} is not installed"


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    if reason := missing(request.param):
        pytest.skip(reason)
    return str(request.param)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Make an engine of a script; afterwards no profile of an engine may be left."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)

    def make(code: str) -> str:
        script = tmp_path / "engine.py"
        limits = dict(webnorm.find_adapter().limits)
        known = {host_name(name): value for name, value in limits.items()}
        script.write_text(HELLO.replace("LIMITS", repr(known)) + code, encoding="utf-8")
        return f"{shlex.join([sys.executable, str(script)])} {catalog.URL}"

    yield make
    until(lambda: not [*folder.glob("webnorm-*")])


def host_name(name: str) -> str:
    """Return WebGPU's name of a limit that wgpu-py writes with dashes."""
    first, *others = name.split("-")
    return first + "".join(map(str.capitalize, others))


def check(engine: str, **options: Any) -> Any:
    return webnorm.check("naive", cases="cols-3", engine=engine, **options)


@pytest.mark.vulkan
def test_an_engine_runs_the_corpus(engine: str) -> None:
    found = check(engine, seed=1)
    assert [one.status for one in found.results] == ["pass"] and found.results[0].watched
    # The engine's version is a part of the result.
    assert found.report.device["wgpu"] != webnorm.find_adapter().description()["wgpu"]


@pytest.mark.vulkan
@pytest.mark.slow
def test_an_engine_is_as_in_the_table(engine: str) -> None:
    for op in OPS:
        webnorm.load_op(FOLDER / op)
    cases = [f"{op}-divergence" for op in OPS]
    report = webnorm.check(op=OPS, cases=cases, engine=engine, seed=1).report
    driver = " ".join(map(str, report.device.values())).lower()
    if DRIVERS[engine] not in driver and engine != "firefox":
        pytest.skip(f"the table has the verdicts of {DRIVERS[engine]}, not of {driver}")
    found = {
        (op, kernel): verdict_of([one for one in report.results if (one.op, one.kernel) == (op, kernel)])
        for op in OPS
        for kernel in ("divergent", "portable")
    }
    expected = {(op, "divergent"): EXPECTED[op][engine] for op in OPS}
    assert found == expected | {(op, "portable"): "pass" for op in OPS}


@pytest.mark.vulkan
@pytest.mark.slow
def test_an_error_names_the_line_of_the_template(engine: str, tmp_path: Path) -> None:
    kernel = (webnorm.select(webnorm.discover(), "naive")).path.read_text(encoding="utf-8")
    folder = tmp_path / "layer_norm"
    folder.mkdir()
    lines = kernel.splitlines()
    at = next(number for number, line in enumerate(lines) if "fn main" in line)
    lines.insert(at + 1, "    let wrong = never_defined;")
    (folder / "wrong.wgsl").write_text("\n".join(lines), encoding="utf-8")
    (result,) = webnorm.check("wrong", cases="cols-3", wgsl=[tmp_path], engine=engine).results
    assert result.status == "error"
    assert f"wrong.wgsl:{at + 2}" in str(result.reason) and "never_defined" in str(result.reason)


@pytest.mark.vulkan
@pytest.mark.slow
def test_the_norm_family_is_accurate_in_an_engine(engine: str) -> None:
    assert np.max(engine_errors(engine)) <= HI_LO_TOLERANCE


@pytest.mark.vulkan
@pytest.mark.slow
def test_float16_overflows_to_infinity(engine: str) -> None:
    """SwiftShader's pack2x16float makes a NaN of a number beyond float16's range."""
    case = "qk_norm_backward-weight_dtype=float16-large"
    found = webnorm.check("naive", op="qk_norm_backward", cases=case, engine=engine, seed=1)
    assert [one.status for one in found.results] == ["pass"]


@pytest.mark.vulkan
def test_an_engine_reads_a_mapped_buffer(engine: str) -> None:
    """Times come from buffers that are mapped, which WebGPU does not copy from."""
    with Worker(engine=engine) as worker:
        (found,) = worker.stream(mapped_words, None)
    assert found == [3, 1, 4, 1]


def mapped_words(device: Device, job: None) -> Iterator[list[int]]:
    """Yield words that were copied to a buffer and read by mapping it."""
    words, usage = np.array([3, 1, 4, 1], np.uint32), wgpu.BufferUsage
    source = device.handle.create_buffer_with_data(data=words, usage=usage.COPY_SRC)
    mapped = device.handle.create_buffer(size=16, usage=usage.MAP_READ | usage.COPY_DST)
    # The second read finds the buffer unmapped again.
    for _ in range(2):
        encoder = device.handle.create_command_encoder()
        encoder.copy_buffer_to_buffer(source, 0, mapped, 0, 16)
        device.handle.queue.submit([encoder.finish()])
        mapped.map_async("READ").sync_wait()
        found = np.frombuffer(mapped.read_mapped(), np.uint32).tolist()
        mapped.unmap()
    yield found


def test_a_table_of_engines(tmp_path: Path) -> None:
    if reason := missing("deno"):
        pytest.skip(reason)
    words = ("check", "--engine", "wgpu", "--engine", "deno", "--op", str(FOLDER / "wide_shift"))
    saved = tmp_path / "found.json"
    done = command([*words, "--case", "wide_shift-divergence", "--json", str(saved)], tmp_path)
    assert done.returncode == WRONG, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["kernel", "wgpu", "deno"] in rows and ["portable", "pass", "pass"] in rows
    assert any(row[:2] == ["divergent", "error"] for row in rows)
    for engine in ("wgpu", "deno"):
        report = json.loads((tmp_path / f"found-{engine}.json").read_text(encoding="utf-8"))
        assert {one["kernel"] for one in report["results"]} == {"divergent", "portable"}


def test_missing_engines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found, missing_ones = catalog.selected_engines([catalog.ALL])
    assert "wgpu" in found and set(missing_ones) >= {"node", "deno"}
    with pytest.raises(WebnormError, match="No Deno: it is not installed"):
        catalog.selected_engines(["deno"])
    with pytest.raises(WebnormError, match="unknown engine 'fireox'"):
        catalog.selected_engines(["fireox"])
    with pytest.raises(WebnormError, match=r"no program no-program; expected a command with \{url\}"):
        catalog.selected_engines(["no-program {url}"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--engine", "wgpu", "--adapter", "0"), "each engine chooses its own adapter"),
        (
            ("--engine", "wgpu", "--engine", "dawn", "--json", "-"),
            "but there are several engines",
        ),
        (("--engine", "chrom"), "unknown engine 'chrom'"),
    ],
)
def test_wrong_arguments(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    if "dawn" in words and (reason := missing("dawn")):
        pytest.skip(reason)
    done = command(["check", *words], tmp_path)
    assert done.returncode == BAD_USAGE and said in done.stderr and done.stdout == ""


@pytest.mark.slow
def test_all_reports_missing_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check in all engines is not complete without one of them."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = ("check", "-k", "naive", "--op", "layer_norm", "--case", "cols-3", "--engine", "all")
    for more, status in ((), INCONCLUSIVE), (("--allow-skipped",), OK):
        done = command([*words, *more], tmp_path)
        assert "not checked in deno: No Deno: it is not installed" in done.stderr
        # Dawn may find no adapter without Chromium's driver.
        if "not checked in dawn" not in done.stderr:
            assert done.returncode == status, done.stderr


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("sys.exit('Error: no display')", "does not start: exit status 1: Error: no display"),
        (
            "post(message({**FACTS, 'error': 'it offers no WebGPU'}))",
            "cannot run kernels: it offers no WebGPU",
        ),
        ("post(message(FACTS)); sys.exit(7)", "exit status 7"),
    ],
)
def test_an_engine_that_fails(fake: Any, code: str, said: str) -> None:
    with pytest.raises(WebnormError) as raised:
        check(fake(code))
    assert said in str(raised.value) and "\n" not in str(raised.value)


def test_an_engine_that_never_answers(fake: Any) -> None:
    with pytest.raises(WebnormError, match="no sign of life for 1 s: stopped"):
        check(fake("import threading\nthreading.Event().wait()"), time_limit=1.0)


def test_the_server_answers_its_engine_only(fake: Any, tmp_path: Path) -> None:
    """Another path, host or origin gets no page and no messages."""
    seen = tmp_path / "seen.json"
    code = f"""
from urllib.error import HTTPError
from urllib.parse import urlsplit
def status(url, **headers):
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers)).status
    except HTTPError as error:
        return error.code
root = sys.argv[1]
parts = urlsplit(root)
found = [
    status(root), status(f"{{parts.scheme}}://{{parts.netloc}}/"), status(f"{{parts.scheme}}://{{parts.netloc}}/x/"),
    status(root, Host="elsewhere.example"), status(root, Origin="http://elsewhere.example"),
    status(root, Origin=f"{{parts.scheme}}://{{parts.netloc}}"),
]
open({str(seen)!r}, "w").write(json.dumps(found))
post(message({{**FACTS, "error": "it ends here"}}))
"""
    with pytest.raises(WebnormError, match="it ends here"):
        open_engine(fake(code))
    assert json.loads(seen.read_text()) == [200, 404, 404, 403, 403, 200]


def test_software_adapters_are_known() -> None:
    assert host.is_software({"vendor": "google", "architecture": "swiftshader"})
    assert host.is_software({"description": "llvmpipe (LLVM 15.0.6, 256 bits)"})
    assert host.is_software({"isFallbackAdapter": True})
    assert host.is_software({"vendor": "nvidia", "architecture": "hopper"}) is False
    assert host.is_software({"vendor": ""}) is None
