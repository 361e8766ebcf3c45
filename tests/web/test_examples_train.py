"""examples/train: the commands of its README work, its loss falls, and its gradients match float64."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import webnorm
from headless import needs_browser, started
from pages import ROOT, commands
from webnorm.op.dtypes import Array
from webnorm.serving import serve_folder

pytestmark = needs_browser

TRAINED = "while (!window.trained) await new Promise((done) => setTimeout(done, 20));"
# The gradients of the first step, and the parameters before that step.
FIRST_STEP = """async () => {
  TRAINED
  if (window.trained.error) throw new Error(window.trained.error);
  const all = async (buffers) => {
    const read = async ([name, buffer]) => [name, Array.from(await network.read(buffer))];
    return Object.fromEntries(await Promise.all(Object.entries(buffers).map(read)));
  };
  const parameters = await all(network.parameters);
  training.step();
  const [loss] = await network.read(training.history);
  const { points, labels } = data;
  const gradients = await all(training.gradients);
  return { parameters, gradients, loss, points: Array.from(points), labels: Array.from(labels) };
}""".replace("TRAINED", TRAINED)


def gradients_of(p: dict[str, Array], x: Array, labels: Array) -> tuple[float, dict[str, Array]]:
    """Return the mean loss and its gradients by parameter, in float64."""
    rows = len(x)
    hidden = x @ p["weight1"] + p["bias1"]
    centred = hidden - hidden.mean(1, keepdims=True)
    rstd = 1 / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    unit = centred * rstd
    normed = unit * p["weight"] + p["bias"]
    active = np.maximum(normed, 0)
    logits = active @ p["weight2"] + p["bias2"]
    shifted = logits - logits.max(1, keepdims=True)
    chances = np.exp(shifted) / np.exp(shifted).sum(1, keepdims=True)
    loss = float(-np.log(chances[np.arange(rows), labels]).mean())
    dlogits = (chances - np.eye(logits.shape[1])[labels]) / rows
    dnormed = (dlogits @ p["weight2"].T) * (normed > 0)
    dunit = dnormed * p["weight"]
    mean = dunit.mean(1, keepdims=True)
    dhidden = rstd * (dunit - mean - unit * (dunit * unit).mean(1, keepdims=True))
    return loss, {
        "weight1": x.T @ dhidden,
        "bias1": dhidden.sum(0),
        "weight": (dnormed * unit).sum(0),
        "bias": dnormed.sum(0),
        "weight2": active.T @ dlogits,
        "bias2": dlogits.sum(0),
    }


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's folder, with the packages from the commands of its README."""
    folder = tmp_path_factory.mktemp("example") / "train"
    source = ROOT / "examples" / "train"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("packages"))
    for command in commands(source / "README.md"):
        _, *arguments = command.words
        done = webnorm(arguments, folder)
        assert done.returncode == 0, done.stderr
    return folder


def evaluated(folder: Path, query: str, script: str) -> Any:
    """Run a script in the example's page and return its result; the console must show no error."""
    errors: list[str] = []
    with serve_folder(folder) as server, started() as chromium:
        page = chromium.new_page()
        page.on(
            "console", lambda said: errors.append(said.text) if said.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{server.url}/index.html{query}")
        found = page.evaluate(script)
    assert errors == []
    return found


def test_the_first_gradients_are_float64s(example: Path) -> None:
    found = evaluated(example, "?steps=0", FIRST_STEP)
    shapes = {"weight1": (2, 64), "weight2": (64, 3)}
    parameters = {
        name: np.array(values).reshape(shapes.get(name, -1)) for name, values in found["parameters"].items()
    }
    points = np.array(found["points"]).reshape(-1, 2)
    loss, expected = gradients_of(parameters, points, np.array(found["labels"]))
    assert found["loss"] == pytest.approx(loss, rel=1e-5)
    assert sorted(expected) == sorted(found["gradients"])
    for name, values in found["gradients"].items():
        got = np.array(values).reshape(expected[name].shape)
        np.testing.assert_allclose(got, expected[name], rtol=1e-4, atol=2e-6, err_msg=name)
        assert np.abs(expected[name]).max() > 1e-3


@pytest.mark.slow
def test_the_loss_falls(example: Path) -> None:
    found = evaluated(example, "?steps=150", f"async () => {{ {TRAINED} return window.trained; }}")
    assert "error" not in found, found
    losses = found["losses"]
    assert len(losses) == 150
    assert losses[0] > 0.9 and losses[-1] < losses[0] / 4, (losses[0], losses[-1])
