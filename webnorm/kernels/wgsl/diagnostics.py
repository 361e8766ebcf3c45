"""Reading naga's error reports: which part of the shader is meant, and what is wrong with it.

Numbers of expressions, functions and types become the text that they denote. Where text ends too early and
another file goes on, naga complains of what it finds there: `find_truncation` says what the end lacks.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from webnorm.errors import SourceLocation, nearest
from webnorm.kernels.wgsl.tokens import CannotInstrument, WgslToken, tokenize, without_comments

# naga draws the source: "12 │ text" for a line, and below it "   │   ^^^ label" for what it means.
_SOURCE_LINE = re.compile(r"^\s*(\d+) │")
_MARK = re.compile(r"^\s*│.*\^+ ?(.*)$")
_PLACE = re.compile(r"┌─ (?:wgsl)?:(\d+):(\d+)")
_HEADLINE = re.compile(r"^(?:Shader '.*?' parsing error: |Shader validation error: )(.+)$")
_MISTYPED = re.compile(r"the type of `(\w+)` is expected to be `[^`]*`, but got `([^`]+)`")
# A label below the line of carets, in the column of its own.
_LABEL = re.compile(r"(?<=│ )[^│\s].*$|(?<= )[^│\s=].*$")
_NOTE = re.compile(r"^\s*= (.+)$")
# What marks some characters of one line, and not the end of several.
_CARETS = re.compile(r"(?<![─^])\^+")
# Of a drawn source (codespan_reporting::term::Config).
_TAB = 4
_NO_ENTRY_POINT = re.compile(r"Unable to find entry point '(\w+)'")
_OF_WGPU = re.compile(r"(?:Validation Error|Caused by:|In wgpu\w+)")
_NOT_IN_SCOPE = re.compile(r"^no definition in scope for identifier: `(\w+)`$")
_NAME = re.compile(r"\b[^\W\d]\w*")
# WGSL's own functions and types that normalisation is written with (https://www.w3.org/TR/WGSL/).
_WGSL_NAMES = (
    "abs", "all", "any", "array", "arrayLength", "atomic", "atomicAdd", "atomicLoad", "atomicMax",
    "atomicStore", "bitcast", "bool", "ceil", "clamp", "countOneBits", "dot", "exp", "exp2", "extractBits",
    "f16", "f32", "floor", "fma", "i32", "insertBits", "inverseSqrt", "length", "log", "max", "min",
    "pack2x16float", "pow", "reverseBits", "round", "select", "sign", "sqrt", "storageBarrier",
    "subgroupAdd", "subgroupAny", "subgroupBroadcast", "subgroupBroadcastFirst", "subgroupElect",
    "subgroupMax", "subgroupMin", "subgroupShuffle", "subgroupShuffleDown", "subgroupShuffleUp",
    "subgroupShuffleXor", "trunc", "u32", "unpack2x16float", "vec2f", "vec2u", "vec3f", "vec3u", "vec4f",
    "vec4i", "vec4u", "workgroupBarrier", "workgroupUniformLoad",
)  # fmt: skip
# What CUDA, HLSL, GLSL and Metal call them.
_NAMED_ELSEWHERE = {
    "float": "f32",
    "half": "f16",
    "int": "i32",
    "uint": "u32",
    "float2": "vec2f",
    "float4": "vec4f",
    "rsqrt": "inverseSqrt",
    "rsqrtf": "inverseSqrt",
    "inversesqrt": "inverseSqrt",
    **dict.fromkeys(("barrier", "__syncthreads", "threadgroup_barrier"), "workgroupBarrier"),
}
# How near a name has to be (difflib's ratio), and of how many the nearest is looked for, 10 us each.
_NEAR, _MOST_NAMES = 0.76, 2000
# Labels of a drawn source, and what naga says of them.
_EXPRESSION = re.compile(r"naga::ir::Expression \[(\d+)\]")
_CALLED = re.compile(r"([^\W\d]\w*)\s*\((.*)\)", re.DOTALL)
_SCALARS = {("Float", "4"): "f32", ("Float", "2"): "f16", ("Sint", "4"): "i32", ("Uint", "4"): "u32"}
_SIZES = {"Bi": 2, "Tri": 3, "Quad": 4}
_SCALAR = re.compile(r"Scalar\((Scalar \{ kind: \w+, width: \d+ \})\)|Scalar \{ kind: (\w+), width: (\d+) \}")
_VECTOR = re.compile(r"Vector \{ size: (Bi|Tri|Quad), scalar: ([\w]+) \}")
_ARGUMENT = re.compile(r"Argument (\d+) value \[\d+\] doesn't match the type \[\d+\]")
_CALL = re.compile(r"Call to \[\d+\] is invalid")
# Of numbers without a suffix.
_ABSTRACT = re.compile(r"\{(Abstract\w+)\}")
_FUNCTION = re.compile(r"Function \[\d+\] '(\w+)'")
_FOUND = re.compile(r'found "((?:[^"\\]|\\.)*)"')
_NUMBER = re.compile(r"(?P<word>\b[A-Za-z]+ )?\[(?P<number>\d+)\]")
# Words that need no number behind them.
_NOUNS = ("condition", "expression", "index", "value", "type", "function", "variable", "pointer")
# naga's words for a single sign that is missing before what it found.
_MISSING = re.compile(r"expected (`[^`\w]+`), found ")
# What begins nowhere but outside functions and structures.
_GLOBAL = re.compile(
    r"(?:fn|struct|alias|override)\b"
    r"|@\s*(?:compute|workgroup_size|group|binding|id|must_use)\b"
    r"|var\s*<\s*(?:workgroup|private|storage|uniform)\b"
)
# How many tokens of such a beginning naga may have read by then: `var<workgroup`.
_READ = 3


class NagaReport(NamedTuple):
    """What a report says: the line of the shader, from 1, and the complaint in one sentence; the column in
    characters, from 1, where it is known, and how many are marked.
    """

    line: int | None
    complaint: str
    column: int | None = None
    length: int = 0


def read_report(report: str, lines: Sequence[str] = ()) -> NagaReport:
    """What a report says of a shader of these lines.

    A parse error marks one place. A validation error names the function and marks several places in it; the
    one with words of its own is meant, else the last that is not the whole function.
    """
    line: int | None = None
    current: int | None = None
    place = (0, 0)
    source, drawn, carets = "", "", ""
    headline, notes = "", []
    best = -1
    for text in report.splitlines():
        if match := _PLACE.search(text):
            place = int(match[1]), int(match[2])
            line = line or place[0]
        elif match := _SOURCE_LINE.match(text):
            current, source = int(match[1]), text
        elif match := _MARK.match(text):
            label = match[1]
            rank = 0 if "ir::Function" in label else 1 if "naga::" in label else 2
            if current is not None and rank >= max(best, 1):
                line, best = current, rank
                drawn, carets = source, text
        elif match := _HEADLINE.match(text.strip()):
            headline = match[1]
        elif match := _NOTE.match(text):
            notes.append(match[1])
    column, length = place[1] if line == place[0] else None, 0
    if line is not None and line <= len(lines):
        spans = _spans(lines[line - 1], drawn, carets)
        # Of several in a line the one that naga names, else the one that the label belongs to.
        column, length = next((span for span in spans if span[0] == column), (spans or [(column, 0)])[-1])
    if notes and headline:
        labels = dict(_labels(report, lines))
        headline = f"{headline}: {'; '.join(without_handles(note, labels, lines) for note in notes)}"
    said = plain_words(headline) or _unplaced(report)
    return NagaReport(line, said + _advice(said, lines), column, length)


def _unplaced(report: str) -> str:
    """What a report says that marks nothing of the text: wgpu's causes, without its own functions."""
    if missing := _NO_ENTRY_POINT.search(report):
        return f"no entry point `{missing[1]}`; expected a function of that name with @compute"
    parts = [part.strip() for part in report.splitlines() if part.strip()]
    return "; ".join([part for part in parts if not _OF_WGPU.match(part)] or parts)


def _labels(report: str, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The labels of a drawn source, each with the text that it marks."""
    number, drawn = 0, ""
    # By the column of the first caret.
    marked: dict[int, str] = {}
    for text in report.splitlines():
        if match := _SOURCE_LINE.match(text):
            number, drawn, marked = int(match[1]), text, {}
        elif (match := _MARK.match(text)) and 1 <= number <= len(lines):
            spans = _spans(lines[number - 1], drawn, text)
            carets = [found.start() for found in _CARETS.finditer(text)][-len(spans) :] if spans else []
            for at, (column, length) in zip(carets, spans, strict=False):
                marked[at] = lines[number - 1][(column or 1) - 1 :][:length]
            if match[1] and carets:
                yield match[1].strip(), marked[carets[-1]]
        elif marked and (label := _LABEL.search(text)) and label.start() in marked:
            yield label[0], marked[label.start()]


def _advice(complaint: str, lines: Sequence[str]) -> str:
    """For a name that there is none of: the nearest one of those in the text and of WGSL's own."""
    found = _NOT_IN_SCOPE.match(complaint)
    if not found:
        return ""
    named: dict[str, None] = {}
    with suppress(CannotInstrument):
        named = dict.fromkeys(_NAME.findall(without_comments("\n".join(lines))))
    named.pop(found[1], None)
    known = (*_WGSL_NAMES, *itertools.islice(named, _MOST_NAMES))
    meant = _NAMED_ELSEWHERE.get(found[1]) or nearest(found[1], known, _NEAR)
    return f"; did you mean `{meant}`?" if meant else ""


def _spans(line: str, drawn: str, carets: str) -> list[tuple[int | None, int]]:
    """The columns, from 1, and lengths of what is marked in a line, as it is drawn and below it."""
    text = "".join(" " * width if character == "\t" else character for character, width in _cells(line))
    if not text or not drawn.endswith(text):
        return []
    before = len(drawn) - len(text)
    ends = list(itertools.accumulate(width for _, width in _cells(line)))
    spans: list[tuple[int | None, int]] = []
    for found in _CARETS.finditer(carets, before):
        begin, end = (sum(end <= at - before for end in ends) for at in found.span())
        spans.append((begin + 1, end - begin))
    return spans


def _cells(line: str) -> list[tuple[str, int]]:
    """The characters of a line, each with the cells of a terminal that it takes up."""
    cells, at = [], 0
    for character in line:
        if character == "\t":
            width = _TAB - at % _TAB
        elif unicodedata.category(character) in ("Mn", "Me", "Cf"):
            width = 0
        else:
            width = 2 if unicodedata.east_asian_width(character) in "WF" else 1
        cells.append((character, width))
        at += width
    return cells


def characters(line: str, units: int) -> int:
    """How many characters of a line so many UTF-16 units are, as browsers count columns."""
    return len(line.encode("utf-16-le", "surrogatepass")[: 2 * units].decode("utf-16-le", "ignore"))


def mistyped(report: str) -> tuple[str, str] | None:
    """The variable that a report says to be of another type than it was declared with, and that type."""
    found = _MISTYPED.search(report)
    return (found[1], found[2]) if found else None


class TruncatedText(NamedTuple):
    """The line of the rendered text, from 1, that lacks something at its end, the complaint, and the place
    behind what stands there last.
    """

    line: int
    complaint: str
    place: SourceLocation


def find_truncation(
    text: str, report: NagaReport, place: Callable[[int, int, int], SourceLocation | None]
) -> TruncatedText | None:
    """What a file lacks before the first token of another's, which a report complains of.

    `place` is Shader.place. None unless it is certain: the report is of another token, or what stands before
    it is whole.
    """
    try:
        code = without_comments(text)
        tokens = tokenize(code)
    except CannotInstrument:
        return None
    meant = _marked(code, tokens, report)
    for number in range(meant, max(0, meant - _READ), -1):
        last, first = tokens[number - 1], tokens[number]
        at = place(first.line, _column_of(code, first), len(first.text))
        behind = place(last.line, _column_of(code, last) + len(last.text) - 1, 1)
        if at is None or behind is None or at.file == behind.file:
            continue
        missing = _MISSING.match(report.complaint) if number == meant else None
        if not missing and not (_GLOBAL.match(code, first.start) and _in_braces(tokens[:number])):
            return None
        complaint = f'expected {missing[1] if missing else "`}`"}, found "{first.text}" at {at}'
        behind = replace(behind, column=behind.column + behind.length, length=0)
        return TruncatedText(last.line, complaint, behind)
    return None


def _column_of(code: str, token: WgslToken) -> int:
    """From 1."""
    return token.start - code.rfind("\n", 0, token.start)


def _marked(code: str, tokens: Sequence[WgslToken], report: NagaReport) -> int:
    """The number of the token that a report marks; 0 where it marks none."""
    place = report.line, report.column
    found = (at for at, one in enumerate(tokens) if (one.line, _column_of(code, one)) == place)
    return next(found, 0)


def _in_braces(tokens: Sequence[WgslToken]) -> bool:
    """Whether the innermost bracket that these leave open is a brace."""
    opened = []
    for token in tokens:
        if token.text in ("(", "[", "{"):
            opened.append(token.text)
        elif token.text in (")", "]", "}") and opened:
            opened.pop()
    return opened[-1:] == ["{"]


def without_handles(note: str, labels: Mapping[str, str], text: Sequence[str]) -> str:
    """A sentence of naga's without numbers that only naga knows. `labels` has for each label of the drawn
    source what it marks.
    """
    note = _ABSTRACT.sub(r"\1", note.removeprefix("note: "))
    call = _CALLED.fullmatch(labels.get("invalid function call", ""))
    if _CALL.fullmatch(note):
        return f"the call of `{call[1]}` is invalid" if call else "the call is invalid"
    if argument := _ARGUMENT.fullmatch(note):
        return _argument(int(argument[1]), call, "\n".join(text))
    note = _SCALAR.sub(_scalar, _SCALAR.sub(lambda found: found[1] or found[0], note))
    note = _VECTOR.sub(lambda found: f"vec{_SIZES[found[1]]}<{found[2]}>", note)
    marked = {found[1]: what for label, what in labels.items() if (found := _EXPRESSION.fullmatch(label))}

    def named(found: re.Match[str]) -> str:
        word = found["word"] or ""
        is_type = word.strip().lower() in ("type", "function")
        if found["number"] in marked and not is_type:
            return f"{word}`{marked[found['number']]}`"
        return word.rstrip() if word.strip().lower() in _NOUNS else f"{word}a value"

    return _NUMBER.sub(named, note)


def plain_words(said: str) -> str:
    """What naga says first, as plain text: functions by their names, characters as they are written."""
    said = _FUNCTION.sub(r"Function `\1`", _ABSTRACT.sub(r"\1", said))
    return _FOUND.sub(lambda found: "found " + _unescaped(found[1]), said)


def _unescaped(quoted: str) -> str:
    """A token that naga quotes as Rust would."""
    text = re.sub(r"\\(.)", lambda found: {"n": " "}.get(found[1], found[1]), quoted)
    return "the end of the text" if not text else f"`{text}`" if text != quoted else f'"{text}"'


def _scalar(found: re.Match[str]) -> str:
    kind, width = found[2], found[3]
    return "bool" if kind == "Bool" else _SCALARS.get((kind, width), f"{kind}{8 * int(width)}")


def _argument(number: int, call: re.Match[str] | None, text: str) -> str:
    """What is wrong with an argument, from 0, of a call: its text, and the parameter that it is for."""
    given = dict(enumerate(_parts(call[2]))).get(number) if call else None
    declared = re.search(rf"\bfn\s+{call[1]}\s*\(", text) if call else None
    parameters = dict(enumerate(_parts(text[declared.end() :]))) if declared else {}
    what = f"argument {number + 1}" + (f", `{given}`," if given else "")
    wanted = f"`{parameters[number]}`" if number in parameters else "another type"
    return f"{what} does not fit the parameter {wanted}" if number in parameters else f"{what} is of {wanted}"


def _parts(text: str) -> Iterator[str]:
    """What commas separate, up to the bracket that closes."""
    depth, part = 0, ""
    for character in text:
        depth += (character in "([{<") - (character in ")]}>")
        if depth < 0:
            break
        if character == "," and not depth:
            yield " ".join(part.split())
            part = ""
        else:
            part += character
    if part.strip():
        yield " ".join(part.split())
