"""Copies of an environment, stepped one after the other: what a worker does all day."""

import traceback
from collections.abc import Callable, Sequence
from typing import Any

from winkel.errors import InputError
from winkel.simulators.base import Simulator, SimulatorDied, Traits
from winkel.simulators.checks import as_discount, as_number, as_observation, as_row, check_traits
from winkel.simulators.memory import Arrays
from winkel.simulators.modules import raised

Maker = Callable[[], Simulator]


class Copies:
    """Some of the pool's environments and their rows in its arrays.

    At a boundary an environment is reset at once: `next_obs` gets the observation that the episode
    ended in, `obs` the one that the next episode begins with.
    """

    def __init__(self, maker: Maker, rows: Sequence[int]):
        self._rows = rows
        self._simulators: list[Simulator] = []
        self._steps = [0] * len(rows)
        self._episodes = [0] * len(rows)
        try:
            for _ in rows:
                self._simulators.append(maker())
            all_traits = [Traits.of(simulator) for simulator in self._simulators]
            agree(all_traits)
        except InputError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise told(error, "making the environment") from error
        self.traits = all_traits[0]

    def attach(self, arrays: Arrays) -> None:
        """Say where the rows are."""
        self._arrays = arrays

    def reset(self, seeds: Sequence[int | None]) -> None:
        """Begin episodes everywhere, with these seeds."""
        for at, (row, simulator, seed) in enumerate(
            zip(self._rows, self._simulators, seeds, strict=True)
        ):
            self._steps[at], self._episodes[at] = 0, self._episodes[at] + 1
            try:
                first = as_observation(simulator.reset(seed), self.traits.layout)
            except SimulatorDied:
                raise
            except Exception as error:
                raise told(error, f"environment {row} in its reset") from error
            self._arrays.obs[row] = self._arrays.next_obs[row] = first

    def step(self) -> None:
        """One step everywhere, by the actions in the arrays."""
        for at, (row, simulator) in enumerate(zip(self._rows, self._simulators, strict=True)):
            self._steps[at] += 1
            try:
                self._step_one(at, row, simulator)
            except SimulatorDied:
                raise
            except Exception as error:
                when = f"step {self._steps[at]} of episode {self._episodes[at]}"
                raise told(error, f"environment {row} in {when}") from error

    def _step_one(self, at: int, row: int, simulator: Simulator) -> None:
        traits, arrays = self.traits, self._arrays
        moved = simulator.step(int(arrays.actions[row]))
        next_obs = as_observation(moved.obs, traits.layout)
        arrays.next_obs[row] = next_obs
        arrays.rewards[row] = as_number(moved.reward, "reward")
        arrays.discounts[row] = as_discount(moved.discount)
        arrays.boundaries[row] = boundary = bool(moved.boundary)
        arrays.facts[row] = as_row(moved.facts, traits.facts, "facts")
        arrays.probes[row] = as_row(moved.probes, traits.probes, "probes")
        if boundary:
            self._steps[at], self._episodes[at] = 0, self._episodes[at] + 1
            arrays.obs[row] = as_observation(simulator.reset(None), traits.layout)
        else:
            arrays.obs[row] = next_obs

    def close(self) -> None:
        """Close every simulator, whatever it says."""
        while self._simulators:
            try:
                self._simulators.pop().close()
            except Exception:
                traceback.print_exc()


def agree(all_traits: Sequence[Traits]) -> None:
    """Raise unless all copies are of one kind, and of one that can be run."""
    check_traits(all_traits[0])
    for other in all_traits[1:]:
        if other != all_traits[0]:
            raise InputError(
                f"need environments of one kind, got {_plain(all_traits[0])} and {_plain(other)}"
            )


def _plain(traits: Traits) -> str:
    return f"{traits.num_actions} actions with observations of {traits.layout}"


def told(error: Exception, where: str) -> InputError:
    """One line that says where: bad values as they are described, exceptions by their name."""
    if isinstance(error, InputError):
        return InputError(f"{where}: {error}")
    return raised(error, where)


def as_message(error: InputError) -> tuple[str, list[str]]:
    """An error as it travels from a worker."""
    return str(error), list(getattr(error, "__notes__", []))


def from_message(message: Any) -> InputError:
    """The error that travelled."""
    said, notes = message
    error = InputError(said)
    for note in notes:
        error.add_note(note)
    return error
