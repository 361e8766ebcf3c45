"""The commands, Python, worked example and generated tables of the README and the docs work as shown."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import typer

import tiers
from bench.numerics import kernels_table
from commands import webnorm
from pages import DOCUMENTS, ROOT, Command, blocks, commands, edit, missing_lines, name_of, steps, transcript
from testbed import tracked
from webnorm.cli.verb_table import VERBS, _loaded
from webnorm.cli.verbs import bench, collect
from webnorm.cli.work.jobs import INCONCLUSIVE, OK
from webnorm.gpu.device import Device
from webnorm.kernels.headers import header
from webnorm.kernels.headers.library import discover
from webnorm.kernels.headers.sources import wgsl_root
from webnorm.kernels.headers.variants import names_of, template_names_of
from webnorm.op import presets
from webnorm.op.registry import OPS
from webnorm.ops.copy.problem import RowProblem
from webnorm.ops.norms import corpus, functional, modules, onnx_ops
from webnorm.ops.norms.case import OPTION_GRID
from webnorm.ops.norms.case import NormCase as Case
from webnorm.ops.norms.presets import PRESETS
from webnorm.ops.norms.problem import NormOptions
from webnorm.web import tint
from webnorm.web.browser import launch

KERNEL_PAGE = ROOT / "docs" / "kernel-file.md"
WHOLE_CORPUS, FIXED = corpus.whole_corpus, {case.name for case in corpus.CASES}
# This guide needs a cluster, which the tests of clusters start.
FLEET = ROOT / "docs" / "cluster.md"
# This command takes half a minute.
EXPORT_LAB = ["export", "--lab", "--out", "dist/lab"]
# Files that a page reads and does not write.
_MODELS = ROOT / "tests" / "models" / "files"
PREPARED = {
    "scan.md": {"unet.onnx": _MODELS / "unet_dynamo.onnx"},
    "model-to-page.md": {"qwen3.onnx": _MODELS / "qwen3_dynamo.onnx"},
}
# The budgets of the first tier.
SHORT_S = {"bench": "0.05", "tune": "0.3"}


REAL_SIZES = RowProblem.default_sizes


def _small_sizes(software: bool, quick: bool) -> tuple[tuple[int, int], ...]:
    return ((8, 256),) if quick else REAL_SIZES(software, quick)


def missing() -> str | None:
    """Return the parts that `webnorm verify` needs and this machine lacks."""
    lacking = launch.browser_fixes()
    return tint.tint_unavailable() or (lacking[0].missing if lacking else None)


def pages_to_run() -> Iterator[Any]:
    """Yield every page with few cases and short budgets.

    Yield slow pages again with all cases and full budgets.
    """
    for page in DOCUMENTS:
        if page != FLEET:
            yield pytest.param(page, few_cases, id=name_of(page))
            if any(takes_long(words) for words in arguments(page)):
                yield pytest.param(page, shorter_corpus, id=f"{name_of(page)}-whole", marks=pytest.mark.slow)


def arguments(page: Path) -> list[list[str]]:
    """Return the arguments of each webnorm command of a page."""
    split = [command.words for command in commands(page)]
    return [words for program, *words in split if program == "webnorm"]


def takes_long(words: Sequence[str]) -> bool:
    """Return True if the first tier shortens a command of a page."""
    return checks_all(words) or words[0] in SHORT_S or words == EXPORT_LAB


def only_times(words: Sequence[str]) -> bool:
    """Return True if a command only measures, and writes nothing that later commands of the page read."""
    return words[0] == "bench" and not {"--json", "--save", "--baseline"} & {*words}


def checks_all(words: Sequence[str]) -> bool:
    """Return True if a command checks kernels on the whole corpus."""
    return words[0] == "check" and "--case" not in words


def parse(words: Sequence[str]) -> None:
    """Parse a command without running it, so its verb and its options exist."""
    verb, *arguments = words
    _loaded(verb).make_context(verb, arguments)


def few_cases(seed: int) -> tuple[Case, ...]:
    """Return every 20th case of the corpus, including some with extreme values, options and random values."""
    return WHOLE_CORPUS(seed)[::20]


def shorter_corpus(seed: int) -> tuple[Case, ...]:
    """Return every fixed case, and one of six random cases. Options take turns over their three row lengths.

    Other tests check every kernel on all of them, except a page's own kernels.
    """
    turns = {case.name: at % 3 == at // 3 % 3 for at, case in enumerate(OPTION_GRID)}
    cases = WHOLE_CORPUS(seed)
    fixed = [case for case in cases if turns.get(case.name, case.name in FIXED)]
    return (*fixed, *[case for case in cases if case.name not in FIXED][::6])


@pytest.mark.parametrize(("page", "cases"), [*pages_to_run()])
def test_commands(
    page: Path,
    cases: Callable[[int], tuple[Case, ...]],
    tmp_path: Path,
    device: Device,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setenv("WEBNORM_TUNINGS", str(tmp_path / "tunings"))
    monkeypatch.setenv("WEBNORM_STORE", str(tmp_path / "store.db"))
    for name, source in PREPARED.get(page.name, {}).items():
        (tmp_path / name).write_bytes(source.read_bytes())
    for language, text in steps(page, "console", "diff"):
        if language == "diff":
            edit(text, tmp_path)
            continue
        for command in transcript(text):
            program, *words = command.words
            assert program == "webnorm", command.line
            if cases is few_cases and (words == EXPORT_LAB or only_times(words)):
                parse(words)
            elif words == EXPORT_LAB:
                request.getfixturevalue("lab_folder")
            else:
                # The pages show output on Mesa's Vulkan driver. Other adapters have other features.
                known = device.traits.software and device.adapter.backend == "Vulkan"
                run_command(command if known else replace(command, output=()), tmp_path, cases)
    tiers.meet("page", name_of(page))


def run_command(command: Command, folder: Path, cases: Callable[[int], tuple[Case, ...]]) -> None:
    """Run a command of a page, and look for the output that the page shows."""
    words = asked = command.words[1:]
    verifies = words[0] == "verify"
    if cases is few_cases and words[0] in SHORT_S and not {"--list", "--remove", "help"} & {*words}:
        # If an option is given twice, the last one counts.
        words = [*words, "--budget", SHORT_S[words[0]]]
        if words[0] == "bench" and "--kernel" not in words:
            words += ["--kernel", "registers"]
    elif words[0] == "bench" and not {"--budget", "help"} & {*words}:
        # The output of the pages does not depend on the default budget.
        words = [*words, "--budget", "0.2"]
    with (
        patch.object(corpus, "whole_corpus", cases if checks_all(words) else WHOLE_CORPUS),
        # Other tests compare several runs.
        patch.object(bench, "_RUNS_TO_COMPARE", 1),
        # The output of the pages does not depend on the sizes of problems.
        patch.object(RowProblem, "default_sizes", _small_sizes),
        patch.object(presets, "_small", lambda problem: problem.with_batch(8)),
        # `webnorm collect` ends at once here, because no visitor posts results and no Ctrl-C comes.
        patch.object(collect, "serve", side_effect=typer.Exit),
    ):
        done = webnorm(words, folder)
    if verifies and missing():
        # `make bench` does not install the missing part, but the printed command does.
        assert done.returncode == INCONCLUSIVE and "`webnorm doctor --fix --browser`" in done.stderr
    elif words[:2] == ["store", "regressions"]:
        # A single run does not show noise.
        assert done.returncode == INCONCLUSIVE and "not compared" in done.stdout
    elif words[0] == "play" and missing():
        assert done.returncode == INCONCLUSIVE and done.stderr == "webnorm: not checked: tint\n"
    elif "neither natively" in done.stdout:
        # The adapter has no subgroups, and the page does not require them.
        assert done.returncode == INCONCLUSIVE and done.stderr == "webnorm: skipped: answers\n"
    elif "UNCLEAR" in done.stdout:
        # With a budget this small the command gives no verdict, and says so.
        assert done.returncode in (OK, INCONCLUSIVE), f"{words}: {done.stdout}{done.stderr}"
    else:
        assert done.returncode == OK, f"{words}: {done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        if words[: len(asked)] == asked and "--kernel" not in words[len(asked) :]:
            # Another budget changes no line, but fewer kernels remove lines.
            assert missing_lines(command.output, done.stdout + done.stderr) == [], done.stdout + done.stderr


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.vulkan] * (page.name == "engines.md")) for page in DOCUMENTS],
    ids=name_of,
)
def test_python(page: Path, tmp_path: Path, device: Device) -> None:
    """The blocks of a page run in one process, each with its own names."""
    runs = [
        f"exec(compile({block!r}, 'block {number}', 'exec'), {{'__name__': '__main__'}})"
        for number, block in enumerate(blocks(page, "python"), 1)
    ]
    command = [sys.executable, "-W", "error", "-c", "\n".join(runs)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_workflow_for_macos_has_commands_that_exist() -> None:
    """The workflow itself runs on another system, and rarely."""
    text = (ROOT / ".github" / "workflows" / "macos.yml").read_text()
    lines = re.findall(r"^ *(?:run: )?webnorm ([^|>\n]+)", text, re.M)
    assert {line.split()[0] for line in lines} == {"doctor", "check", "export", "verify"}
    for line in lines:
        parse(shlex.split(line))


def test_the_guide_to_clusters_has_commands_that_exist() -> None:
    """tests/fleet runs the guide itself, which takes half a minute."""
    found = arguments(FLEET)
    assert {words[0] for words in found} == {"cluster", "check", "bench", "tune"}
    for words in found:
        parse(words)
    tiers.meet("page", name_of(FLEET))


def test_every_command_is_documented() -> None:
    done = webnorm(["--help"], ROOT)
    verbs = done.stdout.partition("Verbs:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^  ([\w-]+) ", verbs, re.M) == [*VERBS]
    text = "".join(page.read_text() for page in DOCUMENTS)
    assert all(f"webnorm {verb}" in text for verb in VERBS)


def test_every_option_has_an_example() -> None:
    page = ROOT / "docs" / "options.md"
    run = "".join([*blocks(page, "console"), *blocks(page, "python")])
    for field in fields(NormOptions):
        assert re.search(rf"\b{field.name}\b", page.read_text()), field.name
        # In Python the arrays determine the dtypes of parameters and saved statistics.
        python = {"weight_dtype": "weight", "residual_dtype": "residual", "saved_stats": "stats="}.get(
            field.name, field.name
        )
        assert python in run, field.name


def test_every_function_is_documented() -> None:
    text = (ROOT / "docs" / "python.md").read_text()
    for module in (functional, modules, onnx_ops):
        for name, value in vars(module).items():
            if getattr(value, "__module__", None) == module.__name__ and not name.startswith("_"):
                assert f"`{name}" in text, name


def test_every_word_of_a_kernel_is_documented() -> None:
    text = KERNEL_PAGE.read_text()
    library = {path.name: path.read_text() for path in (wgsl_root() / "lib").glob("*.wgsl")}
    asked_for = set(re.findall(r"\b(\w+) is defined", "".join(library.values()))) - {"pivot", "without_pivot"}
    for name in (*library, *names_of(OPS["layer_norm"]), *template_names_of(OPS["layer_norm"]), *asked_for):
        assert f"`{name}`" in text, name
    for key in header._KEYS:
        assert re.search(rf"`(\[+)?{key}(\]+)?`", text), key
    keys = ("entry_point", "workgroup_size", "workgroup_count", "iterations", "per", "bindings", "when")
    for key in (*keys, "words", "records", "serial_terms", "column_terms", "rounded_mean"):
        assert f"`{key}" in text, key


def test_every_layout_is_documented() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*\|.*\|.*\|.*)$", KERNEL_PAGE.read_text(), re.M))
    for path in (wgsl_root() / "layouts").glob("*.toml"):
        layout, row = tomllib.loads(path.read_text()), rows[path.stem]
        named = [step["entry_point"] for step in layout.get("pass", ())]
        named += [one["name"] for one in layout.get("scratch", ())]
        named += [*layout.get("tune", ()), *layout.get("derive", ())]
        documented = set(re.findall("`(\\w+)`", row))
        completes = {layout["layout"]} if "layout" in layout else set()
        assert documented == {*named, *completes}, path.stem


def test_the_helpers_are_there() -> None:
    """The page names a snippet for each helper, and the snippet has that function or macro."""
    rows = re.findall(r"^\| (.+?) \| ((?:`\w+\.wgsl`(?:, )?)+) \|", KERNEL_PAGE.read_text(), re.M)
    assert len(rows) > 20
    for helpers, files in rows:
        text = "".join((wgsl_root() / "lib" / name).read_text() for name in re.findall(r"[\w.]+wgsl", files))
        for name in re.findall(r"(?:`|call |call\(h\) )(\w+)\(", helpers):
            templated = re.sub("^(load|store)_.*", r"\1_{{ tensor.name }}", name)
            assert re.search(rf"(fn|macro) ({name}|{re.escape(templated)})\(", text), name


def test_the_body_that_is_shown_is_naives() -> None:
    (body,) = blocks(KERNEL_PAGE, "wgsl")
    assert body in (wgsl_root() / "layer_norm" / "naive.wgsl").read_text()


def figures(page: Path, corner: str) -> dict[tuple[str, str, str], str]:
    """Return the cells of the table that has a text in its corner, by kind and columns.

    The kind is "own" or "others".
    """
    table = page.read_text().split(f"\n| {corner} |")[1]
    lines = itertools.takewhile(lambda line: "|" in line, table.splitlines())
    head, _, *body = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    found: dict[tuple[str, str, str], str] = {}
    for (kind, *own), (_, *others) in zip(body[::2], body[1::2], strict=True):
        for name, cells in (("own", own), ("others", others)):
            found |= {(kind, name, cols): cell for cols, cell in zip(head, cells, strict=True)}
    return found


def test_the_readmes_figures_are_the_records() -> None:
    shown = figures(ROOT / "README.md", "% of the best copy's speed, by columns")
    record = figures(ROOT / "docs" / "performance.md", "columns")
    assert len(shown) == 16 and shown.items() <= record.items()


def test_every_page_is_listed() -> None:
    text = (ROOT / "docs" / "README.md").read_text()
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"]({page})" not in text} == set()


def test_every_preset_is_documented() -> None:
    text = (ROOT / "docs" / "measuring.md").read_text()
    assert [preset for preset in PRESETS if f"`{preset}`" not in text] == []


def test_the_kernels_table_is_fresh() -> None:
    table = kernels_table([kernel for kernel in discover() if tracked(kernel)])
    assert table in (ROOT / "docs" / "kernels.md").read_text(), "stale: python -m bench.numerics --write"


@pytest.mark.parametrize("page", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
