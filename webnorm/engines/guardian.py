"""Runs a program until it ends or standard input closes; then ends its children and removes its folder.

This is a script without imports of webnorm: `python guardian.py FOLDER PROGRAM ARGUMENTS...`. Its parent
holds the other end of standard input, which closes even if the parent is killed. So no browser and no profile
stay behind.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

# A process that was killed may still write to its folder for a moment.
_ATTEMPTS, _PAUSE_S = 50, 0.1


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process and its children."""
    if sys.platform == "win32":
        subprocess.run(["taskkill", "/T", "/F", "/PID", str(process.pid)], check=False, capture_output=True)
    else:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _remove(folder: str) -> None:
    """Remove a folder, also while the last processes that write to it end."""
    for _ in range(_ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(_PAUSE_S)


def main(folder: str, *command: str) -> int:
    """Run the command and return its exit status."""
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        _remove(folder)
        sys.exit(f"{command[0]}: {error.strerror}")

    def end_with_parent() -> None:
        sys.stdin.buffer.read()
        _end(process)

    signal.signal(signal.SIGTERM, lambda *_: _end(process))
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        return process.wait()
    finally:
        _end(process)
        _remove(folder)


if __name__ == "__main__":
    # The thread that reads standard input would delay a normal exit.
    status = main(*sys.argv[1:])
    sys.stderr.flush()
    os._exit(status if 0 <= status < 256 else 128 - status)
