"""The part of the browser-shader record that comes from Dawn."""

from __future__ import annotations

from typing import Any

import pytest

import dawn
from bench import browser
from webnorm.engines import node_webgpu
from webnorm.errors import WebnormError
from webnorm.op.registry import OPS
from webnorm.web import lab_site

pytestmark = pytest.mark.skipif(dawn.missing() is not None, reason=dawn.missing() or "")


@pytest.fixture(autouse=True)
def swiftshader(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in dawn.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("op", "dtype"), [("layer_norm", "float16"), ("rms_norm", "bfloat16"), ("layer_norm_backward", "float32")]
)
def test_dawn_runs_a_page_s_choice_and_its_own_copy(op: str, dtype: str) -> None:
    copy, norm = browser.through_dawn(OPS[op], 300, 256, dtype, node_webgpu.webgpu())
    assert (copy.name, copy.max_abs_error) == ("Dawn, copy", 0) and copy.percent == pytest.approx(100)
    assert norm.name == "Dawn, software"
    assert norm.median_ns > 0 and norm.max_abs_error > 0


def test_a_wrong_output_on_dawn_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    as_read = lab_site.bundle_as_json

    def damaged(bundle: Any) -> Any:
        read = as_read(bundle)
        wrong = {name: text.replace("inverseSqrt(", "sqrt(") for name, text in read["texts"].items()}
        return read | {"texts": wrong}

    monkeypatch.setattr(lab_site, "bundle_as_json", damaged)
    with pytest.raises(WebnormError, match=r"^Dawn, \S+, 300x256 float32 on SwiftShader.*: y"):
        list(browser.through_dawn(OPS["layer_norm"], 300, 256, "float32", node_webgpu.webgpu()))
