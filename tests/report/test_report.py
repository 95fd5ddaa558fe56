"""The page: complete, honest about gaps, self-contained, well-formed, escaped, reproducible."""

import re
from html.parser import HTMLParser
from urllib.parse import unquote

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats

from report.synthetic import SEEDS, deep_sea, official, save
from winkel.envs.registry import parse
from winkel.figures import style
from winkel.report.page import number, svg_of, write_report
from winkel.report.tables import return_rows
from winkel.runs.results import read_results

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
    path, *_ = write_report(runs, runs.parent / "out")
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
    assert re.search(
        r"deep_sea:size=5: of \d+ pairs of setting and seed some agents have fewer", text
    )
    assert page.index('id="problems"') < page.index('id="claims"')


def test_hostile_text_is_escaped(page):
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&#34;&#39;" in page
    assert page.count("<script>") == 1


def test_what_is_there_and_what_is_missing(parsed):
    text = text_of(parsed)
    assert "untested" in text
    assert "needs deep_sea by dltv; deep_sea by dltv_no_prior" in text
    assert "no data (no statistic runs)" in text
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


def test_numbers_are_written_for_readers():
    assert [number(x) for x in (float("nan"), float("inf"), -0.5)] == ["–", "∞", "−0.50"]
    assert number(12345.6, 0) == "12,346"


def test_a_picture_has_ids_and_colours_of_its_own():
    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([0, 1], "o", color=style.INK)
    made = svg_of(lambda: figure, "one", "A <figure>")
    ids = re.findall(r'\bid="([^"]*)"', made)
    used = re.findall(r'(?:url\(|href=")#([^")]*)', made)
    assert len(set(ids)) == len(ids)
    assert set(used) <= set(ids)
    assert used
    assert all(found.startswith("one-") for found in ids)
    assert made.startswith('<svg role="img" style="--natural:96px" ')
    assert "<title>A &lt;figure&gt;</title>" in made
    assert "fill: var(--ink)" in made
    assert "metadata" not in made


def test_figures_are_inline(page, parsed):
    assert parsed.names.count("figure") >= 2
    assert 'id="figure-regret"' in page
    assert 'id="figure-radar"' in page


def test_same_runs_same_bytes(runs, page):
    path, *_ = write_report(runs, runs.parent / "out")
    assert path.read_text() == page


def test_no_problems(tmp_path):
    deep_sea(tmp_path / "runs", "pe_dqn", 5, [2])
    path, _, counts = write_report(tmp_path / "runs", tmp_path / "out")
    assert "No problems: every run has ended well" in path.read_text()
    assert not counts  # one agent is compared with no other


def test_returns_of_any_environment_lead_and_claims_need_runs_to_judge(tmp_path):
    greedy = {0: [[10.0, 20.0], [40.0, 60.0], [30.0, 30.0]], 1: [[50.0, 50.0], [70.0, 70.0]]}
    for seed, returns in greedy.items():
        episodes = {
            "return": np.append(np.zeros(54), np.full(6, 100.0 + 10 * seed)),
            "length": np.full(60, 20 + seed),
            "goal": np.arange(60) >= 20 + 2 * seed,
        }
        at = 20 * np.arange(1, len(returns) + 1)
        evaluations = {"returns": np.array(returns), "episodes": at, "env_steps": 20 * at}
        save(tmp_path / "runs", "gym:Maze-v0", "dqn", seed, episodes, evaluations)
    save(
        tmp_path / "runs",
        "gym:Maze-v0",
        "random",
        0,
        {"return": np.full(1, 1.5), "length": np.full(1, 9)},
    )
    path, rows, _ = write_report(tmp_path / "runs", tmp_path / "out")
    dqn, random = rows
    assert (dqn["env"], dqn["agent"], dqn["seeds"]) == ("gym:Maze-v0", "dqn", 2)
    assert dqn["episodes"] == [60, 60]
    assert dqn["steps"] == [1200, 1260]
    reach = stats.t.ppf(0.975, 1) * 5  # means 100 and 110 of the last six episodes
    np.testing.assert_allclose(dqn["final"], (105, 105 - reach, 105 + reach))
    assert dqn["last"].estimate == 50  # of 30 and 70
    assert dqn["best"].estimate == 60  # of 50 and 70
    assert dqn["first"] == (22, 21.5, 22.5)
    assert random["final"].estimate == 1.5
    assert random["last"] is random["first"] is None
    page = path.read_text()
    assert page.index('id="results"') < page.index('id="figure-learning-curves"')
    assert page.index('id="figure-learning-curves"') < page.index('id="claims"')
    for cell in ("105 ± 64", "50 ± 254", "1,200–1,260", "22 <small>[22, 22]</small>"):
        assert cell in page
    assert "can be judged on these runs" in page
    for absent in ("untested", 'id="scores"', 'id="deep-sea"', "Reproduction"):
        assert absent not in re.sub("<style>.*?</style>", "", page, flags=re.DOTALL)


def test_settings_of_bsuite_share_a_row(tmp_path):
    for index, scale in ((0, 0.001), (16, 1000.0)):
        for seed in range(2):
            episodes = {"return": scale * np.full(9, 2.0 + seed), "length": np.full(9, 9)}
            env = f"catch_scale/{index}"
            save(tmp_path / "runs", env, "dqn", seed, episodes, setting=parse(env)[1])
    (row,) = return_rows(read_results(tmp_path / "runs"))
    assert (row["env"], row["settings"], row["seeds"]) == ("catch_scale", 2, 2)
    np.testing.assert_allclose(row["final"].estimate, 2.5)
