"""Networks: perceptrons, ensembles of them, and a convolutional body for images."""

from winkel.networks.impala import Body
from winkel.networks.mlp import MLP, Ensemble

__all__ = ["MLP", "Body", "Ensemble"]
