"""The lanes of one program, and the runs of deep sea that go through them."""

# isort: skip_file
# The imports are those of commit aeff97a, which these scripts run on.

import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import variants

from winkel.agents.base import Spec
from winkel.envs.registry import make
from winkel.experiments.config import configure
from winkel.training import device
from winkel.training.lanes import Lanes, Plan
from winkel.training.mesh import described
from winkel.training.programs import Programs
from winkel.training.steps import UNLIMITED, Horizon

LANES = {10: 160, 20: 160, 30: 128, 50: 96}
"""By size, where a setting does not say how many."""
PROGRAMS = Programs(_workers=ThreadPoolExecutor(12))
BEGAN = time.time()


def setup(item: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Task, agent and hyperparameters of a setting."""
    task = make(f"{item['env']}:size={item['size']}")
    static, hyper = item.get("static", {}), item.get("hyper", {})
    if item["agent"] != "variant":
        configured = configure(item["agent"], static | hyper, task)
        return task, configured.agent, configured.hyper
    support = configure("pe_dqn", {}, task).hyper
    values = variants.Hyper(**{"z_min": support.z_min, "z_max": support.z_max} | hyper)
    if "beta_final" not in hyper:
        values = values._replace(beta_final=values.beta)
    config = variants.Config(**{k: tuple(v) if k == "hidden" else v for k, v in static.items()})
    agent = variants.Variant(config, Spec(task.env.observation, task.env.num_actions))
    return task, agent, variants.Hyper(*map(float, values))


class Pool:
    """The lanes of one program and the runs that go through them."""

    def __init__(self, item: dict[str, Any], key: str) -> None:
        self.task, self.agent, _ = setup(item)
        self.key, self.size = key, item["size"]
        self.count = item.get("lanes") or LANES[self.size]
        self.lanes: Lanes | None = None
        self.runs: list[dict[str, Any]] = []
        self.waiting: list[Any] = []
        self.open: set[int] = set()
        self.seconds, self.updates, self.looks, self.moved = 0.0, 0, 0, 0.0

    def add(self, item: dict[str, Any]) -> None:
        """Queue the runs of a setting."""
        task, _, hyper = setup(item)
        horizon = Horizon(episodes=item.get("horizon") or UNLIMITED)
        for seed in item["seeds"]:
            plan = Plan(
                params=task.params,
                hyper=hyper,
                horizon=horizon,
                seed=seed,
                fan_in=item.get("fan_in"),
                stop=Horizon(episodes=item["episodes"]),
            )
            kept = {k: v for k, v in item.items() if k not in ("seeds", "rank", "episodes")}
            kept |= {"budget": item["episodes"], "hyper": hyper._asdict()}
            run = kept | {"seed": seed, "stopped": None}
            run |= {"treasure": [], "seen": [], "greedy": [], "greedy_at": [], "streak_now": 0}
            self.open.add(len(self.runs))
            self.runs.append(run | {"rank": item.get("rank", 0), "lanes": self.count})
            if self.lanes is None:
                self.waiting.append(plan)
            else:
                self.lanes.add(plan)

    def prepare(self) -> None:
        """Start to compile."""
        chunk = 20 * self.size
        self.lanes = Lanes(
            self.agent, self.task.env, self.waiting, self.count, chunk, programs=PROGRAMS
        )
        self.futures = self.lanes.prepare()
        jobs = self.lanes._jobs_of([i % len(self.waiting) for i in range(self.count)])
        states = jax.eval_shape(lambda e, j: device.begin(self.agent, e, j), self.lanes.env, jobs)
        states = jax.tree.map(lambda x: described(x.shape, x.dtype, None), states)
        arguments = (device.evaluate, self.agent, self.lanes.env, jobs, states, jobs.key, 1)
        self.futures.append(PROGRAMS.ahead(*arguments))

    @property
    def rank(self) -> int:
        """Of the most urgent run; 0 goes before 1."""
        return min((self.runs[i]["rank"] for i in list(self.open)), default=0)

    @property
    def fill(self) -> float:
        """Share of the lanes that have a run."""
        return min(len(self.open) / self.count, 1.0)

    def advance(self) -> None:
        """About 20 episodes of every run under way, and one greedy episode."""
        begin = time.time()
        for number in [n for n in self.open if self.runs[n]["stopped"] == "cancelled"]:
            self.open.discard(number)
            self.lanes.release(number)
        reports = self.lanes.advance()
        if not reports:
            return
        lane_of, self.looks = self.lanes.running, self.looks + 1
        greedy = self.lanes.evaluate(list(lane_of.values()), self.looks, 1)
        won = dict(zip(lane_of, greedy[:, 0] > 0.5, strict=True))
        for report in reports:
            run = self.runs[report.plan]
            run.setdefault("began", begin - BEGAN)
            self.updates += self.lanes.chunk_steps
            stop = self._record(run, report)
            if run["stopped"] is None:
                run["greedy"].append(bool(won[report.plan]))
                run["greedy_at"].append(len(run["treasure"]))
            if stop:
                run["ended"] = time.time() - BEGAN
                self.open.discard(report.plan)
                self.lanes.release(report.plan)
        self.seconds += time.time() - begin

    def cancel(self, pattern: str) -> None:
        """Stop the runs of settings whose group, size and name match, before their next chunk."""
        for number in list(self.open):
            run = self.runs[number]
            if re.search(pattern, f"{run['group']} {run['size']} {run['name']}"):
                run["stopped"] = "cancelled"

    def told(self) -> list[dict[str, Any]]:
        """Records of all runs that have begun; those under way are `open`."""
        found = []
        for run in [run for run in list(self.runs) if run["seen"]]:
            count = min(len(run["treasure"]), len(run["seen"]))
            looks = min(len(run["greedy"]), len(run["greedy_at"]))
            cut = {name: run[name][:count] for name in ("treasure", "seen")}
            cut |= {name: run[name][:looks] for name in ("greedy", "greedy_at")}
            now = {"stopped": run["stopped"] or "open", "ended": run.get("ended")}
            kept = {k: v for k, v in run.items() if k not in ("streak_now", "rank")}
            found.append(kept | cut | now)
        return found

    @staticmethod
    def _record(run: dict[str, Any], report: Any) -> bool:
        """Take in a report; whether the run is over.

        With noise the way to the treasure can be missed by chance. bsuite calls such an episode bad
        if the agent left the diagonal by its own choice, and so does `treasure` here.
        """
        stochastic = run["env"] == "deep_sea_stochastic"
        columns = [report.episodes.get("bad" if stochastic else "treasure", [])]
        columns.append(report.episodes.get("seen", []))
        for fact, seen in zip(*columns, strict=True):
            won = bool(fact) != stochastic
            run["treasure"].append(won)
            run["seen"].append(int(seen))
            run["streak_now"] = run["streak_now"] + 1 if won else 0
            if run["streak_now"] >= run["streak"]:
                run["stopped"] = "solved"
                return True
        if report.failure or report.finished:
            run["stopped"] = "failed" if report.failure else "episodes"
        return run["stopped"] is not None
