"""The page: complete, honest about gaps, self-contained, well-formed, escaped, reproducible."""

import re
from html.parser import HTMLParser
from urllib.parse import unquote

import numpy as np
import pytest

from report.synthetic import SEEDS, deep_sea, official, save
from winkel.report.page import inline, number, write_report

VOID = {"meta", "link", "wbr", "br"}
HOSTILE = "<script>alert(1)</script>&\"'"


class Parsed(HTMLParser):
    """Elements, ids and links; raises where an end does not match its start."""

    def __init__(self, page):
        super().__init__()
        self.open, self.ids, self.links, self.names, self.text = [], [], [], [], []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.note(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.note(tag, attrs)

    def note(self, tag, attrs):
        self.names.append(tag)
        for key, value in attrs:
            if key == "id":
                self.ids.append(value)
            if key in ("href", "src", "xlink:href", "action", "data", "poster", "srcset"):
                self.links.append(value)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs") / "some runs"
    deep_sea(root, "pe_dqn", 5, [2, 3, 3, 4, 20])
    deep_sea(root, "bdqn", 5, [5] * SEEDS, config={"num_members": 20, "hidden": [7, 7]})
    deep_sea(root, "pe_dqn_ind", 5, [9] * (SEEDS - 1))
    for seed in range(3):
        for index in (0, 1):
            official(root, "deep_sea", index, "pe_dqn", seed, 0.5)
            official(root, "deep_sea", index, "bdqn", seed, 0.95)
    (root / "deep_sea" / "pe_dqn" / "size=5" / "seed-7" / "checkpoint").mkdir(parents=True)
    nothing = {"return": np.zeros(0), "length": np.zeros(0, int)}
    save(root, "catch/0", "pe_dqn", 0, nothing, status="failed", reason=HOSTILE)
    return root


@pytest.fixture(scope="module")
def page(runs):
    path, _ = write_report(runs, runs.parent / "out")
    return path.read_text()


@pytest.fixture(scope="module")
def parsed(page):
    return Parsed(page)


def text_of(parsed):
    return " ".join("".join(parsed.text).split())


def test_the_page_is_well_formed(page, parsed):
    assert page.startswith("<!DOCTYPE html>\n<html lang=")
    assert len(parsed.ids) == len(set(parsed.ids))
    assert {f"#{i}" for i in parsed.ids} >= {u for u in parsed.links if u.startswith("#")}
    used = set(re.findall(r"url\(#([^)]+)\)", page))
    assert used <= set(parsed.ids)


def test_nothing_is_asked_from_elsewhere(page, parsed):
    outside = [u for u in parsed.links if not u.startswith(("#", "data:", "../some%20runs/"))]
    assert outside == []
    assert not {"iframe", "object", "embed", "img", "base"} & set(parsed.names)
    assert "@import" not in page
    assert "//" not in re.sub(r"</?[a-z][^>]*>", "", page).replace("// unknown last", "")
    assert "default-src 'none'" in page


def test_links_lead_to_records(runs, parsed):
    links = [unquote(u) for u in parsed.links if u.startswith("../")]
    assert links
    for link in links:
        assert (runs.parent / "out" / link).exists(), link
    assert any(link.endswith("/episodes.npz") for link in links)


def test_problems_come_first(page, parsed):
    text = text_of(parsed)
    assert "deep_sea/pe_dqn/size=5/seed-7: unfinished" in text
    assert "catch/pe_dqn/0/seed-0: failed, <script>" in text
    assert "deep_sea:size=5: agents have different seeds" in text
    assert page.index('id="problems"') < page.index('id="claims"')


def test_hostile_text_is_escaped(page):
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&#34;&#39;" in page
    assert page.count("<script>") == 1


def test_what_is_there_and_what_is_missing(parsed):
    text = text_of(parsed)
    assert "untested" in text
    assert "needs deep_sea by dltv, dltv_no_prior" in text
    assert "no data (no vizdoom runs)" in text
    assert "regret_ratio" not in text
    assert "hidden 7,7" in text
    assert "runs that failed1, listed" in text
    assert "winkel report" in text


def test_numbers_of_the_deep_sea_table(page):
    section = page[page.index('id="deep-sea"') : page.index('id="figures"')]
    rows = section.split("<tr>")
    row = next(r for r in rows if "extension</td>" in r and "PE-DQN<" in r)
    cells = [re.sub("<[^>]+>", "", c) for c in re.findall(r"<td[^>]*>(.*?)</td>", row)]
    assert cells[0] == "5"
    assert cells[2] == "4/5 [0.38, 0.96]"  # Wilson, 95 %
    assert cells[3] == "4 [4, 5]"  # first goals 3, 4, 4, 5, never
    assert cells[4] == "3 [3, 4]"
    assert cells[5] == "1"
    assert cells[6] == "20"


def test_numbers_and_pictures():
    assert [number(x) for x in (float("nan"), float("inf"), -0.5)] == ["–", "∞", "−0.50"]
    assert number(12345.6, 0) == "12,346"
    svg = (
        '<?xml version="1.0"?>\n<svg width="72pt" viewBox="0 0 72 72" id="s"><metadata>x</metadata>'
        '<defs><path id="a"/></defs><use xlink:href="#a" clip-path="url(#a)" '
        'style="fill: #222222"/></svg>\n'
    )
    made = inline(svg, "one", "A <figure>")
    for part in ('id="one-a"', 'href="#one-a"', "url(#one-a)", "fill: var(--ink)", "natural:96px"):
        assert part in made
    assert "A &lt;figure&gt;" in made
    assert "metadata" not in made


def test_figures_are_inline(page, parsed):
    assert parsed.names.count("figure") >= 2
    assert 'id="figure-regret"' in page
    assert 'id="figure-radar"' in page


def test_same_runs_same_bytes(runs, page):
    path, _ = write_report(runs, runs.parent / "out")
    assert path.read_text() == page


def test_no_problems(tmp_path):
    deep_sea(tmp_path / "runs", "pe_dqn", 5, [2])
    path, counts = write_report(tmp_path / "runs", tmp_path / "out")
    assert "None: every run has ended well" in path.read_text()
    assert set(counts) == {"untested"}
