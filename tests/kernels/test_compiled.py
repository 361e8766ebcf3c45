"""The cache of compiled templates between processes: which files webnorm reads, and which it ignores."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handmade import HEADER
from webnorm.errors import WebnormError
from webnorm.files import user_cache
from webnorm.kernels.rendering import templates
from webnorm.kernels.rendering.templates import RenderRequest, TemplateEnvironment

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the system knows no owners of files")

PART = "part {{ cols }}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the cache folder of this test, which does not exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "webnorm" / "templates"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Create a folder like webnorm's own."""
    own = tmp_path / "wgsl"
    (own / "layer_norm").mkdir(parents=True)
    (own / "lib").mkdir()
    (own / "layer_norm" / "mine.wgsl").write_text(f'{HEADER}first\n{{% include "lib/part.wgsl" %}}\n')
    (own / "lib" / "part.wgsl").write_text(PART)
    return own


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the names of the templates that Jinja compiles."""
    names: list[str] = []
    compile_template: Callable[..., Any] = TemplateEnvironment.compile

    def counting(self: Any, source: str, name: str, *rest: Any) -> Any:
        names.append(Path(name).name)
        return compile_template(self, source, name, *rest)

    monkeypatch.setattr(TemplateEnvironment, "compile", counting)
    return names


def rendered(own: Path, user: Path | None = None, home: Path | None = None, **context: Any) -> str:
    """Render a kernel of a folder, as a new process would."""
    templates._environment.cache_clear()
    roots = (str(own),) if user is None else (str(user), str(own))
    kernel = (home or own) / "layer_norm" / "mine.wgsl"
    request = RenderRequest(str(kernel), roots, str(own), {"cols": 8, "tracing": False} | context, ())
    return templates.render(request).text


def test_the_next_process_compiles_nothing(own: Path, folder: Path, counted: list[str]) -> None:
    assert rendered(own) == "first\npart 8\n"
    assert sorted(counted) == ["mine.wgsl", "part.wgsl"]
    # Only the user has access, and no half-written file remains.
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700 and len(list(folder.iterdir())) == 2
    assert rendered(own, cols=9) == "first\npart 9\n"
    assert len(counted) == 2


def test_an_edit_is_noticed(own: Path, folder: Path, counted: list[str]) -> None:
    rendered(own)
    (own / "lib" / "part.wgsl").write_text("other {{ cols }}\n")
    assert rendered(own) == "first\nother 8\n"
    assert counted[2:] == ["part.wgsl"]
    # The new file replaced the old one.
    assert len(list(folder.iterdir())) == 2
    assert rendered(own) == "first\nother 8\n" and len(counted) == 3


@pytest.mark.parametrize("of", ["Python", "Jinja", "webnorm"])
def test_another_version_takes_nothing(
    own: Path, counted: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, of: str
) -> None:
    rendered(own)
    templates._made_by.cache_clear()
    if of == "Python":
        monkeypatch.setattr(templates, "MAGIC_NUMBER", b"of another")
    else:
        (changed,) = (
            path
            for path in templates._MAKERS
            if path.name == {"Jinja": "compiler.py", "webnorm": "markers.py"}[of]
        )
        (tmp_path / changed.name).write_bytes(changed.read_bytes() + b"# changed\n")
        makers = [tmp_path / path.name if path == changed else path for path in templates._MAKERS]
        monkeypatch.setattr(templates, "_MAKERS", makers)
    try:
        rendered(own)
        assert len(counted) == 4
    finally:
        templates._made_by.cache_clear()


def test_the_place_of_a_mistake_is_the_same(own: Path, counted: list[str]) -> None:
    (own / "lib" / "part.wgsl").write_text("part\n    {{ cols // zero }}\n")
    found = []
    for _ in range(2):
        with pytest.raises(WebnormError, match=r"wgsl/lib/part\.wgsl:2: .*by zero") as caught:
            rendered(own, zero=0)
        found.append((str(caught.value), caught.value.place))
    assert found[0] == found[1] and len(counted) == 2


def test_a_users_templates_are_not_cached(
    own: Path, folder: Path, tmp_path: Path, counted: list[str]
) -> None:
    user = tmp_path / "user"
    (user / "lib").mkdir(parents=True)
    (user / "lib" / "part.wgsl").write_text("a user's\n")
    assert rendered(own, user) == "first\na user's\n"
    assert not folder.exists() and len(counted) == 2
    # The cache then contains webnorm's snippet of the same name, and the user's snippet does not come from
    # there.
    assert rendered(own) == "first\npart 8\n"
    forge(folder)
    before = sorted((path.name, path.read_bytes()) for path in folder.iterdir())
    assert rendered(own, user) == "first\na user's\n" and counted[4:] == ["part.wgsl"]
    (user / "lib" / "part.wgsl").write_text("another of a user's\n")
    assert rendered(own, user) == "first\nanother of a user's\n" and counted[5:] == ["part.wgsl"]
    assert sorted((path.name, path.read_bytes()) for path in folder.iterdir()) == before


def test_with_a_users_templates_the_cache_is_read_and_not_written(
    own: Path, folder: Path, tmp_path: Path, counted: list[str]
) -> None:
    user = tmp_path / "user"
    (user / "layer_norm").mkdir(parents=True)
    shutil.copy(own / "layer_norm" / "mine.wgsl", user / "layer_norm")
    assert rendered(own, user, user) == "first\npart 8\n"
    assert not folder.exists() and sorted(counted) == ["mine.wgsl", "part.wgsl"]
    rendered(own)
    del counted[:]
    assert rendered(own, user, user) == "first\npart 8\n" and counted == ["mine.wgsl"]
    # webnorm does not read the cache here either if other users may write to it.
    forge(folder)
    assert rendered(own, user, user) == "first\nfake 8\n"
    folder.chmod(0o702)
    assert rendered(own, user, user) == "first\npart 8\n"


def test_the_cache_of_another_webnorm_is_not_used(own: Path, folder: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    shutil.copytree(own, theirs)
    rendered(theirs)
    forge(folder)
    assert rendered(theirs) == "first\nfake 8\n"
    assert rendered(own, theirs, theirs) == "first\npart 8\n"


def forge(folder: Path) -> None:
    """Change the cached code of the snippet, as anyone with write access could."""
    for path in folder.iterdir():
        data = path.read_bytes()[user_cache._DIGEST_BYTES :]
        changed = data.replace(b"part ", b"fake ")
        path.write_bytes(user_cache._digest(changed) + changed)


def test_cached_code_is_executed(own: Path, folder: Path) -> None:
    """The other tests rely on this: if webnorm executes cached code, its effect is visible."""
    rendered(own)
    forge(folder)
    assert rendered(own) == "first\nfake 8\n"


@pytest.mark.parametrize("of", ["the folder", "the files"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_files_that_others_may_write_are_not_read(own: Path, folder: Path, of: str, mode: int) -> None:
    rendered(own)
    forge(folder)
    for path in [folder] if of == "the folder" else list(folder.iterdir()):
        path.chmod(path.stat().st_mode | mode)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert rendered(own) == "first\npart 8\n"
    # webnorm leaves such a folder unchanged. In its own folder it replaces such files.
    after = {path: path.read_bytes() for path in folder.iterdir()}
    assert (after == before) is (of == "the folder")


def test_files_of_other_users_are_not_read(own: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered(own)
    forge(folder)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    here = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: here + 1)
    assert rendered(own) == "first\npart 8\n"
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    # In another user's home, root must not leave its own files.
    shutil.rmtree(folder)
    assert rendered(own) == "first\npart 8\n" and not folder.exists()


def test_a_link_is_not_followed(own: Path, folder: Path, tmp_path: Path) -> None:
    rendered(own)
    forge(folder)
    elsewhere = folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(elsewhere, target_is_directory=True)
    assert rendered(own) == "first\npart 8\n"
    folder.unlink()
    folder.mkdir(mode=0o700)
    for path in elsewhere.iterdir():
        (folder / path.name).symlink_to(path)
    assert rendered(own) == "first\npart 8\n"


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


@pytest.mark.parametrize("broken", [cut, flipped, lambda data: b"", lambda data: os.urandom(len(data))])
def test_incomplete_files_are_not_read(
    own: Path, folder: Path, counted: list[str], broken: Callable[[bytes], bytes]
) -> None:
    rendered(own)
    for path in folder.iterdir():
        path.write_bytes(broken(path.read_bytes()))
    assert rendered(own) == "first\npart 8\n" and len(counted) == 4
    # webnorm has replaced the file.
    assert rendered(own) == "first\npart 8\n" and len(counted) == 4


def test_an_unwritable_cache_is_ignored(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert rendered(own) == rendered(own) == "first\npart 8\n"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert rendered(own) == "first\npart 8\n" and len(counted) == 6


def test_they_are_bounded(own: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_cache, "MOST_FILES", 4)
    kernel = own / "layer_norm" / "mine.wgsl"
    for number in range(7):
        (own / "lib" / f"part{number}.wgsl").write_text(PART)
        kernel.write_text(f'{HEADER}first\n{{% include "lib/part{number}.wgsl" %}}\n')
        assert rendered(own) == "first\npart 8\n"
        assert len(list(folder.iterdir())) <= 4
