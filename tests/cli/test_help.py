"""`--help`: panels by purpose, values by name, exit statuses, examples that run; shell completion."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from commands import webnorm
from pages import DOCUMENTS, commands
from webnorm.cli.options import completion, help, shared
from webnorm.cli.verb_table import VERBS, _loaded
from webnorm.kernels.headers.sources import wgsl_root


def _inner(verb: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(_loaded(verb), "commands", {})
    return found


# The verbs, including verbs of verbs such as "store add".
ALL = [words for verb in VERBS for words in (verb, *(f"{verb} {own}" for own in _inner(verb)))]


def shown(verb: str, monkeypatch: pytest.MonkeyPatch, columns: int = 80, **environment: str) -> str:
    for name, value in {"COLUMNS": str(columns), **environment}.items():
        monkeypatch.setenv(name, value)
    return webnorm([*verb.split(), "--help"], Path.cwd()).stdout


def parameters(verb: str) -> list[Any]:
    first, *rest = verb.split()
    command = _loaded(first)
    for name in rest:
        command = command.commands[name]
    found: list[Any] = command.get_params(command.make_context(verb, [], resilient_parsing=True))
    return found


def test_every_option_has_its_place() -> None:
    """Every option has a panel, and a placeholder unless it is a flag."""
    used = {"--help", "--version", "--debug", "--install-completion", "--show-completion"}
    for verb in ALL:
        for one in parameters(verb):
            assert help.long_name(one) in help._PLACES, (verb, one.opts)
            assert one.rich_help_panel in help._PANELS
            assert bool(one.metavar) != getattr(one, "is_flag", False), (verb, one.opts)
            used.add(help.long_name(one))
    assert used == {*help._PLACES}, "the table has names that no verb has"


def test_the_help_says_which_options_take_lists() -> None:
    declared = {(verb, name) for name, verbs in shared._LISTS.items() for verb in verbs}
    options = [(verb, one) for verb in ALL for one in parameters(verb) if one.param_type_name == "option"]
    said = {(verb, one.name) for verb, one in options if "a list" in one.help and not one.is_flag}
    assert {(verb, one.name) for verb, one in options if shared.takes_list(verb, one.name)} == declared
    assert said == declared


def test_every_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for last, values in completion._FEW.values():
        assert last in (None, values()[-1])
    for verb in ALL:
        words = {*re.findall(r"[\w.=-]+", shown(verb, monkeypatch))}
        for one in parameters(verb):
            few = completion._FEW.get(help.long_name(one))
            if few is not None:
                # N stands for a number: max_workgroups=N.
                marked = {f"{value}N" if value.endswith("=") else value for value in few[1]()}
                assert marked <= {word.rstrip(".") for word in words}, (verb, one.opts)


@pytest.mark.parametrize("verb", ["", *ALL])
def test_help_is_plain_in_a_pipe(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (40, 80, 200):
        text = shown(verb, monkeypatch, columns)
        assert not re.search(r"<(bool|str|int|float|path)|list\[|<=x|[│╭\x1b…]", text)
        assert max(map(len, text.splitlines())) <= columns
        panels = re.findall(r"^(\S.*):$", text, re.M)
        assert panels[-1] == ("Examples" if verb else "Exit status") and "Exit status" in panels
        assert re.search(r"^  130\b.*\n?.*interrupted", text, re.M) and "Other" in panels


def test_a_verbs_own_verbs_are_listed_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    verbs = shown("store", monkeypatch, 200).partition("Verbs:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in verbs] == [*_inner("store")]


def test_help_has_panels_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown("bench", monkeypatch, TTY_COMPATIBLE="1", NO_COLOR="1", TERM="xterm")
    titles = re.findall(r"╭─ (.*?) ─*╮", re.sub(r"\x1b\[\d*m", "", text))
    assert titles[:3] == ["Kernels and files", "Problem", "Measurement"]
    # Bold and dim are not colours.
    assert {*re.findall(r"\x1b\[([\d;]*)m", text)} <= {"0", "1", "2"}


def test_exit_statuses_are_those_of_the_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Something that you asked for was skipped" in " ".join(shown("check", monkeypatch).split())
    assert "Something is slower or broken." in shown("store regressions", monkeypatch)
    assert re.findall(r"^  (\d+) ", shown("show", monkeypatch).partition("Exit status:")[2], re.M) == [
        "0",
        "2",
        "130",
    ]


def test_examples_are_run_where_the_docs_have_them() -> None:
    run = [command.line for page in DOCUMENTS for command in commands(page)]
    assert [*help.EXAMPLES] == [*VERBS]
    for verb, examples in help.EXAMPLES.items():
        assert all(line in run and line.split()[1] == verb for line in examples), verb
    assert all(help.examples(verb) for verb in ALL)


bash = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")


def completed(script: str, words: list[str], home: Path) -> list[str]:
    """Return the completions that bash offers for the last word, after running a script."""
    program = home / "webnorm"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m webnorm "$@"\n')
    program.chmod(0o755)
    code = (
        f"{script}\nCOMP_WORDS=(webnorm {shlex.join(words)}); COMP_CWORD={len(words)}\n"
        f"""_webnorm_completion {program}; printf '%s\\n' "${{COMPREPLY[@]}}\""""
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", code],
        env={**os.environ, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@bash
def test_completion_installs_and_completes(tmp_path: Path) -> None:
    install = f"{sys.executable} -m webnorm --install-completion; exit $?"
    done = subprocess.run(
        ["bash", "--norc", "-c", install],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    script = 'source "$HOME/.bashrc"'
    assert completed(script, ["be"], tmp_path) == ["bench"]
    assert completed(script, ["bench", "--op", "rms"], tmp_path) == ["rms_norm", "rms_norm_backward"]
    # bash also splits words at "=", and completes the word after it.
    behind = ["float8_e4m3fn", "float8_e5m2"]
    assert completed(script, ["bench", "-o", "out_dtype", "=", "float8"], tmp_path) == behind
    assert completed(script, ["bench", "-o", "out_dtype", "="], tmp_path)[-3:] == [*behind, "int8"]
    assert completed(script, ["bench", "--op", "=", "rms_norm", "-k", "work"], tmp_path) == [
        "workgroup",
        "workgroup_cache",
    ]


@pytest.mark.parametrize(
    ("words", "candidates"),
    [
        ([""], [*VERBS]),
        (["list", "--ve"], ["--verbose"]),
        (["show", "welf"], ["welford", "welford_subgroup"]),
        (["bench", "--kernel", "au"], ["auto"]),
        (["bench", "--dtype", "b"], ["bfloat16"]),
        (["bench", "--dtype", "float32,f"], ["float32,float16"]),
        (["bench", "--dtype", "float32,float16,"], [f"float32,float16,{one}" for one in ("bfloat16", "all")]),
        (["check", "--op", "rms_norm,la"], ["rms_norm,layer_norm", "rms_norm,layer_norm_backward"]),
        (["list", "--op", "copy,rms"], ["copy,rms_norm", "copy,rms_norm_backward"]),
        (["check", "-k", "naive,welf"], ["naive,welford", "naive,welford_subgroup"]),
        (["bench", "--op", "al"], ["all"]),
        (["show", "naive", "--dtype", "float32,f"], []),
        (["show", "naive", "--op", "al"], []),
        (["bench", "--preset", "triton"], ["triton-forward", "triton-backward"]),
        (["check", "--case", "rows-0"], ["rows-0"]),
        (["bench", "--option", "return"], ["return_stats"]),
        (
            ["bench", "--option", "residual_d"],
            [f"residual_dtype={one}" for one in ("float32", "float16", "bfloat16")],
        ),
        (["bench", "--op", "softmax", "--option", "causal"], ["causal=lower_right", "causal=upper_left"]),
        (["bench", "--op", "softmax", "--option", "res"], []),
        (["bench", "-o", "weight_d"], [f"weight_dtype={one}" for one in ("float32", "float16", "bfloat16")]),
        (["bench", "-o", "max"], ["max_workgroups="]),
        (["bench", "--op", "rms_norm", "--kernel", "w"], ["workgroup", "workgroup_cache"]),
        (["check", "--op", "layer_norm_backward,rms_norm", "-k", "ti"], ["tiles"]),
        (["new", "x", "--op", "rms_norm", "--from", "w"], ["workgroup", "workgroup_cache"]),
        (["new", "x", "--op", "rms_norm", "--from", "c"], []),
        (["check", "--wgsl", "own", "-k", "q"], ["quads"]),
        (["check", "--wgsl", "none", "-k", "q"], []),
        (["bench", "-k", "registers,two_pass", "-c", "h"], ["hi_lo_mean="]),
        (["bench", "-k", "two_pass", "-c", "v"], []),
        (["show", "--target", ""], ["native", "browser"]),
        (["bench", "--adapter", ""], []),
        (["compare", ""], ["main", "main~", "new.json"]),
        (["compare", "main", "n"], ["new.json"]),
        (["bench", "--baseline", "m"], ["main", "main~"]),
        (["bench", "--save", ""], ["main", "main~"]),
        (["store", ""], ["add", "history", "regressions", "export"]),
        (["store", "regressions", "--l"], ["--last"]),
        (["store", "export", "new.json", "--format", ""], ["bencher", "github"]),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_completions(
    shell: str, words: list[str], candidates: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBNORM_BASELINES", str(tmp_path / "kept"))
    (tmp_path / "kept").mkdir()
    for path in ("kept/main.json", "kept/main~.json", "new.json"):
        (tmp_path / path).touch()
    shutil.copytree(wgsl_root() / "layer_norm", tmp_path / "own" / "layer_norm")
    (tmp_path / "own" / "layer_norm" / "naive.wgsl").rename(tmp_path / "own" / "layer_norm" / "quads.wgsl")
    monkeypatch.setenv("_WEBNORM_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("COMP_WORDS", " ".join(["webnorm", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", " ".join(["webnorm", *words]))
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    done = webnorm([], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.partition("\t")[0] for line in done.stdout.splitlines() if line] == candidates
