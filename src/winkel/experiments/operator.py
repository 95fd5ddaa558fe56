"""Fig. 2: what Ω_M T^π does to one return distribution."""

import numpy as np

from winkel.mdps import FiniteMDP, uniform_policy
from winkel.operators import bellman, mix, project
from winkel.projections import Categorical, Quantile
from winkel.types import Atoms


def operator(num_atoms: int = 11, reward: float = 0.6, gamma: float = 0.7) -> dict[str, np.ndarray]:
    """A two-humped η, T^π η, both projections of that, and their mixture.

    The MDP has one state and a certain reward, so that T^π is a shift and a scale. η stands on a
    fine grid, so that it can be drawn as a density.
    """
    mdp = FiniteMDP(transitions=np.ones((1, 1, 1)), rewards=Atoms.of([[[reward]]]), gamma=gamma)
    z = np.linspace(-2.5, 2.5, 2001)
    density = 0.55 * _bell(z, -0.75, 0.42) + 0.45 * _bell(z, 0.95, 0.25)
    eta = Atoms.of(z[None, None], (density / density.sum())[None, None])
    target = bellman(mdp, uniform_policy(mdp), eta)
    quantile = project(Quantile(num_atoms=num_atoms), target)
    categorical = project(Categorical(num_atoms=num_atoms, z_min=-1.5, z_max=2.5), target)
    stages = {
        "eta": eta,
        "target": target,
        "quantile": quantile,
        "categorical": categorical,
        "mixture": mix([quantile, categorical]),
    }
    return {
        f"{name}_{field}": np.asarray(getattr(atoms, field))[0, 0]
        for name, atoms in stages.items()
        for field in Atoms._fields
    }


def _bell(z: np.ndarray, center: float, width: float) -> np.ndarray:
    return np.exp(-0.5 * ((z - center) / width) ** 2) / width
