"""Where the time of a step goes: kernels of one chunk on an accelerator, by their share.

python benchmarks/profile.py --agent pe_dqn --env cartpole/0 --lanes 256 [--hlo FILE]
"""

import argparse
import tempfile
from collections import defaultdict
from pathlib import Path

import jax

from winkel.envs.registry import make
from winkel.runs.spec import configure
from winkel.training import compiled
from winkel.training.compiled import CompiledWorld
from winkel.training.lanes import Lanes, Plan
from winkel.training.steps import Horizon


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agent", default="pe_dqn")
    parser.add_argument("--env", default="cartpole/0")
    parser.add_argument("--lanes", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--top", type=int, default=40)
    parser.add_argument("--hlo", type=Path, help="write the compiled program there")
    options = parser.parse_args()
    task = make(options.env)
    configured = configure(options.agent, {}, task)
    plans = [
        Plan(task.params, configured.hyper, Horizon(episodes=100_000), seed=seed)
        for seed in range(options.lanes)
    ]
    world = CompiledWorld(task.env)
    lanes = Lanes(configured.agent, world, plans, options.lanes, chunk_steps=options.steps)
    lanes.advance()
    if options.hlo:
        arguments = (lanes.agent, world.env, *lanes.rows[0].state)
        lowered = compiled.advance.lower(*arguments, num_steps=options.steps, learning=True)
        options.hlo.write_text(lowered.compile().as_text())
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            lanes.advance()
        spent = by_kernel(next(Path(folder).rglob("*.xplane.pb")))
    whole = sum(time for time, _, _ in spent.values())
    print(f"{options.agent}, {options.env}, {options.lanes} lanes: {jax.devices()[0].device_kind}")
    print(f"{whole / options.steps / 1e6:.3f} ms a step in kernels")
    for name, (time, count, where) in sorted(spent.items(), key=lambda x: -x[1][0])[: options.top]:
        share = time / options.steps / 1e6
        print(f"{share:8.4f} ms {count / options.steps:6.1f}x  {name[:60]:60} {where[:120]}")


def by_kernel(path: Path) -> dict[str, tuple[float, int, str]]:
    """Nanoseconds, launches and origin of each kernel on the accelerator."""
    spent: dict[str, tuple[float, int, str]] = defaultdict(lambda: (0.0, 0, ""))
    for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
        if not plane.name.startswith("/device:"):
            continue
        for line in plane.lines:
            if not line.name.startswith("Stream"):
                continue
            for event in line.events:
                stats = dict(event.stats)
                name = event.name
                time, count, where = spent[name]
                where = where or str(stats.get("name", ""))
                spent[name] = (time + event.duration_ns, count + 1, where)
    return spent


if __name__ == "__main__":
    main()
