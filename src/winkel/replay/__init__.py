"""Replay: what an agent has seen, to learn from again."""

from winkel.replay.streams import Streams
from winkel.replay.uniform import Uniform

__all__ = ["Streams", "Uniform"]
