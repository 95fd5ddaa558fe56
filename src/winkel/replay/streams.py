"""The steps of several environments, each a stream of its own, drawn as samples of n steps.

With a donated state, everything is done in place, except in a program that samples and then adds:
there XLA keeps a copy of the old steps. Sample and add in two programs, or in one that adds first.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray, PyTree, Shaped

from winkel.errors import require_integer
from winkel.replay import sum_tree
from winkel.replay.sum_tree import SumTree
from winkel.replay.uniform import read_before_write
from winkel.types import AnyArray, Batch, Transition

OFFSET = 1e-6
"""Added to a loss before the exponent, so that everything stored can be drawn."""


class Stored(NamedTuple):
    """A ring of T slots for every environment."""

    steps: Transition
    """One in each slot, except slots that hold only the last observation of an episode. `obs` is
    the newest frame of a stack; `next_obs` is empty, as the next slot holds it."""
    ages: Int[Array, "*batch E T"]
    """Steps of the episode before each stored one."""
    cursor: Int[Array, "*batch E"]
    """Slot of the next step. Unless an episode has just ended, it already holds the observation
    that the last step led to."""
    age: Int[Array, "*batch E"]
    """Steps stored of the current episode."""
    priorities: SumTree
    """Priority of every slot as the start of a sample, (loss + OFFSET)^`priority_exponent`; 0 if no
    sample can start there."""
    highest: Num[Array, "*batch"]
    """The largest priority so far, which new samples get."""


def n_step_return(
    rewards: Float[Array, "*batch n"],
    discounts: Float[Array, "*batch n"],
    boundaries: Bool[Array, "*batch n"],
    gamma: Float[Array, ""] | float,
) -> tuple[Array, Array, Array, Array, Array]:
    """The return of the first k of n steps: n, or as many as there are up to the first boundary.

    The step at the boundary counts, with its reward. Truncation bootstraps, as its discount is 1.
    Returns Σ_{i<k} γ^i r_i; its discount, γ^(k−1), or 0 if the last step terminated (the agent
    multiplies by γ once more); γ^(k−1) itself; k − 1, the offset of the last step; whether the
    episode ended with it.
    """
    offsets = jnp.broadcast_to(jnp.arange(rewards.shape[-1]), rewards.shape)
    counts = jnp.cumsum(boundaries, axis=-1) - boundaries == 0
    last = jnp.sum(counts, axis=-1, dtype=jnp.int32) - 1
    is_last = offsets == last[..., None]
    powers = jnp.power(gamma, offsets.astype(rewards.dtype))
    gamma_power = jnp.sum(jnp.where(is_last, powers, 0.0), axis=-1)
    reward = jnp.sum(jnp.where(counts, powers * rewards, 0.0), axis=-1)
    discount = gamma_power * jnp.sum(jnp.where(is_last, discounts, 0.0), axis=-1)
    return reward, discount, gamma_power, last, jnp.any(counts & boundaries, axis=-1)


def stack_frames(
    frames: Shaped[Array, "E T *frame"],
    environment: Int[Array, "B"],
    slot: Int[Array, "B"],
    age: Int[Array, "B"],
    stack: int,
) -> Shaped[Array, "B {stack} *frame"]:
    """The last `stack` frames up to each slot, oldest first.

    Every environment has a ring of T slots, filled in order. Where an episode has only `age` frames
    before the slot, its first frame stands for the missing ones.
    """
    back = jnp.minimum(jnp.arange(stack)[None, ::-1], age[:, None])  # [B, stack]
    slots = (slot[:, None] - back) % frames.shape[1]
    return frames.at[environment[:, None], slots].get(mode="promise_in_bounds")


@dataclass(frozen=True)
class Streams:
    """Replay of the last steps of each environment, as samples of `n_step` steps.

    A sample starts at any stored step whose n steps, or those up to the end of the episode, are all
    stored. At an end the last observation has a slot of its own, so that a truncated episode
    bootstraps from its true last observation.
    """

    capacity: int
    """Starts of samples in all environments, in equal shares; the last observation of an episode
    takes the place of one. The ring has n_step + depth − 1 more slots per environment, so that
    every start has its frames before and its steps after."""
    num_envs: int
    """Length of the leading axis of added transitions."""
    n_step: int = 1
    stack: int | None = None
    """Frames in an observation, which are then stored one by one; None to store it whole."""
    priority_exponent: float = 0.0
    """The exponent of priorities; 0 draws uniformly."""
    importance_exponent: float = 0.45
    """Exponent of the importance weights at the start of a run."""
    importance_final: float = 1.0
    """The same at its end."""

    def __post_init__(self) -> None:
        require_integer("num_envs", self.num_envs, at_least=1)
        require_integer("capacity", self.capacity, at_least=self.num_envs)

    @property
    def depth(self) -> int:
        """Frames in an observation."""
        return 1 if self.stack is None else self.stack

    @property
    def slots(self) -> int:
        """T, slots of each environment."""
        return self.capacity // self.num_envs + self.n_step + self.depth - 1

    def init(self, example: Transition) -> Stored:
        """Create an empty store for transitions like these of all environments."""
        example = _with_axis(example)

        def empty(x: Array) -> Array:
            return jnp.zeros((self.num_envs, self.slots, *jnp.shape(x)[1:]), jnp.asarray(x).dtype)

        age = jnp.zeros(self.num_envs, jnp.int32)
        kind = jnp.int32 if self.priority_exponent == 0.0 else jnp.float32
        return Stored(
            steps=jax.tree.map(empty, self._stored_part(example)),
            ages=empty(age),
            cursor=jnp.zeros(self.num_envs, jnp.int32),
            age=age,
            priorities=sum_tree.empty(self.num_envs * self.slots, kind),
            highest=jnp.ones((), kind),
        )

    def add(
        self, state: Stored, transitions: Transition, /, keep: Bool[AnyArray, "E"] | None = None
    ) -> Stored:
        """Add one step of each environment, over its oldest; of one, also without a leading axis.

        A step with `keep` False was lost. Its episode then ends, truncated, with the step before
        it, and the next step that is kept must be the first of an episode.
        """
        transitions = _with_axis(transitions)
        kept = jnp.ones(self.num_envs, bool) if keep is None else jnp.asarray(keep)
        cut = ~kept & (state.age > 0)
        ends = jnp.where(kept, jnp.asarray(transitions.boundary), cut)
        at = jnp.where(kept, state.cursor, -1)
        after = jnp.where(kept, (state.cursor + 1) % self.slots, -1)
        before = jnp.where(cut, (state.cursor - 1) % self.slots, -1)
        new = self._stored_part(transitions)
        steps = jax.tree.map(lambda stored, x: _write(stored, at, x), state.steps, new)
        next_obs = transitions.next_obs if self.stack is None else transitions.next_obs[:, -1]
        return Stored(
            steps=steps._replace(
                obs=jax.tree.map(lambda stored, x: _write(stored, after, x), steps.obs, next_obs),
                boundary=_write(steps.boundary, before, cut),
            ),
            ages=_write(state.ages, at, state.age),
            cursor=(state.cursor + kept + ends) % self.slots,
            age=jnp.where(kept & ~ends, state.age + 1, 0),
            priorities=self._priorities_after(state, kept, ends),
            highest=state.highest,
        )

    def _priorities_after(
        self, state: Stored, kept: Bool[Array, "E"], ends: Bool[Array, "E"]
    ) -> SumTree:
        """Priorities after a step: of samples that can start now, and of those that no longer can.

        A stored step is the n-th of the sample that starts n − 1 before it, and an end completes
        all shorter ones. Adding overwrites the slot after the step and, after an end, the step's
        own. Samples whose oldest frame was there can no longer start.
        """
        newest = jnp.where(kept, state.cursor, state.cursor - 1)[:, None]
        older = jnp.where(kept, state.age, state.age - 1)[:, None]  # steps of the episode before it
        back = jnp.arange(self.n_step)[None, :]
        complete = jnp.where(back == self.n_step - 1, kept[:, None], ends[:, None])
        begun = jnp.where(complete & (back <= older), (newest - back) % self.slots, -1)  # [E, n]
        gone = (state.cursor[:, None] + self.depth - jnp.arange(2)[None, :]) % self.slots
        gone = jnp.where(kept[:, None], gone, -1)  # [E, 2]
        first = self.slots * jnp.arange(self.num_envs)[:, None]
        slots = jnp.concatenate([begun, gone], axis=1)
        kinds = jnp.concatenate([jnp.ones_like(begun), jnp.zeros_like(gone)], axis=1)
        indices = jnp.where(slots < 0, -1, first + slots)
        return sum_tree.put(state.priorities, indices.ravel(), state.highest * kinds.ravel())

    def sample(
        self,
        state: Stored,
        batch_size: int,
        key: PRNGKeyArray,
        *,
        gamma: Float[Array, ""] | float = 1.0,
        progress: Float[Array, ""] | float = 0.0,
    ) -> Batch:
        """Draw from all starts independently, uniformly or in proportion to priorities.

        Undefined until an environment has added `n_step` steps or ended an episode.
        """
        indices = sum_tree.draw(state.priorities, batch_size, key)
        transitions, gamma_power = self.at(state, indices, gamma)
        weights = jnp.ones(batch_size)
        if self.priority_exponent != 0.0:
            # (N P(i))^(−b) over the largest in the batch (Schaul et al. 2016), where P(i) is the
            # priority over the sum of all; that sum and N cancel. b is linear in progress.
            done = jnp.clip(jnp.asarray(progress, float), 0.0, 1.0)
            start, final = self.importance_exponent, self.importance_final
            exponent = start + (final - start) * done
            drawn = sum_tree.leaves(state.priorities, indices)
            weights = (drawn / jnp.min(drawn)) ** -exponent
        return Batch(
            transitions=transitions, weights=weights, indices=indices, gamma_power=gamma_power
        )

    def at(
        self, state: Stored, indices: Int[Array, "B"], gamma: Float[Array, ""] | float
    ) -> tuple[Transition, Float[Array, "B"]]:
        """The samples that start at these indices, and their γ^(k−1); undefined if none can."""
        environment, slot = indices // self.slots, indices % self.slots
        steps = state.steps
        window = (slot[:, None] + jnp.arange(self.n_step)[None, :]) % self.slots
        reward, discount, gamma_power, last, boundary = n_step_return(
            rewards=_read(steps.reward, environment[:, None], window),
            discounts=_read(steps.discount, environment[:, None], window),
            boundaries=_read(steps.boundary, environment[:, None], window),
            gamma=gamma,
        )
        age = _read(state.ages, environment, slot)

        def observations(slot: Int[Array, "B"], age: Int[Array, "B"]) -> PyTree:
            if self.stack is None:
                return jax.tree.map(lambda x: _read(x, environment, slot), steps.obs)
            return stack_frames(steps.obs, environment, slot, age, self.stack)

        transitions = Transition(
            obs=observations(slot, age),
            action=_read(steps.action, environment, slot),
            reward=reward,
            discount=discount,
            next_obs=observations((slot + (last + 1)) % self.slots, age + (last + 1)),
            boundary=boundary,
            extras=jax.tree.map(lambda x: _read(x, environment, slot), steps.extras),
        )
        return transitions, gamma_power

    def reprioritise(self, state: Stored, batch: Batch, priorities: Float[Array, "B"]) -> Stored:
        """Set (p + 1e-6)^`priority_exponent` for the drawn starts, if none has been overwritten."""
        state = state._replace(cursor=state.cursor + read_before_write(priorities))
        if self.priority_exponent == 0.0:
            return state
        raised = (jnp.abs(priorities) + OFFSET) ** self.priority_exponent
        still = sum_tree.leaves(state.priorities, batch.indices) > 0
        return state._replace(
            priorities=sum_tree.put(state.priorities, jnp.where(still, batch.indices, -1), raised),
            highest=jnp.maximum(state.highest, jnp.max(raised)),
        )

    def _stored_part(self, transitions: Transition) -> Transition:
        obs = transitions.obs if self.stack is None else transitions.obs[:, -1]
        return transitions._replace(obs=obs, next_obs=())


def _with_axis(transition: Transition) -> Transition:
    if jnp.ndim(transition.boundary) > 0:
        return transition
    return jax.tree.map(lambda x: jnp.asarray(x)[None], transition)


def _write(
    stored: Shaped[Array, "E T *item"], slot: Int[Array, "E"], new: Shaped[AnyArray, "E *item"]
) -> Shaped[Array, "E T *item"]:
    """Write one item for each environment, none if its slot is negative."""
    place = stored.at[jnp.arange(len(slot)), slot]
    return place.set(
        jnp.asarray(new, stored.dtype),
        mode="drop",
        unique_indices=True,
        wrap_negative_indices=False,
    )


def _read(
    stored: Shaped[Array, "E T *item"], environment: Int[Array, "..."], slot: Int[Array, "..."]
) -> Shaped[Array, "..."]:
    return stored.at[environment, slot].get(mode="promise_in_bounds")
