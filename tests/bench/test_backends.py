"""wgpu and Dawn next to each other: ratios, tables, and a run on two software adapters."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from bench import backends
from bench.backend_jobs import PrepareJob, Setting
from bench.backend_variants import VARIANTS, instruction_table, instructions
from bench.backends import PLAIN, Common, Pair, Times, settings_table
from patience import HANG_S
from webnorm.gpu.compute_programs import ComputeProgram
from webnorm.gpu.device import Device
from webnorm.kernels.headers.traits import Traits
from webnorm.op.op import Task
from webnorm.op.registry import OPS
from webnorm.system import dawn_drivers, is_installed

GPU = Traits(frozenset({"subgroups", "shader-f16"}), 1024, 49152, software=False)


def times_of(wgpu: list[list[float]], dawn: list[list[float]]) -> Times:
    found = Times(("kernel",))
    for one, other in zip(wgpu, dawn, strict=True):
        found.add("wgpu", [one], settled=True)
        found.add("Dawn", [other], settled=False)
    return found


def test_a_ratio_compares_the_samples_of_the_same_round() -> None:
    """The clock halves after the first round, which affects both backends."""
    times = times_of([[100.0, 100.0], [200.0, 200.0], [200.0]], [[110.0, 110.0], [220.0, 220.0], [220.0]])
    assert times.ratios("kernel") == pytest.approx([1.1, 1.1, 1.1])
    assert times.median("wgpu", "kernel") == 200 and times.median("Dawn", "kernel") == 220
    assert times.unsettled == {"Dawn"}
    assert settings_table(times, PLAIN)[-1] == "| kernel | 0.20 | 0.22 | 1.100 |"


def test_both_devices_get_what_both_have() -> None:
    dawn = Traits(frozenset({"subgroups"}), 256, 49152, software=False)
    common = Common.of({"wgpu": GPU, "dawn": dawn})
    assert common.lacking == ("dawn lacks shader-f16", "invocations per workgroup are at most 256")
    job = common.job(PLAIN[0], Task(OPS["layer_norm"], OPS["layer_norm"].problem(64, 16384)))
    assert job.spec is not None and job.task is not None and job.checked
    assert job.spec.variant().refusal(job.task.problem, common.traits) is None
    assert job.without == {"shader-f16"} and dict(job.limits)["max-compute-invocations-per-workgroup"] == 256
    assert Common.of({"wgpu": GPU, "dawn": GPU}).lacking == ()


def test_backends_take_turns_in_changing_order(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(self: Pair, setting: Setting, work: Any, job: Any) -> list[Any]:
        asked.append(f"{work.__name__} {setting.name}")
        return [([[1.0]], True)]

    monkeypatch.setattr(Pair, "ask", answer)
    jobs = [PrepareJob(setting, frozenset(), ()) for setting in PLAIN]
    Pair({}, rounds=3, samples=1).times(jobs, ["kernel"])
    taken = [name.split()[1] for name in asked if name.startswith("sample")]
    assert taken == ["wgpu", "Dawn", "Dawn", "wgpu", "wgpu", "Dawn"]
    assert asked[:2] == ["prepare wgpu", "prepare Dawn"] and asked[-2:] == ["forget wgpu", "forget Dawn"]


def test_instructions_of_spirv() -> None:
    words = (
        0x07230203, 0x10300, 0, 99, 0,  # the header
        3 << 16 | 71, 5, 42,  # OpDecorate NoContraction
        3 << 16 | 71, 5, 24,  # OpDecorate NonWritable
        5 << 16 | 68, 1, 2, 61, 0,  # OpArrayLength, with an operand that is the opcode of OpLoad
        7 << 16 | 12, 1, 2, 3, 38, 4, 5,  # UMin
        6 << 16 | 12, 1, 2, 3, 26, 4,  # Sqrt
    )  # fmt: skip
    module = struct.pack(f"<{len(words)}I", *words)
    assert [*instructions(module)] == ["NoContraction", "OpArrayLength", "UMin", "OpExtInst"]
    same = ["| instruction | wgpu | Dawn |", "|---|---:|---:|"]
    assert instruction_table({"wgpu": [module], "Dawn": [module]}) == same
    assert instruction_table({"wgpu": [module], "Dawn": [module] * 2})[-1] == "| UMin | 1 | 2 |"


def test_small_shaders_compile(device: Device) -> None:
    for one in VARIANTS:
        ComputeProgram(device.handle, one.text, ("read-only-storage", "storage", "read-only-storage"))


def test_shapes_are_ordered_so_that_the_time_limit_leaves_out_whole_shapes() -> None:
    found = backends.problems(["layer_norm", "rms_norm"], quick=False)
    assert [(one.problem.rows, one.problem.cols) for one in found[:4]] == [(4096, 1024)] * 4
    assert len(found) == 20


@pytest.mark.slow
@pytest.mark.skipif(not is_installed("wgpudawn"), reason="wgpudawn is not installed: pip install wgpudawn")
@pytest.mark.skipif(not dawn_drivers({}), reason="SwiftShader is not installed: apt-get install chromium")
def test_a_run_on_two_software_adapters(tmp_path: Path) -> None:
    words = ["--quick", "--variants", "--op", "softmax", "--out", str(tmp_path)]
    own = {name: value for name, value in os.environ.items() if name != "WEBNORM_ADAPTER"}
    done = subprocess.run(
        [sys.executable, "-m", "bench.backends", *words],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        cwd=Path(backends.__file__).parents[1],
        env=own,
    )
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "backends.md").read_text(encoding="utf-8")
    assert text == done.stdout
    for part in ("| softmax, 16x1x256 float16 | registers ", "## Small shaders", "## Generated code"):
        assert part in text
    if not (shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")):
        assert "there is no C compiler" in text
        return
    with zipfile.ZipFile(tmp_path / "shaders.zip") as archive:
        modules = {name: archive.read(name) for name in archive.namelist() if name.endswith(".spv")}
    assert {struct.unpack_from("<I", module)[0] for module in modules.values()} == {0x07230203}
    divided = "32 divisions, divisor from a buffer"
    assert modules[f"{divided}/wgpu.0.spv"] != modules[f"{divided}/Dawn.0.spv"]
    # Tint clamps indices unless robustness is disabled.
    assert [*instructions(modules["copy/Dawn.0.spv"])].count("UMin") > 0
    assert "UMin" not in [*instructions(modules["copy/Dawn, none of these.0.spv"])]
    # naga bounds loops unless it is asked not to.
    looping = "32 steps, trips from a buffer"
    guarded, free = (modules[f"{looping}/{name}.0.spv"] for name in ("wgpu", "wgpu, neither"))
    assert len(guarded) > len(free)
