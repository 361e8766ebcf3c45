"""Which options of a verb exclude each other, and which need another: checked before the verb runs.

An option that would be ignored is refused. `--help` shows what is declared here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webnorm.errors import WebnormError

# Values of options and arguments by their names, of those that a command line has.
Given = Mapping[str, Any]


@dataclass(frozen=True)
class Excludes:
    """Options of which one has no effect where all of them are given, `unless` another is given as well."""

    options: tuple[str, ...]
    why: str
    unless: tuple[str, ...] = ()

    def objection(self, given: Given) -> str | None:
        """What is wrong with a command line; None where nothing is."""
        if not all(_is_given(one, given) for one in self.options) or _any_given(self.unless, given):
            return None
        return f"{_listed(self.options, 'and')} exclude each other: {self.why}"

    def notes(self, name: str) -> Iterator[str]:
        """What the help of an option says of it."""
        for at, option in enumerate(self.options):
            others = [one for one in self.options if one != option]
            # Of several, one has no effect together with the rest.
            if _name(option) == name and (at == 0 or len(others) == 1):
                value = option.partition("=")[2]
                yield f"{f'{value}: not' if value else 'Not'} with {_listed(others, 'and')}."


@dataclass(frozen=True)
class Needs:
    """An option that has an effect only where one of the others is given."""

    option: str
    others: tuple[str, ...]
    why: str

    def objection(self, given: Given) -> str | None:
        """What is wrong with a command line; None where nothing is."""
        if not _is_given(self.option, given) or _any_given(self.others, given):
            return None
        return f"{self.option} needs {_listed(self.others, 'or')}: {self.why}"

    def notes(self, name: str) -> Iterator[str]:
        """What the help of an option says of it."""
        if name == self.option:
            yield f"Needs {_listed(self.others, 'or')}."


@dataclass(frozen=True)
class OnlyWith:
    """An option with which nothing but a few others has an effect."""

    option: str
    beside: tuple[str, ...]
    why: str

    def objection(self, given: Given) -> str | None:
        """What is wrong with a command line; None where nothing is."""
        others = [name for name in given if name not in (_name(self.option), *self.beside)]
        if not _is_given(self.option, given) or not others:
            return None
        return f"{_shown(self.option)} excludes {_listed(others, 'and')}: {self.why}"

    def notes(self, name: str) -> Iterator[str]:
        """What the help of an option says of it."""
        if name == _name(self.option):
            value = self.option.partition("=")[2]
            only = f"with no more than {_listed(self.beside, 'and')}" if self.beside else "with nothing else"
            yield f"{f'{value}: given' if value else 'Given'} {only}."


# What a verb refuses. An option is known by its name, and one of its values by NAME=VALUE.
OptionRule = Excludes | Needs | OnlyWith


def _is_given(option: str, given: Given) -> bool:
    name, equals, value = option.partition("=")
    if name not in given:
        return False
    if not equals:
        return True
    found = given[name]
    words = [found] if isinstance(found, str) else found
    return all(word == value for text in words for word in text.split(","))


def _any_given(options: Sequence[str], given: Given) -> bool:
    return any(_is_given(one, given) for one in options)


def _name(option: str) -> str:
    return option.partition("=")[0]


def _shown(option: str) -> str:
    """An option as a command line has it, an argument as the usage."""
    from webnorm.cli.options.help import placeholder

    name, _, value = option.partition("=")
    return " ".join(filter(None, (name if name.startswith("-") else placeholder(name), value)))


def _listed(options: Sequence[str], word: str) -> str:
    shown = [_shown(one) for one in options]
    return f" {word} ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


_OF_AUTO = "auto chooses constants by itself"
_OF_PRESET = "a preset has its own"
_LISTS = "it prints a list and ends"
_NOT_TIMED = "nothing is timed"

# By verb, as `webnorm VERB` has it; --rows and --cols are the command line's names, whatever the op.
RULES: Mapping[str, tuple[OptionRule, ...]] = {
    "doctor": (Excludes(("--json", "--mend"), "--mend prints what it installs"),),
    "list": (Excludes(("--json", "--verbose"), "the objects hold all that is known"),),
    "show": (
        Excludes(("--cost", "--target=browser"), "counts come from running the native text"),
        Excludes(("--adapter", "--target=browser"), "a browser's text is made for any adapter"),
        Excludes(("--constant", "kernel=auto"), _OF_AUTO, unless=("--diff",)),
        Excludes(("--constant", "kernel=auto", "--diff=auto"), _OF_AUTO),
    ),
    "play": (
        Excludes(("--web", "--once"), "the page checks every save until Ctrl-C"),
        Excludes(("--web", "--json"), "the page shows what the lines would hold"),
        Needs("--port", ("--web",), "only the page has one"),
        *(
            Excludes((size, "--quick", view), _NOT_TIMED)
            for size in ("--rows", "--cols")
            for view in ("--once", "--json")
        ),
    ),
    "check": (
        OnlyWith("--cases", ("--op", "--wgsl", "--seed"), _LISTS),
        Excludes(("--input", "--case"), "your own array takes the place of the cases"),
        Excludes(("--input", "--seed"), "nothing is drawn"),
        Excludes(("--constant", "--kernel=auto"), _OF_AUTO),
        Excludes(("--all-constants", "--kernel=auto"), _OF_AUTO),
    ),
    "bench": (
        OnlyWith("--preset=help", (), _LISTS),
        *(
            Excludes(("--preset", option), _OF_PRESET)
            for option in ("--op", "--rows", "--cols", "--distribution", "--scale")
        ),
        Excludes(("--constant", "--kernel=auto"), _OF_AUTO),
        Excludes(("--all-constants", "--kernel=auto"), _OF_AUTO),
    ),
    "tune": (
        OnlyWith("--list", ("--out", "--adapter"), _LISTS),
        OnlyWith("--forget", ("--out", "--adapter"), "it removes the file and ends"),
        OnlyWith("--preset=help", (), _LISTS),
        *(Excludes(("--preset", option), _OF_PRESET) for option in ("--op", "--rows", "--cols")),
        Excludes(
            ("--quick", "--cols", "--dtype", "--budget"),
            "--quick sets all that the others set",
            unless=("--preset",),
        ),
    ),
    "export": (
        OnlyWith("--lab", ("--out", "--submit", "--wgsl", "--force"), "the lab has every op and kernel"),
        Needs("--submit", ("--lab",), "a package's page sends nothing"),
    ),
    "collect": (
        OnlyWith("--export", ("--store",), "nothing is received"),
        Needs("--behind-proxy", ("--origin",), "the page that may post is not of this machine"),
    ),
    "compare": (
        Needs("--fail-unclear", ("--fail-slower",), "without it nothing fails"),
        Needs("--allow-missing", ("--fail-slower",), "without it nothing fails"),
    ),
    "baselines": (
        Excludes(("--forget", "--json"), "what is removed is not shown"),
        Needs("--forget", ("kept",), "it removes those that are named, '*' all of them"),
    ),
}


def check_options(verb: str, given: Given) -> None:
    """Raise WebnormError for a command line that a rule of the verb refuses."""
    for rule in RULES.get(verb, ()):
        if objection := rule.objection(given):
            raise WebnormError(objection)


def conflict_notes(verb: str, name: str) -> list[str]:
    """What the help of an option, or an argument, of a verb says of the others."""
    return [note for rule in RULES.get(verb, ()) for note in rule.notes(name)]
