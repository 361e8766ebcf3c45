"""The watch notices every way in which a file gets another text."""

from __future__ import annotations

import errno
import os
import queue
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playing import TWO_PASS

from patience import HANG_S
from webnorm.play import session as sessions
from webnorm.play.file_watch import FileWatch
from webnorm.play.session import PlaygroundSession
from webnorm.play.state import Settings
from webnorm.system import is_root


class FakeRunner:
    """A runner that evaluates nothing and records the texts."""

    def __init__(self, *_: object) -> None:
        self.texts: queue.Queue[str] = queue.Queue()
        self.notices: queue.Queue[str] = queue.Queue()
        self.notice = self.notices.put

    def evaluate(self, text: str, *_: object) -> None:
        self.texts.put(text)

    def start(self) -> None: ...

    def stop(self) -> None: ...


@contextmanager
def watched(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRunner]:
    """Open a session on a file and wait for its first text."""
    monkeypatch.setattr(sessions, "AttemptRunner", FakeRunner)
    session = PlaygroundSession(path, Settings(), "layer_norm")
    runner: Any = session._runner
    with session:
        assert runner.texts.get(timeout=HANG_S) == path.read_text(encoding="utf-8")
        yield runner


def seen(runner: FakeRunner, text: str) -> None:
    """Wait for a text; other texts, which the file had briefly, may come first."""
    while runner.texts.get(timeout=HANG_S) != text:
        pass


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def renamed_over(folder: Path) -> None:
    """Save as rsync and many editors do."""
    temporary = folder / "k.wgsl~"
    write(temporary, "renamed")
    temporary.replace(folder / "k.wgsl")


def folder_replaced(folder: Path) -> None:
    """Replace the folder as `git checkout` and `mv` do."""
    shutil.copytree(folder, folder.with_name("new"))
    folder.rename(folder.with_name("old"))
    folder.with_name("new").rename(folder)


def folder_gone_and_back(folder: Path) -> None:
    shutil.rmtree(folder)
    write(folder / "k.wgsl", "back")


def root_gone_and_back(folder: Path) -> None:
    shutil.rmtree(folder.parent)
    write(folder / "k.wgsl", "back")


def root_replaced(folder: Path) -> None:
    root = folder.parent
    shutil.copytree(root, root.with_name("other"))
    root.rename(root.with_name("before"))
    root.with_name("other").rename(root)


def hard_linked(folder: Path) -> None:
    write(folder.parent / "elsewhere", "linked")
    (folder / "k.wgsl").unlink()
    os.link(folder.parent / "elsewhere", folder / "k.wgsl")


def soft_linked(folder: Path) -> None:
    write(folder / "target.txt", "linked")
    (folder / "k.wgsl").unlink()
    (folder / "k.wgsl").symlink_to("target.txt")


def a_folder_for_a_while(folder: Path) -> None:
    (folder / "k.wgsl").unlink()
    (folder / "k.wgsl").mkdir()
    (folder / "k.wgsl").rmdir()
    write(folder / "k.wgsl", "a file again")


def with_its_old_time(folder: Path) -> None:
    """Write as `cp -p` and `tar` do: with the same size and time as before."""
    path = folder / "k.wgsl"
    status = path.stat()
    text = path.read_text(encoding="utf-8")
    write(path, text.swapcase())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    (
        renamed_over,
        folder_replaced,
        folder_gone_and_back,
        root_gone_and_back,
        root_replaced,
        hard_linked,
        soft_linked,
        a_folder_for_a_while,
        with_its_old_time,
    ),
)
def test_the_save_after_a_change_is_seen(
    change: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "root" / "layer_norm" / "k.wgsl"
    write(path, TWO_PASS)
    with watched(path, monkeypatch) as runner:
        change(path.parent)
        if (changed := path.read_text(encoding="utf-8")) != TWO_PASS:
            seen(runner, changed)
        write(path, "an ordinary save")
        seen(runner, "an ordinary save")


@pytest.mark.parametrize("inside", ("", "layer_norm"))
def test_a_link_that_moves_is_followed(inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tmp_path / "current"
    for name in ("v1", "v2"):
        write(tmp_path / name / inside / "k.wgsl", name)
        write(tmp_path / name / "lib" / "s.wgsl", name)
    link.symlink_to(Path("v1", inside))
    with watched(link / "k.wgsl", monkeypatch) as runner:
        link.with_name("next").symlink_to(Path("v2", inside))
        link.with_name("next").replace(link)
        seen(runner, "v2")
        write(tmp_path / "v2" / inside / "k.wgsl", "an ordinary save")
        seen(runner, "an ordinary save")


def test_snippets_that_come_change_and_go_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "layer_norm" / "k.wgsl"
    write(path, TWO_PASS)
    with watched(path, monkeypatch) as runner:
        for snippet in (tmp_path / "lib" / "s.wgsl", tmp_path / "s.wgsl", path.with_name("s.wgsl")):
            write(snippet, "one")
            seen(runner, TWO_PASS)
            write(snippet, "two")
            seen(runner, TWO_PASS)
            snippet.unlink()
            seen(runner, TWO_PASS)


def test_snippets_are_seen_wherever_a_template_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snippets may be named by other snippets, and need not exist yet."""
    path = tmp_path / "layer_norm" / "k.wgsl"
    text = """{% import "parts/a.wgsl" as a %}{%- from 'lib/deep/b.inc' import b with context -%}
{% include ["none.d/c.wgsl",
  "rms_norm/d.wgsl"] ignore missing %}{% include "../outside.wgsl" %}
"""
    write(path, text)
    write(tmp_path / "parts" / "a.wgsl", '{% include "far/away/e.txt" %}')
    with watched(path, monkeypatch) as runner:
        for name in ("parts/a.wgsl", "lib/deep/b.inc", "none.d/c.wgsl", "rms_norm/d.wgsl", "far/away/e.txt"):
            snippet = tmp_path / name
            for content in ("one", "twice", '{% include "far/away/e.txt" %}'):
                write(snippet, content)
                seen(runner, text)


def test_an_unreadable_file_is_reported_and_seen_once_it_is_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "layer_norm" / "k.wgsl"
    write(path, TWO_PASS)
    with watched(path, monkeypatch) as runner:
        path.unlink()
        assert "No such file" in runner.notices.get(timeout=HANG_S)
        path.symlink_to(path)
        while "symbolic links" not in runner.notices.get(timeout=HANG_S):
            pass
        path.unlink()
        write(path, "back")
        seen(runner, "back")


@pytest.mark.skipif(is_root(), reason="root may read everything")
def test_permissions_that_go_and_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "layer_norm" / "k.wgsl"
    write(path, TWO_PASS)
    with watched(path, monkeypatch) as runner:
        for locked, mode in ((path, 0o644), (path.parent, 0o755)):
            locked.chmod(0)
            assert "Permission denied" in runner.notices.get(timeout=HANG_S)
            locked.chmod(mode)
            seen(runner, TWO_PASS)


def test_an_error_in_the_watch_is_reported_and_the_watch_continues() -> None:
    failures: queue.Queue[str] = queue.Queue()
    changes: queue.Queue[int] = queue.Queue()
    looks = iter(range(1 << 20))
    broken = {3: OSError(errno.EMFILE, "Too many open files"), 40: KeyError("no")}

    def look() -> int:
        number = next(looks)
        if number in broken:
            raise broken[number]
        return number // 20

    with FileWatch(look, lambda: changes.put(1), failures.put):
        assert "OSError: [Errno 24] Too many open files; the watch continues" in failures.get(timeout=HANG_S)
        assert "KeyError" in failures.get(timeout=HANG_S)
        changes.get(timeout=HANG_S)
        changes.get(timeout=HANG_S)


def test_a_second_save_that_leaves_the_stamp_is_noticed() -> None:
    """The clock of a file system may have a coarse resolution."""
    changes: queue.Queue[int] = queue.Queue()
    stamp = [0]
    with FileWatch(lambda: stamp[0], lambda: changes.put(stamp[0]), pytest.fail):
        stamp[0] = 1
        assert changes.get(timeout=HANG_S) == 1
        assert changes.get(timeout=HANG_S) == 1
