"""`winkel.make_train`: a whole run as a pure function, for `jax.jit` and `jax.vmap`."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from winkel.agents.base import Agent
from winkel.envs.base import Environment, Task
from winkel.envs.jax_task import is_functional
from winkel.envs.registry import is_simulator
from winkel.errors import InputError, require_type
from winkel.extensions import permit
from winkel.runs.spec import RunSpec, configure, make_spec
from winkel.runs.train import make_task
from winkel.runs.worlds import make_world
from winkel.simulators.factories import Factory, identify
from winkel.training.compiled import whole_run
from winkel.training.memory import check_memory
from winkel.training.steps import copy_key, make_jobs
from winkel.types import RunState


class WholeRun(NamedTuple):
    """A run from its first step to its last. Under `jax.vmap`, arrays have a first axis of runs."""

    ended: Array
    """For each step, whether an episode ended with it."""
    sums: dict[str, Array]
    """For each step, sums over its episode so far: `return`, `length` and facts; and `visited`, the
    number of state-actions that the run has visited. Where `ended`, those of a whole episode."""
    metrics: dict[str, Array]
    """For each update, that is for each step after burn-in."""
    state: RunState
    """At the end; `state.learner` is what the agent has learned."""


@dataclass(frozen=True, eq=False)
class PureTrain:
    """A run of an agent in an environment, as a function of a key and of hyperparameters.

    The run of `jax.random.key(seed)` is that of `winkel.train` with this seed.
    """

    spec: RunSpec
    num_steps: int
    """Steps of a run, with burn-in."""

    @property
    def agent(self) -> Agent:
        """The algorithm: its functions take `state.learner`."""
        return self.spec.agent

    @property
    def hyper(self) -> Any:
        """Hyperparameters as plain numbers; replace some of them by `_replace`."""
        return self.spec.hyper

    def __call__(self, key: PRNGKeyArray, hyper: Any = None) -> WholeRun:
        """Make the run of a key, by default with the hyperparameters of `hyper`."""
        check_key(key)
        hyper = self.hyper if hyper is None else hyper
        self._check_hyper(hyper)
        plan, agent = self.spec.plan(), self.agent
        jobs = make_jobs([plan], agent.spec, masked=plan.available is not None)
        job = jax.tree.map(lambda x: x[0], jobs)._replace(
            key=copy_key(key, np.uint32(plan.copy)),
            hyper=jax.tree.map(lambda x: jnp.asarray(x, float), hyper),
        )
        state, (ended, sums, metrics) = whole_run(agent, self.spec.task.env, job, self.num_steps)
        return WholeRun(ended=ended, sums=sums, metrics=metrics, state=state)

    def _check_hyper(self, hyper: Any) -> None:
        """Raise unless these are hyperparameters of the agent, in their ranges if not traced."""
        require_type("hyper", hyper, type(self.hyper), "a tuple such as train.hyper")
        known = {}
        for name, value in hyper._asdict().items():
            if shape := np.shape(value):
                raise InputError(f"need one {name}, and jax.vmap for several, got shape {shape}")
            if not isinstance(value, jax.core.Tracer):
                known[name] = np.asarray(value).item()
        configure(self.spec.algorithm, known, self.spec.task)


def make_train(
    env: Any,
    agent: str | type = "pe_dqn",
    *,
    steps: int | None = None,
    episodes: int | None = None,
    **fields: Any,
) -> PureTrain:
    """Make a pure function of a key that trains an agent in a compiled environment.

    `jax.jit(jax.vmap(make_train(…)))(keys)` trains an agent for each key. Nothing is written, and a
    run whose loss is not finite is not stopped: look at `metrics["loss"]`.

    Args:
        env: an id such as 'deep_sea/0' or 'deep_sea:size=30', what `winkel.envs.make` returns, or
            an environment in JAX of your own, as `winkel.train` takes.
        agent: a name from `winkel list agents`, module:Class, or a subclass of
            `winkel.agents.Agent`.
        steps: the horizon in steps, which schedules use; a run has as many steps.
        episodes: the horizon in episodes. A run has as many steps as the longest episodes take, and
            no more than `steps`. Without both, bsuite's own number of episodes.
        **fields: any field of the agent's `Config` or `Hyper`.
    """
    require_type("agent", agent, str | type, "a name such as 'pe_dqn', or a class")
    (agent,) = permit(agent)
    if isinstance(fields.get("projections"), list | tuple):
        fields["projections"] = permit(*fields["projections"])
    task = _find_task(env)
    spec = make_spec(task, agent, fields, episodes=episodes, steps=steps)
    num_steps, burn_in = spec.max_steps or steps, spec.agent.config.burn_in
    if num_steps is None:
        raise InputError(f"need steps for {task.id}, whose longest episode is unknown, got none")
    if num_steps <= burn_in:
        raise InputError(f"need more than {burn_in} steps, the burn-in, got {num_steps}")
    check_memory(make_world(task), spec.agent, spec.plan(), 1, num_steps)
    return PureTrain(spec, num_steps)


def check_key(key: Any) -> None:
    """Raise unless this is one key of `jax.random.key`."""
    found = getattr(key, "aval", key)
    typed = hasattr(key, "dtype") and jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key)
    if not typed or key.shape:
        raise InputError(
            f"need a key such as jax.random.key(0), and jax.vmap for several, got {found!s:.80}"
        )


def _find_task(env: Any) -> Task:
    if isinstance(env, Environment):
        return Task(id=type(env).__name__, env=env, facts=(), params=None)
    if isinstance(env, Task):
        return env
    if not is_functional(env):
        env = identify(env)
        name = env.name if isinstance(env, Factory) else env
        if isinstance(env, Factory) or is_simulator(name):
            raise InputError(
                f"need an environment in JAX such as 'deep_sea/0', got the simulator {name!r}, "
                "which winkel.train steps"
            )
    return make_task(env)
