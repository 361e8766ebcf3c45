"""The onnx library's shape inference, in a child process with limits on time and memory.

The library is C++ and trusts models: functions that call each other and hostile shapes take its process down.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from webnorm.errors import WebnormError, sentence

# Limits of the child. A model of 100 000 nodes takes about ten seconds.
CPU_LIMIT_S, WAIT_LIMIT_S = 120, 600
MEMORY = 8 << 30
_OUT_OF_TIME = (-24, -9)
# Each round knows the shapes that the constants of the round before state.
_MOST_ROUNDS = 12
# The first byte of the answer: with or without inferred shapes.
_INFERRED, _PLAIN = b"I", b"P"


def inferred(model: bytes, name: str) -> tuple[bytes, str]:
    """Return a serialized model with inlined functions and inferred shapes, and why shapes are missing.

    The reason is "" if nothing is missing.

    Raises
    ------
    WebnormError
        The child process failed. The message is one line with the file's name.
    """
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "webnorm.models.onnx_inference"],
            input=model,
            capture_output=True,
            timeout=WAIT_LIMIT_S,
            env={**os.environ, "PYTHONPATH": paths},
        )
    except subprocess.TimeoutExpired as error:
        raise WebnormError(f"{name}: shape inference took more than {WAIT_LIMIT_S} s") from error
    kind, content = done.stdout[:1], done.stdout[1:]
    if done.returncode or kind not in (_INFERRED, _PLAIN):
        raise WebnormError(f"{name}: shape inference failed: {_ending(done)}")
    note = "" if kind == _INFERRED else _last_line(done.stderr)
    return content, note


def _last_line(text: bytes) -> str:
    lines = [line for line in text.decode("utf-8", "replace").splitlines() if line.strip()]
    return sentence(lines[-1], 200) if lines else "the onnx library gave no reason"


def _ending(done: subprocess.CompletedProcess[bytes]) -> str:
    if done.returncode in _OUT_OF_TIME:
        return f"it took more than {CPU_LIMIT_S} s of processor time"
    if done.returncode == 0:
        return "its process ended without an answer"
    if b"MemoryError" in done.stderr or b"bad_alloc" in done.stderr:
        return f"it took more than {MEMORY >> 30} GiB of memory"
    last = f": {_last_line(done.stderr)}" if done.stderr.strip() else ""
    return f"its process ended with status {done.returncode}{last}"


def _limit() -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S + 1))


def _main(data: bytes) -> bytes:
    """Return the answer to the parent. A model whose shapes cannot be inferred is returned without them."""
    import onnx
    from onnx import inliner, shape_inference

    from webnorm.models.shape_values import computed_constants

    model = onnx.load_model_from_string(data)
    try:
        if model.functions:
            model = inliner.inline_local_functions(model)
        for _ in range(_MOST_ROUNDS):
            model = shape_inference.infer_shapes(model, data_prop=True)
            if not computed_constants(model, onnx):
                break
        content, kind = model.SerializeToString(), _INFERRED
    except (RuntimeError, LookupError, TypeError, ValueError, onnx.shape_inference.InferenceError) as error:
        sys.stderr.write(f"{type(error).__name__}: {sentence(str(error), 150)}\n")
        content, kind = model.SerializeToString(), _PLAIN
    return kind + bytes(content)


if __name__ == "__main__":
    _limit()
    sys.stdout.buffer.write(_main(sys.stdin.buffer.read()))
