"""Where results come from: which run, when, by what command, on what host, with what source."""

from __future__ import annotations

import platform
import subprocess
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from webnorm.forms import Text

SOURCE = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A run's random id, its beginning (UTC, ISO 8601), the command as it was typed, and the host's name.

    `commit` is that of webnorm's source, with "-dirty" behind it where files were changed; None where webnorm
    is no git checkout.
    """

    run: Text
    time: Text
    command: Text
    host: Text
    commit: Text | None = None


def origin_of(command: str) -> Origin:
    """The origin of a run that begins now."""
    return Origin(
        run=uuid.uuid4().hex,
        time=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        command=command,
        host=platform.node(),
        commit=commit_of(SOURCE),
    )


def commit_of(folder: Path) -> str | None:
    """The commit that a folder is a checkout of; None where it is none, or git is not there to ask."""
    # A package installed inside somebody else's checkout is not that checkout.
    if not (folder / ".git").exists():
        return None
    # Not `git describe --dirty`: it takes the lock of the index from whoever works there, and leaves it if it
    # is killed.
    git = ["git", "--no-optional-locks", "-C", str(folder)]
    try:
        commit, changed = (
            subprocess.run([*git, *words], capture_output=True, text=True, timeout=10, check=True).stdout
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return commit.strip() + ("-dirty" if changed else "")
