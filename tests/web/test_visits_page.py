"""The page of visits in Chromium: its tables, filters, address and keyboard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from test_collect import RESULT
from test_visits import HOSTILE, data_of, visit

import axe
from headless import chromium, errors_of, needs_browser
from patience import HANG_MS
from webnorm.serving import serve_folder
from webnorm.web.collection.visits_page import visits_page
from webnorm.web.folder import write_folder

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Chromium
    from playwright.sync_api import Page

pytestmark = [needs_browser, pytest.mark.xdist_group("browser")]
__all__ = ["chromium"]
SOFTWARE = {"adapter": "google swiftshader", "vendor": "google", "type": "CPU"}
WORD = "x" * 200
# The longest names that the collector accepts, and texts that would be markup.
ODD = visit(
    {"kernel": "__proto__"},
    {"kernel": "k" * 100, "problem": {"dtype": "float32"}},
    adapter=HOSTILE,
    vendor="</td><script>alert(1)</script>",
    driver=f"{WORD[:150]} 1.2.3",
)
FAILED = {"kernel": "naive", "status": "fail", "max_abs_error": "inf", "percent_of_copy": None}


def without_null(result: dict[str, Any]) -> dict[str, Any]:
    timed = ("median_ns", "p20_ns", "p80_ns", "samples_ns", "percent_of_copy", "gbps")
    return {name: value for name, value in {**RESULT, **result}.items() if name not in timed}


def some_visits() -> list[dict[str, Any]]:
    """Return visits of two engines, a GPU and a software adapter, two ops and two numbers of rows."""
    backward = {"op": "layer_norm_backward", "problem": {"options": {}}}
    failed = visit(**SOFTWARE, driver="Firefox 153")
    failed["results"] = [{**without_null(FAILED), "problem": failed["results"][0]["problem"]}]
    return [
        visit({"kernel": "naive", "percent_of_copy": 40}, {"percent_of_copy": 90}),
        visit({"kernel": "naive", "percent_of_copy": 50}, {"percent_of_copy": 96, "max_abs_error": 5e-6}),
        visit({"percent_of_copy": 61, "problem": {"rows": 8}}, **SOFTWARE, driver="Chrome 156"),
        failed,
        visit({**backward, "kernel": "tiles", "percent_of_copy": 77}, driver="Safari 26.1"),
    ]


@contextmanager
def page_of(
    chromium: Chromium, folder: Path, visits: list[dict[str, Any]], query: str = "", **settings: Any
) -> Iterator[Page]:
    """Write and open the page of some visits, and check that it asks only for its own files."""
    write_folder(visits_page(data_of(*visits)), folder)
    context = chromium.new_context(**{"viewport": {"width": 1280, "height": 800}, **settings})
    try:
        with serve_folder(folder) as server:
            page = context.new_page()
            page.set_default_timeout(HANG_MS)
            said, asked = errors_of(page), list[str]()
            page.on("request", lambda request: asked.append(request.url))
            page.goto(f"{server.url}/index.html{query}")
            page.wait_for_selector("body:not([data-state=idle])")
            yield page
            assert said == [] and server.missing == []
            assert {one.startswith(f"{server.url}/") for one in asked} == {True}
    finally:
        context.close()


def lines(page: Page, table: str) -> list[str]:
    return [" ".join(text.split()) for text in page.locator(f"#{table} tbody tr").all_inner_texts()]


def adapters(page: Page) -> list[str]:
    return [text.split(",")[0] for text in lines(page, "adapters")]


def test_adapters_are_lines_and_kernels_are_columns(chromium: Chromium, tmp_path: Path) -> None:
    with page_of(chromium, tmp_path / "site", some_visits()) as page:
        assert page.input_value("#op") == "layer_norm" and page.input_value("#cols") == "1024"
        heads = [head.replace("\u200b", "") for head in page.locator(".matrix th").all_inner_texts()]
        assert heads == ["Adapter", "naive", "registers"]
        assert lines(page, "adapters") == [
            "apple m2 GPU Chrome 140 4096 rows, 2 visits 45 % unreliable error 9.0e-7 pass "
            "93 % unreliable error 5.0e-6 pass",
            "google swiftshader software Firefox 153 4096 rows, 1 visit error inf FAIL –",
            "google swiftshader software Chrome 156 8 rows, 1 visit – 61 % unreliable error 9.0e-7 pass",
        ]
        # The fastest kernel of each line is bold, next to the adapter's name.
        assert page.locator(".matrix td .cell strong").all_inner_texts() == ["93 %", "61 %"]
        assert lines(page, "engines") == [
            "Chrome GPU 140 1 2 93 % 5.0e-6 4 pass",
            "Chrome software 156 1 1 61 % 9.0e-7 1 pass",
            "Firefox software 153 1 1 – inf 1 FAIL",
        ]
        (note,) = page.locator("#adapters .banner").all_inner_texts()
        assert "Their times rank no GPU" in note
        assert page.inner_text("#about").endswith("The page contains 5 visits (2026-11-01 to 2026-11-05).")
        page.select_option("#kind", "gpu")
        assert page.locator("#adapters .banner").count() == 0


def test_filters_select_lines_and_the_address_restores_them(chromium: Chromium, tmp_path: Path) -> None:
    with page_of(chromium, tmp_path / "site", some_visits()) as page:
        problem = "?op=layer_norm&options=default&cols=1024&dtype=float32&distribution=normal"
        software = "google swiftshader software Chrome 156 8 rows"
        for control, value, shown in (
            ("engine", "Chrome", ["apple m2 GPU Chrome 140 4096 rows", software]),
            ("vendor", "google", [software]),
            ("kind", "software", [software]),
            ("rows", "8", [software]),
            ("verdict", "fail", []),
        ):
            page.select_option(f"#{control}", value)
            assert adapters(page) == shown, control
        assert "No results match" in page.inner_text("#status")
        assert page.locator("#engines-section").is_hidden() and page.locator("#adapters-section").is_hidden()
        filters = "&rows=8&engine=Chrome&vendor=google&kind=software&verdict=fail"
        assert page.evaluate("() => location.search") == problem + filters
        page.reload()
        page.wait_for_selector("body[data-state=shown]")
        assert page.input_value("#verdict") == "fail" and page.input_value("#rows") == "8"
        page.click("#reset")
        assert page.evaluate("() => location.search") == f"{problem}&rows=8" and len(adapters(page)) == 1
        page.select_option("#rows", "")
        page.select_option("#verdict", "fail")
        # Other kernels of the line do not match.
        assert lines(page, "adapters") == [
            "google swiftshader software Firefox 153 4096 rows, 1 visit error inf FAIL"
        ]
        page.select_option("#op", "layer_norm_backward")
        page.select_option("#verdict", "")
        assert adapters(page) == ["apple m2 GPU Safari 26.1 4096 rows"]


def test_a_wrong_address_is_reported_and_the_rest_of_it_is_used(chromium: Chromium, tmp_path: Path) -> None:
    query = "?op=soft&engine=Firefox&colour=%3Cb%3Ered&kind=TPU"
    with page_of(chromium, tmp_path / "site", some_visits(), query) as page:
        said = page.inner_text("#status")
        assert "The address has colour=<b>red; expected op, options, " in said
        assert "No visitor sent results with op=soft." in said and "with kind=TPU." in said
        assert adapters(page) == ["google swiftshader software Firefox 153 4096 rows"]


def test_it_is_used_by_keyboard(chromium: Chromium, tmp_path: Path) -> None:
    many = [visit({"percent_of_copy": 50}, adapter=f"gpu {at}") for at in range(120)]
    with page_of(chromium, tmp_path / "site", [*many, *some_visits()]) as page:
        order = []
        for _ in range(16):
            page.keyboard.press("Tab")
            order.append(page.evaluate("() => document.activeElement.id || document.activeElement.className"))
        problem, filters = order[1:7], order[7:13]
        assert problem == ["op", "options", "cols", "dtype", "distribution", "rows"]
        assert filters == ["engine", "vendor", "adapter", "kind", "verdict", "reset"]
        # The table scrolls by keyboard, too.
        assert order[13:15] == ["card table scroll", "more"]
        page.focus("#engine")
        page.keyboard.press("F")
        assert page.input_value("#engine") == "Firefox" and len(adapters(page)) == 1
        assert page.evaluate("() => document.activeElement.id") == "engine"
        page.focus("#reset")
        page.keyboard.press("Enter")
        page.focus("#adapter")
        page.keyboard.type("GPU 11")
        assert adapters(page) == [f"gpu {at} GPU Chrome 140 4096 rows" for at in (11, *range(110, 120))]
        assert "adapter=GPU+11" in page.url
        page.keyboard.press("Enter")
        assert "adapter=GPU+11" in page.url and page.evaluate("() => document.activeElement.id") == "adapter"
        page.click("#reset")
        assert len(adapters(page)) == 50
        page.focus(".more")
        assert page.inner_text(".more") == "Show 73 more of 73 lines"
        page.keyboard.press("Enter")
        assert len(adapters(page)) == 123 and page.locator(".more").is_hidden()


def test_visitors_texts_are_shown_as_text(chromium: Chromium, tmp_path: Path) -> None:
    invented = [visit(*({"kernel": f"k{number}-{at}"} for at in range(99))) for number in range(2)]
    with page_of(chromium, tmp_path / "site", [ODD, *invented, visit()]) as page:
        assert HOSTILE in page.inner_text("#adapters")
        assert page.locator("main img, main script").count() == 0
        assert "</td><script>alert(1)</script>" in page.locator("#vendor option").all_inner_texts()
        # Kernels that visitors invent do not push the others out of the table.
        heads = page.locator(".matrix th").all_inner_texts()
        assert "registers" in heads and len(heads) == 21
        assert "More kernels in visits.json: 181." in page.inner_text("#adapters")
        for width in (400, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("() => document.documentElement.scrollWidth") == width


def test_a_page_without_visits_says_so(chromium: Chromium, tmp_path: Path) -> None:
    with page_of(chromium, tmp_path / "site", []) as page:
        assert page.inner_text("#status") == "There are no results yet."


def test_a_page_whose_data_are_missing_says_so(chromium: Chromium, tmp_path: Path) -> None:
    write_folder(visits_page(data_of(visit())), tmp_path)
    (tmp_path / "visits.json").unlink()
    with serve_folder(tmp_path) as server:
        page = chromium.new_page()
        page.goto(f"{server.url}/index.html")
        page.wait_for_selector("body[data-state=error]")
        assert page.inner_text("#status").startswith("visits.json did not load: status 404. Serve the whole")


def test_everybody_can_use_it_on_any_screen(chromium: Chromium, tmp_path: Path) -> None:
    rules, found = axe.rules(), list[tuple[object, ...]]()
    with page_of(chromium, tmp_path / "site", [*some_visits(), ODD]) as page:
        page.click("summary")
        page.evaluate(rules)
        for width in (400, 760, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                found += [(width, scheme, *one) for one in axe.violations(page)]
            assert page.evaluate("() => document.documentElement.scrollWidth") == width
    assert found == []


def test_many_visits_of_few_devices_stay_small(chromium: Chromium, tmp_path: Path) -> None:
    """The size of the data depends on the number of devices, and the page first shows 50 lines."""
    few = [visit({"percent_of_copy": 10 + at % 80}, adapter=f"gpu {at % 300}") for at in range(600)]
    data = data_of(*few)
    assert len(json.dumps(data_of(*few, *(visit(adapter=f"gpu {at}") for at in range(300))))) < 1.05 * len(
        json.dumps(data)
    )
    with page_of(chromium, tmp_path / "site", few) as page:
        assert len(adapters(page)) == 50
        assert lines(page, "engines")[0].startswith("Chrome GPU 140 300 600 ")
