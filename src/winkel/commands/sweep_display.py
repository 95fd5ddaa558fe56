"""What `winkel sweep` and `winkel shard` show: how far they are, what it took, what it may take."""

from typing import Any

import numpy as np
from rich.table import Table

from winkel.commands.terminal import console, say
from winkel.commands.train import Display
from winkel.runs.ledger import Outcome
from winkel.runs.session import Options, Status
from winkel.runs.sweep import Group, calibrated, lanes_of


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
        spent = group.spent
        numbers = (group.runs, spent.lanes, spent.total, spent.seconds, spent.rate, spent.programs)
        rest = (spent.compiling, spent.device, spent.saving)
        table.add_row(group.name, *(f"{number:,.0f}" for number in (*numbers, *rest)))
    console.print(table)
    made = outcome.updates_by_experiment()
    say("updates: " + ", ".join(f"{name} {count:,}" for name, count in made.items()))
    programs, compiling = (outcome.row()[name] for name in ("programs", "compiling"))
    say(f"compiled {programs} programs in {compiling:,.0f} s")


def estimate(groups: list[Group], lanes: int | None, options: Options) -> None:
    """Count, and time a chunk of the largest group."""
    if not groups:
        return
    largest = max(groups, key=lambda group: len(group.runs))
    rate, compiling = calibrated(largest, lanes, options)
    episodes = sum(
        int((run.stop or run.horizon).episodes) for group in groups for run in group.runs
    )
    most = sum(run.most_steps or 0 for group in groups for run in group.runs)
    say(f"{episodes:,} episodes, at most {most:,} updates")
    count = lanes_of(largest, lanes, devices=options.devices)
    say(f"{largest.name}: {rate:,.0f} updates/s with {count} lanes, {compiling:.0f} s to compile")
    say(f"at that rate at most {(most / rate + compiling * len(groups)) / 3600:.1f} hours")
