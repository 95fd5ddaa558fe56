"""PE-DQN's action choice and update as Pallas kernels for a GPU (decision 015).

`winkel.kernels.pe_dqn` has two functions, alternatives to parts of `winkel.agents.pe_dqn`:
`value_and_bonus` for one observation, and `update`. Importing it imports Triton; this does not.
"""

from typing import Any

from winkel.types import Image, Planes


def support(config: Any, spec: Any) -> bool:
    """Return whether the kernels compute a configuration of PE-DQN, in an environment of a spec.

    If so, last layers are padded on every platform: a CPU can read a GPU's checkpoints.
    """
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
        and not (config.normalise_intrinsic or config.average_bonus)
        # The paper's optimizer for bsuite.
        and config.adam_epsilon == 1e-3
        and not config.clip_norm
        # Sizes that fit in the kernels' tiles.
        and len(config.hidden) == 1
        and config.batch_size in (16, 32, 64, 128, 256)
        and not isinstance(spec.observation, Image | Planes)
        and (spec.one_hot or spec.inputs <= 128)
    )
