"""naga's numbers of expressions, functions and types as the text that they denote."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

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
