"""The page in a real browser: no errors, no requests, tables that sort, light and dark, a phone."""

import numpy as np
import pytest

from report.devtools import BROWSERS, Browser, find_browser
from report.synthetic import deep_sea, official, save
from winkel.report.page import write_report

pytestmark = pytest.mark.skipif(
    find_browser() is None, reason=f"needs a browser on PATH: {' or '.join(BROWSERS)}"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("browser")
    for agent, bad in {"pe_dqn": 3, "bdqn": 12, "pe_dqn_ind": 20}.items():
        for size in (5, 12):
            deep_sea(root / "runs", agent, size, [bad] * 5)
        official(root / "runs", "catch", 0, agent, 0)
        episodes = {"return": np.ones(9), "length": np.ones(9, int)}
        save(root / "runs", f"my_module:make:{'long_' * 9}name=8", agent, 0, episodes)
    path, *_ = write_report(root / "runs", root / "out")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    started = Browser(find_browser(), tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture
def tab(browser, page):
    browser.logs.clear()
    browser.requests.clear()
    browser.resize(1280)
    browser.prefer("light")
    browser.open(page)
    return browser


def column(tab, index):
    rows = "document.querySelectorAll('#deep-sea tbody tr')"
    return tab.evaluate(f"[...{rows}].map(row => row.cells[{index}].textContent)")


def click(tab, header):
    tab.evaluate(
        "[...document.querySelectorAll('#deep-sea th button')]"
        f".find(button => button.textContent === '{header}').click()"
    )


def test_no_errors_and_no_requests(tab, page):
    assert tab.logs == []
    outside = [u for u in tab.requests if not u.startswith("data:")]
    assert outside == [page.resolve().as_uri()]


def test_errors_would_be_seen(tab):
    tab.evaluate("console.error('seen')")
    tab.evaluate("fetch('http://127.0.0.1:9/').catch(() => 0)")
    tab.evaluate("1")
    assert any("seen" in text for _, text in tab.logs)
    assert any("Content Security Policy" in text for _, text in tab.logs)  # and is refused


def test_tables_sort_by_number_and_back(tab):
    assert column(tab, 0) == ["5"] * 3 + ["12"] * 3
    click(tab, "regret")
    assert [text.split()[0] for text in column(tab, 4)] == ["3", "3", "12", "12", "20", "20"]
    click(tab, "regret")
    assert [text.split()[0] for text in column(tab, 4)] == ["20", "20", "12", "12", "3", "3"]
    click(tab, "size")
    assert column(tab, 0) == ["5"] * 3 + ["12"] * 3  # not as text
    click(tab, "agent")
    assert column(tab, 1) == sorted(column(tab, 1))
    click(tab, "first goal")
    assert column(tab, 3)[-1].startswith("∞")


def test_unknown_values_come_last_both_ways(tab):
    cell = "document.querySelectorAll('#deep-sea tbody tr')[1].cells[0]"
    tab.evaluate(f"{cell}.dataset.key = ''; {cell}.textContent = '–'")
    for _ in range(2):
        click(tab, "size")
        assert column(tab, 0)[-1] == "–"


def background(tab):
    return tab.evaluate("getComputedStyle(document.body).backgroundColor")


def test_light_and_dark(tab):
    light = background(tab)
    assert light == "rgb(246, 245, 241)"
    tab.prefer("dark")
    dark = background(tab)
    assert dark == "rgb(18, 19, 22)"
    tab.evaluate("document.getElementById('theme').click()")
    assert background(tab) == light
    tab.prefer("light")
    tab.evaluate("document.getElementById('theme').click()")
    assert background(tab) == dark
    ink = tab.evaluate("getComputedStyle(document.querySelector('figure svg')).fill")
    assert ink == "rgb(231, 229, 223)"  # letters of figures are light on dark


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_only_boxes_scroll_sideways(tab, width):
    tab.resize(width)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    boxes = "[...document.querySelectorAll('.box')]"
    assert tab.evaluate(f"{boxes}.every(box => box.getBoundingClientRect().right <= {width})")


def test_tables_fit_a_phone_and_name_their_columns(tab):
    tab.resize(390)
    boxes = "[...document.querySelectorAll('.box:has(table), #figure-radar .box')]"
    assert tab.evaluate(f"{boxes}.length") >= 6
    wide = f"{boxes}.filter(box => box.scrollWidth > box.clientWidth)"
    assert tab.evaluate(f"{wide}.map(box => box.ariaLabel)") == []
    cell = "document.querySelector('.returns td:nth-child(3)')"
    assert tab.evaluate(f"getComputedStyle({cell}, '::before').content") == '"seeds"'
