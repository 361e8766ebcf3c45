"""Instrumentation of shaders: notes of accesses to workgroup memory between barriers, and of rounds of loops.

Every access stores its invocation's number with the number of passed barriers. Texts that are not fully
understood are not instrumented: a missing note would hide a race, and a wrong one would report a false race.

A driver may silently end an endless loop, as Mesa's llvmpipe does after 65,535 rounds; on other drivers the
loop hangs. The instrumented text therefore notes when a loop is entered, and when it ends by its condition,
`break` or `return`. A loop without such an end was ended by the driver. A limit on the rounds ends it if no
driver does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from webnorm.kernels.rendering.render import Target
from webnorm.kernels.wgsl.tokens import CannotInstrument, TokenizedShader, entry_point

# --- Loops.

_LOOP_PREFIX = "rounds_"
# The array of notes in a text without workgroup memory.
LOOP_NOTES = f"{_LOOP_PREFIX}notes"
# The words of notes per loop: see instrumented_loops.wgsl.
LOOP_WORDS = 4
_LOOPS = ("for", "while", "loop")
_LOOP_FUNCTIONS = Path(__file__).with_name("instrumented_loops.wgsl").read_text(encoding="utf-8")
# The allowed rounds of a loop, those for each element of the problem, and the factor for all loops of an
# invocation together.
_ANY, _EACH, _TOGETHER = 1 << 16, 16, 4
_LARGEST = (1 << 32) - 1
# The place in `_LOOP_FUNCTIONS` for the variable that ends a loop.
_ENDED = "ENDED"


@dataclass(frozen=True)
class _Loop:
    """A loop: the tokens of its keyword, of its body's braces and of its condition (None without one)."""

    keyword: int
    opened: int
    closed: int
    condition: range | None


class LoopInstrumentation:
    """The instrumentation of a text's loops; raises CannotInstrument for a text that is not understood."""

    def __init__(self, text: str) -> None:
        self._code = TokenizedShader(text)
        for at in self._code.tokens:
            if at.text.startswith(_LOOP_PREFIX):
                raise CannotInstrument(
                    f"line {at.line}: the name {at.text} conflicts with the instrumentation; rename it"
                )
        self._loops = [self._loop(at) for at in self._code.places(*_LOOPS)]

    @property
    def lines(self) -> tuple[int, ...]:
        """The line of each loop, by the loop's number."""
        return tuple(self._code.tokens[one.keyword].line for one in self._loops)

    def text(self) -> str:
        """Return the instrumented text with unchanged line numbers; `library` defines its functions."""
        code, changes = self._code, dict[int, str]()

        def put(at: int, before: str = "", after: str = "") -> None:
            changes[at] = f"{before}{changes.get(at, code[at])}{after}"

        for number, one in enumerate(self._loops):
            own = f"{_LOOP_PREFIX}of_{number}"
            put(self._function_body(one), after=f" var {own} = 0u;")
            put(one.keyword, f"{_LOOP_PREFIX}enter({number}u); ")
            if one.condition is None:
                put(one.opened, after=f" if ({_LOOP_PREFIX}begin({number}u, &{own})) {{ break; }}")
            elif one.condition:
                put(one.condition[0], f"{_LOOP_PREFIX}goes_on({number}u, ")
                put(one.condition[-1], after=f", &{own})")
            else:
                put(one.condition.start, f"{_LOOP_PREFIX}goes_on({number}u, true, &{own})")
        for at, numbers in self._ends():
            if code[at + 1] == "if":
                put(at + 2, f"{_LOOP_PREFIX}ends({numbers[0]}u, ")
                put(code.end_of_statement(at) - 1, after=")")
            else:
                put(at, "".join(f"{_LOOP_PREFIX}end({number}u); " for number in numbers))
        return code.changed(changes)

    def endless(self, notes: Sequence[int]) -> tuple[int, int] | None:
        """Return the line of the loop that did not end by itself, and the most rounds seen of it.

        `notes` contains LOOP_WORDS for each loop. If several loops did not end, the longest one is returned,
        because loops around and after it are ended too.
        """
        found = []
        for line, at in zip(self.lines, range(0, len(notes), LOOP_WORDS), strict=True):
            entered, ended, seen, done = notes[at : at + LOOP_WORDS]
            if entered != ended:
                # A loop inside an endless one is interrupted after no more rounds than it had before.
                found.append((seen > done, seen, line))
        if not found:
            return None
        _, longest, line = max(found)
        return line, longest

    def library(self, elements: int, notes: str, first: int, target: Target) -> str:
        """Return the functions for a problem of `elements` elements.

        `notes` is the name of the array of notes, and `first` the index of the loops' first word in it.
        """
        most, alone = _ANY + _EACH * elements, target == "browser"
        numbers = {
            "loops": len(self._loops),
            "words": LOOP_WORDS,
            "first": first,
            "most": most,
            "most_of_all": _LARGEST if alone else _TOGETHER * most,
        }
        declared = "".join(f"const {_LOOP_PREFIX}{name} = {number}u;\n" for name, number in numbers.items())
        ended = "too_many" if alone else f"{_LOOP_PREFIX}over"
        return f"\n{declared}{_LOOP_FUNCTIONS.replace(LOOP_NOTES, notes).replace(_ENDED, ended)}"

    def _function_body(self, one: _Loop) -> int:
        """Return the brace at which the body of a loop's function begins."""
        at = one.keyword
        while self._code.around[at] >= 0:
            at = self._code.around[at]
        return at

    def _loop(self, at: int) -> _Loop:
        code = self._code
        if code[at - 1] not in ("{", "}", ";", ":"):
            # This may be an attribute, and the code before the loop would have to come before it.
            raise CannotInstrument(f"line {code.tokens[at].line}: a loop in an unsupported place")
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
        """Yield each `break` and `return`, with the numbers of the loops that it ends."""
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


# --- Workgroup memory.

# The bits of a note, from the lowest: an invocation's number, the barriers of a pass, and the pass.
_PLACES = 11
_BARRIERS = 17
_MOST_PASSES = (1 << 32 - _PLACES - _BARRIERS) - 1
# The first words: the number of races, the line and the index of the last element with a race, and a flag for
# barriers that cannot be used. These are barriers that not all invocations of a workgroup reached, and more
# barriers than the bits can count.
HEAD = 4
_NOTES_OF_ELEMENT = 4

_RACE_PREFIX = "watch_"
# The array of notes.
MEMORY_NOTES = f"{_RACE_PREFIX}notes"
_UNIFORM_LOAD = f"{_RACE_PREFIX}load_"
_ASSIGNED = re.compile(r"=(?!=)|\+=|-=|\*=|/=|%=|\|=|&=|\^=|<<=|>>=|\+\+|--")
# Names that the instrumentation uses, and names of barriers and atomics. A text must not redeclare them.
_MEANT = re.compile(r"atomic\w*|\w+Barrier|workgroupUniformLoad|array|bool|min|ptr|u32|vec3")
_NUMBER = re.compile(r"(0[xX][0-9a-fA-F]+|0|[1-9][0-9]*)[iu]?")
_DECLARES = ("let", "var", "const", "override", "fn", "alias", "struct")
_RACE_FUNCTIONS = Path(__file__).with_name("instrumented_races.wgsl").read_text(encoding="utf-8")


@dataclass(frozen=True)
class WorkgroupVariable:
    """A variable of workgroup memory.

    `first` is the index of its first element in the notes, `count` the number of elements, 1 for a variable
    that is not an array. `type_at` is the token at which its type begins.
    """

    name: str
    first: int
    count: int
    is_array: bool
    type_at: int


class RaceInstrumentation:
    """The instrumentation of a text's workgroup memory; raises CannotInstrument for unsupported variables."""

    def __init__(self, text: str) -> None:
        self._code = TokenizedShader(text)
        self._fields = self._field_names()
        self._numbers = self._named_numbers()
        self.memory = tuple(self._variables())
        self.elements = sum(one.count for one in self.memory)

    def words(self, passes: int, workgroups: int) -> int:
        """Return the number of words of the notes.

        Each workgroup has one word per pass for barriers, followed by the words of its elements.
        """
        return HEAD + workgroups * (passes + _NOTES_OF_ELEMENT * self.elements)

    def text(self, entry_points: Mapping[str, int], binding: int) -> str:
        """Return the instrumented text with unchanged line numbers, followed by the functions for notes.

        `entry_points` maps entry points to their invocations per workgroup. `binding` is the binding of the
        buffer of notes in group 0. Raises CannotInstrument for unsupported accesses.
        """
        self._check_names()
        memory, loaded = {one.name: one for one in self.memory}, set[str]()
        changes = self._entries(entry_points)
        for at in self._named(*memory, "workgroupBarrier", "subgroupBarrier"):
            word = self._code[at]
            if word == "workgroupBarrier":
                changes[at] = f"{_RACE_PREFIX}barrier"
            elif word == "subgroupBarrier":
                raise self._unclear(at, "a barrier for only a part of a workgroup's invocations")
            elif self._is_uniform_load(at, memory[word]):
                loaded.add(word)
                line = self._code.tokens[at].line
                changes.update({at - 3: f"{_UNIFORM_LOAD}{word}", at - 1: "", at: f"{line}u"})
            elif not self._is_declared(at):
                changes.update(self._access(at, memory[word]))
        for one in self.memory:
            if not one.is_array:
                end = self._code.end_of_statement(one.type_at)
                changes[one.type_at] = f"array<{self._code[one.type_at]}"
                changes[end - 1] = changes.get(end - 1, self._code[end - 1]) + ", 1>"
        loads = "".join(self._uniform_load(one) for one in self.memory if one.name in loaded)
        return self._code.changed(changes) + _library(binding, len(entry_points), self.elements) + loads

    def _unclear(self, at: int, what: str) -> CannotInstrument:
        return CannotInstrument(f"line {self._code.tokens[at].line}: {what}")

    def _field_names(self) -> frozenset[int]:
        """Return the tokens that are names of fields in declarations of structs."""
        code = self._code
        bodies = {at + 2 for at in code.places("struct")}
        return frozenset(at - 1 for at in code.places(":") if at and code.around[at - 1] in bodies)

    def _named_numbers(self) -> dict[str, str]:
        """Return the module's constants with literal values: `const N = 7;` or `const N: u32 = 7;`."""
        code, found = self._code, dict[str, str]()
        for at in code.places("const"):
            if code.around[at] < 0:
                equals = at + (4 if code[at + 2] == ":" else 2)
                if code[equals] == "=" and code[equals + 2] == ";":
                    found[code[at + 1]] = code[equals + 1]
        return found

    def _named(self, *words: str) -> Iterator[int]:
        """Yield the uses of these words as declared names, not as fields, components or attributes."""
        code = self._code
        for at in code.places(*words):
            names_builtin = code.follows(code.around[at] - 2, "@", "builtin")
            if not (code[at - 1] in (".", "@") or names_builtin or at in self._fields):
                yield at

    def _declared(self) -> Iterator[int]:
        """Yield the names in declarations."""
        code = self._code
        for at in code.places(*_DECLARES):
            name = at + 1
            if code[name] == "<":
                while code[name] not in (">", ""):
                    name += 1
                name += 1
            yield name
            if code[at] == "fn":
                inside = range(at + 2, code.partner.get(at + 2, 0))
                yield from (one for one in inside if code.around[one] == at + 2 and code[one + 1] == ":")

    def _is_declared(self, at: int) -> bool:
        return self._code[at + 1] == ":" and self._code.follows(at - 4, "var", "<", "workgroup", ">")

    def _check_names(self) -> None:
        """Raise CannotInstrument if a name may have a different meaning than assumed."""
        names = {one.name for one in self.memory}
        for at in self._declared():
            if _MEANT.fullmatch(self._code[at]):
                raise self._unclear(at, f"the text declares {self._code[at]} itself")
            if self._code[at] in names and not self._is_declared(at):
                raise self._unclear(at, f"{self._code[at]} has two declarations")
        for at, token in enumerate(self._code.tokens):
            if token.text.startswith(_RACE_PREFIX):
                raise self._unclear(
                    at, f"the name {token.text} conflicts with the instrumentation; rename it"
                )

    def _variables(self) -> Iterator[WorkgroupVariable]:
        """Yield the variables of workgroup memory."""
        code, first = self._code, 0
        aliases = {code[at + 1]: at + 3 for at in code.places("alias")}
        names = set[str]()
        for at in code.places("workgroup"):
            if not (code[at - 1] == "<" and code[at - 2] in ("var", "ptr")):
                continue
            name, type_at = code[at + 2], at + 4
            is_variable = code.follows(at - 2, "var", "<", "workgroup", ">") and code.around[at] < 0
            if not is_variable or code[at + 3] != ":" or name in names:
                raise self._unclear(at, "an unsupported declaration of workgroup memory")
            names.add(name)
            meant, seen = type_at, set[str]()
            while code[meant] in aliases and code[meant] not in seen:
                seen.add(code[meant])
                meant = aliases[code[meant]]
            is_array = code[meant] == "array"
            count = self._length(meant) if is_array else 1
            yield WorkgroupVariable(name, first, count, is_array, type_at)
            first += count

    def _length(self, at: int) -> int:
        """Return the number of elements of the array type that begins at a token and ends its statement."""
        code = self._code
        last = code.end_of_statement(at) - 2
        last -= code[last] == ","
        length = self._numbers.get(code[last], code[last])
        found = _NUMBER.fullmatch(length) if code[last - 1] == "," else None
        if found is None:
            raise self._unclear(at, "an array whose length is not a number")
        return int(found[1], 0)

    def _access(self, at: int, one: WorkgroupVariable) -> dict[int, str]:
        """Return the changed tokens of an access to workgroup memory whose name is at a token."""
        code, line = self._code, self._code.tokens[at].line
        opened, closed = at, at
        if one.is_array:
            opened, closed = at + 1, code.partner.get(at + 1, at)
            if code[opened] != "[":
                raise self._unclear(at, f"{one.name} is used as a whole")
        if self._is_address(at - 1):
            # This includes atomic functions: a race depends on the use of their results.
            raise self._unclear(at, f"{one.name} is passed on by its address")
        start, end, in_part = at, closed + 1, False
        while True:
            if code[end] == ")" and code.partner[end] == start - 1:
                start, end = start - 1, end + 1
                if self._is_address(start - 1):
                    raise self._unclear(at, f"{one.name} is passed on by its address")
            elif code[end] == ".":
                end, in_part = end + 2, True
            elif code[end] == "[":
                end, in_part = code.partner[end] + 1, True
            else:
                break
        where = f"{one.first}u, {one.count - 1}u"
        assigned = code.operator(end, _ASSIGNED)
        if assigned is None:
            if one.is_array:
                return {opened: f"[{_RACE_PREFIX}read({where}, u32(", closed: f"), {line}u)]"}
            return {at: f"{one.name}[{_RACE_PREFIX}read({where}, 0u, {line}u)]"}
        if in_part:
            raise self._unclear(at, f"{one.name} is written component by component")
        if code[start - 1] not in ("{", "}", ";") or code[code.around[start]] != "{":
            raise self._unclear(at, f"{one.name} is written in an unsupported place")
        # A block: index, assignment, and only then the note, since the assigned value may pass barriers.
        read = "" if assigned == "=" else f"{_RACE_PREFIX}read({where}, "
        changes = dict.fromkeys([*range(start, opened + 1), *range(closed, end)], "")
        changes[start] += f"{{ let {_RACE_PREFIX}at = {read}u32({'' if one.is_array else '0u'}"
        changes[closed] += f"){f', {line}u)' if read else ''}; {one.name}[{_RACE_PREFIX}at]"
        changes[code.end_of_statement(start)] = (
            f"; {_RACE_PREFIX}write({where}, {_RACE_PREFIX}at, {line}u); }}"
        )
        return changes

    def _entries(self, entry_points: Mapping[str, int]) -> dict[int, str]:
        """Return the changed tokens of the entry points, which set the variables of the instrumentation."""
        changes = dict[int, str]()
        if len(entry_points) > _MOST_PASSES:
            raise CannotInstrument("too many entry points")
        for number, (name, invocations) in enumerate(entry_points.items()):
            found = entry_point(self._code, name, _RACE_PREFIX)
            changes.update(found.changes)
            changes[found.body] = (
                f"{{ {_RACE_PREFIX}place = {found.index}; {_RACE_PREFIX}group = {found.group}; "
                f"{_RACE_PREFIX}barriers = {number << _BARRIERS}u + 1u; {_RACE_PREFIX}pass = {number}u; "
                f"{_RACE_PREFIX}size = {invocations}u;"
            )
        return changes

    def _is_uniform_load(self, at: int, one: WorkgroupVariable) -> bool:
        """Return true if a token is the variable in `workgroupUniformLoad(&variable)`."""
        code = self._code
        called = code.follows(at - 3, "workgroupUniformLoad", "(", "&") and code.partner[at - 2] == at + 1
        return called and not one.is_array

    def _uniform_load(self, one: WorkgroupVariable) -> str:
        """Return a function that notes the load of a variable, which is also a barrier before and after."""
        end = self._code.end_of_statement(one.type_at)
        type_ = "".join(self._code[at] for at in range(one.type_at, end))
        return (
            f"fn {_UNIFORM_LOAD}{one.name}(line: u32) -> {type_} {{ {_RACE_PREFIX}barrier(); "
            f"let at = {_RACE_PREFIX}read({one.first}u, 0u, 0u, line); "
            f"let value = workgroupUniformLoad(&{one.name}[0]); {_RACE_PREFIX}barrier(); return value; }}\n"
        )

    def _is_address(self, at: int) -> bool:
        """Return true if a token is an `&` that takes an address, not a binary operator."""
        code = self._code
        if code[at] != "&":
            return False
        before = at - 1 if code[at - 1] != "&" else at - 2
        token = code.tokens[before]
        return not (token.text in (")", "]") or (token.kind != "mark" and token.text != "return"))


def _library(binding: int, passes: int, elements: int) -> str:
    """Return the functions that note an access, and their constants."""
    numbers = {
        "head": HEAD,
        "passes": passes,
        "of_element": _NOTES_OF_ELEMENT,
        "of_workgroup": passes + _NOTES_OF_ELEMENT * elements,
        "places": _PLACES,
        "last_place": (1 << _PLACES) - 1,
        "last_barrier": (1 << _BARRIERS) - 1,
    }
    declared = "".join(f"const {_RACE_PREFIX}{name} = {number}u;\n" for name, number in numbers.items())
    notes = f"var<storage, read_write> {MEMORY_NOTES}: array<atomic<u32>>;"
    return f"\n@group(0) @binding({binding}) {notes}\n{declared}{_RACE_FUNCTIONS}"
