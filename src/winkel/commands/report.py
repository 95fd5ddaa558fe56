"""`winkel report`: write a page that checks the paper's claims against runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from winkel.commands.terminal import say
from winkel.report.page import write_report


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write a page: the paper's claims with verdicts, scores, figures, settings and records."""

    runs: tyro.conf.Positional[Path]
    """Folder that `winkel train`, a sweep or `winkel rollout --out` has filled."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report")
    """Folder for the page, index.html; one that is there is replaced."""

    def run(self) -> None:
        """Write the page; print where it is and the verdicts on the claims."""
        page, counts = write_report(self.runs, self.out)
        say(f"wrote {page}")
        say("claims: " + ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items())))
