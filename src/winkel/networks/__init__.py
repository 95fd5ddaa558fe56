"""Networks: torsos, ensembles of them, and their fixed random priors."""

from winkel.networks.ensemble import Ensemble
from winkel.networks.torso import MLP

__all__ = ["MLP", "Ensemble"]
