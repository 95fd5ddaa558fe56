"""`winkel shard`: one shard of a sweep, wherever this is."""

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from winkel.cluster import manifest as manifests
from winkel.cluster.shard import STOPPED, Stopped, run_shard, stopping_at_signals
from winkel.commands.backend import make_deterministic
from winkel.commands.terminal import say
from winkel.commands.train import Display
from winkel.runs.session import Status
from winkel.runs.sweep import Group


@dataclass(frozen=True, kw_only=True)
class ShardCommand:
    """Run one shard of a sweep, into the folder of its manifest; again to go on with it.

    SIGTERM and SIGUSR1 have it write checkpoints and end with status 75.
    """

    manifest: tyro.conf.Positional[Path]
    """What `winkel sweep … --plan-only` has written."""
    number: tyro.conf.Positional[int]
    """Of the shard, from 0 on."""

    def run(self) -> None:
        """Run what is left of it, and count."""
        manifest = manifests.read(self.manifest)
        shard = manifest.shard(self.number)
        if manifest.deterministic:
            make_deterministic()
        say(f"shard {self.number}: {len(shard.runs)} runs, {shard.group}, {shard.lanes} lanes")
        try:
            with stopping_at_signals(), Display(f"shard {self.number}") as display:

                def show(_: Group, statuses: list[Status]) -> None:
                    display.update(statuses)

                outcome = run_shard(manifest, self.number, self.manifest.parent, show, display.say)
        except Stopped as stopped:
            print(  # noqa: T201
                f"winkel: stopped by {stopped}; run the shard again to go on", file=sys.stderr
            )
            raise SystemExit(STOPPED) from None
        say(
            f"finished {outcome.finished}, failed {outcome.failed}, found ended {outcome.found}; "
            f"{outcome.seconds:,.0f} s"
        )
