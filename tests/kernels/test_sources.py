"""Files that webnorm refuses: outside of their folder, not regular, or with invisible characters."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import commands
from handmade import HEADER, SIMPLE, shader_of
from testbed import GPU
from webnorm.choice.defaults import default_variant
from webnorm.errors import WebnormError
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.library import discover
from webnorm.kernels.headers.sources import MOST_BYTES
from webnorm.kernels.rendering.render import render_shader

SECRET = "the secret of another folder\n"


def link(place: Path, target: Path, folder: bool = False) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        place.symlink_to(target, target_is_directory=folder)
    except OSError:
        pytest.skip("this system lets no test make a symbolic link")
    return place


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a user's folder with a secret next to it."""
    (tmp_path / "secret.wgsl").write_text(SECRET)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "part.wgsl").write_text(SECRET)
    (tmp_path / "home" / "lib").mkdir(parents=True)
    return tmp_path / "home"


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(WebnormError) as caught:
        call()
    message = str(caught.value)
    assert "secret of" not in message
    assert "\n" not in message and message.isprintable()
    return message


@pytest.mark.parametrize(
    "tag",
    [
        '{% include "NAME" %}',
        '{% include "NAME" ignore missing %}',
        '{% include ["none", "NAME"] %}',
        '{% import "NAME" as m %}',
        '{% from "NAME" import m %}',
        '{% extends "NAME" %}',
        '{% set n = "NAME" %}{% include n %}',
    ],
)
@pytest.mark.parametrize(
    "name", ["../secret.wgsl", "lib/../../secret.wgsl", "ABSOLUTE", "lib\\\\..\\\\secret.wgsl"]
)
def test_names_that_lead_out(home: Path, tag: str, name: str) -> None:
    name = str(home.parent / "secret.wgsl") if name == "ABSOLUTE" else name
    message = refusal(lambda: shader_of(home, "\n" + tag.replace("NAME", name)))
    assert "mine.wgsl:10: cannot include " in message
    assert message.endswith(": it is outside of the kernel's folders")


def test_the_kernel_itself_has_no_absolute_name_either(home: Path) -> None:
    path = home / "layer_norm" / "mine.wgsl"
    shader_of(home, "fine\n")
    message = refusal(lambda: shader_of(home, f'{{% if cols > 8 %}}x{{% endif %}}{{% include "{path}" %}}'))
    assert "is outside" in message


def test_a_snippet_from_a_snippet(home: Path) -> None:
    message = refusal(
        lambda: shader_of(
            home, '{% include "lib/a.wgsl" %}', {"a.wgsl": '\n\n{% include "../secret.wgsl" %}'}
        )
    )
    assert message.startswith(f"{home.resolve()}/lib/a.wgsl:3: cannot include '../secret.wgsl'")


@pytest.mark.parametrize("kind", ["file", "folder", "chain", "lib"])
def test_links_that_lead_out(home: Path, kind: str) -> None:
    outside = home.parent / "outside"
    if kind == "file":
        link(home / "lib" / "part.wgsl", outside / "part.wgsl")
    elif kind == "folder":
        link(home / "lib" / "deep", outside, folder=True)
    elif kind == "chain":
        link(home / "lib" / "second.wgsl", outside / "part.wgsl")
        link(home / "lib" / "part.wgsl", Path("second.wgsl"))
    else:
        (home / "lib").rmdir()
        link(home / "lib", outside, folder=True)
    name = "lib/deep/part.wgsl" if kind == "folder" else "lib/part.wgsl"
    message = refusal(lambda: shader_of(home, f'{{% include "{name}" ignore missing %}}'))
    assert f"mine.wgsl:9: cannot include '{name}': it is outside of {home.resolve()}" in message


def test_a_link_within_the_folder_is_followed(home: Path) -> None:
    (home / "lib" / "real.wgsl").write_text("text")
    link(home / "lib" / "part.wgsl", Path("real.wgsl"))
    assert shader_of(home, '{% include "lib/part.wgsl" %}').text == "text\n"
    # The path to the folder may also contain a link.
    shader_of(home, "fine\n")
    behind = link(home.parent / "behind", home, folder=True)
    kernel = load(behind / "layer_norm" / "mine.wgsl")
    assert render_shader(default_variant(kernel, SIMPLE, GPU), SIMPLE, "native", GPU).text == "fine\n"


def test_a_path_with_dots_behind_a_link(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shader_of(home, '{% include "lib/part.wgsl" %}', {"part.wgsl": "text"})
    (home.parent / "far" / "away").mkdir(parents=True)
    monkeypatch.chdir(link(home.parent / "far" / "away" / "link", home / "lib", folder=True))
    for name in (
        "../layer_norm/mine.wgsl",
        "../layer_norm/../layer_norm/mine.wgsl",
        f"{home}/lib/../layer_norm/mine.wgsl",
    ):
        kernel = load(Path(name))
        assert render_shader(default_variant(kernel, SIMPLE, GPU), SIMPLE, "native", GPU).text == "text\n"
    (home.parent / "outside" / "k.wgsl").write_text(HEADER)
    link(home / "rms_norm", home.parent / "outside", folder=True)
    assert "is outside" in refusal(lambda: load(Path("../rms_norm/k.wgsl")))


def test_a_link_that_is_turned_round_is_noticed(home: Path) -> None:
    (home / "lib" / "real.wgsl").write_text("text")
    part = link(home / "lib" / "part.wgsl", Path("real.wgsl"))
    body = '{% include "lib/part.wgsl" %}'
    assert shader_of(home, body).text == "text\n"
    part.unlink()
    link(part, home.parent / "secret.wgsl")
    assert "is outside" in refusal(lambda: shader_of(home, body))


def test_kernels_that_are_links(home: Path) -> None:
    (home.parent / "kernel.wgsl").write_text(HEADER + SECRET)
    out = link(home / "layer_norm" / "out.wgsl", home.parent / "kernel.wgsl")
    assert "cannot read the kernel: it is outside of" in refusal(lambda: load(out))
    assert "cannot read the kernel: it is outside of" in refusal(lambda: discover([home]))
    # The error does not reveal mistakes in its header.
    (home.parent / "kernel.wgsl").write_text(SECRET)
    assert "is outside" in refusal(lambda: load(out))
    # A single file is in its own folder.
    loose = link(home / "loose.wgsl", home.parent / "kernel.wgsl")
    assert "is outside" in refusal(lambda: load(loose, "layer_norm"))
    # The op's folder is the link.
    (home.parent / "outside" / "k.wgsl").write_text(HEADER)
    folder = link(home / "rms_norm", home.parent / "outside", folder=True)
    assert "is outside" in refusal(lambda: load(folder / "k.wgsl"))
    # The link stays within the folder.
    (home / "layer_norm" / "real.wgsl").write_text(HEADER)
    assert load(link(home / "layer_norm" / "also.wgsl", Path("real.wgsl"))).name == "also"


def test_a_loose_kernel_has_snippets_next_to_it(home: Path) -> None:
    loose = home / "loose.wgsl"
    loose.write_text(HEADER + '{% include "lib/part.wgsl" %}')
    (home / "lib" / "part.wgsl").write_text("text")
    kernel = load(loose, "layer_norm")
    assert render_shader(default_variant(kernel, SIMPLE, GPU), SIMPLE, "native", GPU).text == "text\n"
    loose.write_text(HEADER + '{% include "secret.wgsl" %}')
    kernel = load(loose, "layer_norm")
    message = refusal(lambda: render_shader(default_variant(kernel, SIMPLE, GPU), SIMPLE, "native", GPU))
    assert "which does not exist in its folders" in message


def _fifo(path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    os.mkfifo(path)


def _socket(path: Path) -> None:
    if not hasattr(socket, "AF_UNIX"):
        pytest.skip("this system has no sockets in folders")
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _large(path: Path) -> None:
    path.write_bytes(b"x" * (MOST_BYTES + 1))


def _device(path: Path) -> None:
    link(path, Path("/dev/zero"))


def _loop(path: Path) -> None:
    link(path, Path(path.name))


def _unreadable(path: Path) -> None:
    path.write_text("x")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Path.mkdir, "Is a directory"),
        (_fifo, "it is not a regular file"),
        (_socket, "it is not a regular file"),
        (_device, "it is outside of"),
        (_sparse, f"it has {1 << 40} bytes or more; it must have at most {MOST_BYTES}"),
        (_large, f"it has {MOST_BYTES + 1} bytes or more; it must have at most {MOST_BYTES}"),
        (_loop, ""),
        (_unreadable, "Permission denied"),
    ],
)
def test_files_that_are_not_regular(
    home: Path, make: Callable[[Path], None], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    make(home / "lib" / "part.wgsl")
    message = refusal(lambda: shader_of(home, '{% include "lib/part.wgsl" %}'))
    assert "mine.wgsl:9: " in message and reason in message
    kernel = home / "layer_norm" / "k.wgsl"
    make(kernel)
    message = refusal(lambda: load(kernel))
    assert message.startswith(f"{kernel}: cannot read the kernel: {reason}")


CHARACTERS = [
    "\x00",
    "\x07",
    "\x08",
    "\x0b",
    "\x0c",
    "\x1b",
    "\x7f",
    "\x85",
    "\x9b",
    "\u2028",
    "\u202e",
    "\u2066",
]


@pytest.mark.parametrize("character", CHARACTERS, ids=lambda one: f"U+{ord(one):04X}")
def test_characters_that_people_do_not_see(home: Path, character: str) -> None:
    named = f"U+{ord(character):04X}"
    path = home / "layer_norm" / "k.wgsl"
    path.parent.mkdir()
    path.write_text(HEADER + f"\n// a{character}b\n", encoding="utf-8")
    assert (
        refusal(lambda: load(path)) == f"{path}:10: cannot read the kernel: it contains the character {named}"
    )
    path.write_text(HEADER.replace("A test", f"A{character}"), encoding="utf-8")
    assert refusal(lambda: load(path)).startswith(
        f"{path}:2: cannot read the kernel: it contains the character"
    )
    message = refusal(
        lambda: shader_of(home, '{% include "lib/part.wgsl" %}', {"part.wgsl": f"one\n\n// {character}"})
    )
    assert message == f"{home.resolve()}/lib/part.wgsl:3: it contains the character {named}"
    message = refusal(lambda: shader_of(home, f'a\nb {{{{ "\\u{ord(character):04x}" }}}}c\n'))
    assert message.endswith(f"mine.wgsl:10: the rendered text contains the character {named}")


def test_a_snippet_that_is_not_text(home: Path) -> None:
    (home / "lib" / "part.wgsl").write_bytes(b"a\nb\xff\n")
    message = refusal(lambda: shader_of(home, '{% include "lib/part.wgsl" %}'))
    assert message == f"{home.resolve()}/lib/part.wgsl:2: not UTF-8 text"


def test_line_ends_of_all_systems_are_read(home: Path) -> None:
    path = home / "layer_norm" / "k.wgsl"
    path.parent.mkdir()
    path.write_bytes((HEADER + "a\n").replace("\n", "\r\n").encode())
    kernel = load(path)
    assert render_shader(default_variant(kernel, SIMPLE, GPU), SIMPLE, "native", GPU).text == "a\n"


def test_a_name_that_a_terminal_would_take_for_a_command(home: Path) -> None:
    path = home / "layer_norm" / "a\x1b[31m.wgsl"
    path.parent.mkdir()
    path.write_text(HEADER)
    message = refusal(lambda: load(path))
    assert message.endswith("a\\x1b[31m.wgsl: its name contains the character U+001B; rename it")


@pytest.mark.parametrize("command", ["show", "export", "lab", "check", "bench"])
def test_no_command_copies_what_lies_outside(
    home: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if command == "lab":
        monkeypatch.setattr("webnorm.web.lab_site._LAB_COLS", (256,))
        monkeypatch.setattr("webnorm.web.lab_site._LAB_DTYPES", ("float32",))
    # webnorm's own kernels include this snippet, and a user's snippets override webnorm's.
    link(home / "lib" / "params.wgsl", home.parent / "secret.wgsl")
    shader_of(home, "fine\n")
    arguments = {
        "show": ["show", "naive"],
        "export": ["export", "layer_norm", "--cols", "64", "--kernel", "naive", "--out", "out"],
        "lab": ["export", "--lab", "--out", "out"],
        "check": ["check", "--kernel", "naive", "--case", "normal"],
        "bench": ["bench", "--kernel", "naive", "--rows", "4", "--cols", "8", "--budget", "0.1"],
    }[command]
    done = commands.webnorm([*arguments, "--wgsl", "."], home)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "secret of" not in said
    assert "is outside" in " ".join(said.split())
    assert not (home / "out").exists()
