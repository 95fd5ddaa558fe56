"""What a sweep took: by group of runs, by experiment, and as a line that a report reads."""

from collections import Counter
from typing import Any, NamedTuple

from winkel.runs.status import Spent


class GroupCost(NamedTuple):
    """What the runs of one program, or of its copies with fewer lanes, took in one call."""

    name: str
    runs: int
    spent: Spent

    def row(self) -> dict[str, Any]:
        """As JSON."""
        spent = self.spent
        return {
            "group": self.name,
            "runs": self.runs,
            "lanes": spent.lanes,
            "updates": spent.total,
            "seconds": round(spent.seconds, 1),
            "updates_per_second": round(spent.rate, 1),
            "programs": spent.programs,
            "compiling": round(spent.compiling, 1),
            "device": round(spent.device, 1),
            "saving": round(spent.saving, 1),
        }


class Outcome(NamedTuple):
    """How many runs ended how, in this call or before it, and what it took."""

    finished: int
    failed: int
    found: int
    seconds: float
    groups: tuple[GroupCost, ...] = ()

    def updates_by_experiment(self) -> dict[str, int]:
        """Updates made, most first: 'catch' for 'catch/3'."""
        made: Counter[str] = Counter()
        for group in self.groups:
            for env, updates in group.spent.updates.items():
                made[env.replace(":", "/").split("/")[0]] += updates
        return dict(made.most_common())

    def row(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "runs": {"finished": self.finished, "failed": self.failed, "before": self.found},
            "seconds": round(self.seconds, 1),
            "programs": sum(group.spent.programs for group in self.groups),
            "compiling": round(sum(group.spent.compiling for group in self.groups), 1),
            "updates": self.updates_by_experiment(),
            "groups": [group.row() for group in self.groups],
        }
