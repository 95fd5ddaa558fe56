"""Replay: stores of past transitions, from which batches are drawn."""

from winkel.replay.streams import Streams
from winkel.replay.uniform import Uniform

__all__ = ["Streams", "Uniform"]
