"""A scan derives as many norms from a config as the libraries build torch modules from it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from webnorm.models.config_values import ModelConfig
from webnorm.models.dimensions import Dimensions
from webnorm.models.hf_config import config_norms
from webnorm.models.norm_use import NormUse

CONFIGS = Path(__file__).parent / "files" / "configs"
ARCHITECTURES = sorted(path.stem for path in CONFIGS.glob("*.json"))


def recorded(name: str) -> Any:
    return json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))


def norms_of(name: str, **dims: int) -> list[NormUse]:
    uses, missing = config_norms(ModelConfig(name, recorded(name)["config"]), Dimensions(dims))
    assert missing == []
    return uses


def modules(use: NormUse) -> dict[str, int]:
    """Return the torch modules of a use, as count_norms.py writes them."""
    sizes = use.sizes
    if use.op == "group_norm":
        return {f"group_norm {sizes['channels']}/{sizes['groups']}": use.count}
    if use.op == "qk_norm":
        return {f"head_norm {sizes['dim']}": 2 * use.count}
    kind = {"modulated_norm": "layer_norm", "gated_norm": "gated"}.get(use.op, use.op)
    return {f"{kind} {sizes['cols']}": use.count}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_norms_are_those_of_the_modules(name: str) -> None:
    found: Counter[str] = Counter()
    for use in norms_of(name):
        found.update(modules(use))
    assert dict(sorted(found.items())) == recorded(name)["norms"]
