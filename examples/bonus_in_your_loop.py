"""PE-DQN's bonus in a DQN loop that is not winkel's: it finds a treasure that ε-greedy does not.

    python examples/bonus_in_your_loop.py

It prints, in 80 seconds of a CPU (jax 0.10.2, 2026-11-18):

    epsilon, seed 0: treasure in 0 of 400 episodes
    epsilon, seed 1: treasure in 0 of 400 episodes
    epsilon, seed 2: treasure in 0 of 400 episodes
    bonus, seed 0: treasure in 300 of 400 episodes, first in episode 73
    bonus, seed 1: treasure in 251 of 400 episodes, first in episode 148
    bonus, seed 2: treasure in 293 of 400 episodes, first in episode 105

The bonus' settings were tuned on seeds 0 and 1 in smaller seas, those of ε-greedy were not: this
shows that the plug-in works, and is no comparison. With PE-DQN's own settings (learning rate 5e-4,
prior scale 20, β 5) it found nothing in 500 episodes of size 10.

Environment, network, replay and loop are plain NumPy, Equinox and Optax. winkel's are only
`make_bonus` and the three functions of what it returns: `init`, `bonus` and `update`.
"""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import winkel

GAMMA, BATCH, BURN_IN, TARGET_PERIOD, EPSILON, BETA = 0.99, 32, 64, 4, 0.05, 2.0
OPTIMIZER = optax.adam(1e-3)


class DeepSea:
    """Dive from the upper left corner; right at every depth finds the treasure, and costs 0.01."""

    def __init__(self, size):
        self.size = size
        self.right = np.random.default_rng(0).integers(2, size=(size, size))

    def reset(self):
        self.row = self.column = 0
        return self.observe()

    def observe(self):
        grid = np.zeros((self.size, self.size), np.float32)
        if self.row < self.size:
            grid[self.row, self.column] = 1.0
        return grid.ravel()

    def step(self, action):
        right = action == self.right[self.row, self.column]
        treasure = right and self.column == self.size - 1
        reward = float(treasure) - 0.01 / self.size * right
        self.row += 1
        self.column = min(max(self.column + (1 if right else -1), 0), self.size - 1)
        return self.observe(), reward, self.row == self.size


@eqx.filter_jit
def learn(network, target, opt_state, batch):
    """One step of double DQN."""
    obs, action, reward, discount, next_obs = batch
    each = jnp.arange(BATCH)
    best = jnp.argmax(jax.vmap(network)(next_obs), axis=1)
    wanted = reward + GAMMA * discount * jax.vmap(target)(next_obs)[each, best]

    def loss(network):
        return jnp.mean((jax.vmap(network)(obs)[each, action] - wanted) ** 2)

    updates, opt_state = OPTIMIZER.update(eqx.filter_grad(loss)(network), opt_state)
    return eqx.apply_updates(network, updates), opt_state


def run(size, episodes, explore, seed=0):
    """Train a DQN by ε-greedy choice or by the bonus; returns the return of each episode."""
    env, rng = DeepSea(size), np.random.default_rng(seed)
    key_network, key_bonus, key_update = jax.random.split(jax.random.key(seed), 3)
    network = target = eqx.nn.MLP(size * size, 2, width_size=64, depth=1, key=key_network)
    opt_state = OPTIMIZER.init(eqx.filter(network, eqx.is_array))

    bonus = winkel.make_bonus(
        (size * size,), 2, z_min=-0.5, z_max=1.5, gamma=GAMMA, beta=BETA,
        learning_rate=5e-3, prior_scale=5.0, batch_size=BATCH, hidden=(128,), num_atoms=21,
    )  # fmt: skip
    state, update_bonus = bonus.init(key_bonus), jax.jit(bonus.update)

    @eqx.filter_jit
    def scores(network, state, obs):
        return network(obs) + (BETA * bonus.bonus(state, obs) if explore == "bonus" else 0.0)

    replay, returns = [], []
    for _ in range(episodes):
        obs, ended = env.reset(), False
        returns.append(0.0)
        while not ended:
            action = int(jnp.argmax(scores(network, state, obs)))
            if explore == "epsilon" and rng.random() < EPSILON:
                action = int(rng.integers(2))
            next_obs, reward, ended = env.step(action)
            replay.append((obs, np.int32(action), np.float32(reward), 1.0 - ended, next_obs))
            returns[-1] += reward
            obs = next_obs
            if len(replay) < BURN_IN:
                continue
            chosen = rng.integers(len(replay), size=BATCH)
            batch = [np.array(x) for x in zip(*(replay[i] for i in chosen), strict=True)]
            network, opt_state = learn(network, target, opt_state, batch)
            if len(replay) % TARGET_PERIOD == 0:
                target = network
            if explore == "bonus":
                state, _ = update_bonus(state, batch, jax.random.fold_in(key_update, len(replay)))
    return np.array(returns)


def main(argv=None):
    """Print how often each of the two finds the treasure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=12)
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(argv)
    for explore in ("epsilon", "bonus"):
        for seed in range(options.seeds):
            found = run(options.size, options.episodes, explore, seed) > 0
            first = f", first in episode {np.argmax(found) + 1}" if found.any() else ""
            print(
                f"{explore}, seed {seed}: treasure in {found.sum()} of {len(found)} episodes{first}"
            )


if __name__ == "__main__":
    main()
