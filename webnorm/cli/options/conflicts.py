"""Rules for options that exclude each other or need another, checked before a verb runs.

An option that would have no effect is refused. `--help` shows the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webnorm.errors import WebnormError

# The values of the options and arguments on the command line, by name.
Given = Mapping[str, Any]
# Options that cannot be given together with some option, and the options that lift the rule.
Excluded = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Excludes:
    """Options that cannot all be given, `unless` another option is given as well."""

    options: tuple[str, ...]
    why: str
    unless: tuple[str, ...] = ()

    def objection(self, given: Given) -> str | None:
        """Return what is wrong with a command line, or None."""
        if not all(_is_given(one, given) for one in self.options) or _any_given(self.unless, given):
            return None
        return f"{_listed(self.options, 'and')} cannot be combined: {self.why}"

    def excluded(self, name: str) -> Iterator[tuple[str, Excluded]]:
        """Yield each value of an option ("" for any value) and the options that it excludes."""
        for at, option in enumerate(self.options):
            others = tuple(one for one in self.options if one != option)
            # Only the first of several options has no effect next to all the others.
            if _name(option) == name and (at == 0 or len(others) == 1):
                yield option.partition("=")[2], (others, self.unless)


@dataclass(frozen=True)
class Needs:
    """An option that has an effect only where one of the others is given."""

    option: str
    others: tuple[str, ...]
    why: str

    def objection(self, given: Given) -> str | None:
        """Return what is wrong with a command line, or None."""
        if not _is_given(self.option, given) or _any_given(self.others, given):
            return None
        return f"{self.option} needs {_listed(self.others, 'or')}: {self.why}"

    def notes(self, name: str) -> Iterator[str]:
        """Yield the sentence that the help of an option adds."""
        if name == self.option:
            yield f"Needs {_listed(self.others, 'or')}."


@dataclass(frozen=True)
class OnlyWith:
    """An option that can only be combined with a few others."""

    option: str
    allowed: tuple[str, ...]
    why: str

    def objection(self, given: Given) -> str | None:
        """Return what is wrong with a command line, or None."""
        others = [name for name in given if name not in (_name(self.option), *self.allowed)]
        if not _is_given(self.option, given) or not others:
            return None
        return f"{_shown(self.option)} cannot be combined with {_listed(others, 'or')}: {self.why}"

    def notes(self, name: str) -> Iterator[str]:
        """Yield the sentence that the help of an option adds."""
        if name == _name(self.option):
            value = self.option.partition("=")[2]
            subject = f"The value {value} can" if value else "Can"
            if self.allowed:
                yield f"{subject} only be combined with {_listed(self.allowed, 'and')}."
            else:
                yield f"{subject}not be combined with other options."


# Rules name an option, or one of its values as NAME=VALUE.
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
    """Return an option as users write it, and an argument as the usage line shows it."""
    from webnorm.cli.options.help import placeholder

    name, _, value = option.partition("=")
    return " ".join(filter(None, (name if name.startswith("-") else placeholder(name), value)))


def _listed(options: Sequence[str], word: str) -> str:
    shown = [_shown(one) for one in options]
    return f" {word} ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


_OF_AUTO = "auto chooses its own constants"
_OF_PRESET = "a preset sets its own"
_OF_MODEL = "a model sets its own"
_LISTS = "it prints a list and exits"
_NOT_TIMED = "nothing is timed"


def _model_excludes(*options: str) -> Iterator[OptionRule]:
    """Yield the rules of --model: it excludes these options, and --dim needs it."""
    yield from (Excludes(("--model", option), _OF_MODEL) for option in options)
    yield Needs("--dim", ("--model",), "only a model leaves dimensions open")


# Rules by verb. --rows and --cols are names of the command line, whatever the op calls its sizes.
RULES: Mapping[str, tuple[OptionRule, ...]] = {
    "doctor": (Excludes(("--json", "--fix"), "--fix prints what it installs"),),
    "list": (Excludes(("--json", "--verbose"), "the JSON objects contain everything"),),
    "show": (
        Excludes(("--cost", "--target=browser"), "counts come from running the native text"),
        Excludes(("--adapter", "--target=browser"), "the browser's text is the same for every adapter"),
        Excludes(("--backend", "--target=browser"), "the browser's text is the same for every backend"),
        Excludes(("--constant", "kernel=auto"), _OF_AUTO, unless=("--diff",)),
        Excludes(("--constant", "kernel=auto", "--diff=auto"), _OF_AUTO),
    ),
    "play": (
        Excludes(("--web", "--once"), "the page checks every save until Ctrl-C"),
        Excludes(("--web", "--json"), "the page shows what the JSON lines would contain"),
        Needs("--port", ("--web",), "only the page has a port"),
        *(
            Excludes((size, "--quick", view), _NOT_TIMED)
            for size in ("--rows", "--cols")
            for view in ("--once", "--json")
        ),
    ),
    "check": (
        OnlyWith("--cases", ("--op", "--wgsl", "--seed"), _LISTS),
        Excludes(("--input", "--case"), "your own array replaces the cases"),
        Excludes(("--input", "--seed"), "no random numbers are drawn"),
        *_model_excludes("--op", "--option", "--case", "--input", "--eps", "--scalar", "--scale"),
        Excludes(("--constant", "--kernel=auto"), _OF_AUTO),
        Excludes(("--all-constants", "--kernel=auto"), _OF_AUTO),
    ),
    "bench": (
        OnlyWith("--preset=help", (), _LISTS),
        *(
            Excludes(("--preset", option), _OF_PRESET)
            for option in ("--op", "--rows", "--cols", "--distribution", "--scale")
        ),
        *_model_excludes(
            "--op",
            "--preset",
            "--size",
            "--rows",
            "--cols",
            "--option",
            "--no-weight",
            "--no-bias",
            "--eps",
            "--scalar",
            "--scale",
            "--distribution",
        ),
        Excludes(("--constant", "--kernel=auto"), _OF_AUTO),
        Excludes(("--all-constants", "--kernel=auto"), _OF_AUTO),
    ),
    "tune": (
        OnlyWith("--list", ("--out", "--adapter", "--backend"), _LISTS),
        OnlyWith("--remove", ("--out", "--adapter", "--backend"), "it removes the file and exits"),
        OnlyWith("--preset=help", (), _LISTS),
        *(Excludes(("--preset", option), _OF_PRESET) for option in ("--op", "--rows", "--cols")),
        *_model_excludes(
            "--op", "--preset", "--size", "--rows", "--cols", "--option", "--no-weight", "--no-bias"
        ),
        Excludes(
            ("--quick", "--cols", "--dtype", "--budget"),
            "--quick sets everything that the others set",
            unless=("--preset",),
        ),
    ),
    "export": (
        OnlyWith("--lab", ("--out", "--submit", "--wgsl", "--force"), "the lab contains every op and kernel"),
        *_model_excludes(
            "op",
            "--size",
            "--cols",
            "--option",
            "--residual",
            "--no-weight",
            "--no-bias",
            "--zero-centered-weight",
            "--eps",
            "--scalar",
            "--scale",
            "--kernel",
            "--wgsl",
        ),
        Needs("--submit", ("--lab",), "only the lab's page can send results"),
    ),
    "collect": (
        OnlyWith("--export", ("--store",), "it receives nothing"),
        OnlyWith("--page", ("--store",), "it receives nothing"),
        Needs("--behind-proxy", ("--origin",), "the page that may post is on another machine"),
    ),
    "compare": (
        Needs("--fail-unclear", ("--fail-slower",), "without it nothing fails"),
        Needs("--allow-missing", ("--fail-slower",), "without it nothing fails"),
    ),
    "verify": (
        Excludes(("--browser", "--engine"), "--browser drives one browser, and no other engine runs"),
        Excludes(("--screenshot", "--engine"), "only a browser that Playwright drives gives a picture"),
        Excludes(("--lan", "--browser"), "a person opens the page, and no other browser runs"),
        Excludes(("--lan", "--engine"), "a person opens the page, and no other engine runs"),
        Excludes(("--lan", "--screenshot"), "only a browser that Playwright drives gives a picture"),
        Needs("--host", ("--lan",), "nothing else is served to other devices"),
        Needs("--port", ("--lan",), "nothing else is served to other devices"),
    ),
    "baselines": (
        Excludes(("--remove", "--json"), "removed baselines are not listed"),
        Needs("--remove", ("kept",), "it removes the named baselines; '*' names all"),
    ),
}


def check_options(verb: str, given: Given) -> None:
    """Raise WebnormError for a command line that a rule of the verb refuses."""
    for rule in RULES.get(verb, ()):
        if objection := rule.objection(given):
            raise WebnormError(objection)


def conflict_notes(verb: str, name: str) -> list[str]:
    """Return the sentences about other options that the help of an option, or an argument, adds."""
    notes: list[str] = []
    excluded: dict[str, list[Excluded]] = {}
    for rule in RULES.get(verb, ()):
        if isinstance(rule, Excludes):
            for value, others in rule.excluded(name):
                excluded.setdefault(value, []).append(others)
        else:
            notes += rule.notes(name)
    return [*notes, *(_exclusions(value, groups) for value, groups in excluded.items())]


def _exclusions(value: str, groups: Sequence[Excluded]) -> str:
    """Return one sentence for all groups of options that an option, or one of its values, excludes."""
    single = [others[0] for others, unless in groups if len(others) == 1 and not unless]
    parts = [_listed(single, "or")] if single else []
    for others, unless in groups:
        if len(others) > 1 or unless:
            count = {1: "", 2: "both "}.get(len(others), "all of ")
            excuse = f" unless {_listed(unless, 'or')} is given" if unless else ""
            parts.append(f"{count}{_listed(others, 'and')}{excuse}")
    subject = f"The value {value} cannot" if value else "Cannot"
    return f"{subject} be combined with {', or with '.join(parts)}."
