"""The process of a worker, as its parent sees it: started, spoken to, ended, and asked why it ended."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading

from webnorm.errors import WebnormError, sentence
from webnorm.files.atomic import unnamed
from webnorm.lab.process.channel import Channel

# A child whose end of the channel is closed has so long to end by itself.
_END_S = 5.0
# Why a child ends whose device is gone; wgpu panics where that happens to it in the middle of a submission.
LOST = "the device was lost"
# The last of what the child printed, in which its panic is looked for.
_LAST_WORDS = 1 << 16
# The child finds modules where its parent does.
_CODE = (
    "import sys; handle, nice, *sys.path[:] = sys.argv[1:]; sys.argv[1:] = []; "
    "from webnorm.lab.process.worker import serve; serve(int(handle), int(nice))"
)


class ChildProcess:
    """The process, from the parent's side."""

    def __init__(self, nice: int) -> None:
        # What the child prints.
        self._stderr = unnamed()
        self.channel, theirs = Channel.pair()
        handle, handed_on = theirs.for_child()
        self._sending = threading.Lock()
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        try:
            self.process = subprocess.Popen(
                [sys.executable, *flags, "-P", "-c", _CODE, str(handle), str(nice), *map(str, sys.path)],
                stdin=subprocess.DEVNULL,
                stderr=self._stderr,
                **handed_on,
            )
        except OSError as error:
            self._close()
            raise WebnormError(f"cannot start a worker process: {error.strerror}") from error
        finally:
            theirs.close()

    def send(self, message: bytes, limit: float) -> None:
        """Send a message, whole; threads take turns."""
        with self._sending:
            self.channel.send(message, limit)

    def end(self, patience_s: float) -> None:
        """Kill it, and leave nothing of it."""
        self.process.kill()
        try:
            self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            # One that the system cannot end is left to it.
            threading.Thread(target=self.process.wait, daemon=True).start()
        self._close()

    def _close(self) -> None:
        self.channel.close()
        self._stderr.close()

    def last_words(self) -> str:
        """Why the child ended: the panic it printed, else its exit status."""
        try:
            code = self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return "the process closed its end of the channel: stopped"
        size = self._stderr.seek(0, 2)
        self._stderr.seek(max(0, size - _LAST_WORDS))
        text = self._stderr.read().decode(errors="replace")
        panic = re.search(r"panicked at [^\n]*\n([^\n]+)", text)
        if panic and "device is lost" in text:
            return LOST
        if panic:
            return f"the shader compiler panicked: {sentence(panic[1])}"
        if code < 0:
            known = {each.value: each.name for each in signal.Signals}
            name = known.get(-code, f"signal {-code}")
            guess = ", as where memory runs out" if name == "SIGKILL" else ""
            return f"the process crashed with {name}{guess}"
        return f"the process ended with exit status {code}"
