"""Replay: what an agent has seen, to learn from again."""

from winkel.replay.uniform import Uniform

__all__ = ["Uniform"]
