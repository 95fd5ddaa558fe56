"""Networks: torsos, ensembles of them, their fixed random priors, and bodies for images."""

from winkel.networks.body import Body
from winkel.networks.ensemble import Ensemble
from winkel.networks.torso import MLP

__all__ = ["MLP", "Body", "Ensemble"]
