"""Manifests: every run in one shard, the same shards each time, nothing foreign taken for one."""

import json
from collections import Counter

import pytest

from cluster.shards import OPTIONS, sea
from winkel.cluster import manifest as manifests
from winkel.cluster.manifest import planned
from winkel.errors import InputError
from winkel.runs.sweep import Item


@pytest.fixture
def manifest():
    return planned(sea(), OPTIONS, lanes=2, shard_runs=None)


def test_every_run_is_in_one_shard_of_runs_that_go_abreast(manifest):
    runs = Counter(run for shard in manifest.shards for run in shard.runs)
    assert runs == Counter(sea().items())
    assert [len(shard.runs) for shard in manifest.shards] == [2, 2, 1, 2, 2, 1]
    assert {shard.lanes for shard in manifest.shards} == {2}
    assert [{run.env for run in shard.runs} for shard in manifest.shards] == [
        *[{"deep_sea:size=3"}] * 3,
        *[{"deep_sea:size=4"}] * 3,
    ]


def test_a_shard_may_have_a_queue_but_no_idle_lanes():
    assert [len(s.runs) for s in planned(sea(), OPTIONS, 2, 4).shards] == [4, 1, 4, 1]
    fewer = planned(sea(), OPTIONS, lanes=None, shard_runs=3).shards
    assert [(len(s.runs), s.lanes) for s in fewer] == [(3, 3), (2, 3)] * 2
    with pytest.raises(InputError, match=r"shard-runs >= --lanes.* got 1 and 2"):
        planned(sea(), OPTIONS, lanes=2, shard_runs=1)
    with pytest.raises(InputError, match="shard_runs >= 1"):
        planned(sea(), OPTIONS, lanes=2, shard_runs=0)


def test_identities_are_stable_and_tell_runs_and_lanes_apart(manifest):
    again = planned(sea(), OPTIONS, lanes=2, shard_runs=None)
    assert again.id == manifest.id
    more = planned(sea(seeds=(0, 1, 2, 3, 4, 5)), OPTIONS, lanes=2, shard_runs=None)
    assert more.shards[0] == manifest.shards[0]
    assert more.id != manifest.id
    others = [
        planned(sea(episodes=13), OPTIONS, lanes=2, shard_runs=None),
        planned(sea(), OPTIONS, lanes=1, shard_runs=2),
    ]
    ids = {m.shards[0].id for m in (manifest, *others)}
    assert len(ids) == 3


def test_what_is_written_is_read_again(manifest, tmp_path):
    path = tmp_path / "manifest.json"
    manifest.write(path)
    assert manifests.read(path) == manifest
    assert manifests.read(path).shard(0).runs[0] == Item("deep_sea:size=3", "dqn", 0)
    with pytest.raises(InputError, match="from 0 to 5, got 6"):
        manifest.shard(6)


def change(path, **entries):
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"winkel": "0.0.1"}, r"has winkel '0.0.1', this winkel is .*; use the version"),
        ({"format": 99}, "has format 99"),
        ({"deterministic": True}, "was changed"),
        ({"sweep": {"envs": []}}, "damaged"),
        ({"shards": [{"id": 1}]}, "damaged"),
    ],
)
def test_manifests_of_others_are_refused(manifest, tmp_path, entries, message):
    path = tmp_path / "manifest.json"
    manifest.write(path)
    change(path, **entries)
    with pytest.raises(InputError, match=message):
        manifests.read(path)


def test_what_is_no_manifest_is_said_to_be_none(tmp_path):
    path = tmp_path / "manifest.json"
    with pytest.raises(InputError, match="no such file"):
        manifests.read(path)
    with pytest.raises(InputError, match="cannot read"):
        manifests.read(tmp_path)
    for text, message in (("{", "not JSON"), ("[]", "no manifest"), ("{}", "no manifest")):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            manifests.read(path)
