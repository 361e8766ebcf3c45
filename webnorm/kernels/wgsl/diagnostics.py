"""A parser of naga's and Tint's error reports: the location in the shader and the message.

naga's numbers of expressions, functions and types are replaced by the text that they denote. If a file ends
too early, compilers report the first token of the next file; `find_truncation` finds the end that lacks
something.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from webnorm.errors import CLOSE, SourceLocation, nearest
from webnorm.kernels.wgsl.tokens import CannotInstrument, WgslToken, tokenize, without_comments

# naga prints source lines as "12 │ text", followed by a line "   │   ^^^ label" with a marker.
_SOURCE_LINE = re.compile(r"^\s*(\d+) │")
_MARK = re.compile(r"^\s*│.*\^+ ?(.*)$")
_PLACE = re.compile(r"┌─ (?:wgsl)?:(\d+):(\d+)")
_HEADLINE = re.compile(r"^(?:Shader '.*?' parsing error: |Shader validation error: )(.+)$")
_MISTYPED = re.compile(r"the type of `(\w+)` is expected to be `[^`]*`, but got `([^`]+)`")
# A label below the line of carets.
_LABEL = re.compile(r"(?<=│ )[^│\s].*$|(?<= )[^│\s=].*$")
_NOTE = re.compile(r"^\s*= (.+)$")
# Carets that mark characters of one line. Markers of several lines end in "─^".
_CARETS = re.compile(r"(?<![─^])\^+")
# Columns of a tab in naga's output (codespan_reporting::term::Config).
_TAB = 4
# Messages of wgpu and Dawn.
_NO_ENTRY_POINT = re.compile(r"""(?:Unable to find entry point|Entry point) ['"]+(\w+)""")
_CONTEXT = re.compile(r"(?:Validation Error|Caused by:|In wgpu\w+|- While |at \w+ \()")
# Messages of naga and Tint.
_NOT_IN_SCOPE = re.compile(r"^(?:no definition in scope for identifier:|unresolved [\w ]+) [`'](\w+)[`']$")
_NO_FIELD = re.compile(r"^(?:invalid field accessor|struct member) `?(\w+)(?:`| not found)$")
# Tint's error, the line of the shader and the line of carets. Tint draws no carets below a line that is not
# ASCII. The text has no name: "Error while parsing WGSL: :4:8 error: expected ')'".
_OF_TINT = re.compile(r"(?:^|: ):(\d+):(\d+) error: (.+)(?:\n.*\n *(\^+)$)?", re.MULTILINE)
_MISTYPED_BY_TINT = re.compile(r"cannot initialize 'let' of type '[^']*' with value of type '([^']+)'")
_FUNCTION_NAME = re.compile(r"\bfn\s+(\w+)")
# A member of a struct, or another name with a type.
_TYPED_NAME = re.compile(r"\b([^\W\d]\w*)\s*:")
_NAME = re.compile(r"\b[^\W\d]\w*")
# WGSL's functions and types that are useful in norms (https://www.w3.org/TR/WGSL/).
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
# The names for them in CUDA, HLSL, GLSL and Metal.
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
# The most names to compare with a name, at 10 us each.
_MOST_NAMES = 2000
# Labels in naga's output, and naga's sentences about them.
_EXPRESSION = re.compile(r"naga::ir::Expression \[(\d+)\]")
_CALLED = re.compile(r"([^\W\d]\w*)\s*\((.*)\)", re.DOTALL)
_SCALARS = {("Float", "4"): "f32", ("Float", "2"): "f16", ("Sint", "4"): "i32", ("Uint", "4"): "u32"}
_SIZES = {"Bi": 2, "Tri": 3, "Quad": 4}
_SCALAR = re.compile(r"Scalar\((Scalar \{ kind: \w+, width: \d+ \})\)|Scalar \{ kind: (\w+), width: (\d+) \}")
_VECTOR = re.compile(r"Vector \{ size: (Bi|Tri|Quad), scalar: ([\w]+) \}")
_ARGUMENT = re.compile(r"Argument (\d+) value \[\d+\] doesn't match the type \[\d+\]")
_CALL = re.compile(r"Call to \[\d+\] is invalid")
# The types of numbers without a suffix.
_ABSTRACT = re.compile(r"\{(Abstract\w+)\}")
_FUNCTION = re.compile(r"Function \[\d+\] '(\w+)'")
_FOUND = re.compile(r'found "((?:[^"\\]|\\.)*)"')
_NUMBER = re.compile(r"(?P<word>\b[A-Za-z]+ )?\[(?P<number>\d+)\]")
# Nouns that read well without a number.
_NOUNS = ("condition", "expression", "index", "value", "type", "function", "variable", "pointer")
# naga's message for a single missing character before the token it found.
_MISSING = re.compile(r"expected (`[^`\w]+`), found ")
# Tokens that can only begin a declaration at module scope.
_GLOBAL = re.compile(
    r"(?:fn|struct|alias|override)\b"
    r"|@\s*(?:compute|workgroup_size|group|binding|id|must_use)\b"
    r"|var\s*<\s*(?:workgroup|private|storage|uniform|immediate)\b"
)
# The most tokens of such a declaration that naga reads before it reports: `var<workgroup`.
_READ = 3


class CompilerReport(NamedTuple):
    """The content of a report: the shader's line, from 1, and the message in one sentence.

    `column` counts characters from 1, None if unknown; `length` is the number of marked characters.
    """

    line: int | None
    complaint: str
    column: int | None = None
    length: int = 0


def read_report(
    report: str, lines: Sequence[str] = (), declared: Callable[[], Sequence[str]] | None = None
) -> CompilerReport:
    """Parse a report about a shader with these lines.

    `declared` returns lines with more names to suggest. It is called only for a message about a name.

    A parse error of naga marks one place. A validation error names the function and marks several places in
    it. The result is the place with its own message, else the last one that is not the whole function.
    """
    if found := _OF_TINT.search(report):
        return _tint_report(found, lines, declared)
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
        # Of several spans in a line, the one that naga names, else the one with the label.
        column, length = next((span for span in spans if span[0] == column), (spans or [(column, 0)])[-1])
    if notes and headline:
        labels = dict(_labels(report, lines))
        headline = f"{headline}: {'; '.join(without_handles(note, labels, lines) for note in notes)}"
    said = plain_words(headline) or _unplaced(report, lines)
    return CompilerReport(line, said + _advice(said, lines, declared), column, length)


def _tint_report(
    found: re.Match[str], lines: Sequence[str], declared: Callable[[], Sequence[str]] | None
) -> CompilerReport:
    """Return Tint's error; its columns count bytes of UTF-8, from 1."""
    line, column, said = int(found[1]), int(found[2]), found[3].strip()
    if 1 <= line <= len(lines):
        column = len(_utf8(lines[line - 1])[: column - 1].decode(errors="ignore")) + 1
    return CompilerReport(line, said + _advice(said, lines, declared), column, len(found[4] or ""))


def _utf8(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _unplaced(report: str, lines: Sequence[str]) -> str:
    """Return the message of a report without a location: the causes, without wgpu's and Dawn's functions."""
    if missing := _NO_ENTRY_POINT.search(report):
        near = nearest(missing[1], _FUNCTION_NAME.findall(_code(lines)))
        hint = f"did you mean `{near}`?" if near else "expected a function with this name and @compute"
        return f"no entry point `{missing[1]}`; {hint}"
    parts = [part.strip() for part in report.splitlines() if part.strip()]
    return "; ".join([part for part in parts if not _CONTEXT.match(part)] or parts)


def _labels(report: str, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the labels in naga's output, each with the text that it marks."""
    number, drawn = 0, ""
    # Keyed by the column of the first caret.
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


def _advice(complaint: str, lines: Sequence[str], declared: Callable[[], Sequence[str]] | None = None) -> str:
    """Suggest the nearest name in the text or in WGSL for an undefined name or member."""

    def code() -> str:
        # The shader's own names come first, because only some of a long text are compared.
        return _code([*lines, *(declared() if declared else ())])

    if found := _NOT_IN_SCOPE.match(complaint):
        named = dict.fromkeys(_NAME.findall(code()))
        named.pop(found[1], None)
        known = (*_WGSL_NAMES, *itertools.islice(named, _MOST_NAMES))
        meant = _NAMED_ELSEWHERE.get(found[1]) or nearest(found[1], known, CLOSE)
    elif found := _NO_FIELD.match(complaint):
        text = code()
        if re.search(rf"\bconst\s+{found[1]}\b", text):
            return f"; write only `{found[1]}`, which is a constant"
        members = dict.fromkeys(_TYPED_NAME.findall(text))
        meant = nearest(found[1], itertools.islice(members, _MOST_NAMES), CLOSE)
    else:
        return ""
    return f"; did you mean `{meant}`?" if meant else ""


def _code(lines: Sequence[str]) -> str:
    """Return a text without its comments; nothing if it cannot be read."""
    with suppress(CannotInstrument):
        return without_comments("\n".join(lines))
    return ""


def _spans(line: str, drawn: str, carets: str) -> list[tuple[int | None, int]]:
    """Return the columns, from 1, and lengths of the marked parts of a line.

    `drawn` is naga's output for the line, and `carets` the line below it.
    """
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
    """Return the characters of a line, each with its width in terminal cells."""
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
    """Convert a column in UTF-16 units, as browsers count, to a number of characters."""
    return len(line.encode("utf-16-le", "surrogatepass")[: 2 * units].decode("utf-16-le", "ignore"))


def mistyped(report: str, lines: Sequence[str]) -> tuple[str, str] | None:
    """Return the variable whose type differs from its declaration in a report, and its actual type."""
    if found := _MISTYPED.search(report):
        return found[1], found[2]
    line, complaint, column, _ = read_report(report, lines)
    found = _MISTYPED_BY_TINT.fullmatch(complaint)
    if found is None or line is None or column is None or line > len(lines):
        return None
    # Tint marks the variable.
    name = _NAME.match(lines[line - 1], column - 1)
    return (name[0], found[1]) if name else None


class TruncatedText(NamedTuple):
    """A truncated file: its last line in the rendered text, from 1, the message, and the place of its end."""

    line: int
    complaint: str
    place: SourceLocation


def find_truncation(
    text: str, report: CompilerReport, place: Callable[[int, int, int], SourceLocation | None]
) -> TruncatedText | None:
    """Find a file that ends too early if a report is about the first token of the next file.

    `place` is Shader.place. The result is None if the report is about another token, or if the text before
    the token is complete.
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
    """Return the column of a token, from 1."""
    return token.start - code.rfind("\n", 0, token.start)


def _marked(code: str, tokens: Sequence[WgslToken], report: CompilerReport) -> int:
    """Return the number of the token that a report marks; 0 if it marks none."""
    place = report.line, report.column
    found = (at for at, one in enumerate(tokens) if (one.line, _column_of(code, one)) == place)
    return next(found, 0)


def _in_braces(tokens: Sequence[WgslToken]) -> bool:
    """Return whether the innermost open bracket after these tokens is a brace."""
    opened = []
    for token in tokens:
        if token.text in ("(", "[", "{"):
            opened.append(token.text)
        elif token.text in (")", "]", "}") and opened:
            opened.pop()
    return opened[-1:] == ["{"]


def without_handles(note: str, labels: Mapping[str, str], text: Sequence[str]) -> str:
    """Replace naga's internal numbers in a sentence; `labels` maps labels to the text that they mark."""
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
    """Return naga's first sentence as plain text, with function names and unescaped characters."""
    said = _FUNCTION.sub(r"Function `\1`", _ABSTRACT.sub(r"\1", said))
    return _FOUND.sub(lambda found: "found " + _unescaped(found[1]), said)


def _unescaped(quoted: str) -> str:
    """Return a token that naga quotes in Rust's syntax."""
    text = re.sub(r"\\(.)", lambda found: {"n": " "}.get(found[1], found[1]), quoted)
    return "the end of the text" if not text else f"`{text}`" if text != quoted else f'"{text}"'


def _scalar(found: re.Match[str]) -> str:
    kind, width = found[2], found[3]
    return "bool" if kind == "Bool" else _SCALARS.get((kind, width), f"{kind}{8 * int(width)}")


def _argument(number: int, call: re.Match[str] | None, text: str) -> str:
    """Describe a wrong argument of a call: its text and its parameter. `number` counts from 0."""
    given = dict(enumerate(_parts(call[2]))).get(number) if call else None
    declared = re.search(rf"\bfn\s+{call[1]}\s*\(", text) if call else None
    parameters = dict(enumerate(_parts(text[declared.end() :]))) if declared else {}
    what = f"argument {number + 1}" + (f", `{given}`," if given else "")
    wanted = f"`{parameters[number]}`" if number in parameters else "another type"
    return f"{what} does not fit the parameter {wanted}" if number in parameters else f"{what} has {wanted}"


def _parts(text: str) -> Iterator[str]:
    """Yield the parts of a text between commas, up to the closing bracket."""
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
