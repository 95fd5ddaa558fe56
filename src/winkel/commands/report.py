"""`winkel report`: write a page with the results of runs, and print its first table."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from winkel.commands.terminal import console, say
from winkel.commands.train import make_table
from winkel.report.page import number, plus_minus, write_report

_COLUMNS = ("agent", "seeds", "episodes", "steps", "final return", "greedy return", "first goal")


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write a page: returns, curves, the paper's claims with verdicts, scores, figures, records."""

    runs: tyro.conf.Positional[Path]
    """Folder that `winkel train`, a sweep or `winkel rollout --out` has filled."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report")
    """Folder for the page, index.html; one that is there is replaced."""

    def run(self) -> None:
        """Write the page; print its returns, where it is and the verdicts on the claims."""
        page, returns, counts = write_report(self.runs, self.out)
        say("Means over seeds ± half of a 95 % interval; first goal: the median episode")
        for env, rows in itertools.groupby(returns, lambda row: row["env"]):
            console.print(make_table(_COLUMNS, [_write(row) for row in rows], title=env))
        say(f"wrote {page}")
        verdicts = ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items()))
        say(f"claims: {verdicts or 'none of the paper can be judged on these runs'}")


def _write(row: dict[str, Any]) -> list[str]:
    """Write a row of the table; a cell without a number is empty."""
    counts = [str(row["seeds"]), *(f"{max(row[name]):,}" for name in ("episodes", "steps"))]
    returns = ["" if row[name] is None else plus_minus(row[name]) for name in ("final", "last")]
    first = "" if row["first"] is None else number(row["first"].estimate, 0)
    return [row["agent"], *counts, *returns, first]
