"""webnorm's own templates as Jinja compiled them, kept for the next process."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import jinja2
from jinja2 import Environment, nodes
from jinja2.bccache import Bucket, BytecodeCache
from jinja2.compiler import CodeGenerator, Frame

from webnorm.files import user_cache

_FOLDER = "templates"
_OF_JINJA = ("lexer", "parser", "nodes", "visitor", "idtracking", "optimizer", "compiler")
# What makes code of a template's text, Jinja's part and webnorm's. (To ask for the version of an installed
# package takes 10 ms.)
_MAKERS = (
    *(Path(jinja2.__file__).with_name(f"{name}.py") for name in _OF_JINJA),
    *(
        Path(__file__).parents[1] / name
        for name in ("source_map/markers.py", "rendering/templates.py", "rendering/template_cache.py")
    ),
)


class TemplateCodeGenerator(CodeGenerator):
    """Writes a template's code; Jinja's own writes a template's name between quotes as it is."""

    def visit_CondExpr(self, node: nodes.CondExpr, frame: Frame) -> None:
        """Write an inline `if`, whose error names the line and not the template: a folder may have a quote in
        its name.
        """
        name, self.name = self.name, None
        try:
            super().visit_CondExpr(node, frame)
        finally:
            self.name = name


class TemplateBytecodeCache(BytecodeCache):
    """A file for each template, which a newer text of the template takes over."""

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """The name of a template's file; Jinja's own takes only paths that UTF-8 has."""
        return blake2b(os.fsencode(f"{name}|{filename}"), digest_size=20).hexdigest()

    def load_bytecode(self, bucket: Bucket) -> None:
        """Have the bucket hold what is kept of its template, if that is there and sound."""
        with suppress(OSError):
            data = user_cache.load(_FOLDER, _key_of(bucket))
            if data is not None:
                bucket.bytecode_from_string(data)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep what the bucket holds, if that can be done."""
        with suppress(OSError):
            user_cache.store(_FOLDER, _key_of(bucket), bucket.bytecode_to_string())


class ReadOnlyBytecodeCache(TemplateBytecodeCache):
    """Beside a user's templates: what is kept of webnorm's is read, of others nothing, and nothing is kept.

    A template is webnorm's by the file that was read, not by its name, which a user's snippet may have, too.
    A process that rendered something of a user's is not trusted to leave code for others.
    """

    def __init__(self, own: str) -> None:
        self.own = Path(own)

    def get_bucket(self, environment: Environment, name: str, filename: str | None, source: str) -> Bucket:
        """The bucket of a template, with what is kept of it where it is webnorm's."""
        if filename is not None and Path(filename).is_relative_to(self.own):
            return super().get_bucket(environment, name, filename, source)
        return Bucket(environment, self.get_cache_key(name, filename), self.get_source_checksum(source))

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep nothing."""


def _key_of(bucket: Bucket) -> bytes:
    """OSError where the makers' files are not there."""
    return bucket.key.encode() + _made_by()


@cache
def _made_by() -> bytes:
    """What tells code from that of another Python, Jinja or webnorm, changes of a working tree included."""
    made = blake2b(MAGIC_NUMBER)
    for path in _MAKERS:
        made.update(path.read_bytes())
    return made.digest()
