"""`webnorm new`: it copies a kernel, the copy passes, and no file is overwritten."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import webnorm
from testbed import GPU, KERNELS, kernel_named, needs, suited
from webnorm.choice.defaults import default_variant
from webnorm.gpu.device import Device
from webnorm.kernels.headers.drafts import draft
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.kernel import Kernel
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.kernels.headers.variants import Variant
from webnorm.kernels.rendering.render import render_shader
from webnorm.kernels.rendering.snippets import strip_unused
from webnorm.ops.norms.problem import NormProblem

BACKWARD = ["--case", "everything-backward-61"]
FORWARD = ["--case", "normal", "--case", "everything-int8-61"]
LESSONS = {"layer_norm": "two_pass", "rms_norm": "workgroup"}


def drafted(kernel: Kernel, folder: Path) -> Kernel:
    path = folder / kernel.op.name / "mine.wgsl"
    path.parent.mkdir()
    path.write_text(draft(kernel, [folder, wgsl_root()]))
    return load(path)


def code(variant: Variant, problem: NormProblem, *roots: Path) -> list[str]:
    """Return the lines of a rendered text, without comments and without unused declarations.

    This also removes unused declarations of the user's file, which the renderer keeps.
    """
    lines = render_shader(variant, problem, "native", GPU, roots=roots).text.splitlines()
    lines, _ = strip_unused(lines, [True] * len(lines))
    return [line for line in (re.sub("//.*", "", line).strip() for line in lines) if line]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "kernel", [kernel for kernel in KERNELS if not kernel.op.is_copy], ids=lambda kernel: kernel.label
)
def test_a_draft_renders_like_its_source(kernel: Kernel, tmp_path: Path) -> None:
    mine = drafted(kernel, tmp_path)
    assert (mine.op, mine.tune, mine.passes) == (kernel.op, kernel.tune, kernel.passes)
    assert mine.summary == f"A copy of {kernel.label}." and mine.differs == "Nothing yet."
    text = mine.path.read_text()
    assert "ops =" not in text and "Change this copy. A first step: " in text
    assert {step.entry_point for step in mine.passes} <= set(re.findall(r"^fn (\w+)\(", text, re.M))
    for problem in (NormProblem(rows=64, cols=768), NormProblem(rows=16, cols=199, dtype="float16")):
        suits = suited(kernel, NormProblem(**{**vars(problem), "options": kernel.op.defaults}))
        variant = default_variant(kernel, suits, GPU)
        source, copy = code(variant, suits), code(Variant(mine, variant.constants), suits, tmp_path)
        # The renderer keeps a function in the kernel's own file even if the problem does not call it.
        left = iter(copy)
        assert all(line in left for line in source) and len(copy) <= len(source) + 3


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("op", "source"),
    [
        ("layer_norm", None),
        ("layer_norm", "naive"),
        ("layer_norm", "one_pass"),
        ("layer_norm", "welford_subgroup"),
        ("layer_norm", "registers"),
        ("rms_norm", None),
        ("rms_norm", "split_row"),
        ("layer_norm_backward", None),
        ("layer_norm_backward", "registers"),
        ("rms_norm_backward", None),
        ("rms_norm_backward", "tiles"),
    ],
)
def test_a_new_kernel_passes_and_the_printed_commands_work(
    op: str, source: str | None, tmp_path: Path, device: Device
) -> None:
    asked = ["--op", op, *(["--from", source] if source else [])]
    done = webnorm(["new", "mine", *asked], tmp_path)
    assert done.returncode == 0, done.stderr
    wrote, *lines = done.stdout.splitlines()
    play, show, check, bench = (shlex.split(line)[1:] for line in lines if line.startswith("  webnorm "))
    kernel = source or LESSONS.get(op, "naive")
    needs(device, (name for name, tree in kernel_named(kernel, op).features.items() if tree == 1))
    assert wrote == f"wrote kernels/{op}/mine.wgsl, a copy of {op}/{kernel}."
    assert play == ["play", f"kernels/{op}/mine.wgsl"]
    cases = BACKWARD if op.endswith("backward") else FORWARD
    bench += ["--rows", "8", "--cols", "64", "--budget", "0.1"]
    # split_row does not support int8, which counts as a skip.
    check += [*cases, "--allow-skipped"]
    for words in (check,) if source else (show, check, bench):
        done = webnorm(words, tmp_path)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm", "layer_norm_backward", "rms_norm_backward"])
def test_the_suggested_first_change_works(op: str, tmp_path: Path, device: Device) -> None:
    assert webnorm(["new", "mine", "--op", op], tmp_path).returncode == 0
    path = tmp_path / "kernels" / op / "mine.wgsl"
    text = path.read_text()
    assert "A first step: set `vector_width = 4` in the table [derive]" in text
    header = text.split("// ///\n")[0]
    if "vector_width" in header:
        text = re.sub("// vector_width = .*", "// vector_width = 4", text)
    else:
        text = text.replace("// [accuracy]", "// [derive]\n// vector_width = 4\n// [accuracy]")
    path.write_text(text)
    cases = BACKWARD if op.endswith("backward") else FORWARD
    done = webnorm(["check", "--kernel", "mine", "--op", op, "--wgsl", "kernels", *cases], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_users_kernel_can_be_copied(tmp_path: Path) -> None:
    first = webnorm(["new", "first", "--out", "own", "--from", "welford"], tmp_path)
    second = webnorm(["new", "second", "--out", "own", "--from", "first"], tmp_path)
    assert (first.returncode, second.returncode) == (0, 0)
    path = tmp_path / "own" / "layer_norm" / "second.wgsl"
    assert 'summary = "A copy of layer_norm/first."' in path.read_text()
    assert "--kernel second --kernel first --wgsl own" in second.stdout


def test_values_of_several_lines_are_one(tmp_path: Path) -> None:
    path = tmp_path / "own" / "layer_norm" / "first.wgsl"
    path.parent.mkdir(parents=True)
    lines = [
        "// ops = [",
        '//   "rms_norm",',
        '//   "layer_norm",',
        "// ]",
        '// summary = """A',
        '// norm."""',
    ]
    text = (wgsl_root() / "layer_norm" / "welford.wgsl").read_text()
    path.write_text(re.sub("// summary = .*", "\n".join(lines), text))
    assert webnorm(["new", "second", "--out", "own", "--from", "first"], tmp_path).returncode == 0
    second = load(path.with_name("second.wgsl"))
    assert second.op.name == "layer_norm" and second.summary == "A copy of layer_norm/first."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--op", "layernorm"], "unknown op 'layernorm'; did you mean 'layer_norm'?"),
        (
            ["a", "--op", "copy"],
            "op 'copy' only measures what a norm is compared with; expected one of ",
        ),
        (["a", "--from", "two_pas"], "unknown kernel 'two_pas'; did you mean 'two_pass'?"),
        (["a", "--from", "auto"], "unknown kernel 'auto'; expected one of naive"),
        (
            ["a", "--from", "rms_norm/workgroup"],
            "--from is rms_norm/workgroup, of rms_norm; expected a kernel",
        ),
        (["two-pass"], "NAME is 'two-pass'; expected at most 64 letters, digits and _"),
        (["../a"], "NAME is '../a'; expected at most 64 letters"),
        (["a" * 65], "at most 64"),
        (["naïve"], "expected at most 64 letters"),
        (["naive"], "NAME is 'naive', which is taken"),
        (["auto"], "NAME is 'auto', which is taken"),
        (["copy"], "NAME is 'copy', which is taken"),
        (["a", "--out", "file"], "cannot write file/layer_norm/a.wgsl: file is a file; expected a folder"),
        (
            ["a", "--out", "taken"],
            "cannot write taken/layer_norm/a.wgsl: taken/layer_norm is a file; expected a folder",
        ),
        (["a", "--out", "n" * 300], "File name too long"),
        (["a", "--out", ""], "--out is ''; expected a value"),
        (["a", "--out", "n\nl"], "n l/layer_norm/a.wgsl: its path contains the character U+000A; rename it"),
        (["there"], "kernels/layer_norm/there.wgsl already exists; expected another NAME"),
        (["link"], "kernels/layer_norm/link.wgsl already exists"),
    ],
)
def test_mistakes(
    arguments: list[str], message: str, tmp_path: Path, mistake: Callable[[list[str]], str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "layer_norm").touch()
    folder = tmp_path / "kernels" / "layer_norm"
    folder.mkdir(parents=True)
    (folder / "there.wgsl").write_text("mine")
    (folder / "link.wgsl").symlink_to("nowhere")
    assert message in mistake(["new", *arguments])
    assert (folder / "there.wgsl").read_text() == "mine"
    assert sorted(path.name for path in folder.iterdir()) == ["link.wgsl", "there.wgsl"]


def test_a_narrow_terminal_breaks_no_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell joins the wrapped commands again."""
    asked = ["new", "mine", "--op", "rms_norm_backward"]
    wide = webnorm([*asked, "--out", "a"], tmp_path).stdout
    monkeypatch.setenv("COLUMNS", "40")
    narrow = webnorm([*asked, "--out", "b"], tmp_path).stdout
    assert max(map(len, narrow.splitlines())) <= 40 and len(narrow.splitlines()) > len(wide.splitlines())
    assert narrow.replace("\\\n", " ").split() == re.sub(r"\ba\b(?!,? copy)", "b", wide).split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("folder", ["-x", "it's", "a  b", "\udcff", "u\u2028", "e\x1b[1m", "$HOME", "[bold]"])
def test_a_shell_takes_the_commands_whatever_the_folder_is_called(folder: str, tmp_path: Path) -> None:
    offered = webnorm(["new", "mine", f"--out={folder}"], tmp_path).stdout
    shown = next(line for line in offered.splitlines() if line.startswith("  webnorm show "))
    # The shell splits the line, and the test runs the resulting words.
    script = shown.replace("webnorm", "printf '%s\\0'", 1)
    words = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, check=True).stdout
    done = webnorm([os.fsdecode(word) for word in words.split(b"\0")[:-1]], tmp_path)
    assert done.returncode == 0 and "layer_norm/mine for" in done.stdout, done.stderr


def test_help_says_where_it_writes(tmp_path: Path) -> None:
    done = webnorm(["new", "--help"], tmp_path)
    said = " ".join(re.sub("[│╭╮╰╯─]", " ", done.stdout).split())
    assert done.returncode == 0
    assert "The file is DIR/OP/NAME.wgsl. Default: kernels." in said and "--from KERNEL" in said
