"""The trial of an `op.py` in a child process with limits on time and memory.

Loops, exits, excessive memory and invalid results end there, and become an error of one line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from webnorm.errors import WebnormError, sentence
from webnorm.op.packaged_ops import OP_FILE

# Limits of the child: processor time and waiting time in seconds, and bytes of memory. Most of the memory is
# NumPy's address space.
CPU_LIMIT_S, WAIT_LIMIT_S = 10, 120
MEMORY = 8 << 30
# Exit statuses of a process without processor time left: SIGXCPU, or SIGKILL a second later.
_OUT_OF_TIME = (-24, -9)
# Set in the child, which must not start another child.
_INSIDE = "WEBNORM_OP_TRIAL"
_MARK = "\0webnorm-op-trial "


def try_folder(folder: Path) -> None:
    """Run a folder's op.py, its draws and its reference on small problems in a child process.

    Raises
    ------
    WebnormError
        An error occurred there. The message is one line with the file and the line.
    """
    if os.environ.get(_INSIDE):
        return
    command = [sys.executable, "-m", "webnorm.op.op_trial", str(folder)]
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, _INSIDE: "1", "PYTHONPATH": paths}
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=WAIT_LIMIT_S, env=environment, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise WebnormError(
            f"{folder / OP_FILE}: not done after {WAIT_LIMIT_S} s on problems of a few elements"
        ) from error
    *_, said = done.stdout.decode("utf-8", "replace").rpartition(_MARK)
    try:
        reply: Any = json.loads(said)
    except ValueError:
        reply = {"error": f"{folder / OP_FILE}: {_ending(done)}"}
    if reply.get("error"):
        raise WebnormError(reply["error"])


def _ending(done: subprocess.CompletedProcess[bytes]) -> str:
    said = [line for line in done.stderr.decode("utf-8", "replace").strip().splitlines() if line.strip()]
    if any("MemoryError" in line for line in said):
        return f"it takes more than {MEMORY >> 30} GiB of memory on problems of a few elements"
    if done.returncode in _OUT_OF_TIME:
        return (
            f"it takes more than {CPU_LIMIT_S} s of processor time on problems of a few elements: it loops, "
            "or computes too much when it is imported"
        )
    last = f": {sentence(said[-1], 200)}" if said else ""
    return f"its process ended with status {done.returncode}{last}"


def _main(folder: str) -> dict[str, str]:
    from webnorm.op.op_folders import load_op_folder
    from webnorm.op.reference_trial import try_reference

    try:
        try_reference(load_op_folder(folder))
    except WebnormError as error:
        said = str(error)
        return {"error": said if said.startswith(folder) else f"{folder}/{OP_FILE}: {said}"}
    except MemoryError:
        why = f"takes more than {MEMORY >> 30} GiB on problems of a few elements"
        return {"error": f"{folder}/{OP_FILE}: {why}"}
    return {}


def _limit() -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S + 1))


if __name__ == "__main__":
    _limit()
    sys.stdout.write(f"{_MARK}{json.dumps(_main(sys.argv[1]))}\n")
