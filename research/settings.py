"""Writes a job for `worker.py`: settings of an agent, as combinations and as single changes.

    python research/settings.py --group scan --sizes 20 30 --grid lr=1e-3,2e-3 --grid beta=0.5,1

`--base` holds for all settings, every `--grid` multiplies them, and `--one` gives settings with one
change each beside the base. Fields are those of `variants.Hyper` (or of the agent's), those of its
`Config` after `--static`, `fan` (the fan-in that first layers are drawn with; N² if not given) and
`dev`, the standard deviation of a prior output: prior_scale = dev · sqrt(fan / 2).
"""

import argparse
import itertools
import json
import math
import sys
from typing import Any

SHORT = {"lr": "learning_rate"}


def main() -> None:
    """The job goes to standard output."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--group", required=True)
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    parser.add_argument("--agent", default="variant")
    parser.add_argument("--env", default="deep_sea", help="or deep_sea_stochastic")
    parser.add_argument("--base", nargs="*", default=[])
    parser.add_argument("--grid", action="append", default=[])
    parser.add_argument("--one", action="append", default=[])
    parser.add_argument("--static", nargs="*", default=[])
    parser.add_argument("--seeds", default="100-109")
    parser.add_argument("--budget", type=float, default=30.0, help="episodes, in units of N")
    parser.add_argument("--episodes", type=int, default=None, help="instead of the budget")
    parser.add_argument("--horizon", type=int, default=None)
    parser.add_argument("--streak", type=int, default=100)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--lanes", type=int, default=None)
    given = parser.parse_args()
    base, static = pairs(given.base), {k: int(v) for k, v in pairs(given.static).items()}
    grid = [choices(text) for text in given.grid]
    combined = [base | dict(chosen) for chosen in itertools.product(*grid)]
    single = [base | dict([pair]) for text in given.one for pair in choices(text)]
    settings = ([] if single and not grid else combined) + single
    low, high = (int(end) for end in given.seeds.split("-"))
    items = [
        {
            "group": given.group,
            "name": named(setting | static, given.agent),
            "agent": given.agent,
            "env": given.env,
            "size": size,
            "seeds": list(range(low, high + 1)),
            "static": static,
            **fields(setting, size),
            "episodes": given.episodes or round(given.budget * size),
            "horizon": given.horizon,
            "streak": given.streak,
            "rank": given.rank,
            "lanes": given.lanes,
        }
        for size in given.sizes
        for setting in settings
    ]
    json.dump(items, sys.stdout)


def pairs(texts: list[str]) -> dict[str, float]:
    """From `name=value` each."""
    return {k: float(v) for k, v in (text.split("=") for text in texts)}


def choices(text: str) -> list[tuple[str, float]]:
    """From `name=value,value`."""
    name, values = text.split("=")
    return [(name, float(value)) for value in values.split(",")]


def named(setting: dict[str, Any], agent: str) -> str:
    """What is not default."""
    told = " ".join(f"{name}={value:g}" for name, value in setting.items())
    return told if agent == "variant" else f"{agent} {told}".strip()


def fields(setting: dict[str, float], size: int) -> dict[str, Any]:
    """Hyperparameters and fan-in at a size."""
    hyper = {SHORT.get(k, k): v for k, v in setting.items() if k not in ("fan", "dev")}
    fan_in = setting.get("fan")
    if "dev" in setting:
        hyper["prior_scale"] = setting["dev"] * math.sqrt((fan_in or size**2) / 2.0)
    return {"hyper": hyper, "fan_in": fan_in}


if __name__ == "__main__":
    main()
