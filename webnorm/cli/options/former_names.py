"""Former names of verbs and options: they still work, but help and completion do not show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

_VERBS = {"judge": "evaluate", "fleet": "cluster"}
# Each applies to every verb that has the new option.
_OPTIONS = {
    "--mend": "--fix",
    "--forget": "--remove",
    "--again": "--retune",
    "--here": "--supported",
    "--as": "--format",
}


def current_verb(name: str) -> str:
    """Return the name of a verb that may be called by its former name."""
    return _VERBS.get(name, name)


def current_options(words: Sequence[str], params: Iterable[Any]) -> list[str]:
    """Return a verb's command line with the names that its options, among `params`, have now."""
    known = {name for one in params for name in one.opts}
    renamed = {old: new for old, new in _OPTIONS.items() if new in known}
    # Behind a lone -- there are arguments only.
    end = [*words, "--"].index("--")
    parts = (word.partition("=") for word in words[:end])
    return [*(renamed.get(name, name) + equals + value for name, equals, value in parts), *words[end:]]
