"""Which names of a header a kernel's template and its snippets look up."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from webnorm.kernels.headers.sources import SourceUnreadable, Stamp, read, stamp, wgsl_root

_TAG = re.compile(r"\{[{%](.*?)[%}]\}", re.DOTALL)
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_WORD = re.compile(r"[^\W\d]\w*")
# What a tag reads another file with, and its name where that is a text.
_INCLUDE = re.compile(r"""\{%[-+]?\s*(?:include|import|from)\b\s*(?:"([^"]*)"|'([^']*)'|)""")


class _Words(NamedTuple):
    """The words of a template's tags and of its text, and what it includes, None for what it works out."""

    tags: frozenset[str]
    text: frozenset[str]
    included: frozenset[str | None]


class TemplateNames(NamedTuple):
    """The words of all tags that a kernel is rendered with, and of all text. It is not `whole` where some of
    it lies elsewhere, or only rendering can know.
    """

    tags: frozenset[str]
    text: frozenset[str]
    whole: bool


def looked_up(body: str, root: Path) -> TemplateNames:
    """What a kernel's template, the snippets of its folder `root` and webnorm's look up."""
    tags, text, whole = set[str](), set[str](), True
    waiting, seen = [_words(body)], set[str | None]()
    while waiting:
        words = waiting.pop()
        tags |= words.tags
        text |= words.text
        for name in words.included - seen:
            seen.add(name)
            snippet = None if name is None else _snippet(name, root)
            if snippet is None:
                whole = False
            else:
                waiting.append(snippet)
    return TemplateNames(frozenset(tags), frozenset(text), whole)


def _snippet(name: str, root: Path) -> _Words | None:
    for folder in (root, wgsl_root()):
        path = str(folder / name)
        if (at := stamp(path)) is not None:
            return _words_of(path, str(folder), at)
    return None


@lru_cache(maxsize=256)
def _words_of(path: str, folder: str, _: Stamp) -> _Words | None:
    try:
        return _words(read(path, folder)[0])
    except SourceUnreadable:
        return None


def _words(template: str) -> _Words:
    text = _COMMENT.sub("", template)
    included = frozenset(found[1] or found[2] for found in _INCLUDE.finditer(text))
    tags = frozenset(word for tag in _TAG.findall(text) for word in _WORD.findall(tag))
    return _Words(tags, frozenset(_WORD.findall(_TAG.sub(" ", text))), included)
