"""PE-DQN's action choice and update as Pallas kernels for a GPU (decision 015).

`winkel.kernels.pe_dqn` has two functions, alternatives to parts of `winkel.agents.pe_dqn`:
`value_and_bonus` for one observation, and `update`. Importing it imports Triton; this does not.
"""

from typing import Any

from winkel.types import Image

MAX_INPUTS = 128
"""Most numbers in a dense observation; more would not fit beside the weights."""
ADAM_EPSILON = 1e-3
"""ε of Adam, times the batch size."""


def supports(config: Any, spec: Any) -> bool:
    """Whether the kernels compute this configuration of PE-DQN (`pe_dqn.Config`, `base.Spec`)."""
    batch = config.batch_size
    return (
        config.kernels
        # The paper's ensemble and targets.
        and sorted(config.projections) == ["categorical", "quantile"]
        and config.backup == "mixture"
        and config.propagate
        and config.intrinsic_reward == "prior"
        and config.distance == "exact"
        and config.huber_width == 0.0
        and (config.n_step == 1 or config.episodic_bonus)
        and not config.normalise_intrinsic
        and not config.average_bonus
        # The paper's optimizer for bsuite.
        and config.adam_epsilon == ADAM_EPSILON
        and not config.clip_norm
        # Sizes that fit in the kernels' tiles.
        and len(config.hidden) == 1
        and 16 <= batch <= 256
        and batch & (batch - 1) == 0
        and not isinstance(spec.observation, Image)
        and (spec.one_hot or spec.inputs <= MAX_INPUTS)
    )
