"""`winkel evaluate` and `winkel rollout`: returns of trained and of fixed policies."""

from pathlib import Path

import tyro

from winkel.analysis.statistics import student_interval
from winkel.commands.options import EnvName, File, RunCode, RunEnv, progress_bar, say
from winkel.envs import make_batch
from winkel.errors import InputError, require_integer
from winkel.files import ensure_folder
from winkel.runs.policies import make_policy, rollout
from winkel.runs.record import RunRecord, save_run
from winkel.runs.results import load
from winkel.runs.spec import MAX_SEED, run_folder, versions
from winkel.training.programs import start_jax


def evaluate(
    path: tyro.conf.Positional[Path],
    env: RunEnv = None,
    code: RunCode = (),
    episodes: int = 100,
    world_seed: int = 0,
    seed: int | None = None,
    policy: File = None,
) -> None:
    """Play greedy episodes of trained agents, and print their returns.

    Args:
        path: Folder of a run, or of several of one agent and environment.
        episodes: Episodes of each run.
        world_seed: Seed of the environments.
        seed: Only this one of several runs.
        policy: Also write the greedy policy of the first run or SEED: FILE.npz, which needs only
            `winkel.numpy_policy`.
    """
    start_jax()
    found = load(path, env)
    one = seed is not None or policy is not None
    for run in (found.of(seed),) if one else found.runs:
        returns = run.evaluate(episodes, world_seed, say)
        mean, low, high = student_interval(returns, 0.95)
        interval = f" (95 % interval {low:.4g} to {high:.4g})" if len(returns) > 1 else ""
        ends = f"from {returns.min():.4g} to {returns.max():.4g}"
        text = f"mean return {mean:.4g}{interval}, {ends}, {len(returns)} episodes"
        say(f"seed {run.config['seed']}: {text}")
        if policy is not None:
            run.export_policy(policy, returns)
            say(f"wrote {policy}")


def run_policy(
    env: EnvName,
    policy: str = "random",
    episodes: int = 100,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Run a fixed policy and print, and if asked keep, every episode.

    Args:
        env: An id (deep_sea/20, deep_sea:size=100) or an experiment (catch: all its settings).
        policy: 'random', or 'action:K' for always action K.
        episodes: Episodes of each setting.
        seed: Seed of the policy and of the environment.
        out: Folder to keep the runs in, for `winkel score` and `winkel export bsuite`.
    """
    require_integer("seed", seed, at_least=0, at_most=MAX_SEED)
    start_jax()
    require_integer("--episodes", episodes, at_least=1)
    batch = make_batch(env)
    act, agent = make_policy(policy, batch.env), policy.replace(":", "-")
    folders: list[Path] = []
    if out is not None:
        ensure_folder(out)
        folders = [run_folder(out, name, agent, seed) for name in batch.ids]
    if taken := [folder for folder in folders if folder.exists()]:
        raise InputError(f"{taken[0]} exists; choose another --out or --seed")
    with progress_bar() as bar:
        shown = bar.add_task(f"{env}, {policy}", total=episodes)
        tables = rollout(batch, act, episodes, seed, lambda n: bar.update(shown, completed=n))
    for name, table in zip(batch.ids, tables, strict=True):
        returns, lengths = table["return"], table["length"]
        say(
            f"{name:32} return {returns.mean():9.3f} ± {returns.std():.3f}   "
            f"length {lengths.mean():8.1f}"
        )
    for number, folder in enumerate(folders):
        config = {"env": batch.ids[number], "agent": agent, "seed": seed, "episodes": episodes}
        config |= {"setting": dict(batch.settings[number]), "versions": versions()}
        save_run(folder, RunRecord(config, tables[number]))
    if folders:
        say(f"kept {len(folders)} runs in {out}")
