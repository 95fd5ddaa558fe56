"""The 23 experiments and 468 settings of bsuite 0.3.6: names, numbers, tags."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

Setting = Mapping[str, int | float]

_NOISE_SCALES = (0.1, 0.3, 1.0, 3.0, 10.0)
_REWARD_SCALES = (0.001, 0.03, 1.0, 30.0, 1000.0)
_LOG_SPACED = (*range(1, 11), 12, 14, 17, 20, 25)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment of the suite.

    Attributes:
        name: such as 'catch_noise'.
        family: the environment that it perturbs or scales, such as 'catch'.
        settings: parameters of each of its environments, in bsuite's order.
        num_episodes: episodes per run.
        tags: the capabilities to which its score contributes.
    """

    name: str
    family: str
    settings: tuple[Setting, ...]
    num_episodes: int
    tags: tuple[str, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """Bsuite's ids, 'catch_noise/0' and so on."""
        return tuple(f"{self.name}/{index}" for index in range(len(self.settings)))

    def copy_of(self, task_id: str) -> int:
        """Count equal settings before this one: bsuite repeats settings. 0 for other ids."""
        if task_id not in self.ids:
            return 0
        index = self.ids.index(task_id)
        return self.settings[:index].count(self.settings[index])


def _experiment(
    name: str, num_episodes: int, tags: str, settings: Sequence[Setting], family: str | None = None
) -> Experiment:
    return Experiment(
        name=name,
        family=family or name,
        settings=tuple(MappingProxyType(setting) for setting in settings),
        num_episodes=num_episodes,
        tags=tuple(tags.split()),
    )


def _with_noise_and_scale(
    name: str, num_episodes: int, tags: str, more_tags: str
) -> tuple[Experiment, ...]:
    """Return an experiment and its two perturbed ones; bandits also differ in the order of arms."""

    def vary(number: int, setting: Setting) -> Setting:
        return {**setting, "mapping_seed": number} if name == "bandit" else setting

    noises = [vary(n, {"noise_scale": scale}) for scale in _NOISE_SCALES for n in range(4)]
    scales = [vary(n, {"reward_scale": scale}) for scale in _REWARD_SCALES for n in range(4)]
    return (
        _experiment(name, num_episodes, tags, [vary(n, {}) for n in range(20)]),
        _experiment(f"{name}_noise", num_episodes, f"noise {more_tags}", noises, name),
        _experiment(f"{name}_scale", num_episodes, f"scale {more_tags}", scales, name),
    )


_LENGTHS = (*_LOG_SPACED, *range(30, 105, 10))
_SEAS = [{"size": n, "mapping_seed": 42} for n in range(10, 51, 2)]
_SWINGUPS = [{"height_threshold": n / 20, "x_reward_threshold": 1 - n / 20} for n in range(20)]
_BITS = [{"num_bits": n} for n in (*_LOG_SPACED, 30, 40)]
_CHAINS = [{"chain_length": n, "n_distractor": 20} for n in _LENGTHS]
_NOISE = "credit_assignment noise"

_ALL = (
    *_with_noise_and_scale("bandit", 10_000, "basic", ""),
    *_with_noise_and_scale(
        "cartpole", 1_000, "basic credit_assignment generalization", "generalization"
    ),
    _experiment("cartpole_swingup", 1_000, "exploration generalization", _SWINGUPS),
    *_with_noise_and_scale("catch", 10_000, "basic credit_assignment", "credit_assignment"),
    _experiment("deep_sea", 10_000, "exploration", _SEAS),
    _experiment("deep_sea_stochastic", 10_000, "exploration noise", _SEAS),
    _experiment(
        "discounting_chain", 1_000, "credit_assignment", [{"mapping_seed": n} for n in range(20)]
    ),
    _experiment("memory_len", 10_000, "memory", [{"memory_length": n} for n in _LENGTHS]),
    _experiment("memory_size", 10_000, "memory", _BITS),
    *_with_noise_and_scale("mnist", 10_000, "basic generalization", "generalization"),
    *_with_noise_and_scale("mountain_car", 1_000, "basic generalization", "generalization"),
    _experiment("umbrella_distract", 10_000, _NOISE, [{"n_distractor": n} for n in _LENGTHS]),
    _experiment("umbrella_length", 10_000, _NOISE, _CHAINS),
)
EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType({e.name: e for e in _ALL})

TAGS = (
    "basic", "noise", "scale", "exploration", "credit_assignment", "memory", "generalization",
)  # fmt: skip
"""bsuite's seven capabilities, in the order of its radar chart."""
