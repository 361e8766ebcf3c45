"""The options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from webnorm.gpu import seconds

# Sizes, scalars and flags of the norms are options of the command line. Which ops and options there are, the
# registry says: help adds them when it is shown.
Op = Annotated[
    str | None,
    typer.Option(
        help="What is computed: an op of webnorm, or a folder with an op.py. Default: the op of the folder "
        "of a kernel's file, or the first that is listed."
    ),
]
Ops = Annotated[
    str | None,
    typer.Option(
        "--op",
        help="What is computed: an op of webnorm, a folder with an op.py, a list of them, a pattern such as "
        "'rms*', or all. Default: the op of the folder of a kernel's file, or the first that is listed.",
    ),
]
Adapter = Annotated[
    str | None,
    typer.Option(
        help="Index or part of the name, as `webnorm doctor` lists them. "
        "Default: $WEBNORM_ADAPTER, or the first."
    ),
]
Kernel = Annotated[
    list[str] | None,
    typer.Option(
        "--kernel",
        "-k",
        help="A kernel's name, a list or a pattern such as 'welford*', a .wgsl file, or auto, the one that "
        "is chosen for the problem; repeatable. Default: all.",
    ),
]
Wgsl = Annotated[
    list[Path] | None, typer.Option(help="A folder of your own kernels, DIR/<op>/<kernel>.wgsl; repeatable.")
]
Constant = Annotated[
    list[str] | None,
    typer.Option(
        "--constant",
        "-c",
        help="NAME=VALUE[,VALUE...]: values of a tune axis instead of the default, or a range of them as "
        "32..256; repeatable.",
    ),
]
AllConstants = Annotated[
    bool, typer.Option("--all-constants", help="Every admitted point of every kernel's tune axes.")
]
Eps = Annotated[
    float | None,
    typer.Option(help="Added to the variance. Default: 1e-5; for rms_norm float32's machine epsilon."),
]
Dtype = Annotated[str | None, typer.Option(help="Storage type: float32 (the default), float16 or bfloat16.")]
Dtypes = Annotated[
    str | None,
    typer.Option(
        "--dtype", help="Storage types: float32 (the default), float16, bfloat16, a list of them, or all."
    ),
]
Option = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        help="NAME[=VALUE], what a problem adds to the plain computation of its op; repeatable.",
    ),
]
Scale = Annotated[float, typer.Option(help="What y is multiplied by before it is rounded to a float8 type.")]
Rows = Annotated[
    str | None,
    typer.Option(help="Rows: a number, a list like 1024,4k, or a range that doubles, as 256..4k."),
]
Cols = Annotated[
    str | None,
    typer.Option(help="Columns: a number, a list like 768,1k, or a range: 256..4k doubles, 1k..2k+256 adds."),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option(
        "--size",
        help="NAME=N[,N...]: a size of the op, a list of them, or a range as 256..4k; repeatable. --rows and "
        "--cols are short for --size rows= and --size cols=.",
    ),
]
Scalars = Annotated[
    list[str] | None,
    typer.Option("--scalar", help="NAME=X: a scalar of the op, such as eps=1e-6; repeatable."),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show more: all constants, the worst case of every kernel.")
]
NoWeight = Annotated[bool, typer.Option("--no-weight", help="Leave the weight out.")]
NoBias = Annotated[bool, typer.Option("--no-bias", help="Leave the bias out.")]
AllowSkipped = Annotated[
    bool, typer.Option("--allow-skipped", help="Exit 0 even where something that was asked for was skipped.")
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Repeats the draws of a run that printed it. Default: others each time.", min=0, max=2**64 - 1
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="Spread the work: `local` over the adapters of this machine that are like the one of --adapter, "
        "`local:N` over N workers on them, or a Dask scheduler's address or file (webnorm[fleet])."
    ),
]
TimeLimit = Annotated[
    float,
    typer.Option(
        help="Seconds that a kernel or its compiler may be silent before it is given up.",
        min=seconds.LEAST_SILENCE,
        max=seconds.MOST,
    ),
]
