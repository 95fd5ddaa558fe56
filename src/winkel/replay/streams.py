"""The steps of several environments, each a stream of its own, drawn as samples of n steps.

All is done in place where the state is donated, but in a program that samples and then adds: there
XLA keeps the old steps beside the new, a copy of all. Learn and observe in two programs, or in one
that adds first.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray, PyTree, Shaped

from winkel.errors import InputError, require_integer
from winkel.replay import prioritised
from winkel.replay.frames import stacked
from winkel.replay.n_step import outcome
from winkel.replay.prioritised import SumTree
from winkel.types import AnyArray, Batch, Transition


class Steps(NamedTuple):
    """What is stored of each step.

    Attributes:
        obs: what was acted on; of a stack, its newest frame only.
        age: steps of the episode before this one.
    """

    obs: PyTree
    action: Int[Array, "*batch E T"]
    reward: Float[Array, "*batch E T"]
    discount: Float[Array, "*batch E T"]
    boundary: Bool[Array, "*batch E T"]
    extras: PyTree
    age: Int[Array, "*batch E T"]


class Stored(NamedTuple):
    """A ring of T slots for every environment.

    Attributes:
        steps: one in each slot, but for slots that hold only the last observation of an episode.
        cursor: where the next step goes. Unless an episode has just ended, the observation that the
            last step led to lies there already.
        age: steps stored of the current episode.
        priorities: of every slot as the start of a sample, 0 where none can start.
        highest: the largest priority so far, which new samples get.
    """

    steps: Steps
    cursor: Int[Array, "*batch E"]
    age: Int[Array, "*batch E"]
    priorities: SumTree
    highest: Num[Array, "*batch"]


@dataclass(frozen=True)
class Streams:
    """Replay of the last steps of each environment, as samples of `n_step` steps.

    A sample starts at any stored step whose n steps, or those up to the end of the episode, are all
    stored. At an end the last observation has a slot of its own, so that a truncated episode
    bootstraps from what it really led to.

    Attributes:
        capacity: starts of samples in all, in equal shares; the last observation of an episode
            takes the room of one. What they need before and after them has room of its own.
        num_envs: the leading axis of what is added.
        n_step: how many rewards a sample sums, if the episode does not end before.
        stack: where observations are stacks of so many frames, which are then stored one by one;
            None where observations are stored as they are.
        alpha: the exponent of priorities, 0 to draw all alike.
        importance_exponent: of the weights that undo priorities, at the start of a run; at its end
            it is 1.
    """

    capacity: int
    num_envs: int
    n_step: int = 1
    stack: int | None = None
    alpha: float = 0.0
    importance_exponent: float = 0.45

    def __post_init__(self) -> None:
        require_integer("num_envs", self.num_envs, at_least=1)
        require_integer("capacity", self.capacity, at_least=self.num_envs)
        require_integer("n_step", self.n_step, at_least=1)
        if self.stack is not None:
            require_integer("stack", self.stack, at_least=1)
        for name in ("alpha", "importance_exponent"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(f"need {name} in [0, 1], got {getattr(self, name)}")

    @property
    def depth(self) -> int:
        """Frames in an observation."""
        return 1 if self.stack is None else self.stack

    @property
    def slots(self) -> int:
        """T, slots of each environment."""
        return self.capacity // self.num_envs + self.n_step + self.depth - 1

    def init(self, example: Transition) -> Stored:
        """No steps. The example has a leading axis over environments, as all that is added."""
        self._check(example)

        def room(x: Array) -> Array:
            return jnp.zeros((self.num_envs, self.slots, *jnp.shape(x)[1:]), jnp.asarray(x).dtype)

        age = jnp.zeros(self.num_envs, jnp.int32)
        kind = jnp.int32 if self.alpha == 0.0 else jnp.float32
        return Stored(
            steps=jax.tree.map(room, self._newest(example, age)),
            cursor=jnp.zeros(self.num_envs, jnp.int32),
            age=age,
            priorities=prioritised.empty(self.num_envs * self.slots, kind),
            highest=jnp.ones((), kind),
        )

    def add(
        self, state: Stored, transitions: Transition, /, keep: Bool[AnyArray, "E"] | None = None
    ) -> Stored:
        """One step of each environment, over its oldest.

        A step that was lost is not kept. Its episode then ends, truncated, with the step before it,
        and the next one that is kept must be the first of an episode.
        """
        self._check(transitions)
        kept = jnp.ones(self.num_envs, bool) if keep is None else jnp.asarray(keep)
        cut = ~kept & (state.age > 0)
        ends = jnp.where(kept, jnp.asarray(transitions.boundary), cut)
        at = jnp.where(kept, state.cursor, -1)
        after = jnp.where(kept, (state.cursor + 1) % self.slots, -1)
        before = jnp.where(cut, (state.cursor - 1) % self.slots, -1)
        steps = jax.tree.map(
            lambda stored, x: _write(stored, at, x),
            state.steps,
            self._newest(transitions, state.age),
        )
        led_to = self._frame(transitions.next_obs)
        return Stored(
            steps=steps._replace(
                obs=jax.tree.map(lambda stored, x: _write(stored, after, x), steps.obs, led_to),
                boundary=_write(steps.boundary, before, cut),
            ),
            cursor=(state.cursor + kept + ends) % self.slots,
            age=jnp.where(kept & ~ends, state.age + 1, 0),
            priorities=self._starts(state, kept, ends),
            highest=state.highest,
        )

    def _starts(self, state: Stored, kept: Bool[Array, "E"], ends: Bool[Array, "E"]) -> SumTree:
        """Where samples can start from now on, and where no longer.

        A step that is stored is the n-th of the sample that starts n − 1 before it, and an end
        completes all shorter ones. A start is gone when its oldest frame is overwritten: with the
        one just ahead of the step, which is the second now where an episode had ended before.
        """
        newest = jnp.where(kept, state.cursor, state.cursor - 1)[:, None]
        older = jnp.where(kept, state.age, state.age - 1)[:, None]  # steps of the episode before it
        back = jnp.arange(self.n_step)[None, :]
        whole = jnp.where(back == self.n_step - 1, kept[:, None], ends[:, None]) & (back <= older)
        begun = jnp.where(whole, (newest - back) % self.slots, -1)  # [E, n]
        gone = (state.cursor[:, None] + self.depth - jnp.arange(2)[None, :]) % self.slots
        gone = jnp.where(kept[:, None], gone, -1)  # [E, 2]
        first = self.slots * jnp.arange(self.num_envs)[:, None]
        slots = jnp.concatenate([begun, gone], axis=1)
        worth = jnp.concatenate([jnp.ones_like(begun), jnp.zeros_like(gone)], axis=1)
        indices = jnp.where(slots < 0, -1, first + slots)
        return prioritised.put(state.priorities, indices.ravel(), state.highest * worth.ravel())

    def sample(
        self,
        state: Stored,
        batch_size: int,
        key: PRNGKeyArray,
        *,
        gamma: Float[Array, ""] | float = 1.0,
        progress: Float[Array, ""] | float = 0.0,
    ) -> Batch:
        """Independent draws from all starts, uniform or in proportion to priorities.

        Something can be drawn once an environment has added `n_step` steps or ended an episode.
        """
        indices = prioritised.draw(state.priorities, batch_size, key)
        transitions, decay = self.at(state, indices, gamma)
        if self.alpha == 0.0:
            weights = jnp.ones(batch_size)
        else:
            exponent = prioritised.importance_exponent(self.importance_exponent, progress)
            drawn = prioritised.leaves(state.priorities, indices)
            weights = prioritised.importance_weights(drawn, exponent)
        return Batch(transitions=transitions, weights=weights, indices=indices, decay=decay)

    def at(
        self, state: Stored, indices: Int[Array, "B"], gamma: Float[Array, ""] | float
    ) -> tuple[Transition, Float[Array, "B"]]:
        """The samples that start at these indices, and their decay; undefined where none can."""
        environment, slot = indices // self.slots, indices % self.slots
        steps = state.steps
        window = (slot[:, None] + jnp.arange(self.n_step)[None, :]) % self.slots
        found = outcome(
            rewards=_read(steps.reward, environment[:, None], window),
            discounts=_read(steps.discount, environment[:, None], window),
            boundaries=_read(steps.boundary, environment[:, None], window),
            gamma=gamma,
        )
        age = _read(steps.age, environment, slot)
        ahead = found.last + 1
        transitions = Transition(
            obs=self._observed(steps.obs, environment, slot, age),
            action=_read(steps.action, environment, slot),
            reward=found.reward,
            discount=found.discount,
            next_obs=self._observed(
                steps.obs, environment, (slot + ahead) % self.slots, age + ahead
            ),
            boundary=found.boundary,
            extras=jax.tree.map(lambda x: _read(x, environment, slot), steps.extras),
        )
        return transitions, found.decay

    def reprioritise(self, state: Stored, batch: Batch, priorities: Float[Array, "B"]) -> Stored:
        """(|p| + 1e-6)^α for what was drawn, unless no sample can start there any longer."""
        if self.alpha == 0.0:
            return state
        worth = (jnp.abs(priorities) + prioritised.FLOOR) ** self.alpha
        still = prioritised.leaves(state.priorities, batch.indices) > 0
        return state._replace(
            priorities=prioritised.put(
                state.priorities, jnp.where(still, batch.indices, -1), worth
            ),
            highest=jnp.maximum(state.highest, jnp.max(worth)),
        )

    def _newest(self, transitions: Transition, age: Int[Array, "E"]) -> Steps:
        return Steps(
            obs=self._frame(transitions.obs),
            action=transitions.action,
            reward=transitions.reward,
            discount=transitions.discount,
            boundary=transitions.boundary,
            extras=transitions.extras,
            age=age,
        )

    def _frame(self, obs: PyTree) -> PyTree:
        return obs if self.stack is None else obs[:, -1]

    def _observed(
        self,
        stored: PyTree,
        environment: Int[Array, "B"],
        slot: Int[Array, "B"],
        age: Int[Array, "B"],
    ) -> PyTree:
        if self.stack is None:
            return jax.tree.map(lambda x: _read(x, environment, slot), stored)
        return stacked(stored, environment, slot, age, self.stack)

    def _check(self, transitions: Transition) -> None:
        """Raises unless all has the leading axis, and observations are stacks where they should."""
        for x in jax.tree.leaves(transitions):
            if jnp.shape(x)[:1] != (self.num_envs,):
                raise InputError(
                    f"need a leading axis of {self.num_envs} environments, got {jnp.shape(x)}"
                )
        if self.stack is not None and jnp.shape(transitions.obs)[1:2] != (self.stack,):
            raise InputError(
                f"need observations of {self.stack} frames [{self.num_envs}, {self.stack}, …], "
                f"got {jnp.shape(transitions.obs)}"
            )


def _write(
    stored: Shaped[Array, "E T *item"], slot: Int[Array, "E"], new: Shaped[AnyArray, "E *item"]
) -> Shaped[Array, "E T *item"]:
    """One item for each environment, none where the slot is negative."""
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
