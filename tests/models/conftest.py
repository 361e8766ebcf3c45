"""Fixtures of the tests of models."""

from __future__ import annotations

import pytest

from webnorm.cli.work import model_norms, norm_accuracy
from webnorm.errors import WebnormError
from webnorm.models.norm_use import NormUse
from webnorm.op.op import Task

ROUNDING = "rounding=before_weight"


@pytest.fixture
def without_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the ops lack an option that some models need, as an earlier version does."""
    known = model_norms.norm_task

    def task(use: NormUse) -> Task:
        if ROUNDING in use.options:
            raise WebnormError("unknown option 'rounding'")
        return known(use)

    for module in (model_norms, norm_accuracy):
        monkeypatch.setattr(module, "norm_task", task)
