"""Options that exclude each other: each pair of a verb's options has an effect, or a rule refuses it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from test_help import ALL, parameters

from commands import webnorm
from webnorm.cli.options import help
from webnorm.cli.options.conflicts import RULES, Excludes, Needs, OnlyWith, conflict_notes
from webnorm.cli.work.jobs import BAD_USAGE

# A value for each option.
VALUES = {
    "--kernel": "naive",
    "--op": "rms_norm",
    "--rows": "4",
    "--cols": "8",
    "--preset": "equinox",
    "--model": "config.json",
    "--dim": "sequence=4",
    "--dtype": "float16",
    "--option": "residual",
    "--scale": "2",
    "--distribution": "uniform",
    "--eps": "0.5",
    "--size": "rows=4",
    "--scalar": "eps=0.5",
    "--seed": "7",
    "--constant": "threads_per_row=64",
    "--budget": "3",
    "--runs": "2",
    "--save": "mine",
    "--baseline": "other",
    "--wgsl": "kernels",
    "--adapter": "0",
    "--backend": "wgpu",
    "--cluster": "local",
    "--time-limit": "9",
    "--json": "a.json",
    "--csv": "a.csv",
    "--markdown": "a.md",
    "--plot": "a.svg",
    "--out": "out",
    "--store": "store.db",
    "--case": "rows-1",
    "--input": "x.npy",
    "--trace": "row == 3",
    "--port": "8001",
    "--name": "name",
    "--submit": "https://a.example",
    "--browser": "/usr/bin/browser",
    "--engine": "firefox",
    "--screenshot": "a.png",
    "--target": "browser",
    "--diff": "two_pass",
    "--from": "naive",
    "--host": "::1",
    "--origin": "https://a.example",
    "--rate": "3",
    "--rate-all": "4",
    "--capacity": "5",
    "--export": "folder",
    "--page": "site",
    "--fail-slower": "5",
    "--last": "3",
    "--format": "bencher",
    "op": "layer_norm",
    "kernel": "naive",
    "names": "naive",
    "name": "mine",
    "file": "layer_norm/mine.wgsl",
    "files": "a.json",
    "folder": "out",
    "old": "a.json",
    "new": "b.json",
    "kept": "main",
    "address": "tcp://127.0.0.1:1",
}


def words(verb: str, name: str) -> list[str]:
    """Return an option with its value, or an argument, as words of a command line."""
    param = next(one for one in parameters(verb) if help.long_name(one) == name)
    if getattr(param, "is_flag", False):
        return [name]
    return [name, VALUES[name]] if name.startswith("--") else [VALUES[name]]


def given(verb: str, options: Sequence[str]) -> dict[str, Any]:
    """Return the options of a command line in the form that rules get."""
    return {option.partition("=")[0]: option.partition("=")[2] or "x" for option in options}


def test_rules_name_existing_options() -> None:
    assert RULES.keys() <= {*ALL}
    for verb, own in RULES.items():
        names = {help.long_name(one) for one in parameters(verb)}
        for rule in own:
            match rule:
                case Excludes(options, _, unless):
                    used = (*options, *unless)
                case Needs(option, others, _):
                    used = (option, *others)
                case OnlyWith(option, allowed, _):
                    used = (option, *allowed)
                case _:
                    pytest.fail(f"unknown rule {rule}")
            assert {one.partition("=")[0] for one in used} <= names, (verb, rule)


def refused_by(verb: str) -> Iterator[tuple[str, ...]]:
    """Yield the shortest command lines that each rule of a verb refuses."""
    for rule in RULES[verb]:
        match rule:
            case Excludes(options, _, _):
                yield options
            case Needs(option, _, _):
                yield (option,)
            case OnlyWith(option, allowed, _):
                names = [help.long_name(one) for one in parameters(verb)]
                rest = {*names} - {option.partition("=")[0], *allowed, "--help"}
                yield from ((option, other) for other in sorted(rest))


@pytest.mark.parametrize("verb", RULES)
def test_rules_refuse_options_before_any_work(verb: str, tmp_path: Path) -> None:
    """The error is one line with exit status 2, and the folder does not change."""
    for options in refused_by(verb):
        line = [verb]
        for option in options:
            name, equals, value = option.partition("=")
            line += ([name] * name.startswith("--") + [value]) if equals else words(verb, name)
        for one in parameters(verb):
            if one.required and help.long_name(one) not in {option.partition("=")[0] for option in options}:
                line += words(verb, help.long_name(one))
        done = webnorm(line, tmp_path)
        assert done.returncode == BAD_USAGE and done.stdout == "", line
        assert re.fullmatch(r"webnorm: .*(cannot be combined|needs).*\n", done.stderr), (line, done.stderr)
    assert not [*tmp_path.iterdir()]


def test_the_help_shows_every_rule(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    for verb, own in RULES.items():
        shown = webnorm([verb, "--help"], tmp_path).stdout
        for rule in own:
            option = rule.options[0] if isinstance(rule, Excludes) else rule.option
            notes = conflict_notes(verb, option.partition("=")[0])
            assert notes and all(note in shown for note in notes), (verb, rule)


@pytest.mark.parametrize(
    ("verb", "option", "notes"),
    [
        (
            "bench",
            "--preset",
            [
                "The value help cannot be combined with other options.",
                "Cannot be combined with --op, --rows, --cols, --distribution, --scale or --model.",
            ],
        ),
        ("bench", "--kernel", ["The value auto cannot be combined with --constant or --all-constants."]),
        (
            "play",
            "--rows",
            ["Cannot be combined with both --quick and --once, or with both --quick and --json."],
        ),
        (
            "tune",
            "--quick",
            ["Cannot be combined with all of --cols, --dtype and --budget unless --preset is given."],
        ),
        ("tune", "--list", ["Can only be combined with --out, --adapter and --backend."]),
        ("collect", "--behind-proxy", ["Needs --origin."]),
        ("compare", "--json", []),
    ],
)
def test_the_help_has_one_sentence_for_all_exclusions(verb: str, option: str, notes: list[str]) -> None:
    assert conflict_notes(verb, option) == notes


def test_options_before_a_verbs_own_verb_are_refused(tmp_path: Path) -> None:
    done = webnorm(["cluster", "--json", "a.json", "worker", "tcp://127.0.0.1:1"], tmp_path)
    assert done.returncode == BAD_USAGE and "--json" in done.stderr and "before worker" in done.stderr


# --- every pair -----------------------------------------------------------------------------------


MOST_PAIRS = 100


class _Reached(Exception):
    """A verb has begun its work."""


# The functions that do a verb's work, and the options that it always needs.
SINKS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "play": (("webnorm.play.session.PlaygroundSession", "webnorm.cli.verbs.play._once"), ("file",)),
    "check": (("webnorm.cli.verbs.check.run_in_engines",), ()),
    "bench": (("webnorm.cli.verbs.bench.run_on",), ()),
    "export": (
        ("webnorm.web.lab_site.lab_files", "webnorm.web.package.npm.package_files"),
        ("op", "--out", "--cols"),
    ),
}
# Options that have an effect only later in the work, or that only name a file.
UNSEEN = {
    "play": {"--web", "--port", "--once", "--json", "--backend"},
    "export": {"--force", "--wgsl", "--submit"},
    "check": {"--cases", "--adapter", "--backend", "--cluster", "--time-limit", "--wgsl", "--input"},
    "bench": {"--adapter", "--backend", "--cluster", "--time-limit", "--wgsl", "--baseline", "--save"},
}


def fingerprint(verb: str, options: Sequence[str], folder: Path) -> str | None:
    """Return the arguments of a verb's work, or None if the verb refuses the options in one line."""
    found: list[str] = []

    def reached(*arguments: Any, **named: Any) -> Any:
        found.append(re.sub(r" at 0x\w+|'run': '\w+'|recorded='[^']*'", "", repr((arguments, named))))
        raise _Reached

    sinks, base = SINKS[verb]
    line = [verb]
    for name in dict.fromkeys((*(() if "--lab" in options else base), *options)):
        line += words(verb, name)
    with ExitStack() as stack:
        for sink in sinks:
            stack.enter_context(patch(sink, reached))
        stack.enter_context(patch("webnorm.cli.work.jobs._origin", lambda: "origin"))
        stack.enter_context(patch("webnorm.lab.run.requests.secrets.randbelow", lambda most: 11))
        stack.enter_context(
            patch("webnorm.cli.terminal.screen.Screen.__repr__", lambda self: f"stderr={self.stderr}")
        )
        try:
            done = webnorm(line, folder)
        except _Reached:
            return found[0]
    assert done.returncode == BAD_USAGE and re.fullmatch("webnorm: .*\n", done.stderr), (line, done)
    return None


def declared(verb: str, options: Sequence[str]) -> bool:
    """Return True if a rule refuses the options."""
    return any(rule.objection(given(verb, options)) for rule in RULES.get(verb, ()))


def pairs(verb: str) -> list[tuple[str, ...]]:
    """Return the pairs of a verb's options that no rule refuses."""
    names = [help.long_name(one) for one in parameters(verb)]
    names = [one for one in names if one not in ("--help", *UNSEEN[verb])]
    return [pair for pair in combinations(names, 2) if not declared(verb, pair)]


@pytest.mark.slow
@pytest.mark.parametrize("verb", SINKS)
def test_each_of_two_options_has_an_effect(verb: str, tmp_path: Path) -> None:
    """The result of a pair of options differs from the results of each option alone."""
    (tmp_path / "layer_norm").mkdir()
    (tmp_path / "layer_norm" / "mine.wgsl").write_text("")
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    known: dict[tuple[str, ...], str | None] = {}

    def seen(*options: str) -> str | None:
        if options not in known:
            known[options] = fingerprint(verb, options, tmp_path)
        return known[options]

    without: list[object] = []
    base, count = SINKS[verb][1], 0
    tried = pairs(verb)
    # A sample is enough, because each option is in several pairs.
    tried = tried[:: 1 + len(tried) // MOST_PAIRS]
    for one, other in tried:
        if one in base or other in base or (both := seen(one, other)) is None:
            continue
        count += 1
        if both in (seen(one), seen(other)):
            without.append((one, other))
    assert without == []
    # A refused value proves nothing about a pair, so most pairs must be accepted.
    assert count > len(tried) / 2
