"""Sweeps whose experiments share programs: each run is as if it were alone."""

import json

import numpy as np
import pytest

import winkel
from winkel import numpy_policy
from winkel.cli import main
from winkel.envs.registry import FAMILIES, make, parse
from winkel.errors import InputError
from winkel.runs.results import read_metrics, read_results
from winkel.runs.spec import Options
from winkel.runs.sweep import (
    bsuite_envs,
    choose_lanes,
    group_runs,
    remaining_groups,
    run_sweep,
)

TINY = {"hidden": (4,), "num_atoms": 3, "batch_size": 2, "burn_in": 8, "capacity": 16}
OPTIONS = Options(chunk_steps=20, checkpoint_seconds=0.0, evaluate_every=3)
ENVS = ("catch/0", "memory_size/16", "umbrella_distract/2", "memory_len/9", "umbrella_length/13")
FOLDERS = {env: env.replace("/", "/qr_dqn/") + "/seed-0" for env in ENVS}


def packed(**others):
    settings = {"envs": ENVS, "agents": ("qr_dqn",), "seeds": (0,), "episodes": 6, "packed": True}
    return settings | {"fields": TINY} | others


def sweep(what, out, resume=False, options=OPTIONS, **others):
    groups, ended = remaining_groups(group_runs(**what, options=options), out, resume)
    return run_sweep(what, groups, out, before=ended.total(), **others)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("packed")
    return out, sweep(packed(), out)


def contents(out):
    return {env: (out / folder / "episodes.npz").read_bytes() for env, folder in FOLDERS.items()}


def test_few_programs_hold_all_of_bsuite(tmp_path, monkeypatch):
    experiments = [name for name in winkel.envs.EXPERIMENTS if not name.startswith("mnist")]
    what = packed(envs=bsuite_envs(experiments), episodes=None)
    groups, _ = remaining_groups(group_runs(**what, options=OPTIONS), tmp_path, False, write=False)
    assert {group.name.split()[-1]: len(group.runs) for group in groups} == {
        "long": 186, "short": 100, "bandits": 60, "chains": 20,
        "deep-sea-30": 22, "deep-sea-50": 20,
    }  # fmt: skip
    for group in groups:
        steps = [run.max_steps for run in group.runs]
        assert steps == sorted(steps, reverse=True)
        for run in group.runs[::17]:
            assert run.max_steps == run.task.num_episodes * run.task.longest_episode


def test_runs_end_with_the_facts_of_their_own_family(whole):
    out, outcome = whole
    assert list(outcome["runs"].values()) == [5, 0, 0]
    assert not read_results(out).problems
    for env, folder in FOLDERS.items():
        run = winkel.load(out / folder).runs[0]
        facts = FAMILIES[parse(env)[0].family].facts
        assert set(run.episodes) == {"return", "length", "env_steps", *facts}
        assert len(run.episodes["return"]) == 6
        assert run.episodes["length"].max() == make(env).longest_episode
        assert run.evaluations["evaluation"][-1] == 2


def test_what_a_packed_run_learned_is_of_its_own_actions_and_observations(whole):
    out, _ = whole
    for env, folder in FOLDERS.items():
        run, task = winkel.load(out / folder).runs[0], make(env)
        obs = np.ones(task.env.observation.shape)
        found = run.estimates(obs)
        assert found.value.shape == found.bonus.shape == (task.env.num_actions,)
        assert found.members.locations.shape == (1, task.env.num_actions, 3)
        assert 0 <= run.policy()(obs) < task.env.num_actions
        wide = np.zeros(run.agent.spec.observation.shape)
        wide[: obs.size] = 1.0
        np.testing.assert_array_equal(run.estimates(wide).value, found.value)
        with pytest.raises(InputError, match="need an observation of shape"):
            run.estimates(np.ones(1_000))


def test_the_policy_file_of_a_packed_run_is_for_its_own_environment(whole, tmp_path):
    out, _ = whole
    for env, folder in FOLDERS.items():
        run, task = winkel.load(out / folder).runs[0], make(env)
        run.export_policy(tmp_path / "policy.npz")
        policy = numpy_policy.load(tmp_path / "policy.npz")
        assert policy.num_actions == task.env.num_actions
        batch = np.random.default_rng(0).normal(size=(50, *task.env.observation.shape))
        actions = policy(batch).tolist()
        assert actions == [run.policy()(obs) for obs in batch] == run.policy()(batch).tolist()


def test_a_config_tells_the_shape_of_its_pack(whole):
    out, _ = whole
    config = json.loads((out / FOLDERS["catch/0"] / "config.json").read_text())
    assert config["packed"] == {"pack": "short", "inputs": 103, "actions": 3}
    config = json.loads((out / FOLDERS["memory_len/9"] / "config.json").read_text())
    assert config["packed"] == {"pack": "long", "inputs": 23, "actions": 3}


def test_a_packed_run_is_not_resumed_otherwise(whole):
    out, _ = whole
    before = contents(out)
    with pytest.raises(InputError, match=r"packed is .*'long'.* there and 'missing' here"):
        sweep(packed(packed=False, envs=("memory_len/9",)), out, resume=True)
    assert contents(out) == before


@pytest.mark.parametrize("stop", [1, 3])
def test_interrupted_it_goes_on_to_the_same_records_in_other_company(whole, tmp_path, stop):
    calls = []

    def interrupt(group, statuses):
        calls.append(group)
        if len(calls) == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(packed(), tmp_path, progress=interrupt)
    (outcome,) = read_metrics(tmp_path / "sweeps.jsonl")
    assert outcome["status"] == "interrupted"
    assert sum(group["updates"] for group in outcome["groups"]) > 0
    sweep(packed(envs=("catch/0",)), tmp_path, resume=True)
    sweep(packed(), tmp_path, resume=True)
    ours, theirs = (
        {env: winkel.load(root / folder).runs[0].episodes for env, folder in FOLDERS.items()}
        for root in (tmp_path, whole[0])
    )
    for env in ENVS:
        for name, values in theirs[env].items():
            np.testing.assert_allclose(ours[env][name], values, rtol=1e-5)


def test_a_sweep_tells_what_it_took(whole):
    out, outcome = whole
    row = json.loads((out / "sweeps.jsonl").read_text().splitlines()[-1])
    assert row["packed"]
    assert row["programs"] == sum(group["programs"] for group in row["groups"]) > 0
    assert row["compiling"] > 0
    names = {group["group"]: group for group in row["groups"]}
    assert names.keys() == {"qr_dqn in short", "qr_dqn in long"}
    assert names["qr_dqn in short"]["runs"] == 3
    logs = {env: read_metrics(out / folder / "metrics.jsonl") for env, folder in FOLDERS.items()}
    updates = {env: rows[-1]["updates"] for env, rows in logs.items()}
    assert row["updates"] == {env.split("/")[0]: updates[env] for env in row_order(updates)}
    assert sum(group["updates"] for group in row["groups"]) == sum(updates.values())
    for group in outcome["groups"]:
        assert 0 < group["device"] + group["compiling"] < group["seconds"]


def row_order(updates):
    return sorted(updates, key=lambda env: -updates[env])


def test_metrics_may_be_written_for_some_chunks_only(tmp_path):
    options = Options(chunk_steps=20, log_every=2, checkpoint_seconds=1e9)
    sweep(packed(envs=("discounting_chain/1",)), tmp_path, options=options)
    rows = read_metrics(tmp_path / "discounting_chain/qr_dqn/1/seed-0/metrics.jsonl")
    updates = [row["updates"] for row in rows]
    assert updates[:-1] == list(range(40, updates[-1], 40))
    assert rows[-1]["episodes"] == 6


def test_equal_settings_are_different_runs_and_the_first_is_that_of_its_name(tmp_path):
    assert [make(f"catch_noise/{n}").copy for n in (0, 1, 3, 4, 6)] == [0, 1, 3, 0, 2]
    assert [make(env).copy for env in ("catch", "catch/0", "catch/7")] == [0, 0, 7]
    assert {make(f"deep_sea/{n}").copy for n in range(21)} == {0}
    sweep(packed(envs=("catch/0", "catch/1", "catch/2")), tmp_path)
    alone = winkel.train("catch/1", "qr_dqn", episodes=6, **TINY).runs[0].episodes
    runs = [winkel.load(tmp_path / f"catch/qr_dqn/{n}/seed-0").runs[0] for n in range(3)]
    returns = {tuple(run.episodes["return"]) for run in runs}
    assert len(returns) == 3
    first = winkel.train("catch", "qr_dqn", episodes=6, **TINY).runs[0].episodes
    same = winkel.train("catch/0", "qr_dqn", episodes=6, **TINY).runs[0].episodes
    np.testing.assert_array_equal(first["return"], same["return"])
    assert tuple(alone["return"]) != tuple(first["return"])


def test_lanes_are_as_many_as_fit(tmp_path, monkeypatch):
    (group,) = group_runs(**packed(envs=bsuite_envs(["catch"])), options=OPTIONS)
    assert choose_lanes(group, None) == 8  # on a CPU
    assert choose_lanes(group, 300) == 20
    monkeypatch.setattr("winkel.runs.sweep.lane_bytes", lambda *_: 10)
    monkeypatch.setattr("winkel.runs.sweep.device_memory", lambda: 58)
    assert choose_lanes(group, None) == 5  # nine tenths of the memory
    assert choose_lanes(group, 7) == 7
    monkeypatch.setattr("winkel.runs.sweep.device_memory", lambda: 1)
    assert choose_lanes(group, None) == 1


def test_packs_are_of_bsuite(tmp_path, capsys):
    with pytest.raises(SystemExit) as error:
        main(["sweep", "deep-sea", "--pack", "--out", str(tmp_path)])
    assert error.value.code == 2
    assert "need --pack for bsuite, got it for deep-sea" in capsys.readouterr().err


def test_the_command_packs_and_tells(tmp_path, capsys):
    main(
        [*("sweep", "bsuite", "--experiments", "discounting_chain", "--agents", "qr_dqn"),
         *("--episodes", "1", "--hidden", "4", "--num-atoms", "3", "--batch-size", "2", "--pack"),
         *("--burn-in", "8", "--capacity", "16", "--out", str(tmp_path), "--lanes", "5")]
    )  # fmt: skip
    output = capsys.readouterr().out
    assert "20 runs in 1 programs" in output
    assert "qr_dqn in chains" in output
    assert "updates: discounting_chain " in output
    assert "compiled " in output
    assert "finished 20, failed 0" in output
