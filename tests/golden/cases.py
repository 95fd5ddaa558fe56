"""Golden runs: tiny runs of every agent and variant, and a hash of every array that they leave.

Rebuilding code must not change what it computes. Each case trains two seeds side by side with
evaluations and checkpoints, and is reduced to the sorted hashes of all arrays in its folder, so
that renaming a field changes nothing and changing a bit does. `hashes.json` holds them for the
machines named in it: rounding depends on the processor and on the version of XLA.

    python tests/golden/cases.py --write             # all cases, on this machine
    python tests/golden/cases.py --only dqn          # compare the cases of an agent
    python tests/golden/cases.py --only deep_sea     # or those whose name contains this
"""

import argparse
import hashlib
import json
import os
import platform
import re
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
)
sys.path.insert(0, str(Path(__file__).parents[1]))  # for simulators.worlds

import jax

import winkel
from winkel.agents import AGENTS, VARIANTS
from winkel.runs.spec import Options
from winkel.runs.sweep import group_runs, remaining_groups, run_sweep

HASHES = Path(__file__).with_name("hashes.json")
TINY: dict[str, Any] = {
    "hidden": (8,), "batch_size": 8, "burn_in": 16, "capacity": 48, "num_atoms": 5,
    "num_members": 3, "c51_hidden": (8,), "z_min": -1.0, "z_max": 2.0,
}  # fmt: skip
"""Fields that make an agent small; an agent takes those that it has."""
OPTIONS = Options(chunk_steps=20, checkpoint_seconds=0.0, evaluate_every=10, snapshots=3)
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "deep_sea:size=4": {"episodes": 25},
    "catch/0": {"episodes": 12},
    "gym:CartPole-v1": {"steps": 120, "num_envs": 2, "workers": 0},
}
"""One-hot observations, dense ones, and a simulator."""
PACKED = ("memory_size/16", "umbrella_distract/2")
"""Settings of two experiments that share one program."""
STREAMS = {"n_step": 3, "priority_exponent": 0.5, "clip_norm": 0.5}
IMAGES = "simulators.worlds:Frames"
SPECIAL: dict[str, tuple[str, str, dict[str, Any]]] = {
    "pe_dqn streams": ("deep_sea:size=4", "pe_dqn", {**STREAMS, "epsilon": 0.1}),
    "pe_dqn learned reward": (
        "catch/0",
        "pe_dqn",
        {"intrinsic_reward": "learned", "normalise_intrinsic": True, "average_bonus": True,
         "episodic_bonus": False, "distance": "grid", "huber_width": 1.0, "beta_final": 0.5},
    ),
    "bdqn masks": ("catch/0", "bdqn", {"mask_probability": 0.5, "double": True, **STREAMS}),
    "c51 queue": ("deep_sea:size=4", "c51", {"seeds": 3, "lanes": 2, "epsilon_steps": 50.0}),
    "pe_dqn images": (
        IMAGES,
        "pe_dqn",
        {"channels": 1, "steps": 60, "num_envs": 2, "workers": 0, "normalise_intrinsic": True,
         "evaluate_every": None, **STREAMS},
    ),
    "ids simulator streams": ("gym:CartPole-v1", "ids", {**STREAMS, "double": True}),
}  # fmt: skip
"""Settings beyond the defaults, by the name of the case: environment, agent, fields."""


def case_names() -> list[str]:
    """All cases, `AGENT ENVIRONMENT` or a special name."""
    agents = [*AGENTS, *VARIANTS]
    plain = [f"{agent} {env}" for agent in agents for env in [*ENVIRONMENTS, "packed"]]
    return [*plain, *SPECIAL]


def fields_of(agent: str) -> dict[str, Any]:
    """The entries of `TINY` that an agent has."""
    kind = AGENTS[agent if agent in AGENTS else VARIANTS[agent][0]]
    known = {*kind.config_type.__dataclass_fields__, *kind.hyper_type._fields}
    return {name: value for name, value in TINY.items() if name in known}


def run_case(name: str, out: Path) -> list[str]:
    """Make the runs of a case and return the sorted hashes of the arrays that they leave."""
    agent, _, where = name.partition(" ")
    if where == "packed":
        sweep = dict(
            envs=PACKED, agents=(agent,), seeds=(0,), episodes=6, packed=True,
            fields={k: v for k, v in fields_of(agent).items() if k not in ("z_min", "z_max")},
        )  # fmt: skip
        groups, _ = remaining_groups(group_runs(**sweep, options=OPTIONS), out, False)
        run_sweep(sweep, groups, out)
        return hash_arrays(out)
    env, agent, fields = SPECIAL.get(name, (where, agent, {}))
    settings: dict[str, Any] = {"seeds": 2, "options": OPTIONS, **ENVIRONMENTS.get(env, {})}
    winkel.train(env, agent, out=out, **(settings | fields_of(agent) | without_options(fields)))
    return hash_arrays(out)


def without_options(fields: dict[str, Any]) -> dict[str, Any]:
    """Turn `evaluate_every` among the fields into options."""
    rest = {name: value for name, value in fields.items() if name != "evaluate_every"}
    if "evaluate_every" in fields:
        rest["options"] = Options(chunk_steps=20, checkpoint_seconds=0.0, snapshots=3)
    return rest


def hash_arrays(folder: Path) -> list[str]:
    """Short hashes of all arrays in the .npz files and checkpoints below a folder, sorted."""
    hashes = []
    for path in [*folder.rglob("*.npz"), *folder.rglob("*.ckpt")]:
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            hashes += [hashlib.sha256(archive.read(m)).hexdigest()[:8] for m in members]
    return sorted(hashes)


def machine() -> str:
    """What rounding depends on: processor, version of XLA, flags."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*:\s*(.*)", info)
    name = model[1] if model else platform.processor()
    return (
        f"{name}, {os.cpu_count()} cores, jaxlib {jax.lib.__version__}, {os.environ['XLA_FLAGS']}"
    )


def load_hashes() -> dict[str, list[str]]:
    """The recorded hashes of this machine by case; empty for an unknown machine."""
    if not HASHES.exists():
        return {}
    return json.loads(HASHES.read_text()).get(machine(), {})


def difference(recorded: list[str], found: list[str]) -> str | None:
    """One line on what differs, None if nothing does."""
    lost, new = Counter(recorded) - Counter(found), Counter(found) - Counter(recorded)
    if not lost and not new:
        return None
    return f"{lost.total()} of {len(recorded)} arrays are gone or changed, {new.total()} are new"


def main() -> None:
    """Write or compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true", help="record instead of comparing")
    parser.add_argument("--only", default="", help="an agent, or a part of the names of cases")
    options = parser.parse_args()
    recorded, failures = load_hashes(), 0
    if not recorded and not options.write:
        sys.exit("no hashes of this machine: python tests/golden/cases.py --write, on old code")
    names = [name for name in case_names() if name.split()[0] == options.only]
    for name in names or (name for name in case_names() if options.only in name):
        if name not in recorded and not options.write:
            print(f"{name}: not recorded on this machine", flush=True)
            continue
        with tempfile.TemporaryDirectory() as out:
            found = run_case(name, Path(out))
        jax.clear_caches()
        told = "written" if options.write else difference(recorded[name], found)
        print(f"{name}: {told or 'equal'} ({len(found)} arrays)", flush=True)
        failures += bool(told) and not options.write
        if options.write:
            recorded[name] = found
            content = json.loads(HASHES.read_text()) if HASHES.exists() else {}
            content[machine()] = recorded
            text = json.dumps(content, indent=1).replace('",\n   "', '", "')
            HASHES.write_text(text + "\n")
    sys.exit(f"{failures} cases differ" if failures else 0)


if __name__ == "__main__":
    main()
