"""The settings that every agent has: how it learns, from what, and how it sees images."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What all `Config`s begin with. Defaults: the paper's settings for bsuite (table in App. B).

    Those of replay are the loop's to read, not the agent's.
    """

    batch_size: int = 128
    """Transitions of an update; there is one update for each step."""
    capacity: int = 10_000
    """Transitions that replay holds."""
    burn_in: int = 128
    """Steps before the first update."""
    target_period: int = 4
    """Updates between copies into the target networks."""
    n_step: int = 1
    """Rewards that a return sums up before it is bootstrapped."""
    priority_exponent: float = 0.0
    """α of prioritised replay; 0 draws uniformly."""
    importance_exponent: float = 0.45
    """Of the weights that make up for priorities, at the start; it rises to 1."""
    adam_epsilon: float = 1e-3
    """ε of Adam, times the batch size."""
    clip_norm: float = 0.0
    """Gradients that are longer, all together, are shortened to this; 0 for none."""
    channels: int = 2
    """On images, times 16, 32 and 32: the channels of the body's blocks."""
    spectral: bool = True
    """Whether the body's residual convolutions are divided by their spectral norm."""
    he_slope: float = 0.0
    """a in He's bound sqrt(6 / ((1 + a²) fan-in)) of weights on images; √5 makes them smaller."""
    compute: Literal["float32", "bfloat16"] = "float32"
    """What the body computes in; its weights are float32 all the same."""
