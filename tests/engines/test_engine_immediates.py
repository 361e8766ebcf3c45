"""Parameters as immediates in every engine that has them."""

from __future__ import annotations

import pytest
from test_check_engines import ENGINES, missing

from immediates import assert_equal, compared_in_worker
from webnorm.lab.process.worker import Worker


@pytest.mark.vulkan
@pytest.mark.parametrize("engine", ENGINES)
def test_immediates_change_no_bit_in_an_engine(engine: str) -> None:
    if reason := missing(engine):
        pytest.skip(reason)
    with Worker(engine=engine) as worker:
        (found,) = worker.stream(compared_in_worker, None)
    if found is None:
        pytest.skip(f"{engine} has no immediates")
    assert_equal(found)
