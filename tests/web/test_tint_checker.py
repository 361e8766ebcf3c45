from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headless import needs_tint
from patience import all_end
from webnorm.engines import node_webgpu
from webnorm.errors import WebnormError
from webnorm.web import tint

HEADER = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
"""
MAIN = "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>)"
WIDE = MAIN.replace("64", "512")
PASS = tint.TintEntryPoint("main", ((0, "read-only-storage"), (1, "storage")))

SHADERS = {
    "good": f"{HEADER} {MAIN} {{ y[id.x] = 2.0 * x[id.x]; }}",
    "syntax": f"{HEADER} {MAIN} {{\n  y[id.x] = = 1.0;\n}}",
    "non_uniform": (
        f"enable subgroups;\n{HEADER} {MAIN} {{\n"
        "  if (x[id.x] > 0.0) { y[id.x] = subgroupAdd(x[id.x]); }\n}"
    ),
    "warned": (
        f"enable subgroups;\ndiagnostic(warning, subgroup_uniformity);\n{HEADER} {MAIN} {{\n"
        "  if (x[id.x] > 0.0) { y[id.x] = subgroupAdd(x[id.x]); }\n}"
    ),
    "silenced": (
        f"enable subgroups;\ndiagnostic(\noff, subgroup_uniformity);\n{HEADER} {MAIN} {{\n"
        "  if (x[id.x] > 0.0) { y[id.x] = subgroupAdd(x[id.x]); }\n}"
    ),
    "invocations": f"{HEADER} {WIDE} {{ y[id.x] = x[id.x]; }}",
    "workgroup_memory": (
        f"{HEADER} var<workgroup> tile: array<f32, 10240>;\n"
        f"{MAIN} {{ tile[id.x] = x[id.x]; y[id.x] = tile[0]; }}"
    ),
}


@pytest.fixture(scope="module")
def verdicts() -> dict[str, tint.TintVerdict]:
    sources = [
        tint.TintSource(name, code, (PASS,), ("subgroups",) if "enable subgroups" in code else ())
        for name, code in SHADERS.items()
    ]
    return {verdict.name: verdict for verdict in tint.check_shaders(sources)}


@needs_tint
def test_good_shader(verdicts: dict[str, tint.TintVerdict]) -> None:
    assert verdicts["good"] == tint.TintVerdict("good", ())
    assert verdicts["good"].ok


@needs_tint
def test_syntax_error_has_its_line(verdicts: dict[str, tint.TintVerdict]) -> None:
    assert not verdicts["syntax"].ok
    message = verdicts["syntax"].messages[0]
    assert message.severity == "error"
    assert message.line is not None and message.column is not None
    assert SHADERS["syntax"].splitlines()[message.line - 1].strip() == "y[id.x] = = 1.0;"
    assert message.column > 1


@needs_tint
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("non_uniform", "uniform control flow"),
        ("warned", "uniform control flow"),
        ("silenced", "diagnostics may not be turned off"),
        ("invocations", "pipeline of main"),
        ("workgroup_memory", "pipeline of main"),
    ],
)
def test_refused_shaders(verdicts: dict[str, tint.TintVerdict], name: str, said: str) -> None:
    assert not verdicts[name].ok
    refusals = [message for message in verdicts[name].messages if message.refuses]
    assert any(said in message.text for message in refusals), refusals


@needs_tint
def test_a_warning_and_an_order_of_silence_have_their_lines(verdicts: dict[str, tint.TintVerdict]) -> None:
    (warning, *_) = verdicts["warned"].messages
    assert warning.severity == "warning"
    assert warning.line == SHADERS["warned"].count("\n")
    (order, *_) = verdicts["silenced"].messages
    assert (order.line, order.column) == (2, 1)


@needs_tint
@pytest.mark.parametrize(
    ("limits", "ok"),
    [
        ({"maxComputeInvocationsPerWorkgroup": 512, "maxComputeWorkgroupSizeX": 512}, (True, False, False)),
        ({"maxComputeInvocationsPerWorkgroup": 512}, (False, False, False)),
        ({"maxComputeInvocationsPerWorkgroup": 511, "maxComputeWorkgroupSizeX": 512}, (False, False, False)),
        ({"maxComputeWorkgroupStorageSize": 40960}, (False, True, False)),
        ({"maxComputeWorkgroupStorageSize": 40959}, (False, False, False)),
        (
            {
                "maxComputeInvocationsPerWorkgroup": 1024,
                "maxComputeWorkgroupSizeX": 1024,
                "maxComputeWorkgroupStorageSize": 65536,
            },
            (True, True, True),
        ),
        (
            {"maxComputeInvocationsPerWorkgroup": 1, "maxStorageBuffersPerShaderStage": 1},
            (False, False, False),
        ),
        ({"maxNothing": 1}, (False, False, False)),
    ],
    ids=str,
)
def test_a_shader_may_use_its_limits(limits: dict[str, int], ok: tuple[bool, ...]) -> None:
    wide, large = SHADERS["invocations"], SHADERS["workgroup_memory"]
    codes = (wide, large, large.replace(MAIN, WIDE))
    verdicts = tint.check_shaders(
        [tint.TintSource(str(i), code, (PASS,), limits=limits) for i, code in enumerate(codes)]
    )
    assert tuple(verdict.ok for verdict in verdicts) == ok


@needs_tint
def test_a_wide_shader_is_checked_in_all_else() -> None:
    limits = {"maxComputeInvocationsPerWorkgroup": 512, "maxComputeWorkgroupSizeX": 512}
    wrong = (tint.TintEntryPoint("main", PASS.bindings[:1]), tint.TintEntryPoint("other", PASS.bindings))
    verdicts = tint.check_shaders(
        [tint.TintSource("w", SHADERS["invocations"], (one,), limits=limits) for one in wrong]
    )
    assert [verdict.ok for verdict in verdicts] == [False, False]


@needs_tint
def test_constants_are_passed_on() -> None:
    code = f"override many = 1u;\n{HEADER} {MAIN.replace('64', 'many')} {{ y[id.x] = x[id.x]; }}"
    passes = [tint.TintEntryPoint("main", PASS.bindings, {"many": many}) for many in (256, 257)]
    verdicts = tint.check_shaders([tint.TintSource("override", code, (one,)) for one in passes])
    assert [verdict.ok for verdict in verdicts] == [True, False]


@needs_tint
def test_immediates_need_their_bytes_in_the_layout() -> None:
    declared = "requires immediate_address_space;\nvar<immediate> scale: vec2f;"
    code = f"{declared}\n{HEADER} {MAIN} {{ y[id.x] = scale.y; }}"
    passes = [replace(PASS, immediate_size=size) for size in (8, 4, 0)]
    verdicts = tint.check_shaders([tint.TintSource("immediates", code, (one,)) for one in passes])
    assert [verdict.ok for verdict in verdicts] == [True, False, False]


@needs_tint
def test_unknown_feature_is_a_verdict() -> None:
    (verdict,) = tint.check_shaders([tint.TintSource("f", "", (), ("no-such-feature",))])
    assert not verdict.ok
    assert verdict.messages


@needs_tint
def test_errors_of_node_are_reported_in_one_line(tmp_path: Path) -> None:
    module = tmp_path / "module.mjs"
    module.write_text("export const texts = = 1;")
    with pytest.raises(WebnormError, match=r"^SyntaxError: Unexpected token '='$"):
        tint.run_node("texts.mjs", module)


@pytest.fixture(scope="module")
def kept_open() -> Iterator[tint.OpenTint]:
    with tint.OpenTint() as opened:
        yield opened


def request(*names: str) -> list[tint.TintSource]:
    return [tint.TintSource(name, SHADERS[name], (PASS,)) for name in names]


def pid_of(opened: tint.OpenTint) -> int:
    assert opened._node is not None
    return opened._node.process.pid


@needs_tint
def test_one_process_answers_many_requests(
    kept_open: tint.OpenTint, verdicts: dict[str, tint.TintVerdict]
) -> None:
    kept_open.start()
    pid = pid_of(kept_open)
    assert kept_open.check(request("good")) == [tint.TintVerdict("good", ())]
    (syntax,) = kept_open.check(request("syntax"))
    assert syntax == verdicts["syntax"] and syntax.messages[0].line and syntax.messages[0].column
    names = [*("invocations", "good") * 3]
    found: dict[int, list[tint.TintVerdict]] = {}

    def ask(at: int) -> None:
        found[at] = kept_open.check(request(*names[at:]))

    threads = [threading.Thread(target=ask, args=(at,)) for at in range(len(names))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[at] == [verdicts[name] for name in names[at:]] for at in range(len(names)))
    assert pid_of(kept_open) == pid


@needs_tint
def test_a_node_that_dies_is_late_or_old_is_replaced(
    kept_open: tint.OpenTint, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_open.start()
    first = pid_of(kept_open)
    os.kill(first, signal.SIGKILL)
    assert kept_open.check(request("good"))[0].ok
    second = pid_of(kept_open)
    assert second != first
    os.kill(second, signal.SIGSTOP)
    with pytest.raises(WebnormError, match=r"^check.mjs: node did not finish within 0.2 s: stopped$"):
        kept_open.check(request("good"), 0.2)
    assert kept_open.check(request("good"))[0].ok and pid_of(kept_open) not in (first, second)
    monkeypatch.setattr(tint, "_MOST_REQUESTS", 1)
    second = pid_of(kept_open)
    assert kept_open.check(request("good"))[0].ok and pid_of(kept_open) != second
    monkeypatch.undo()
    # The parent handles Ctrl-C.
    third = pid_of(kept_open)
    os.kill(third, signal.SIGINT)
    assert kept_open.check(request("good"))[0].ok and pid_of(kept_open) == third


@needs_tint
def test_stopping_does_not_wait_for_an_answer(
    kept_open: tint.OpenTint, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_open.start()
    os.kill(pid_of(kept_open), signal.SIGSTOP)
    asked, answer = threading.Event(), tint._Node.ask

    def noted_ask(*words: Any) -> Any:
        asked.set()
        return answer(*words)

    monkeypatch.setattr(tint._Node, "ask", noted_ask)
    said: list[str] = []

    def ask() -> None:
        try:
            kept_open.check(request("good"))
        except WebnormError as error:
            said.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    asked.wait()
    kept_open.stop()
    asking.join()
    # The check did not wait for its time limit, and started no other process.
    assert said == ["check.mjs: stopped"] and kept_open._node is None
    assert kept_open.check(request("good"))[0].ok


@needs_tint
def test_a_package_that_cannot_be_read_is_reported_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tint, "tint_unavailable", lambda: None)
    monkeypatch.setattr(tint, "tint_folder", lambda: tmp_path)
    for check in (tint.check_shaders, tint.OpenTint().check):
        with pytest.raises(WebnormError, match=r"^Error \[ERR_MODULE_NOT_FOUND\]: [^\n]+$"):
            check([])


@needs_tint
def test_node_ends_with_its_parent() -> None:
    script = (
        "import sys; from webnorm.web import tint; opened = tint.OpenTint(); opened.start(); "
        "print(opened._node.process.pid, flush=True); sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    all_end([child])


def test_a_missing_part_is_reported_with_its_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    node = tmp_path / "node"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tint.tint_unavailable() == "No Tint: node is not installed; install Node.js 20 or later, with npm."
    for check in (tint.check_shaders, tint.OpenTint().check):
        with pytest.raises(WebnormError, match="No Tint: node is not installed"):
            check([])
    for program in (node, tmp_path / "npm"):
        program.touch(mode=0o755)
    assert tint.tint_unavailable() == (
        f"No Tint: the npm package webgpu {node_webgpu.WEBGPU} is not installed. "
        "`webnorm doctor --fix --browser` installs it."
    )
    fix = node_webgpu.tint_fix()
    assert fix is not None
    ((*_, package),) = fix.commands
    assert package == f"webgpu@{node_webgpu.WEBGPU}"
    assert str(node_webgpu.tint_folder()) in fix.commands[0] and node_webgpu.tint_folder().is_relative_to(
        tmp_path
    )
    # An npm that was interrupted leaves the folder without this file.
    node_webgpu.webgpu().mkdir(parents=True)
    assert tint.tint_unavailable() is not None
    (node_webgpu.tint_folder() / "node_modules" / ".package-lock.json").touch()
    assert tint.tint_unavailable() is None
