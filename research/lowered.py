"""Lower PE-DQN's training step for a GPU, on any machine: did a change touch the GPU's program?

    PYTHONPATH=BEFORE/src python research/lowered.py memory_len/22 > before
    PYTHONPATH=src python research/lowered.py memory_len/22 > after
    diff before after

The output is a line for each kernel, a hash of its code and arguments without the names of values,
and how often each operation of XLA occurs.
"""

import hashlib
import re
import sys
from collections import Counter

import jax

jax.default_backend = lambda: "gpu"  # PE-DQN then chooses its kernels

from winkel.runs.spec import make_spec, make_task  # noqa: E402
from winkel.training import compiled  # noqa: E402
from winkel.training.steps import make_jobs  # noqa: E402

LANES, STEPS = 4, 3


def lower(env: str) -> str:
    """The text of some steps in some lanes."""
    task = make_task(env)
    run = make_spec(task, "pe_dqn", {}, episodes=100)
    jobs = make_jobs([run.plan()] * LANES, run.agent.spec, masked=False)
    states = jax.eval_shape(lambda jobs: compiled.begin(run.agent, task.env, jobs), jobs)

    def advance(jobs, states):
        return compiled.advance(run.agent, task.env, jobs, states, num_steps=STEPS, learning=True)

    traced = jax.jit(advance).trace(jobs, states)
    return traced.lower(lowering_platforms=("cuda",)).as_text()


if __name__ == "__main__":
    text = lower(sys.argv[1])
    for line in text.splitlines():
        if "gpu.triton" in line:
            plain = re.sub(r"%\S+", "", line)
            print("kernel", hashlib.sha256(plain.encode()).hexdigest()[:12])
    for operation, count in sorted(Counter(re.findall(r"stablehlo\.\w+", text)).items()):
        print(operation, count)
