"""Work in parts: results do not depend on the number of parts or cores."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from webnorm.lab.verify import problem_buffers
from webnorm.op import blocks
from webnorm.op.op import make_inputs
from webnorm.op.presets import tasks
from webnorm.ops.norms.op import OPS as NORM_OPS


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_PART_BYTES", 8 * 100)


def test_parts_cover_the_rows_in_order(small_parts: None) -> None:
    found = blocks.map_row_blocks(lambda part: list(range(7))[part], 7, 40)
    assert found == [[0, 1], [2, 3], [4, 5], [6]]
    assert blocks.map_row_blocks(lambda part: part, 0, 40) == []
    # A row that is larger than a part is one part.
    assert len(blocks.map_row_blocks(lambda part: part, 3, 1000)) == 3


def test_converted_is_astype(small_parts: None) -> None:
    x = np.random.default_rng(0).standard_normal((13, 37))
    for dtype in (np.float16, np.float32):
        np.testing.assert_array_equal(blocks.converted(x, dtype), x.astype(dtype))
    assert blocks.converted(np.empty((0, 4)), np.float32).shape == (0, 4)


def test_a_small_draw_is_the_generators_own() -> None:
    drawn = blocks.standard_normal(np.random.default_rng(3), (5, 7))
    np.testing.assert_array_equal(drawn, np.random.default_rng(3).standard_normal((5, 7)))


def test_a_large_draw_does_not_depend_on_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_STREAM_ELEMENTS", 64)
    many = blocks.standard_normal(np.random.default_rng(3), (40, 7))
    monkeypatch.setattr(blocks, "ThreadPoolExecutor", partial(ThreadPoolExecutor, max_workers=1))
    np.testing.assert_array_equal(blocks.standard_normal(np.random.default_rng(3), (40, 7)), many)
    # No stream repeats another.
    assert len(np.unique(many)) == many.size


@pytest.mark.parametrize("op", [op.name for op in NORM_OPS])
def test_answers_do_not_depend_on_the_parts(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (task,) = tasks(op, ((37, 24),))
    arrays = make_inputs(task.op, task.problem)
    whole = task.op.reference(arrays, task.problem)
    monkeypatch.setattr(blocks, "_PART_BYTES", 8 * 100)
    for name, answer in task.op.reference(arrays, task.problem).items():
        for field in ("value", "error_scale", "mean_error_scale", "abs_sum"):
            one, other = getattr(answer, field), getattr(whole[name], field)
            assert (one is None) == (other is None)
            if one is not None:
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_a_digest_covers_every_part(small_parts: None) -> None:
    x = np.zeros((5, 100), np.float32)
    digests = [problem_buffers._digest({"y": x})]
    for at in ((0, 0), (2, 50), (4, 99)):
        x[at] = 1.0
        digests.append(problem_buffers._digest({"y": x}))
    assert len(set(digests)) == 4
