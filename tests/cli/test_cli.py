"""The command from end to end, as a user runs it."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

import broken
from commands import webnorm, webnorm_interrupted, webnorm_process
from webnorm.cli.work.jobs import INCONCLUSIVE, OK
from webnorm.gpu.device import Device
from webnorm.lab.report import baselines

QUICK = ["bench", "--rows", "8", "--cols", "48", "--budget", "0.2"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*QUICK, "--kernel", "registres"], "unknown kernel 'registres'; did you mean 'registers'"),
        ([*QUICK, "--kernel", "atuo"], "unknown kernel 'atuo'; did you mean 'auto'"),
        (
            [*QUICK, "-k", "auto", "-c", "threads_per_row=8"],
            "--constant and --kernel auto cannot be combined",
        ),
        (
            [*QUICK, "-k", "auto", "--all-constants"],
            "--all-constants and --kernel auto cannot be combined: auto chooses its own constants",
        ),
        (["check", "-k", "auto", "--all-constants"], "--all-constants and --kernel auto cannot be combined"),
        (["bench", "--preset", "transfomer"], "unknown preset 'transfomer'; did you mean 'transformer'"),
        (
            ["bench", "--preset", "equinox", "--rows", "3"],
            "--preset and --rows cannot be combined",
        ),
        (["bench", "--rows", ""], "--rows is ''; expected a value"),
        (["show", "naive", "--dtype", ""], "--dtype is ''; expected a value"),
        (["show", "naive", "--dtype="], "--dtype is ''; expected a value"),
        (["list", "-o", ""], "-o is ''; expected a value"),
        (
            ["export", "layer_norm", "--cols", "8", "--out", "p", "--name", ""],
            "--name is ''; expected a value",
        ),
        (
            ["export", "--lab", "--out", "p", "--eps", "0"],
            "--lab cannot be combined with --eps: the lab contains",
        ),
        (["verify", ""], "an argument is ''; expected a value"),
        (
            ["compare", "a", "b", "--fail-slower", "inf"],
            "--fail-slower is 'inf'; expected 1000000000 or less; ",
        ),
        (["bench", "--budget", "x"], "--budget is 'x'; expected a number; see webnorm bench --help"),
        (["bench", "--budget=0"], "--budget is '0'; expected 0.01 or more; "),
        (["play", "--port", "1.5"], "--port is '1.5'; expected a whole number; "),
        (["bench", "--rows", "many"], "--rows is 'many'; expected integers separated by commas"),
        (["bench", "--rows", "8,0", "--profile"], "--rows is '8,0', which has 0; expected 1 or more ("),
        (["bench", "--rows", "4,096"], "--rows is '4,096'; a comma separates values, so write 4096\n"),
        (["bench", "--rows", "-5"], "--rows is '-5'; expected 1 or more"),
        (["tune", "--rows", "0..8+2"], "--rows is '0..8+2', which has 0; expected 1 or more"),
        (["bench", "--cols", "0"], "--cols is '0'; expected 1 or more"),
        (["show", "naive", "--cols", "0"], "--cols is '0'; expected 1 or more"),
        (["show", "naive", "--rows", "-1"], "--rows is '-1'; expected 0 or more"),
        (["show", "naive", "--rows", "1,2"], "--rows is '1,2'; expected one number, such as 1024 or 4k"),
        (
            ["check", "--kernel", "two_pass", "--op", "rms_norm"],
            "'two_pass' is for layer_norm, not for rms_norm",
        ),
        (["show", "workgroup"], "kernel 'workgroup' is for rms_norm, not for layer_norm"),
        (["bench", "--eps", "-1"], "eps is -1.0"),
        (["bench", "--eps", "nan"], "eps is nan"),
        (["bench", "--dtype", "float61"], "unknown dtype 'float61'; did you mean 'float16'"),
        (
            ["bench", "--dtype", "float64"],
            "unknown dtype 'float64'; expected one of all, bfloat16, ",
        ),
        (["bench", "--budget", "nan"], "--budget is 'nan'; expected a number; see webnorm bench --help"),
        (["bench", "--runs", "nan"], "--runs is 'nan'; expected a whole number; see webnorm bench --help"),
        (["bench", "--rows"], "--rows has no value; see webnorm bench --help"),
        (["bench", "--quick=3"], "--quick takes no value; see webnorm bench --help"),
        (["store", "history", "--json"], "--json has no value; see webnorm store history --help"),
        (["store", "histroy"], "unknown verb 'histroy'; did you mean 'history'? See webnorm store --help"),
        (["store"], "the verb is missing; expected one of add, "),
        (["show", "z*"], "no kernel of layer_norm matches 'z*'; expected one of auto, copy, naive, "),
        (["list", "z*"], "no kernel of "),
        (["compare", "a"], "NEW is missing; expected webnorm compare [OPTIONS] OLD NEW; see webnorm compare"),
        (
            ["tune", "--kernel", "naive"],
            "unknown option --kernel; it is an option of check, bench, export, store history, store regres",
        ),
        (["check", "--rows", "33"], "unknown option --rows; it is an option of show, play, bench, tune; see"),
        (
            ["export", "--op", "layer_norm"],
            "unknown option --op; OP is an argument; expected webnorm export [OPTIONS] [OP]; see webnorm exp",
        ),
        (
            ["export", "layer_norm", "--weight"],
            "unknown option --weight; that is the default without --no-weight; see",
        ),
        (["bench", "--no-quick"], "unknown option --no-quick; that is the default without --quick; see"),
        (["bench", "--nothing"], "unknown option --nothing; see webnorm bench --help"),
        (
            ["check", "--casse", "all"],
            "unknown option --casse; did you mean --case? See webnorm check",
        ),
        (["check", "--op", "./gone"], "gone: no such folder; expected a folder that contains op.py"),
        (["evaluate", "gone.wgsl"], "gone.wgsl: no such file; expected a kernel's .wgsl file"),
        (["evaluate", "gone.py", "--op", "rms_norm"], "gone.py: no such file; expected a kernel's .wgsl"),
        (["new-op", "my op"], "NAME is 'my op'; expected a letter, then letters, digits and _"),
        (["shwo"], "unknown verb 'shwo'; did you mean 'show'? See webnorm --help"),
        (["check", "--adapter", " "], "no adapter ' '; available: 0: "),
        (["bench", "--option", "residul"], "unknown option 'residul'; did you mean 'residual'"),
        (
            ["bench", "--option", "max_workgroups=few"],
            "option max_workgroups is 'few'; expected a whole number",
        ),
        (
            ["bench", "--option", "out_dtype=float8"],
            "unknown out_dtype 'float8'; did you mean 'float8_e4m3fn' or 'float8_e5m2'?",
        ),
        (["bench", "--option", "out_dtype=int9"], "unknown out_dtype 'int9'; expected one of "),
        (["bench", "--option", "residual_bias"], "it needs the option residual"),
        (
            ["bench", "--op", "rms_norm_backward", "--option", "residual"],
            "rms_norm_backward has no option residual",
        ),
        (["bench", "--option", "max_workgroups=²"], "option max_workgroups is '²'; expected a whole number"),
        (["bench", "--scale", "2"], "scale is 2.0; it needs an out_dtype of float8"),
        (["bench", "--eps", "1e39"], "eps is 1e+39"),
        (["check", "--op", "rms_norm", "-o", "dh"], "rms_norm has no option dh"),
        (["check", "--dtype", "float32,half"], "unknown dtype 'half'; did you mean 'float16'"),
        (["show", "naive", "--dtype", "half"], "unknown dtype 'half'; did you mean 'float16'"),
        (["check", "--op", "rms_norm_grad"], "unknown op 'rms_norm_grad'; did you mean 'rms_norm_backward'"),
        (
            ["check", "--dtype", "float8_e5m2"],
            "is a type of y alone: option out_dtype=float8_e5m2; expected one",
        ),
        (
            ["bench", "-o", "weight_dtype=int8"],
            "weight_dtype 'int8' is a type of y alone: option out_dtype=int8",
        ),
        (["check", "--dtype", "double"], "unknown dtype 'double'; did you mean 'float32'?"),
        (
            ["check", "--op", "mish"],
            "unknown op 'mish'; expected one of copy, ",
        ),
        (["play", "x.wgsl", "--op", "softmax"], "x.wgsl is not a file"),
        (
            ["check", "--kernel", "naive", "--constant", "vector_width=4"],
            "constant 'vector_width' belongs to other kernels; expected one of workgroup_size",
        ),
        (["check", "--dtype", "bf"], "unknown dtype 'bf'; did you mean 'bfloat16'?"),
        (["check", "--case", "ALL"], "unknown case 'ALL'; did you mean 'all'"),
        (
            ["check", "--case", "shift-1e5"],
            "unknown case 'shift-1e5'; did you mean 'shift-1e6'? `webnorm check --cases` lists them",
        ),
        (["check", "--case", "zzz"], "in all); `webnorm check --cases` lists them"),
        (["check", "--case", "rows"], "unknown case 'rows'; did you mean 'rows-1', or 'rows*' for "),
        (["bench", "--distribution", "norml"], "did you mean 'normal'"),
        (
            [*QUICK, "--constant", "thread_per_row=8"],
            "unknown constant 'thread_per_row'; did you mean 'threads_per_row'",
        ),
        (
            [*QUICK, "--kernel", "two_pass", "--constant", "threads_per_row=9"],
            "constant threads_per_row is 9; kernel layer_norm/two_pass accepts 8, 16, ",
        ),
        ([*QUICK, "--constant", "threads_per_row"], "expected NAME=VALUE"),
        ([*QUICK, "--json", "none/out.json"], "cannot write none/out.json"),
        ([*QUICK, "--plot", "out.gif"], "out.gif"),
        ([*QUICK, "--adapter", "voodoo"], "no adapter 'voodoo'; available: 0: "),
        (["list", "--op", "layernorm"], "unknown op 'layernorm'; did you mean 'layer_norm'"),
        ([*QUICK, "--op", "layernorm"], "unknown op 'layernorm'; did you mean 'layer_norm'"),
        ([*QUICK, "--wgsl", "none"], "none: not a folder; expected a folder of kernels"),
        (["bench", "--rows", "100000000", "--cols", "1024"], "largest buffer is"),
        (["check", "--case", "shift"], "unknown case 'shift'"),
        (["check", "--input", "none.npy"], "none.npy: cannot read the array: No such file"),
        (["show", "nothing"], "unknown kernel 'nothing'"),
        (["show", "atuo"], "unknown kernel 'atuo'; did you mean 'auto'"),
        (["show", "registers", "--cols", "100000"], "more than 64 columns per invocation"),
        (["show", "registers", "--target", "chrome"], "unknown target 'chrome'"),
        (["compare", "none.json", "none.json"], "none.json"),
        (
            ["compare", "none.json", "none.json", "--allow-missing"],
            "--allow-missing needs --fail-slower",
        ),
    ],
)
def test_mistakes_are_one_line_and_exit_2(
    arguments: list[str], message: str, mistake: Callable[[list[str]], str], tmp_path: Path, device: Device
) -> None:
    assert message in mistake(arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_in_a_folder_that_was_not_named(
    mistake: Callable[[list[str]], str], tmp_path: Path, device: Device
) -> None:
    broken.write(tmp_path / "mine", "wrong")
    for verb in (["check", "-k"], ["show"], ["list"]):
        said = mistake([*verb, "wrong"])
        assert "unknown kernel 'wrong'; --wgsl mine finds mine/layer_norm/wrong.wgsl" in said
    done = webnorm(["list", "wrong", "--wgsl", "mine"], tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_error_for_an_unknown_adapter_names_its_origin(
    mistake: Callable[[list[str]], str], monkeypatch: pytest.MonkeyPatch, device: Device
) -> None:
    monkeypatch.setenv("WEBNORM_ADAPTER", "voodoo")
    assert "no adapter 'voodoo' (from WEBNORM_ADAPTER); available: 0: " in mistake(["list", "--supported"])
    assert "no adapter 'glide'; available: 0: " in mistake(["list", "--adapter", "glide"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "a.wgsl"], "unexpected argument a.wgsl; did you mean --kernel a.wgsl? See webnorm check"),
        (["bench", "rms_norm", "--quick"], "rms_norm; did you mean --op rms_norm? See"),
        (["bench", "soft"], "unexpected argument soft; did you mean --op kernels/soft? See"),
        (["bench", "kernels/soft", "naive"], "did you mean --op kernels/soft --kernel naive? See"),
        (["bench", "nothing"], "unexpected argument nothing; expected webnorm bench [OPTIONS]; see webnorm"),
        (["bench", "33", "1500"], "unexpected arguments 33 1500; expected webnorm bench [OPTIONS]; see"),
        (["show", "naive", "768"], "unexpected argument 768; expected webnorm show [OPTIONS] KERNEL; see"),
        (["doctor", "rms_norm"], "unexpected argument rms_norm; expected webnorm doctor [OPTIONS]; see"),
        (["bench", "--dtype", "float32", "float16"], "did you mean --dtype float32,float16? See"),
        (["bench", "--dtype=float32", "float16", "all"], "did you mean --dtype float32,float16,all? See"),
        (["bench", "--kernel", "naive", "two_pass"], "did you mean --kernel naive,two_pass? See"),
        (["bench", "--size", "rows=8", "cols=4"], "did you mean --size rows=8 --size cols=4? See"),
        (["bench", "--dtype", "float32", ",", "float16"], "did you mean --dtype float32,float16? See"),
        (["bench", "--rows", "1024", "--cols", "64", "64"], "argument 64; did you mean --cols 64? See"),
        (["bench", "--op", "rms_norm", "--dtype", "float16", "rms_norm"], "did you mean --op rms_norm? See"),
        (["bench", "-c", "a=1", "-c", "b=2", "b=2"], "unexpected argument b=2; did you mean -c b=2? See"),
        (["bench", "-vk", "naive", "two_pass"], "argument two_pass; did you mean -k naive,two_pass? See"),
        (["bench", "-knaive", "two_pass"], "argument two_pass; did you mean -k naive,two_pass? See"),
        (["bench", "my file.wgsl"], "argument 'my file.wgsl'; did you mean --kernel 'my file.wgsl'? See"),
        (["bench", "--", "x", "--rows"], "unexpected arguments x --rows; expected webnorm bench [OPTIONS]"),
        (["bench", "-c", "a=1", "2"], "unexpected argument 2; expected webnorm bench [OPTIONS]; see"),
        (["evaluate", "a.wgsl", "--json", "x"], "unexpected argument x; --json takes no value; see"),
        (["bench", "bench", "--rows=3"], "unexpected argument bench; expected webnorm bench [OPTIONS]; see"),
    ],
)
def test_an_extra_argument_is_named_with_its_likely_meaning(
    arguments: list[str], message: str, mistake: Callable[[list[str]], str], tmp_path: Path
) -> None:
    (tmp_path / "kernels" / "soft").mkdir(parents=True)
    (tmp_path / "kernels" / "soft" / "op.py").touch()
    assert message in mistake(arguments)


def test_a_file_is_no_folder_of_ops(tmp_path: Path, mistake: Callable[[list[str]], str]) -> None:
    (tmp_path / "notes.txt").touch()
    said = mistake(["new-op", "gelu", "--out", "notes.txt"])
    assert "cannot write notes.txt/gelu: notes.txt is a file; expected a folder" in said


@pytest.mark.parametrize("more", [[], ["--op", "layer_norm"]])
def test_evaluate_refuses_other_files_with_and_without_an_op(
    more: list[str], tmp_path: Path, mistake: Callable[[list[str]], str]
) -> None:
    for name in ("a.txt", "b.py"):
        (tmp_path / name).touch()
        assert f"{name}: the suffix is not .wgsl; expected a kernel's" in mistake(["evaluate", name, *more])


def test_evaluate_without_an_op(tmp_path: Path, mistake: Callable[[list[str]], str]) -> None:
    (tmp_path / "a.wgsl").touch()
    assert "--op is missing; expected webnorm evaluate FILE --op" in mistake(["evaluate", "a.wgsl"])


def test_a_path_that_is_no_kernel_is_recognized(tmp_path: Path, mistake: Callable[[list[str]], str]) -> None:
    assert webnorm(["new-op", "soft"], tmp_path).returncode == 0
    (tmp_path / "notes.txt").touch()
    for path, message in {
        "kernels/soft": "kernel 'kernels/soft' is the folder of an op; did you mean --op kernels/soft?",
        "notes.txt": "kernel 'notes.txt' is a file without the suffix .wgsl; expected a .wgsl file",
        "kernels/soft/no.wgsl": "such file or directory; expected a kernel file: kernels/soft/naive.wgsl",
        "no.wgsl": "No such file or directory; expected a kernel file: `webnorm new NAME` writes one",
    }.items():
        assert message in mistake(["show", path]), path


def test_an_op_without_kernels_is_listed_and_refused(
    tmp_path: Path, mistake: Callable[[list[str]], str]
) -> None:
    assert webnorm(["new-op", "soft"], tmp_path).returncode == 0
    (tmp_path / "kernels" / "soft" / "naive.wgsl").unlink()
    listed = webnorm(["list", "--op", "kernels/soft"], tmp_path)
    assert (listed.returncode, listed.stdout) == (0, "no kernel; add a .wgsl file next to the op.py\n")
    refused = mistake(["bench", "--op", str(tmp_path / "kernels" / "soft"), "--rows", "8", "--cols", "8"])
    assert "the op has no kernel; add a .wgsl file next to its op.py" in refused


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = webnorm_process(["show", "nothing", "--debug"], tmp_path)
    *traceback, message = done.stderr.splitlines()
    assert done.returncode == 2 and traceback[0].startswith("Traceback")
    assert message.startswith("webnorm: unknown kernel 'nothing'")
    assert webnorm_process(["bench", "--nonsense"], tmp_path).returncode == 2


def test_ctrl_c_before_any_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "baseline_names", Mock(side_effect=KeyboardInterrupt))
    done = webnorm(["baselines"], tmp_path)
    assert (done.returncode, done.stderr) == (130, "webnorm: interrupted; nothing was finished\n")


def test_ctrl_c_while_a_shell_completes_says_nothing_to_the_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "baseline_names", Mock(side_effect=KeyboardInterrupt))
    words = {"COMP_WORDS": "webnorm\nbaselines\n", "COMP_CWORD": "2", "_WEBNORM_COMPLETE": "complete_bash"}
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    done = webnorm([], tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_parent_of_a_worker_leaves_the_native_backend_to_it() -> None:
    """Importing the native backend would take 0.2 s."""
    probe = "from webnorm.lab.run import bench, check, tune; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert "wgpu.backends.wgpu_native" not in done.stdout.split()


@pytest.mark.slow
def test_bench_profiles_the_fastest_of_each_problem(tmp_path: Path, device: Device) -> None:
    arguments = [
        "--rows",
        "8,16",
        "--cols",
        "48",
        "--budget",
        "0.2",
        "--kernel",
        "naive",
        "--kernel",
        "two_pass",
    ]
    done = webnorm(["bench", *arguments, "--profile", "--json", "out.json"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("time by stage of") == done.stdout.count("first use: render") == 2
    results = json.loads((tmp_path / "out.json").read_text())["results"]
    assert all(result["render_ns"] > 0 for result in results)
    for rows in (8, 16):
        mine = [result for result in results if result["problem"]["rows"] == rows and result["op"] != "copy"]
        fastest = min(mine, key=lambda result: result["median_ns"])
        assert [result for result in mine if "upload_ns" in result] == [fastest]
        assert fastest["upload_bytes"] == 4 * 48 * (rows + 2) and fastest["download_bytes"] == 4 * 48 * rows


@pytest.mark.slow
@pytest.mark.opengl
def test_bench_writes_what_compare_reads(tmp_path: Path, device: Device) -> None:
    files = ["--json", "out.json", "--csv", "out.csv", "--markdown", "out.md", "--plot", "out.svg"]
    done = webnorm(["bench", "--rows", "8,16", "--cols", "48", "--budget", "0.2", *files], tmp_path)
    assert done.returncode == 0, done.stderr
    matrix, first = (
        done.stdout.index("percent of the copy, * is fastest"),
        done.stdout.index("copy (roofline)"),
    )
    assert "registers" in done.stdout and matrix < first
    if device.traits.software:
        assert "differently from a GPU" in done.stdout
    data = json.loads((tmp_path / "out.json").read_text())
    assert data["complete"] is True and data["host"] == platform.node() and len(data["run"]) == 32
    assert data["command"].startswith("webnorm bench --rows 8,16 --cols 48")
    assert data["recorded"].endswith("Z")
    assert data["schema"] == 1 and data["device"]["adapter"] == device.adapter.name
    assert {result["problem"]["rows"] for result in data["results"]} == {8, 16}
    (seed,) = {result["problem"]["seed"] for result in data["results"]}
    assert done.stdout.endswith(f"--seed {seed} repeats the inputs\n")
    assert not any(line.endswith(" ") for line in done.stdout.splitlines())
    skipped = [result for result in data["results"] if result["status"] == "skip"]
    assert all("'subgroups'" in result["reason"] for result in skipped)
    assert bool(skipped) == ("subgroups" not in device.traits.features)
    data["results"] = [result for result in data["results"] if result not in skipped]
    for result in data["results"]:
        assert result["status"] == "pass" and result["deterministic"]
        assert result["median_ns"] > 0 and len(result["samples_ns"]) >= 2
        assert result["bytes"] == 2 * result["problem"]["rows"] * 48 * 4
        assert result["timing_method"] in ("timestamp", "wall clock") and result["cache"] in ("cold", "warm")
    assert (tmp_path / "out.svg").read_text().lstrip().startswith("<?xml")
    same = webnorm(["compare", "out.json", "out.json", "--fail-slower", "0"], tmp_path)
    assert same.returncode == 0
    own = [result for result in data["results"] if result["op"] != "copy"]
    assert same.stdout.startswith("copies of 2 problems: 0.0 % more time")
    assert same.stdout.count("SAME") >= len(own)
    assert not {"FASTER", "SLOWER", "UNCLEAR"} & set(same.stdout.split())

    # Made-up times, because several runs take long.
    for result in data["results"]:
        result.update(samples_ns=[1e6, 1.01e6] * 3, runs=[2, 2, 2], median_ns=1e6, flags=[])
    (tmp_path / "out.json").write_text(json.dumps(data))
    slower = deepcopy(data)
    for result in slower["results"]:
        if result["op"] != "copy":
            result.update(samples_ns=[2e6, 2.01e6] * 3, median_ns=2e6)
    (tmp_path / "slower.json").write_text(json.dumps(slower))
    assert webnorm(["compare", "out.json", "slower.json"], tmp_path).returncode == 0
    gate = ["compare", "out.json", "slower.json", "--fail-slower", "20"]
    refused = webnorm(gate, tmp_path)
    assert refused.returncode == 1
    assert f"webnorm: {len(own)} are slower by more than 20 %\n0 of {len(own)} are unclear" in refused.stdout
    slower["results"] = [result for result in slower["results"] if result["op"] == "copy"]
    (tmp_path / "slower.json").write_text(json.dumps(slower))
    assert f"webnorm: {len(own)} are missing in NEW" in webnorm(gate, tmp_path).stdout
    slower["results"] = data["results"]
    slower["complete"] = False
    (tmp_path / "slower.json").write_text(json.dumps(slower))
    cut = webnorm(gate, tmp_path)
    assert cut.returncode == 3 and "webnorm: NEW comes from an interrupted run" in cut.stdout
    assert webnorm([*gate, "--allow-missing"], tmp_path).returncode == 0
    slower["device"]["adapter"] = "another"
    (tmp_path / "slower.json").write_text(json.dumps(slower))
    foreign = webnorm(["compare", "out.json", "slower.json"], tmp_path)
    assert foreign.returncode == 2 and all(word in foreign.stderr for word in ("another", "--any-device"))
    assert webnorm(["compare", "out.json", "slower.json", "--any-device"], tmp_path).returncode == 0


@pytest.mark.slow
def test_a_benchmark_is_compared_with_a_baseline(
    tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBNORM_BASELINES", str(tmp_path / "kept"))
    short = ["bench", "--rows", "8", "--cols", "48", "--kernel", "naive", "--budget", "0.02"]
    missing = webnorm([*short, "--baseline", "main"], tmp_path)
    assert missing.returncode == 2 and "'main' is neither a file nor a baseline" in missing.stderr
    saved = webnorm([*short, "--save", "main"], tmp_path)
    assert saved.returncode == 0 and saved.stdout.endswith(
        f"kept as main: {tmp_path / 'kept' / 'main.json'}\n"
    )
    kept = json.loads((tmp_path / "kept" / "main.json").read_text())
    assert {len(result["runs"]) for result in kept["results"]} == {3}
    again = webnorm([*short, "--runs", "1", "--baseline", "main", "--save", "main"], tmp_path)
    assert again.returncode in (OK, INCONCLUSIVE), again.stderr
    assert "(the previous baseline is now main~)" in again.stdout
    assert (
        "ratio: new time divided by old time" in again.stdout and "naive" in again.stdout.split("copies:")[1]
    )
    assert json.loads((tmp_path / "kept" / "main~.json").read_text()) == kept
    for kind, word in (("--json", '"comparisons"'), ("--markdown", "| layer_norm 8x48 float32 | naive |")):
        compared = webnorm(["compare", "main~", "main", kind, "-"], tmp_path)
        assert compared.returncode in (OK, INCONCLUSIVE)
        assert word in compared.stdout and "ratio:" in compared.stderr
    kept["device"]["adapter"] = "another"
    (tmp_path / "foreign.json").write_text(json.dumps(kept))
    foreign = webnorm([*short, "--baseline", "foreign.json"], tmp_path)
    assert foreign.returncode == 2 and "the devices differ: adapter is 'another'" in foreign.stderr
    assert "naive" not in foreign.stdout
    others = webnorm([*short, "--cols", "64", "--baseline", "main"], tmp_path)
    said = "the reports have no problem in common: layer_norm, 8x48 float32 in the old one, layer_norm, 8x64"
    assert others.returncode == 2 and said in others.stderr and "naive" not in others.stdout


@pytest.mark.slow
@pytest.mark.opengl
def test_selections_mean_the_same_everywhere(tmp_path: Path, device: Device) -> None:
    asked = ["--op", "rms*", "--dtype", "float32,bf*", "-k", "na*"]
    checked = webnorm(["check", *asked, "--case", "rows-1,cols-?", "--json", "-"], tmp_path)
    assert checked.returncode == 0, checked.stderr
    results = json.loads(checked.stdout)["results"]
    assert {result["op"] for result in results} == {"rms_norm", "rms_norm_backward"}
    assert {result["problem"]["dtype"] for result in results} == {"float32", "bfloat16"}
    assert {result["kernel"] for result in results} == {"naive"}
    assert {result["case"] for result in results} == {"rows-1", "cols-1", "cols-2", "cols-3", "cols-5"}
    sizes = ["--rows", "2..4", "--cols", "16", "--dtype", "*16", "--op", "rms_norm,layer_norm"]
    timed = webnorm(["bench", *sizes, "-k", "naive", "--budget", "0.02", "--json", "-"], tmp_path)
    assert timed.returncode == 0, timed.stderr
    problems = [result for result in json.loads(timed.stdout)["results"] if result["kernel"] == "naive"]
    assert len(problems) == 8 and {one["problem"]["rows"] for one in problems} == {2, 4}
    assert timed.stderr.count("percent of the copy") == 4 and "-v shows one table for each" in timed.stderr


@pytest.mark.slow
def test_runs_are_merged_and_compared(tmp_path: Path, device: Device) -> None:
    arguments = [*QUICK, "--kernel", "naive", "--runs", "3", "--json", "out.json"]
    done = webnorm(arguments, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("layer_norm, 8x48") == 1
    data = json.loads((tmp_path / "out.json").read_text())
    assert data["complete"] is True
    for result in data["results"]:
        assert len(result["runs"]) == 3 and sum(result["runs"]) == len(result["samples_ns"])
    assert {tuple(result["runs"]) for result in data["results"]} == {tuple(data["results"][0]["runs"])}


@pytest.mark.slow
def test_a_kernel_that_is_skipped_proves_nothing(tmp_path: Path, device: Device) -> None:
    """The problem has more columns than any workgroup supports."""
    long = ["--kernel", "registers", "--dtype", "float32"]
    np.save(tmp_path / "x.npy", np.zeros((1, 100_000), np.float32))
    for command, done in (
        (["check", *long[:2], "--input", "x.npy"], "checked"),
        (["bench", *long, "--rows", "1", "--cols", "100000", "--budget", "0.1"], "timed"),
    ):
        nothing = webnorm(command, tmp_path)
        assert nothing.returncode == 3, nothing.stdout
        assert nothing.stderr == f"webnorm: not {done}: every kernel (--allow-skipped accepts this)\n"
        assert webnorm([*command, "--allow-skipped"], tmp_path).returncode == 0


def test_json_to_standard_output_is_json_alone(tmp_path: Path, device: Device) -> None:
    done = webnorm([*QUICK, "--kernel", "naive", "--json", "-"], tmp_path)
    assert {result["kernel"] for result in json.loads(done.stdout)["results"]} == {"copy", "naive"}


def test_a_wrong_kernel_is_exit_1(tmp_path: Path, device: Device) -> None:
    root = broken.write(tmp_path / "mine", "wrong", "unparsable")
    arguments = ["--wgsl", str(root), "--kernel", "wrong", "--kernel", "unparsable", "--kernel", "naive"]
    done = webnorm([*QUICK, *arguments, "--json", "out.json"], tmp_path)
    assert done.returncode == 1
    results = {r["kernel"]: r for r in json.loads((tmp_path / "out.json").read_text())["results"]}
    assert (results["wrong"]["status"], results["unparsable"]["status"]) == ("fail", "error")
    assert results["naive"]["status"] == "pass" and "median_ns" not in results["wrong"]
    assert "unparsable.wgsl:" in results["unparsable"]["reason"]
    checked = webnorm(["check", *arguments, "--case", "rows-1"], tmp_path)
    assert checked.returncode == 1 and "FAIL" in checked.stdout


@pytest.mark.slow
def test_bench_with_one_pass_failing_as_expected(tmp_path: Path, device: Device) -> None:
    """A kernel that is declared unstable does not fail a run; another kernel does."""
    path = tmp_path / "out.json"
    shape = ("--rows", "4", "--cols", "512", "--distribution", "mean1e4", "--budget", "0.05")
    named = ("--kernel", "one_pass", "--kernel", "registers", "--json", str(path))
    done = webnorm(["bench", *named, *shape], tmp_path)
    assert done.returncode == 0, done.stderr
    results = {one["kernel"]: one for one in json.loads(path.read_text())["results"]}
    assert (results["one_pass"]["status"], results["one_pass"]["expected"]) == ("fail", True)
    assert results["registers"]["status"] == "pass"


@pytest.mark.opengl
def test_check_with_one_pass_failing_as_expected(tmp_path: Path, device: Device) -> None:
    arguments = [
        "check",
        "--kernel",
        "one_pass",
        "--kernel",
        "registers",
        "--case",
        "shift-1e4",
        "--case",
        "rows-0",
    ]
    done = webnorm([*arguments, "--json", "out.json"], tmp_path)
    assert done.returncode == 0, done.stdout
    results = json.loads((tmp_path / "out.json").read_text())["results"]
    (failure,) = [result for result in results if result["status"] == "fail"]
    assert (failure["kernel"], failure["expected"], failure["case"]) == ("one_pass", True, "shift-1e4")
    assert "expected" in failure["reason"] and "off by" in failure["reason"]


@pytest.mark.opengl
def test_check_of_the_choice_of_auto(tmp_path: Path, device: Device) -> None:
    check = ["check", "--case", "rows-1", "--case", "cols-199", "--json", "-"]
    for more, most in ((["-k", "auto"], 1), (["-k", "auto", "-k", "naive"], 2)):
        done = webnorm([*check, *more], tmp_path)
        assert done.returncode == 0, done.stderr
        results = json.loads(done.stdout)["results"]
        assert all(result["op"] == "layer_norm" and result["status"] == "pass" for result in results)
        cases = [result["case"] for result in results]
        assert set(cases) == {"rows-1", "cols-199"} and max(map(cases.count, cases)) <= most


def test_check_of_the_copy(tmp_path: Path, device: Device) -> None:
    for asked in (["--op", "copy"], ["--kernel", "copy"]):
        done = webnorm(["check", *asked, "--case", "rows-1", "--json", "-"], tmp_path)
        assert done.returncode == 0, done.stderr
        results = json.loads(done.stdout)["results"]
        assert {(result["op"], result["status"]) for result in results} == {("copy", "pass")}


def test_check_of_a_users_array(tmp_path: Path, device: Device) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 40)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "wide.npy", x.astype(np.float64))
    done = webnorm(["check", "--input", "x.npy", "--json", "-"], tmp_path)
    assert done.returncode == 0
    results = json.loads(done.stdout)["results"]
    assert {(r["problem"]["rows"], r["problem"]["cols"], r["case"]) for r in results} == {(6, 40, "x.npy")}
    wrong = webnorm(["check", "--input", "wide.npy"], tmp_path)
    assert wrong.returncode == 2 and "dtype is float64; expected float32, " in wrong.stderr


@pytest.mark.opengl
def test_show(tmp_path: Path, device: Device) -> None:
    shown = webnorm(["show", "registers", "--cols", "768", "--target", "browser"], tmp_path).stdout
    assert "enable subgroups;" in shown and "const COLS = 768u;" in shown and "layer_norm/registers" in shown
    difference = webnorm(["show", "registers", "--diff", "two_pass"], tmp_path).stdout
    # Lines that only the first kernel contains are the added lines.
    assert re.findall(r"^(?:---|\+\+\+) \w+/(\w+)", difference, re.M) == ["two_pass", "registers"]
    assert "\n+@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;" in difference
    chosen = ["show", "registers", "--cols", "512", "-c", "threads_per_row=16", "--no-bias"]
    assert "const THREADS = 16u;" in webnorm(chosen, tmp_path).stdout


def cost_of(arguments: list[str], folder: Path) -> dict[str, str]:
    done = webnorm(["show", *arguments, "--cost"], folder)
    assert done.returncode == 0, done.stderr
    first, *rows = done.stdout.splitlines()
    assert first.startswith("counted by running ") and not {*done.stdout} & {*"│┃━"}
    return dict(re.split("  +", row) for row in rows if "  " in row)


OWN_BINDINGS = """// /// webnorm
// summary = "Without the library."
// differs = "It has bindings of its own."
// layout = "row_per_invocation"
// [derive]
// vector_width = 1
// ///
struct Given { rows: u32, eps: f32 }
@group(0) @binding(0) var<uniform> given: Given;
@group(0) @binding(1) var<storage, read> values: array<f32>;
@group(0) @binding(2) var<storage, read_write> results: array<f32>;
var<workgroup> shared_values: array<f32, {{ workgroup_size }}>;
@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(local_invocation_index) invocation: u32) {
    shared_values[invocation] = values[invocation];
    workgroupBarrier();
    results[invocation] = shared_values[0];
} // nothing behind it"""


def test_the_cost_of_a_text_without_the_library(tmp_path: Path, device: Device) -> None:
    path = tmp_path / "layer_norm" / "own.wgsl"
    path.parent.mkdir()
    path.write_text(OWN_BINDINGS)
    cost = cost_of([str(path), "--no-weight", "--no-bias", "-c", "workgroup_size=32"], tmp_path)
    assert cost["barriers per row"] == "0.0312"
    for name in ("reads of rows", "writes of rows", "reads of parameters"):
        assert cost[f"{name} per element"] == "not counted"


@pytest.mark.opengl
def test_cost_is_counted(tmp_path: Path, device: Device) -> None:
    layout = ["--cols", "512", "-c", "threads_per_row=32"]
    registers = cost_of(["registers", *layout], tmp_path)
    # Each of 32 invocations reads the four columns of the pivot again.
    assert registers["reads of rows per element"] == "1.25"
    assert registers["writes of rows per element"] == "1"
    assert registers["reads of parameters per element"] == "2"
    # Without subgroups each invocation has its own slot, and sums are joined in two halves.
    places, barriers = (8, "2") if device.subgroup_size else (32, "4")
    assert int(registers["workgroup memory, bytes"]) == places * 4 + places * 8
    assert registers["barriers per row"] == ("0" if (device.subgroup_size or 0) >= 32 else barriers)
    two_pass = cost_of(["two_pass", *layout], tmp_path)
    assert (
        two_pass["reads of rows per element"] == "3.06"
    )  # three sweeps, and each invocation reads the pivot
    # There are two trees of five levels, and a barrier after each tree before its memory is used again.
    assert two_pass["barriers per row"] == "14"
    assert two_pass["subgroup operations per row"] == "0"
    assert cost_of(["naive", "--no-weight", "--no-bias"], tmp_path)["reads of parameters per element"] == "0"


def test_the_cost_of_a_gradient(tmp_path: Path, device: Device) -> None:
    """The kernel reads x and dy once and writes dx once, because no workgroup reads beyond its last row."""
    layout = ["--op", "layer_norm_backward", "--cols", "256", "-c", "prefetch=0"]
    cost = cost_of(["registers", *layout], tmp_path)
    assert cost["reads of rows per element"] == "2"
    assert cost["writes of rows per element"] == "1"
    assert cost["barriers per row"] == "not counted"


def test_raw_access_is_not_counted(tmp_path: Path, device: Device) -> None:
    text = broken.HONEST.replace(
        "let d = where_live(load_input(row, j, thread) - mean", "let d = where_live(x[row * COLS + j] - mean"
    )
    assert text != broken.HONEST
    (tmp_path / "layer_norm").mkdir()
    (tmp_path / "layer_norm" / "raw.wgsl").write_text(text)
    cost = cost_of(["layer_norm/raw.wgsl"], tmp_path)
    assert cost["reads of rows per element"] == "not counted"
    assert cost["writes of rows per element"] == "1"


@pytest.mark.opengl
def test_doctor(tmp_path: Path, device: Device) -> None:
    done = webnorm(["doctor"], tmp_path)
    assert done.returncode == 0
    assert device.adapter.name.split()[0] in done.stdout
    assert f"{device.subgroup_size or 'no subgroups'} (probed)" in done.stdout
    assert "XDG_RUNTIME_DIR" not in done.stderr
    mended = webnorm(["doctor", "--fix"], tmp_path)
    assert mended.returncode == 0 and mended.stdout.endswith(f" {device.adapter}\n")


def test_doctor_without_an_adapter(tmp_path: Path) -> None:
    """A bare machine has a Vulkan loader without a driver, and no OpenGL."""
    nothing = {
        "VK_ICD_FILENAMES": "/none",
        "VK_DRIVER_FILES": "/none",
        "WGPU_BACKEND": "vulkan",
        "EGL_PLATFORM": "none",
    }
    probe = "from webnorm.gpu.device import adapters; print(len(adapters()))"
    environment = {
        **os.environ,
        **nothing,
        "LIBGL_DRIVERS_PATH": "/none",
        "GBM_BACKENDS_PATH": "/none",
        "__EGL_VENDOR_LIBRARY_FILENAMES": "/none",
    }
    found = subprocess.run(
        [sys.executable, "-c", probe], env=environment, capture_output=True, text=True, check=True
    )
    if found.stdout.strip() != "0":
        pytest.skip("the adapters of this system cannot be hidden by environment variables")
    done = subprocess.run(
        [sys.executable, "-m", "webnorm", "doctor"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "--fix" in done.stdout or "No WebGPU adapter" in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is sent another way on Windows")
def test_ctrl_c_keeps_finished_results(tmp_path: Path, device: Device) -> None:
    command = ["bench", "--rows", "8,16,24,32,40,48", "--cols", "48,64,80", "--kernel", "naive"]
    done = webnorm_interrupted([*command, "--budget", "0.2", "--json", "out.json"], tmp_path, "out.json")
    assert done.returncode == 130
    assert done.stderr == "webnorm: interrupted; finished results are kept\n"
    data = json.loads((tmp_path / "out.json").read_text())
    assert data["complete"] is False
    finished = {(r["problem"]["rows"], r["problem"]["cols"]) for r in data["results"]}
    assert 1 <= len(finished) < 18
