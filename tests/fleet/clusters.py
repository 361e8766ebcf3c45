"""A Dask cluster as a user starts it: a scheduler and workers, each in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patience import HANG_S, until

BENCH = ("bench", "--kernel", "naive", "--rows", "16", "--budget", "0.05")


class Fleet:
    """A scheduler, and the workers that a test adds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self._started: list[subprocess.Popen[bytes]] = []
        self._dask("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(self.file))
        # The file exists before it is complete.
        until(lambda: self.file.exists() and self.file.read_text().endswith("}"))
        self.address: str = json.loads(self.file.read_text())["address"]

    def worker(self, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a plain `dask worker` and wait until it has joined."""
        name = f"plain-{len(self._started)}"
        process = self._dask("worker", self.address, "--name", name, *words, **environment)
        self.joined(name)
        return process

    def adapter(self, choice: str) -> subprocess.Popen[bytes]:
        """Start `webnorm cluster worker` for an adapter, and wait until it reports that it works."""
        words = [sys.executable, "-m", "webnorm", "cluster", "worker", self.address, "--adapter", choice]
        process = self._process(words, {}, subprocess.PIPE)
        assert process.stdout is not None and b"works for" in process.stdout.readline()
        return process

    def joined(self, name: str) -> None:
        from distributed import Client

        def there() -> bool:
            workers = client.scheduler_info()["workers"].values()
            return any(str(one["name"]).startswith(name) for one in workers)

        with Client(self.address, set_as_default=False) as client:
            until(there)

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """End a process and its children, as a batch system does."""
        process.terminate()
        process.wait(HANG_S)
        if process.stdout is not None:
            process.stdout.close()
        self._started.remove(process)

    def ended(self) -> None:
        while self._started:
            self.end(self._started[-1])

    def _dask(self, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", *words, "--no-dashboard"]
        return self._process(command, environment)

    def _process(
        self, words: list[str], environment: Mapping[str, str], stdout: int | None = None
    ) -> subprocess.Popen[bytes]:
        # The scheduler also unpickles tasks, so it needs these folders.
        paths = before(Path(__file__).parent, Path(__file__).parents[1])
        common = {"DASK_LOGGING__DISTRIBUTED": "critical", "PYTHONPATH": paths}
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                words,
                cwd=self.folder,
                env={**os.environ, **common, **environment},
                stdout=stdout or log,
                stderr=log,
            )
        self._started.append(process)
        return process


def before(*folders: Path) -> str:
    """Return a PYTHONPATH with these folders first."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])


def results(path: Path) -> list[dict[str, Any]]:
    """Return the results in the file of a run, which must be complete."""
    report = json.loads(path.read_text())
    assert report["complete"] is True
    found: list[dict[str, Any]] = report["results"]
    return found
