"""Which of bsuite's settings share one compiled program in a packed sweep, and why.

The cost of a lane depends on the number of outputs (actions × atoms), then on the number of inputs.
A program runs as long as its longest run, and takes half a minute to compile. So a pack holds
settings of similar size and length:

- `long`: at most 23 inputs and 3 actions; runs of up to a million steps, and chains, which end
  earlier and free their lanes.
- `short`: 42 to 103 inputs, 3 actions, at most 200,000 steps.
- `bandits`: 1 input, 11 actions, 10,000 steps.
- `chains`: 2 inputs, 5 actions, 100,000 steps. Padding them to 11 actions costs more time than
  compiling a program of their own.
- `mnist`: 784 inputs and 10 actions, and a replay of images.
- `deep-sea-30`, `deep-sea-50`: deep sea up to size 30 and up to size 50. A network's first layer
  grows with the square of the size: padding small sizes to the largest would cost six times as
  much, and a program for each size would leave most of a GPU idle.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from winkel.envs.bsuite.sweep import EXPERIMENTS


class Pack(NamedTuple):
    """Settings that share a program: all of some experiments, or deep seas of some sizes."""

    name: str
    experiments: tuple[str, ...]
    sizes: range | None = None

    def holds(self, experiment: str, setting: Mapping[str, Any]) -> bool:
        """Return whether a setting of an experiment belongs to this pack."""
        right_size = self.sizes is None or setting["size"] in self.sizes
        return experiment in self.experiments and right_size

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all settings."""
        return tuple(
            f"{name}/{index}"
            for name in self.experiments
            for index, setting in enumerate(EXPERIMENTS[name].settings)
            if self.holds(name, setting)
        )


def _with_noise_and_scale(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}{kind}" for name in names for kind in ("", "_noise", "_scale"))


_CARS = _with_noise_and_scale("cartpole", "mountain_car")
_DEEP_SEA = ("deep_sea", "deep_sea_stochastic")

PACKS: Mapping[str, Pack] = MappingProxyType(
    {
        pack.name: pack
        for pack in (
            Pack("long", (*_CARS, "cartpole_swingup", "memory_len", "umbrella_length")),
            Pack("short", (*_with_noise_and_scale("catch"), "memory_size", "umbrella_distract")),
            Pack("bandits", _with_noise_and_scale("bandit")),
            Pack("chains", ("discounting_chain",)),
            Pack("mnist", _with_noise_and_scale("mnist")),
            Pack("deep-sea-30", _DEEP_SEA, range(10, 31)),
            Pack("deep-sea-50", _DEEP_SEA, range(31, 51)),
        )
    }
)
