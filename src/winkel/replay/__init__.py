"""Replay: stores of past transitions, from which batches are drawn.

Both have `init`, `add`, `sample` and `reprioritise`: functions without state, for one lane.
"""

from winkel.replay.streams import Streams
from winkel.replay.uniform import Uniform

__all__ = ["Streams", "Uniform"]
