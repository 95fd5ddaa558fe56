"""How large weights start, on pictures: PE-DQN's VizDoom settings in a corridor seen by eye.

    python -m benchmarks.starts

Three starts: weights by He et al. and the paper's learning rate (preset `vizdoom`), smaller ones,
and these with ten times the rate (preset `vizdoom-official`). For each tenth of the episodes, the
share that reach the goal; and the largest share of targets outside of the support in a chunk.
About six minutes each on two cores.
"""

import argparse
import tempfile
from pathlib import Path

import gymnasium
import numpy as np

import winkel
from winkel.agents.presets import preset
from winkel.runs.metrics import read_metrics

STARTS = {
    "He": {"he_slope": 0.0},
    "smaller": {"he_slope": 5.0**0.5},
    "smaller, rate × 10": {"he_slope": 5.0**0.5, "learning_rate": 6.25e-4},
}
SETTINGS = {
    "channels": 1, "batch_size": 32, "capacity": 20_000, "burn_in": 2_000, "epsilon_steps": 20_000,
    "target_period": 100, "hidden": (64,),
}  # fmt: skip
"""What a small picture needs, and no more; all else is the preset's."""


class Corridor(gymnasium.Env):
    """Twelve dark walls, one for each place, shifted by where one looks; the goal is the last."""

    PLACES, LOOKS, MOST_STEPS = 12, 4, 60

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (16, 16), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(5)
        walls = np.random.default_rng(0).integers(20, 60, (self.PLACES, 16, 16))
        self.walls = walls.astype(np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(self.PLACES - 1))
        self.look, self.steps = int(self.np_random.integers(self.LOOKS)), 0
        return self._seen(), {}

    def step(self, action):
        self.steps += 1
        if action < 2:
            self.look = (self.look + (1, -1)[action]) % self.LOOKS
        else:
            way = (self.look + {2: 0, 3: 1, 4: 3}[int(action)]) % self.LOOKS
            self.place += {0: 1, 2: -1}.get(way, 0)
            self.place = min(max(self.place, 0), self.PLACES - 1)
        there = self.place == self.PLACES - 1
        reward = (1.0 if there else 0.0) - 1e-4
        return self._seen(), reward, there, self.steps >= self.MOST_STEPS, {}

    def _seen(self):
        return np.roll(self.walls[self.place], 4 * self.look, axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=96_000)
    parser.add_argument("--starts", nargs="*", default=list(STARTS), choices=list(STARTS))
    options = parser.parse_args()
    for start in options.starts:
        fields = preset("vizdoom", "pe_dqn") | SETTINGS | STARTS[start]
        with tempfile.TemporaryDirectory() as out:
            run = winkel.train(
                "benchmarks.starts:Corridor", "pe_dqn", steps=options.steps, num_envs=8, workers=0,
                out=out, **fields,
            ).runs[0]  # fmt: skip
            rows = read_metrics(next(Path(out).rglob("metrics.jsonl")))
        reached = run.episodes["return"] > 0.5
        tenths = " ".join(f"{part.mean():.2f}" for part in np.array_split(reached, 10))
        outside = max(row["clipped"] for row in rows)
        print(f"{start:20s} {tenths}  of {len(reached):,}; outside {outside:.2f}", flush=True)


if __name__ == "__main__":
    main()
