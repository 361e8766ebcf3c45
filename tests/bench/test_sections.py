"""The record's sections: held-out columns, goals by columns, sizes of x."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.record import __main__
from bench.record.files import of_this_draw
from bench.record.sections import HELD_OUT_SEED, SECTIONS, Goal, drawn_cols
from webnorm.lab.results.result import Report, Result
from webnorm.op.dtypes import DTYPES
from webnorm.ops.norms.measured import measured_cols


def asked(monkeypatch: pytest.MonkeyPatch, *words: str) -> list[__main__.WantedProblem]:
    monkeypatch.setattr(sys, "argv", ["record", "--out", str(Path("a")), *words])
    return __main__.chosen(__main__.arguments(), software=False)


def test_columns_are_drawn_by_their_seed() -> None:
    drawn = drawn_cols(7, 6, 256, 16384, 8)
    assert drawn == drawn_cols(7, 6, 256, 16384, 8) != drawn_cols(8, 6, 256, 16384, 8)
    assert len(set(drawn)) == 6 and all(256 <= cols <= 16384 and cols % 8 == 0 for cols in drawn)
    assert all(cols % 2 for cols in drawn_cols(7, 6, 257, 8191, 2))


def test_columns_behind_the_choice_are_not_drawn() -> None:
    drawn = {cols for seed in range(200) for cols in drawn_cols(seed, 6, 256, 16384, 8)}
    assert len(drawn) > 300 and not drawn & measured_cols()
    assert {256, 1024, 4096, 16384} < measured_cols()


def test_short_rows_are_drawn_as_often_as_long_ones() -> None:
    drawn = [cols for seed in range(100) for cols in drawn_cols(seed, 6, 256, 16384, 8)]
    halves = sum(cols < 2048 for cols in drawn) / len(drawn)
    assert 0.4 < halves < 0.6


@pytest.mark.parametrize("name", [name for name, section in SECTIONS.items() if section.drawn])
def test_a_held_out_section_follows_the_seed(name: str) -> None:
    section = SECTIONS[name]
    cols = {task.problem.cols for task in section.tasks(seed=1)}
    assert cols == {task.problem.cols for task in section.tasks(1 << 24, 1)}
    assert cols != {task.problem.cols for task in section.tasks()}
    assert not cols & measured_cols() and not section.software
    assert all(section.goal(one).of_tuned for one in cols)


def test_another_draw_replaces_the_last() -> None:
    (name, section), *_ = [(name, section) for name, section in SECTIONS.items() if section.drawn]
    old, new = (
        [
            Result(
                op=task.op.name, kernel="copy", constants={}, problem=task.problem, status="pass", case=name
            )
            for task in section.tasks(seed=seed)
        ]
        for seed in (1, 2)
    )
    other = replace(old[0], case="forward")
    report = Report(device={}, results=(*old, other))
    assert of_this_draw(report, [name, "forward"], 1) == report
    assert of_this_draw(report, [name, "forward"], 2).results == (other,)
    # A record of other sections keeps it.
    assert of_this_draw(report, ["forward"], 2) == report
    assert of_this_draw(replace(report, results=tuple(new)), [name], 2).results == tuple(new)


def test_the_seed_is_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--section", "held_out", "--op", "layer_norm", "--dtype", "float16")
    usual, other = (asked(monkeypatch, *words, *more) for more in ((), ("--held-out", "3")))
    cols = [{one.task.problem.cols for one in found} for found in (usual, other)]
    assert cols[0] == {task.problem.cols for task in SECTIONS["held_out"].tasks(seed=HELD_OUT_SEED)}
    assert cols[1] == {task.problem.cols for task in SECTIONS["held_out"].tasks(seed=3)} != cols[0]


def test_each_size_of_x_is_a_separate_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--section", "forward", "small", "--dtype", "float16", "--mebibytes", "64", "256")
    found = asked(monkeypatch, *words)
    sizes = [
        one.task.problem.rows * one.task.problem.cols * DTYPES["float16"].itemsize >> 20
        for one in found
        if one.name == "forward"
    ]
    assert sizes.count(64) == sizes.count(256) == len(sizes) / 2 == 18
    # Shapes with fixed rows occur once.
    assert len([one for one in found if one.name == "small"]) == 10


def test_goals_depend_on_the_columns() -> None:
    forward, backward = SECTIONS["forward"], SECTIONS["backward"]
    assert [forward.goal(cols).percent_of_copy for cols in (256, 16384, 16392, 32768)] == [97, 97, 95, 95]
    assert [forward.goal(cols).ahead for cols in (16384, 32768)] == [0.99, None]
    assert [backward.goal(cols).percent_of_copy for cols in (8192, 8200, 16384)] == [92, 88, 88]
    assert backward.goal(16392) == Goal()
    assert SECTIONS["odd"].goal(5119).percent_of_copy == 93 and SECTIONS["small"].goal(768).ahead == 0.95


def test_goals_have_a_text() -> None:
    assert str(Goal(97.0, 0.99, 96.0, cols=16384)) == (
        "up to 16384 columns 97 % of the best copy, 0.99 times as fast as the fastest other and 96 % of the "
        "tuned best"
    )
    assert str(Goal(ahead=1.0)) == "1 times as fast as the fastest other"
    assert str(Goal()) == ""
