"""Files in the forms of other editors and systems: every verb accepts them or reports the problem."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import webnorm
from headless import needs_tint
from webnorm.errors import WebnormError
from webnorm.gpu.device import Device
from webnorm.kernels.headers.header import load
from webnorm.kernels.headers.library import survey

OPENING, CLOSING = b"// /// webnorm", b"// ///\n"
BOM = b"\xef\xbb\xbf"
# Equivalent files.
ALIKE: dict[str, Callable[[bytes], bytes]] = {
    "a byte order mark": lambda text: BOM + text,
    "a blank behind the first line": lambda text: text.replace(OPENING, OPENING + b" ", 1),
    "tabs behind both lines": lambda text: text.replace(OPENING, OPENING + b"\t", 1).replace(
        CLOSING, CLOSING[:-1] + b" \t\n", 1
    ),
    "CRLF": lambda text: text.replace(b"\n", b"\r\n"),
    "CR": lambda text: text.replace(b"\n", b"\r"),
    "all of that": lambda text: BOM + b"\n\n" + text.replace(b"\n", b" \r\n"),
    "lines before the header": lambda text: b"\n \n// A note.\n" + text,
    "no line feed at the end": lambda text: text.rstrip(b"\n"),
}
# Refused lines, and a part of the message.
REFUSED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "UTF-16": (lambda text: text.decode().encode("utf-16"), "not UTF-8 text but UTF-16; save it as UTF-8"),
    "UTF-16, big end first": (lambda text: b"\xfe\xff" + text.decode().encode("utf-16-be"), "UTF-16"),
    "UTF-16 without a mark": (lambda text: text.decode().encode("utf-16-le"), "not UTF-8 text|U\\+0000"),
    "upper case": (
        lambda text: text.replace(OPENING, b"// /// WebNorm", 1),
        ":1: no header: .* got '// /// WebNorm'",
    ),
    "no blank": (
        lambda text: text.replace(OPENING, b"// ///webnorm", 1),
        ":1: no header: .* got '// ///webnorm'",
    ),
    "no comment": (
        lambda text: text.replace(OPENING, b"/// webnorm", 1),
        ":1: no header: .* got '/// webnorm'",
    ),
    "another mark in it": (lambda text: b"\n\xe2\x80\x8b" + text, ":2: no header: .*u200b// /// webnorm"),
    "not closed": (
        lambda text: text.replace(CLOSING, b"", 1),
        ":1: the header is not closed: expected a line '// ///'",
    ),
    "closed otherwise": (
        lambda text: text.replace(CLOSING, b"//  ///\n", 1),
        ":10: the header is not closed: .* got '//  ///'",
    ),
    "closed by two": (
        lambda text: text.replace(CLOSING, b"///\n", 1),
        ":10: the header is not closed: .* got '///'",
    ),
    "a tab in the header": (
        lambda text: text.replace(b"// summary", b"//\tsummary", 1),
        r":2: a header line must start with '// ', got '//.tsummary",
    ),
    "a blank line in the header": (
        lambda text: text.replace(b"// summary", b"\n// summary", 1),
        ":2: a header line must start with '// ', got ''",
    ),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("source")
    assert webnorm(["new", "k", "--op", "layer_norm", "--from", "two_pass"], folder).returncode == 0
    return (folder / "kernels" / "layer_norm" / "k.wgsl").read_bytes()


def written(folder: Path, content: bytes, name: str = "k.wgsl") -> str:
    path = folder / "kernels" / "layer_norm" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return f"kernels/layer_norm/{name}"


@pytest.mark.parametrize("change", ALIKE)
def test_an_equivalent_file_is_read(source: bytes, change: str, tmp_path: Path) -> None:
    plain, other = (
        tmp_path / written(tmp_path, text, name)
        for text, name in ((source, "plain.wgsl"), (ALIKE[change](source), "k.wgsl"))
    )
    one, two = load(plain), load(other)
    assert (one.summary, one.tune, one.passes) == (two.summary, two.tune, two.passes)
    texts = [webnorm(["show", str(path), "--cols", "64"], tmp_path) for path in (plain, other)]
    shown = [
        re.sub("^// A note.\n*|^// layer_norm/.*|\n\n+", "", done.stdout.strip(), flags=re.M)
        for done in texts
    ]
    assert texts[1].returncode == 0, texts[1].stderr
    assert shown[0].rstrip() == shown[1].rstrip()


@pytest.mark.parametrize("change", REFUSED)
def test_the_text_in_place_of_a_header_is_named(source: bytes, change: str, tmp_path: Path) -> None:
    made, message = REFUSED[change]
    path = tmp_path / written(tmp_path, made(source))
    with pytest.raises(WebnormError, match=message):
        load(path)


VERBS = (
    ("show", "{}", "--cols", "64"),
    ("list", "--supported", "--wgsl", "kernels"),
    ("check", "--kernel", "{}", "--case", "normal"),
    ("bench", "--kernel", "{}", "--rows", "4", "--cols", "64", "--budget", "0.05"),
    ("new", "next", "--op", "layer_norm", "--from", "{}"),
    ("export", "layer_norm", "--cols", "64", "--kernel", "{}", "--out", "out"),
    ("play", "{}", "--once", "--quick"),
)


# Verbs that run a kernel take seconds and read the file like the others.
_MARKS: dict[str, list[pytest.MarkDecorator]] = {
    **{verb: [pytest.mark.slow] for verb in ("check", "bench", "export")},
    "play": [pytest.mark.slow, needs_tint],
}


@pytest.mark.parametrize(
    "words",
    [pytest.param(words, marks=_MARKS.get(words[0], []), id=words[0]) for words in VERBS],
)
def test_every_verb_takes_the_same_file(
    device: Device, source: bytes, words: tuple[str, ...], tmp_path: Path
) -> None:
    """A file as an editor on Windows saves it, with the suffix in upper case."""
    path = written(tmp_path, BOM + source.replace(b"\n", b" \r\n"), "K.WGSL")
    done = webnorm([word.format(path) for word in words], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
def test_every_verb_names_the_odd_text(source: bytes, words: tuple[str, ...], tmp_path: Path) -> None:
    path = written(tmp_path, source.replace(OPENING, b"// /// WEBNORM", 1))
    done = webnorm([word.format(path) for word in words], tmp_path)
    output = done.stdout + done.stderr
    assert "got '// /// WEBNORM'" in re.sub(r"\s+", " ", output), output
    assert done.returncode != 0 or words[0] == "list"


def test_a_folder_is_searched_for_either_suffix(source: bytes, tmp_path: Path) -> None:
    written(tmp_path, source, "One.WGSL")
    written(tmp_path, source, "two.wgsl")
    written(tmp_path, source, "three.wgsl.orig")
    found, broken = survey([tmp_path / "kernels"])
    assert {"One", "two"} <= {kernel.name for kernel in found} and not broken
    assert "three.wgsl" not in {kernel.name for kernel in found}
