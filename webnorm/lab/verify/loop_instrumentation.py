"""The rendering that counts the rounds of every loop, and notes those that do not end by themselves.

A driver may end an endless loop without a word, as Mesa's llvmpipe does after 65,535 rounds; on another the
loop hangs. Here each loop says when it is entered and when it ends by its condition, `break` or `return`: one
that does not say so was ended by the driver. A bound on the rounds ends it where no driver does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from webnorm.kernels.wgsl.tokens import CannotInstrument, TokenizedShader

_PREFIX = "rounds_"
# The array of notes where there are no others.
NOTES = f"{_PREFIX}notes"
# The words of a loop: see rounds.wgsl.
WORDS = 4
_LOOPS = ("for", "while", "loop")
_FUNCTIONS = Path(__file__).with_suffix(".wgsl").read_text(encoding="utf-8")
# Rounds that a loop may have whatever the problem, and for each of its elements; all loops of an invocation
# together may have a few times as many.
_ANY, _EACH, _TOGETHER = 1 << 16, 16, 4


@dataclass(frozen=True)
class _Loop:
    """A loop: the tokens of its keyword and of its body's braces, and of its condition: from one on up to
    another, None where there is none.
    """

    keyword: int
    opened: int
    closed: int
    condition: range | None


class LoopInstrumentation:
    """A text whose loops are understood; raises CannotInstrument."""

    def __init__(self, text: str) -> None:
        self._code = TokenizedShader(text)
        for at in self._code.tokens:
            if at.text.startswith(_PREFIX):
                raise CannotInstrument(f"line {at.line}: {at.text} may be the name of what counts rounds")
        self._loops = [self._loop(at) for at in self._code.places(*_LOOPS)]

    @property
    def lines(self) -> tuple[int, ...]:
        """The line of each loop, which is where its number is counted from."""
        return tuple(self._code.tokens[one.keyword].line for one in self._loops)

    def text(self) -> str:
        """The text that counts, line by line as before; `library` has what it calls."""
        code, changes = self._code, dict[int, str]()

        def put(at: int, before: str = "", after: str = "") -> None:
            changes[at] = f"{before}{changes.get(at, code[at])}{after}"

        for number, one in enumerate(self._loops):
            put(one.keyword, f"{_PREFIX}enter({number}u); ")
            if one.condition is None:
                put(one.opened, after=f" if ({_PREFIX}begin({number}u)) {{ break; }}")
            elif one.condition:
                put(one.condition[0], f"{_PREFIX}goes_on({number}u, ")
                put(one.condition[-1], after=")")
            else:
                put(one.condition.start, f"{_PREFIX}goes_on({number}u, true)")
        for at, numbers in self._ends():
            if code[at + 1] == "if":
                put(at + 2, f"{_PREFIX}ends({numbers[0]}u, ")
                put(code.end_of_statement(at) - 1, after=")")
            else:
                put(at, "".join(f"{_PREFIX}end({number}u); " for number in numbers))
        return code.changed(changes)

    def endless(self, notes: Sequence[int]) -> tuple[int, int] | None:
        """The line of the loop that did not end by itself, by the WORDS of each, and the most rounds that
        were seen of it. Of several the one that went on for longest: what is around it, and behind it, is
        ended, too.
        """
        found = []
        for line, at in zip(self.lines, range(0, len(notes), WORDS), strict=True):
            entered, ended, seen, done = notes[at : at + WORDS]
            if entered != ended:
                # A loop in an endless one is left in the middle, after no more rounds than it had before.
                found.append((seen > done, seen, line))
        if not found:
            return None
        _, longest, line = max(found)
        return line, longest

    def library(self, elements: int, notes: str, first: int) -> str:
        """The functions for a problem of so many elements. Each loop has its words in the array of notes
        that is called so, from the `first` on.
        """
        most = _ANY + _EACH * elements
        numbers = {
            "loops": len(self._loops),
            "words": WORDS,
            "first": first,
            "most": most,
            "most_of_all": _TOGETHER * most,
        }
        declared = "".join(f"const {_PREFIX}{name} = {number}u;\n" for name, number in numbers.items())
        return f"\n{declared}{_FUNCTIONS.replace(NOTES, notes)}"

    def _loop(self, at: int) -> _Loop:
        code = self._code
        if code[at - 1] not in ("{", "}", ";", ":"):
            # An attribute, above all: what is put before the loop has to come before that.
            raise CannotInstrument(f"line {code.tokens[at].line}: a loop in a place that is not understood")
        condition = None
        if code[at] == "for":
            opened, closed = at + 1, code.partner.get(at + 1, at)
            inside = [one for one in range(opened, closed) if code[one] == ";" and code.around[one] == opened]
            if len(inside) != 2:
                raise CannotInstrument(f"line {code.tokens[at].line}: a loop whose condition is not found")
            condition, body = range(inside[0] + 1, inside[1]), closed + 1
        else:
            body = next((one for one in range(at, len(code.tokens)) if code[one] == "{"), at)
            if code[at] == "while":
                condition = range(at + 1, body)
        if code[body] != "{" or (code[at] == "loop" and body != at + 1):
            raise CannotInstrument(f"line {code.tokens[at].line}: a loop whose body is not found")
        return _Loop(at, body, code.partner[body], condition)

    def _ends(self) -> Iterator[tuple[int, list[int]]]:
        """Each `break` and `return`, and the numbers of the loops that it ends."""
        code = self._code
        numbers = {one.opened: number for number, one in enumerate(self._loops)}
        switches = {
            next(one for one in range(at, len(code.tokens)) if code[one] == "{")
            for at in code.places("switch")
        }
        for at in code.places("break", "return"):
            ended, holder = list[int](), code.around[at]
            while holder >= 0:
                if holder in numbers:
                    ended.append(numbers[holder])
                if code[at] == "break" and (holder in numbers or holder in switches):
                    break
                holder = code.around[holder]
            if ended:
                yield at, ended
