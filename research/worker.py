"""Runs settings of deep sea, many side by side, until a queue of jobs is empty.

    python research/worker.py --jobs JOBS --out OUT --until-empty

A job is a JSON list of settings, `{"group", "name", "agent", "size", "seeds", "static", "hyper",
"fan_in", "episodes", "horizon", "streak", "rank", "lanes"}`; files are taken in the order of their
names, also those that come later. Settings of one agent, size and static fields share the lanes of
one program. A run ends after `episodes`, or once `streak` episodes in a row had the treasure; what
would follow counts as rewarded. A greedy evaluation follows about every 20 episodes. The entry
`{"cancel": PATTERN}` stops runs whose "group size name" matches.
"""

import argparse
import json
import sys
import time
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import learning
import records
from pools import BEGAN, Pool

SLICE = 3.0
"""Seconds after which it is another program's turn."""
THREADS = 2
"""Programs that take turns on the device at a time: one runs while the other's host works."""


def dump(pools: dict[str, Pool], out: Path, about: dict[str, Any]) -> None:
    """Records of all runs that have begun, and a table."""
    done = [run for pool in pools.values() for run in pool.told()]
    speeds = [
        f"{p.key}: {p.updates / max(p.seconds, 1e-9):,.0f} updates/s, {p.seconds:.0f} s, "
        f"{len(p.open)} of {len(p.runs)} runs open"
        for p in pools.values()
    ]
    lines = [f"{time.time() - BEGAN:.0f} s", *speeds]
    if done:
        records.save(out / "records", done, about)
        lines += records.table(done)
    (out / "table.txt").write_text("\n".join(lines) + "\n")


def next_of(pools: dict[str, Pool], busy: set[str]) -> Pool | None:
    """The most urgent program that is compiled, the one that waited longest among full ones."""
    ready = [p for p in pools.values() if p.open and all(f.done() for f in p.futures)]
    if not ready:
        return None
    first = min(p.rank for p in ready)
    ready = [p for p in ready if p.rank == first]
    fullest = max(p.fill for p in ready)
    ready = [p for p in ready if p.fill >= min(fullest, 0.4) and p.key not in busy]
    return min(ready, key=lambda p: p.moved, default=None)


def work(pool: Pool) -> None:
    """Some seconds of one program; one that fails is given up, its error in the log."""
    until = time.time() + SLICE
    try:
        while pool.open and time.time() < until:
            pool.advance()
    except Exception:
        traceback.print_exc()
        pool.open.clear()
    pool.moved = time.time()


def main() -> None:
    """Take jobs, give all programs their turns, write what is done."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--until-empty", action="store_true")
    arguments = parser.parse_args()
    learning.install()
    arguments.out.mkdir(parents=True, exist_ok=True)
    about = {"commit": arguments.commit, "date": time.strftime("%Y-%m-%d"), "jax": jax.__version__}
    about["hardware"] = jax.devices()[0].device_kind
    pools: dict[str, Pool] = {}
    taken: set[str] = set()
    dumped, writer = 0.0, None
    threads, working = ThreadPoolExecutor(THREADS + 1), dict[str, Future[None]]()
    while True:
        take(arguments.jobs, taken, pools)
        working = {key: doing for key, doing in working.items() if not doing.done()}
        pool = next_of(pools, set(working)) if len(working) < THREADS else None
        if pool is not None:
            working[pool.key] = threads.submit(work, pool)
        elif arguments.until_empty and not working and not any(p.open for p in pools.values()):
            break
        else:
            time.sleep(0.02)
        if time.time() - dumped > 15.0 and (writer is None or writer.done()):
            writer, dumped = threads.submit(dump, pools, arguments.out, about), time.time()
    threads.shutdown()
    dump(pools, arguments.out, about)
    sys.stdout.write((arguments.out / "table.txt").read_text())


def take(folder: Path, taken: set[str], pools: dict[str, Pool]) -> None:
    """Queue what is in job files that are new; a setting that cannot be made is in the log."""
    for path in sorted(folder.glob("*.json")):
        if path.name in taken or not path.stat().st_size:
            continue
        taken.add(path.name)
        try:
            for item in json.loads(path.read_text()):
                if "cancel" in item:
                    for pool in pools.values():
                        pool.cancel(item["cancel"])
                    continue
                shape = (item["agent"], item["env"], item["size"], item["static"], item["lanes"])
                key = json.dumps(shape, sort_keys=True)
                if key not in pools:
                    pools[key] = Pool(item, key)
                pools[key].add(item)
        except Exception:
            traceback.print_exc()
        for pool in pools.values():
            if pool.lanes is None:
                pool.prepare()


if __name__ == "__main__":
    main()
