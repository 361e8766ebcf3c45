"""The ops of a package's folders by name. An op of `define_op` is built when a caller asks for it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from importlib import resources

from webnorm.op.op import Op

# The file that defines the op of a folder.
OP_FILE = "op.py"
# A file with this line lists complete ops. Any other file has one op of `define_op`, with its folder's name.
_LISTS_OPS = re.compile(r"^OPS\b", re.M)


class PackagedOps(Mapping[str, Op]):
    """The ops of a package: first the OPS of each `op.py`, then the ops of `define_op`.

    The latter are imported and built one by one, because all of them would delay the first call of a norm.

    Attributes
    ----------
    listed : tuple of Op
        The ops that are in the OPS of an `op.py`.
    """

    def __init__(self, package: str) -> None:
        files = {
            folder.name: folder.joinpath(OP_FILE)
            for folder in sorted(resources.files(package).iterdir(), key=lambda one: one.name)
            if folder.is_dir() and folder.joinpath(OP_FILE).is_file()
        }
        lists = [name for name, file in files.items() if _LISTS_OPS.search(file.read_text("utf-8"))]
        modules = [importlib.import_module(f"{package}.{name}.op") for name in lists]
        self.listed: tuple[Op, ...] = tuple(op for module in modules for op in module.OPS)
        self._package = package
        self._ops = {op.name: op for op in self.listed}
        self._names = dict.fromkeys([*self._ops, *(name for name in files if name not in lists)])

    def __getitem__(self, name: str) -> Op:
        if name not in self._ops:
            if name not in self._names:
                raise KeyError(name)
            # `setdefault` gives all threads the same op.
            self._ops.setdefault(name, self._built(name))
        return self._ops[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _built(self, name: str) -> Op:
        from webnorm.op.built_op import packaged_op_of

        return packaged_op_of(importlib.import_module(f"{self._package}.{name}.op"))
