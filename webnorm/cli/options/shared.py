"""The options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from webnorm.gpu import seconds

# Sizes, scalars and flags of the norms are options of the command line. The registry lists the ops and their
# options; the help adds them when it is shown.
Op = Annotated[
    str | None,
    typer.Option(
        help="Set the op: a built-in op, or a folder with an op.py. Default: the op of the kernel file's "
        "folder, or the first built-in op."
    ),
]
Ops = Annotated[
    str | None,
    typer.Option(
        "--op",
        help="Set the ops: a built-in op, a folder with an op.py, a list of them, a pattern such as 'rms*', "
        "or all. Default: the op of the kernel file's folder, or the first built-in op.",
    ),
]
Adapter = Annotated[
    str | None,
    typer.Option(
        help="Use this adapter: its index, or a part of its name, from `webnorm doctor`. "
        "Default: $WEBNORM_ADAPTER, or the first adapter."
    ),
]
Engines = Annotated[
    list[str] | None,
    typer.Option(
        "--engine",
        help="Run in this engine: wgpu, chromium, firefox, edge, safari, node (Dawn), deno, a command with "
        "{url} for another browser, or all. Repeatable. Default: wgpu, in webnorm's own process.",
    ),
]
# No verb reads it: options/backend.py sets the environment variable before the verb runs.
Backend = Annotated[
    str | None,
    typer.Option(
        help="Use this implementation of WebGPU: wgpu, or dawn, which compiles as Chrome does and needs "
        "webnorm[dawn]. Default: $WEBNORM_BACKEND, or wgpu."
    ),
]
Kernel = Annotated[
    list[str] | None,
    typer.Option(
        "--kernel",
        "-k",
        help="Select kernels: a name, a list, a pattern such as 'welford*', a .wgsl file, or auto. "
        "auto picks the best kernel for each problem. Repeatable. Default: all.",
    ),
]
Wgsl = Annotated[
    list[Path] | None,
    typer.Option(help="Also load your own kernels from DIR/<op>/<kernel>.wgsl. Repeatable."),
]
Constant = Annotated[
    list[str] | None,
    typer.Option(
        "--constant",
        "-c",
        help="Use other values of a tune axis than the default, as NAME=VALUE[,VALUE...] or as a range "
        "NAME=32..256. Repeatable.",
    ),
]
AllConstants = Annotated[
    bool, typer.Option("--all-constants", help="Use every allowed combination of each kernel's tune axes.")
]
Eps = Annotated[
    float | None,
    typer.Option(help="Add X to the variance. Default: 1e-5, or float32's machine epsilon for rms_norm."),
]
Dtype = Annotated[
    str | None, typer.Option(help="Set the storage type: float32 (the default), float16 or bfloat16.")
]
Dtypes = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        help="Set the storage types: float32 (the default), float16, bfloat16, a list of them, or all.",
    ),
]
Option = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        help="Set an option of the op, as NAME or NAME=VALUE. Repeatable. For an unknown NAME, the command "
        "prints the op's options.",
    ),
]
Scale = Annotated[float, typer.Option(help="Multiply y by X before rounding it to a float8 type.")]
Rows = Annotated[
    str | None,
    typer.Option(
        help="Set the number of rows: a number, a list such as 1024,4k, or a doubling range such as 256..4k."
    ),
]
Cols = Annotated[
    str | None,
    typer.Option(
        help="Set the number of columns: a number, a list such as 768,1k, or a range. The range 256..4k "
        "doubles at each step, and 1k..2k+256 adds 256."
    ),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option(
        "--size",
        help="Set a size of the op: a number NAME=N, a list NAME=N,N, or a range NAME=256..4k. Repeatable. "
        "--rows and --cols are short for --size rows= and --size cols=.",
    ),
]
Model = Annotated[
    Path | None,
    typer.Option(
        "--model",
        help="Use the norms of this model in place of --op and sizes: an ONNX file, a config.json, a "
        "safetensors file, or a folder with one of them. `webnorm scan` lists the norms.",
    ),
]
Dims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim", help="Set a dimension that the model leaves open, such as sequence=512. Repeatable."
    ),
]
Scalars = Annotated[
    list[str] | None,
    typer.Option("--scalar", help="Set a scalar of the op, such as eps=1e-6. Repeatable."),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show all constants, and the worst case of every kernel.")
]
NoWeight = Annotated[bool, typer.Option("--no-weight", help="Leave out the weight.")]
NoBias = Annotated[bool, typer.Option("--no-bias", help="Leave out the bias.")]
AllowSkipped = Annotated[
    bool,
    typer.Option("--allow-skipped", help="Exit with 0 even if something that you asked for was skipped."),
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Draw the same random numbers as the run that printed this seed. Default: a new seed each time.",
        min=0,
        max=2**64 - 1,
    ),
]
WHICH_CLUSTER = (
    "`local` uses the adapters of this machine that are like --adapter, and `local:N` starts N workers on "
    "them. Other values are a Dask scheduler's address or file. Needs webnorm[cluster]."
)
Cluster = Annotated[
    str | None, typer.Option(help=f"Spread the work over the workers of a Dask cluster. {WHICH_CLUSTER}")
]
TimeLimit = Annotated[
    float,
    typer.Option(
        help="Give up on a kernel or compiler that is silent for this many seconds.",
        min=seconds.LEAST_SILENCE,
        max=seconds.MOST,
    ),
]

# The verbs in which an option takes a list with commas. In other verbs it takes one value.
_LISTS = {
    "op": ("list", "check", "bench", "tune", "store history", "store regressions"),
    "kernel": ("check", "bench", "store history", "store regressions"),
    "case": ("check",),
    "dtype": ("check", "bench", "tune"),
    "size": ("show", "evaluate", "bench", "tune", "export"),
    "rows": ("bench", "tune"),
    "cols": ("bench", "tune", "export"),
}


def takes_list(verb: str, parameter: str) -> bool:
    """Return whether a parameter of a verb, such as "dtype" of "bench", takes a list with commas."""
    return verb in _LISTS.get(parameter, ())
