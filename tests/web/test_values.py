"""Arguments of every kind: Python's functions and an exported package refuse the same values.

Their messages have the same words.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import webnorm
from patience import HANG_S
from webnorm.errors import WebnormError
from webnorm.ops.copy.problem import EPS, SCALE
from webnorm.ops.norms.problem import NormProblem
from webnorm.web.folder import write_folder
from webnorm.web.package.bundle import bundle_of
from webnorm.web.package.request import request_for
from webnorm.web.pages import page_files

needs_node = pytest.mark.skipif(
    shutil.which("node") is None, reason="node is not installed: install Node.js 20 or later"
)


class HasFloat:
    """An object with __float__, like an object with valueOf in JavaScript."""

    def __float__(self) -> float:
        return 1e-5


# The values in JavaScript and in Python. Python lacks BigInt and Symbol, and neither is a number.
VALUES: dict[str, Any] = {
    "0": 0,
    "-0": -0.0,
    "1": 1,
    "1e-5": 1e-5,
    "1e-12": 1e-12,
    "1.1754943508222875e-38": 2.0**-126,
    "1.1754943508222873e-38": float(np.nextafter(2.0**-126, 0)),
    "1e-40": 1e-40,
    "1e-46": 1e-46,
    "5e-324": 5e-324,
    "8.5e37": 8.5e37,
    "8.507059173023461e37": float(np.nextafter(2.0**126, 0)),
    "8.507059173023462e37": 2.0**126,
    "3.5e38": 3.5e38,
    "1e39": 1e39,
    "1e308": 1e308,
    "Infinity": np.inf,
    "-Infinity": -np.inf,
    "NaN": np.nan,
    "-1e-5": -1e-5,
    "null": None,
    "true": True,
    "false": False,
    "''": "",
    "'1e-5'": "1e-5",
    "'0'": "0",
    "'much'": "much",
    "'two\\nlines and many characters: ' + 'a'.repeat(1000)": "two\nlines" + "a" * 1000,
    "[]": [],
    "[1e-5]": [1e-5],
    "new Float32Array([1e-5])": np.array([1e-5], np.float32),
    "({})": {},
    "({ valueOf: () => 1e-5 })": HasFloat(),
    "Object.create(null)": object(),
    "new Date(1)": datetime(1970, 1, 1, tzinfo=UTC),
    "new Map([['eps', 1]])": {"eps": 1},
    "(() => 1e-5)": lambda: 1e-5,
    "new Number(1e-5)": np.array(1e-5),
    "1n": Decimal("1e-5"),
    "Symbol('eps')": Ellipsis,
}
RULES = {"eps": EPS, "scale": SCALE}
RULED = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def message_of(call: Callable[..., object], *given: object) -> str | None:
    try:
        call(*given)
    except WebnormError as error:
        return str(error)
    return None


@RULED
def test_a_number_of_another_type_is_taken_and_nothing_else(rule: Any) -> None:
    for taken in (np.float32(0.5), np.float64(0.5), np.float16(0.5), Fraction(1, 2)):
        assert rule.number(taken) == 0.5 and type(rule.number(taken)) is float
    for refused in (np.bool_(True), Decimal("0.5"), 10**400, Fraction(10**400), "0.5", b"0.5", 0.5 + 0j):
        assert (message_of(rule.number, refused) or "").startswith(f"{rule.name} is ")


def test_every_function_has_the_same_rule() -> None:
    x, mine = np.ones((2, 8), np.float32), np.ones(8, np.float32)
    ways: dict[str, Callable[[Any], object]] = {
        "layer_norm": lambda eps: webnorm.layer_norm(x, 8, eps=eps),
        "layer_norm_backward": lambda eps: webnorm.layer_norm_backward(x, x, 8, mine, eps=eps),
        "LayerNorm": lambda eps: webnorm.LayerNorm(8, eps=eps),
        "Problem": lambda eps: NormProblem(rows=1, cols=8, eps=eps),
    }
    refused = [value for value in VALUES.values() if message_of(EPS.number, value)]
    assert len(refused) > 20
    for way, call in ways.items():
        for value in refused:
            expected = message_of(EPS.number, value)
            assert message_of(call, value) == expected, (way, value)
    for value in VALUES.values():
        if expected := message_of(SCALE.number, value):
            given = partial(webnorm.layer_norm, x, 8, out_dtype="float8_e5m2", scale=value)
            assert message_of(given) == expected
    # None is the default of RMSNorm, as in torch, but of no other op.
    for value in refused:
        if value is not None:
            expected = message_of(EPS.number, value)
            assert message_of(partial(webnorm.rms_norm, x, 8, eps=value)) == expected
            assert message_of(partial(webnorm.RMSNorm, 8, eps=value)) == expected


def test_a_denormal_is_refused_as_such() -> None:
    expected = (
        "eps is 1e-40; expected 0 or a number from 1.2e-38 to 8.5e+37: GPUs may round smaller numbers to 0"
    )
    assert message_of(lambda: EPS.number(1e-40)) == expected


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[str | None]]:
    """The messages of a package's functions for each value."""
    folder = tmp_path_factory.mktemp("package")
    write_folder(page_files("verify"), folder)
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    settings = dict.fromkeys(("--dtype", "--eps", "--scale", "--name", "--minify"))
    request = request_for("layer_norm", [8], ["out_dtype=float8_e5m2"], "auto", (), settings)
    bundle = bundle_of(request)
    data = {"manifest": bundle.manifest(), "texts": bundle.texts}
    (folder / "bundle.json").write_text(json.dumps(data), encoding="utf-8")
    asked = {"values": [*VALUES, "undefined"], "names": [*RULES, "cols", "shader", "adapterInfo", "label"]}
    (folder / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
    driver = Path(__file__).parent / "values.mjs"
    run = subprocess.run(
        ["node", str(driver), str(folder)],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    said: dict[str, list[str | None]] = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    return said


@needs_node
@RULED
def test_a_package_takes_the_numbers_that_python_takes(
    rule: Any, found: Mapping[str, list[str | None]]
) -> None:
    *messages, undefined = found[rule.name]
    assert undefined is None, "it is not given"
    for (text, value), message in zip(VALUES.items(), messages, strict=True):
        here = message_of(rule.number, value)
        assert (message is None) == (here is None), (text, message, here)
        if message is not None:
            shown, expected = message.removeprefix(f"layer_norm: {rule.name} is ").split("; expected ", 1)
            assert expected == rule.expected and shown, message


# Other values of the list above that a function accepts. It always accepts undefined.
STRINGS = {text for text, value in VALUES.items() if isinstance(value, str)}
OBJECTS = {text for text in VALUES if text.startswith(("[", "new", "({", "Object"))}
ITERABLE = {text for text in OBJECTS if text.startswith(("[", "new Float32Array", "new Map"))}
COUNTS = {"0", "-0", "1"}
TAKEN: Mapping[str, set[str]] = {
    "cols": set(),
    "shader": set(),
    "label": STRINGS,
    "adapterInfo": OBJECTS,
    "device": set(),
    "adapter": set(),
    "requestDevice.gpu": set(),
    "requestDevice.powerPreference": set(),
    "requestDevice.requiredFeatures": ITERABLE,
    "requestDevice.requiredLimits.maxBufferSize": COUNTS,
}


@needs_node
@pytest.mark.parametrize("name", TAKEN)
def test_another_value_is_refused_in_one_line_that_names_it(
    name: str, found: Mapping[str, list[str | None]]
) -> None:
    *messages, undefined = found[name]
    assert undefined is None or name in ("shader", "device", "adapter", "requestDevice.gpu")
    argument = name.removeprefix("requestDevice.")
    for text, message in zip(VALUES, messages, strict=True):
        assert (message is None) == (text in TAKEN[name]), (text, message)
        if message is not None:
            assert message.startswith(f"layer_norm: {argument} is "), message
            assert "\n" not in message and len(message) < 300
            # The message shows a string in quotes, so that it does not look like a number.
            assert text not in ("''", "'0'") or f"{argument} is {text.replace(chr(39), chr(34))}" in message


@needs_node
@pytest.mark.parametrize("name", ["options", "requestDevice.options"])
def test_options_are_an_object(name: str, found: Mapping[str, list[str | None]]) -> None:
    *messages, _ = found[name]
    for text, message in zip(VALUES, messages, strict=True):
        if text in ("({})", "Object.create(null)"):
            assert message is None or "options" not in message
        elif not text.startswith("({ valueOf"):
            assert message is not None and message.startswith("layer_norm: options is "), (text, message)
