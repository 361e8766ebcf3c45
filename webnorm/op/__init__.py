"""The op protocol (sizes, tensors, types, options, scalars, draws, expected values) and the loader of ops.

An `op.py` imports the names below from here: see docs/op-file.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from webnorm.op.definition import OpDefinition as OpDefinition
    from webnorm.op.definition import case as case
    from webnorm.op.definition import define_op as define_op
    from webnorm.op.definition import option as option
    from webnorm.op.definition import require as require
    from webnorm.op.definition import scalar as scalar
    from webnorm.op.definition import tensor as tensor
    from webnorm.op.draws import integers as integers
    from webnorm.op.draws import normal as normal
    from webnorm.op.draws import permutation as permutation
    from webnorm.op.draws import uniform as uniform

# Imported when first asked for: most of webnorm needs modules of this package, and not these.
_HOME = {
    name: module
    for module, names in {
        "definition": "OpDefinition case define_op option require scalar tensor",
        "draws": "integers normal permutation uniform",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
