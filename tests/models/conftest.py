"""Fixtures of tests of models."""

from __future__ import annotations

import pytest

from webnorm.models import epilogues


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let scans find an option that no op has, in place of rounding before the weight."""
    monkeypatch.setattr(epilogues, "ROUNDING", "round_sideways")
