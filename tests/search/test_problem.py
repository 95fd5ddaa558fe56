"""Spaces: the paper's as data, others as files; what is wrong with one is said in a line."""

import math

import numpy as np
import pytest

from search.tiny import problem
from winkel.errors import InputError
from winkel.runs.spec import MAX_SEED, check_seeds
from winkel.runs.train import train
from winkel.search.problem import (
    FIRST_SEED,
    PAPER_SPACES,
    Problem,
    count_values,
    find_score,
    find_space,
    load_problem,
    parse_environment,
    parse_parameter,
    score_episodes,
    to_fields,
)

FILE = """
[[environments]]
id = "deep_sea:size=5"
episodes = 10
[spaces.pe_dqn]
learning_rate = [1e-4, 1e-3]
"""
SIZES = {
    ("bsuite", "pe_dqn"): 3 * 4 * 3 * 2 * 3,
    ("bsuite", "bdqn"): 3 * 4 * 3,
    ("bsuite", "dltv"): 3 * 4 * 3 * 2 * 3,
    ("bsuite", "ids"): (3 * 4 * 3) ** 2 * 2 * 3,
    ("vizdoom", "pe_dqn"): 6 * 3 * 5,
    ("vizdoom", "bdqn"): 6 * 3,
    ("vizdoom", "dltv"): 6 * 3 * 5,
    ("vizdoom", "ids"): 6 * 6 * 3 * 5,
}


def written(tmp_path, text):
    path = tmp_path / "space.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(("name", "agent"), SIZES)
def test_the_papers_spaces(name, agent):
    space = load_problem(name, agent)
    assert space.size() == SIZES[name, agent]
    assert Problem.from_description(space.describe()) == space


def test_the_papers_environments():
    space = load_problem("bsuite", "pe_dqn")
    assert [(w.id, w.episodes, w.score) for w in space.environments] == [
        ("deep_sea/20", 500, "visited"),
        ("deep_sea_stochastic/20", 1500, "visited"),
        ("mountain_car/19", 100, "interactions"),
    ]
    assert space.prune
    assert space.environments[0].milestones() == [100, 200, 300, 400, 500]
    doom = load_problem("vizdoom", "pe_dqn")
    assert (doom.environments[0].id, doom.environments[0].steps) == (
        "doom:my-way-home/sparse",
        5_000_000,
    )
    assert not doom.prune


def test_what_the_paper_found_is_in_its_spaces():
    """The defaults are the paper's settings for bsuite."""
    for agent in ("pe_dqn", "bdqn", "dltv", "ids"):
        of = load_problem("bsuite", agent)
        run = of.runs(0, {})[0]
        settings = {**vars(run.agent.config), **run.hyper._asdict()}
        for name, part in of.parameters.items():
            assert settings[name] in [to_fields({name: v})[name] for v in part.choices]


def test_a_variant_has_its_agents_space():
    found, base = load_problem("bsuite", "pe_dqn_qr_qr"), load_problem("bsuite", "pe_dqn")
    assert found.parameters == base.parameters


@pytest.mark.parametrize("name", PAPER_SPACES)
def test_a_printed_space_can_be_read_again(name, tmp_path):
    path = written(tmp_path, find_space(name).read_text())
    assert load_problem(path, "bdqn") == load_problem(name, "bdqn")


def test_ranges(tmp_path):
    text = FILE + "num_atoms = { low = 5, high = 25, step = 10 }\n"
    space = load_problem(written(tmp_path, text), "pe_dqn")
    assert space.size() == 2 * 3
    assert count_values(parse_parameter("pe_dqn", "beta", {"low": 2.0, "high": 2.0}, "")) == 1
    assert to_fields({"num_atoms": 15, "hidden": "[8, 8]"}) == {"num_atoms": 15, "hidden": (8, 8)}
    text = FILE + "beta = { low = 0.5, high = 50, log = true }\n"
    space = load_problem(written(tmp_path, text), "pe_dqn")
    assert space.size() == math.inf
    assert Problem.from_description(space.describe()) == space


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (FILE + "learning_rat = [1.0]\n", "pe_dqn has no field 'learning_rat'; did you mean"),
        (FILE + "beta = { low = 5, high = 0.5 }\n", "beta: `low <= high` must hold"),
        (FILE + "beta = { low = 0, high = 5, log = true }\n", "beta: `low > 0` must hold"),
        (FILE + "beta = { low = 1, high = 5, steps = 1 }\n", "unknown 'steps'; need low, high"),
        (FILE + "beta = { low = 1 }\n", "need a list, or low and high, for .*beta"),
        (FILE + "beta = 5\n", "need a list, or low and high, for .*beta, got 5"),
        (FILE + "beta = [5.0, 5.0]\n", "need different values for .*beta"),
        (FILE + "num_atoms = { low = 5, high = 7.5 }\n", "whole numbers for .*num_atoms"),
        (FILE + "num_atoms = { low = 5, high = 9, step = 3 }\n", "a multiple of step for .*num_a"),
        (FILE + "num_atoms = { low = 5, high = 9, step = 0 }\n", "num_atoms: `step > 0` must hold"),
        (FILE + "backup = { low = 1, high = 2 }\n", "need a list of values for .*backup"),
        (FILE.replace("episodes = 10", "episodes = 3"), "need episodes of .* >= 5"),
        (
            FILE.replace("episodes = 10", ""),
            "need id, and episodes or steps, of an environment, got",
        ),
        (FILE.replace("pe_dqn", "bdqn"), "has spaces for bdqn, not for pe_dqn"),
        (FILE + "[other]\n", "unknown 'other'; need environments, spaces, prune, preset"),
        ("prune = ", "is not TOML"),
        ("", "has spaces for no agent, not for pe_dqn"),
        ("spaces = 1", "need spaces in .* as dict, got 1"),
        (FILE + "beta = { low = '1', high = 2 }", "need low in .* as int . float, got .1."),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path, text, shown):
    with pytest.raises(InputError, match=shown) as error:
        load_problem(written(tmp_path, text), "pe_dqn")
    assert "\n" not in str(error.value)


def test_the_size_of_a_large_space_takes_no_memory(tmp_path):
    text = FILE + "epsilon_steps = { low = 0, high = 1000000000000000, step = 1 }\n"
    assert load_problem(written(tmp_path, text), "pe_dqn").size() == 2 * (10**15 + 1)


def test_values_of_no_known_kind_are_refused(tmp_path):
    space = load_problem(written(tmp_path, FILE + "beta = [{}, 5.0]\n"), "pe_dqn")
    with pytest.raises(InputError, match=r"need a finite beta >= 0, got '\{\}'"):
        space.check(1)


def test_no_such_space():
    with pytest.raises(InputError, match="from bsuite, vizdoom, or a file, got 'mine'"):
        load_problem("mine", "pe_dqn")
    with pytest.raises(InputError, match="unknown agent 'pe_dqm'"):
        load_problem("bsuite", "pe_dqm")


@pytest.mark.parametrize("text", ["deep_sea/0", "deep_sea/0@", "@9", "a@b", "a@9@b@c", "a@-9"])
def test_environments_of_the_command_line(text):
    with pytest.raises(InputError, match="need ID@EPISODES"):
        parse_environment(text)
    assert parse_environment("mountain_car/0@20@interactions").score == "interactions"


def test_impossible_values_are_refused_before_the_search():
    with pytest.raises(InputError, match="learning_rate > 0, got 0"):
        problem(learning_rate=(1e-3, 0.0))
    with pytest.raises(InputError, match="whole number for each of hidden, got 'wide'"):
        problem(hidden=((8,), "wide"))
    with pytest.raises(InputError, match="need a score from visited"):
        problem("deep_sea:size=5@10@seen")


def test_uncounted_observations_cannot_be_scored_by_visits():
    with pytest.raises(InputError, match="need a score for mountain_car/0"):
        problem("mountain_car/0@10")


def test_fixed_fields_leave_the_space():
    of = problem(learning_rate=(1e-3, 1e-4), hidden=((8,), (16,)))
    assert set(of.parameters) == {"learning_rate", "hidden"}
    assert "hidden" not in of.fields


def test_scores_by_hand(tmp_path, monkeypatch):
    episodes = {
        "return": np.array([0.0, 1.0, 4.0]),
        "length": np.array([7, 9, 2]),
        "visited": np.array([3, 5, 5]),
    }
    assert find_score("visited")(episodes) == 5
    assert find_score("interactions")(episodes) == -18
    assert find_score("final_return")(episodes) == 4
    assert find_score("mean_return")(episodes) == pytest.approx(5 / 3)
    (tmp_path / "own_scores.py").write_text(
        "def longest(episodes):\n    return max(episodes['length'])\ndef bad(e):\n    return 'x'\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert score_episodes("own_scores:longest", episodes) == 9
    with pytest.raises(
        InputError, match="need a finite number from the score own_scores:bad, got 'x'"
    ):
        score_episodes("own_scores:bad", episodes)
    with pytest.raises(InputError, match="'own_scores' has no function 'shortest'"):
        find_score("own_scores:shortest")


def test_no_seed_is_both_tuned_and_reported():
    """The first tuning seed is the first that training refuses."""
    seeds = {run.seed for run in problem(seeds=3).runs(0, {})}
    assert seeds == {FIRST_SEED, FIRST_SEED + 1, FIRST_SEED + 2}
    assert check_seeds([MAX_SEED]) == [FIRST_SEED - 1]
    for seed in seeds:
        with pytest.raises(InputError, match="need each seed <= 2147483647"):
            check_seeds([seed])
    with pytest.raises(InputError, match="need each seed <= 2147483647"):
        train("deep_sea:size=5", seeds=[FIRST_SEED], episodes=5)
