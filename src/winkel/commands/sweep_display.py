"""What `winkel sweep` and `winkel shard` show: how far they are, what it took, what it may take."""

from typing import Any

import numpy as np
from rich.table import Table

from winkel.commands.terminal import console, say
from winkel.commands.train import Display
from winkel.runs.recorder import Status
from winkel.runs.sweep import Group, Outcome, choose_lanes, measure_speed


class Board:
    """One bar over all groups, with the runs of the current one below."""

    def __init__(self, groups: list[Group], todo: int) -> None:
        self.display = Display(f"{todo} runs")
        self.names = [group.name for group in groups]
        self.sizes = [len(group.runs) for group in groups]

    def __enter__(self) -> "Board":
        self.display.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.display.__exit__(*exception)

    def update(self, group: int, statuses: list[Status]) -> None:
        """Show how far the sweep is, by runs."""
        done = sum(self.sizes[:group])
        share = (done + sum(s.progress for s in statuses)) / sum(self.sizes)
        running = [s for s in statuses if s.state == "running"] or statuses
        ended = int(np.sum([s.state != "running" for s in statuses]))
        self.display.show(f"{self.names[group]}: {ended}/{len(statuses)}", share, running)


def print_costs(outcome: Outcome) -> None:
    """Where the time went: by program, and by experiment."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    columns = ("runs", "lanes", "updates", "seconds", "updates/s", "compiled", "s compiling")
    table.add_column("group")
    for name in (*columns, "s on device", "s saving"):
        table.add_column(name, justify="right")
    for group in outcome.groups:
        numbers = (group.runs, group.lanes, group.total, group.seconds, group.rate, group.programs)
        rest = (group.compiling, group.device, group.saving)
        table.add_row(group.name, *(f"{number:,.0f}" for number in (*numbers, *rest)))
    console.print(table)
    made = outcome.updates_by_experiment()
    say("updates: " + ", ".join(f"{name} {count:,}" for name, count in made.items()))
    programs, compiling = (outcome.row()[name] for name in ("programs", "compiling"))
    say(f"compiled {programs} programs in {compiling:,.0f} s")


def estimate(groups: list[Group], lanes: int | None) -> None:
    """Count, and time a chunk of the largest group."""
    if not groups:
        return
    largest = max(groups, key=lambda group: len(group.runs))
    rate, compiling = measure_speed(largest, lanes)
    episodes = sum(int(run.end.episodes) for group in groups for run in group.runs)
    most = sum(run.max_steps or 0 for group in groups for run in group.runs)
    say(f"{episodes:,} episodes, at most {most:,} updates")
    count = choose_lanes(largest, lanes)
    say(f"{largest.name}: {rate:,.0f} updates/s with {count} lanes, {compiling:.0f} s to compile")
    say(f"at that rate at most {(most / rate + compiling * len(groups)) / 3600:.1f} hours")
