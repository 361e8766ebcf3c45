"""README, docs, help, errors, public docstrings and the code keep the rules of tests/prose.

textlint reads the prose: long sentences and private words fail, the passive voice is counted in a warning.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import prose_texts
from pages import ROOT
from patience import HANG_S

RULES = ROOT / "tests" / "prose"
MODULES = Path(sys.prefix) / "prose" / "node_modules"
TEXTLINT = MODULES / ".bin" / "textlint"
LACKING = (
    "node is not installed"
    if shutil.which("node") is None
    else None
    if TEXTLINT.exists()
    else "textlint is not installed: make .venv/.installed-prose"
)
# Text, and what names it: a file of the repository, or of prose_texts. Each with its reason.
FORMER = "the former name of a verb, which still works"
WIRE = "a key of the collector's answers, which pages in use read"
RULE = "the rule's own test"
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("CHANGELOG.md", "was `judge`"): FORMER,
    ("tests/cli/test_former_names.py", '"judge'): FORMER,
    ("webnorm/cli/options/former_names.py", '"judge"'): FORMER,
    ("webnorm/web/collection/collector.py", "told"): WIRE,
    ("webnorm/web/assets/page/lab_submit.js", "told"): WIRE,
    ("tests/web/test_collect.py", '"told"'): WIRE,
    ("webnorm/lab/verify/user_array.py", "file.tell()"): "a method of Python's files",
    ("webnorm/ops/norms/corpus.py", "-beside"): "the names of two cases, which seed their draws",
    ("tests/test_prose.py", "tell"): RULE,
    ("tests/test_prose.py", "told"): RULE,
    ("tests/test_prose.py", "beside"): RULE,
    ("tests/test_prose.py", "judge"): RULE,
}
# Files of the repository whose words are not ours, or that state the rules.
NOT_OURS = re.compile(
    r"(^|/)(vendor|results|LICENSE|package-lock\.json|tests/prose/words\.yml)|\.(png|svg|json|ico|db|onnx)$"
)


class PassiveVoice(UserWarning):
    """Sentences whose subject does nothing."""


def linted(folder: Path) -> list[dict[str, Any]]:
    """Return textlint's messages about a folder's Markdown files, each with its file and line's text."""
    command: list[str | Path] = [TEXTLINT, "--config", RULES / "textlintrc.json"]
    command += ["--rules-base-directory", MODULES]
    done = subprocess.run(
        [*command, "--format", "json", f"{folder}/**/*.md"],
        cwd=RULES,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    # 0: nothing was found, 1: something was.
    assert done.returncode in (0, 1) and done.stdout, done.stderr
    found = []
    for file in json.loads(done.stdout):
        path = Path(file["filePath"])
        lines = path.read_text(encoding="utf-8").splitlines()
        for message in file["messages"]:
            where = path.relative_to(folder).as_posix()
            found.append({**message, "where": where, "text": lines[message["line"] - 1]})
    return found


def lint(texts: dict[str, str], folder: Path) -> list[str]:
    """Return the errors in texts, and warn of the passive voice in them."""
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    passive, errors = Counter[str](), []
    for message in linted(folder):
        if message["severity"] == 1:
            passive[message["where"]] += 1
        elif not excepted(message["where"], message["text"]):
            errors.append("{where}:{line}: {message}: {text}".format(**message))
    if passive:
        most = ", ".join(f"{name} {count}" for name, count in passive.most_common(5))
        warnings.warn(f"passive voice: {passive.total()} times (most in {most})", PassiveVoice, stacklevel=2)
    return errors


def excepted(where: str, text: str) -> bool:
    return any(name == where and part in text for name, part in EXCEPTIONS)


@pytest.mark.skipif(LACKING is not None, reason=str(LACKING))
@pytest.mark.filterwarnings("default::test_prose.PassiveVoice")
@pytest.mark.parametrize("kind", ["pages", "command_help", "errors", "docstrings"])
def test_prose_is_plain(kind: str, tmp_path: Path) -> None:
    texts = getattr(prose_texts, kind)()
    assert texts
    assert lint(texts, tmp_path) == []


@pytest.mark.skipif(LACKING is not None, reason=str(LACKING))
def test_the_linter_sees_what_it_is_for(tmp_path: Path) -> None:
    long = " ".join(["word"] * 31)
    texts = {"a.md": f"# A page\n\nThe user is told a value.\n\n- {long}.\n", "b.md": "`tell` is code.\n"}
    with pytest.warns(PassiveVoice, match=r"1 times \(most in a.md 1\)"):
        first, second = sorted(lint(texts, tmp_path))
    assert first.startswith("a.md:3: told") and second.startswith("a.md:5: A sentence of 31 words")


def tracked_files(*patterns: str) -> list[str]:
    command = ["git", "ls-files", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if (ROOT / name).is_file()]


def private_words() -> list[re.Pattern[str]]:
    patterns = re.findall(r"^ *pattern: /(.*)/i$", (RULES / "words.yml").read_text(), re.M)
    assert len(patterns) > 5
    return [re.compile(pattern, re.I) for pattern in patterns]


def test_private_words_are_gone_from_the_code() -> None:
    """Names, comments and docstrings have them no more; the linter above reads prose alone."""
    found = []
    for name in tracked_files():
        path = ROOT / name
        if NOT_OURS.search(name):
            continue
        text = path.read_text(encoding="utf-8")
        for pattern in private_words():
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start())
                whole = text.splitlines()[line]
                if not excepted(name, whole):
                    found.append(f"{name}:{line + 1}: {match[0]!r}: {whole.strip()}")
    assert found == []


QUESTIONS = {"What", "Whether", "How", "Why", "Where", "Who", "Whose", "Which", "When", "That", "As"}


def test_docstrings_start_with_a_command_or_a_noun() -> None:
    found = []
    for name in tracked_files("*.py"):
        for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or "Nothing."
                if text.split()[0] in QUESTIONS:
                    found.append(f"{name}:{getattr(node, 'lineno', 1)}: {text.splitlines()[0]}")
    assert found == []
