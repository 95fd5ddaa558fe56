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


def _make_experiments() -> list[Experiment]:
    experiments = []

    def add(
        name: str, family: str, num_episodes: int, tags: str, settings: Sequence[Setting]
    ) -> None:
        experiments.append(
            Experiment(
                name=name,
                family=family,
                settings=tuple(MappingProxyType(setting) for setting in settings),
                num_episodes=num_episodes,
                tags=tuple(tags.split()),
            )
        )

    def add_with_noise_and_scale(name: str, num_episodes: int, tags: str, more_tags: str) -> None:
        bandit = name == "bandit"  # its settings also differ in the order of the arms
        plain: list[Setting] = [{"mapping_seed": n} if bandit else {} for n in range(20)]
        add(name, name, num_episodes, tags, plain)
        for kind, values in (("noise", _NOISE_SCALES), ("scale", _REWARD_SCALES)):
            key = "noise_scale" if kind == "noise" else "reward_scale"
            settings: list[Setting] = [
                {key: value, "mapping_seed": n} if bandit else {key: value}
                for value in values
                for n in range(4)
            ]
            add(f"{name}_{kind}", name, num_episodes, f"{kind} {more_tags}", settings)

    add_with_noise_and_scale("bandit", 10_000, "basic", "")
    add_with_noise_and_scale(
        "cartpole", 1_000, "basic credit_assignment generalization", "generalization"
    )
    swingup = [{"height_threshold": n / 20, "x_reward_threshold": 1 - n / 20} for n in range(20)]
    add("cartpole_swingup", "cartpole_swingup", 1_000, "exploration generalization", swingup)
    add_with_noise_and_scale("catch", 10_000, "basic credit_assignment", "credit_assignment")
    sizes = [{"size": n, "mapping_seed": 42} for n in range(10, 51, 2)]
    add("deep_sea", "deep_sea", 10_000, "exploration", sizes)
    add("deep_sea_stochastic", "deep_sea_stochastic", 10_000, "exploration noise", sizes)
    mappings = [{"mapping_seed": n} for n in range(20)]
    add("discounting_chain", "discounting_chain", 1_000, "credit_assignment", mappings)
    lengths = (*_LOG_SPACED, *range(30, 105, 10))
    add("memory_len", "memory_len", 10_000, "memory", [{"memory_length": n} for n in lengths])
    bits = (*_LOG_SPACED, 30, 40)
    add("memory_size", "memory_size", 10_000, "memory", [{"num_bits": n} for n in bits])
    add_with_noise_and_scale("mnist", 10_000, "basic generalization", "generalization")
    add_with_noise_and_scale("mountain_car", 1_000, "basic generalization", "generalization")
    distractors = [{"n_distractor": n} for n in lengths]
    add("umbrella_distract", "umbrella_distract", 10_000, "credit_assignment noise", distractors)
    chains = [{"chain_length": n, "n_distractor": 20} for n in lengths]
    add("umbrella_length", "umbrella_length", 10_000, "credit_assignment noise", chains)
    return experiments


EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType({e.name: e for e in _make_experiments()})

TAGS = (
    "basic", "noise", "scale", "exploration", "credit_assignment", "memory", "generalization",
)  # fmt: skip
"""bsuite's seven capabilities, in the order of its radar chart."""
