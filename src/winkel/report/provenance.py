"""Where numbers come from: settings of each agent, versions, hashes, and the records themselves."""

import dataclasses
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from winkel.agents import AGENTS, VARIANTS
from winkel.figures.style import in_order
from winkel.report.html import (
    Cell,
    Html,
    agent,
    count_cell,
    details,
    element,
    join,
    paragraph,
    section,
    table,
)
from winkel.runs.results import Record, Results
from winkel.runs.spec import fingerprint

MOST_LINKED = 3000
"""Runs with a link to each; of more, folders are linked."""

_HARDWARE = ("hardware", "platform", "device")


def settings_section(results: Results) -> Html:
    """Budgets of each agent, and which of its fields differ from their defaults."""
    by_agent: dict[str, list[Record]] = defaultdict(list)
    for record in results.records:
        by_agent[record.config["agent"]].append(record)
    names = list(by_agent)
    rows = [_settings_row(names[i], by_agent[names[i]]) for i in in_order(names)]
    return section(
        "Settings and budgets",
        paragraph(
            "Fields that differ from their defaults, which are the paper's for bsuite (",
            element("code", "winkel list agents"),
            " shows them all). How values were searched for is not in the records: budgets of "
            "tuning, and whether its seeds were others than these, must be told beside it.",
        ),
        table(
            ("agent", "runs", "episodes", "env. steps", "not by default"),
            rows,
            caption="Settings of each agent",
            class_="settings",
        ),
        anchor="settings",
    )


def _settings_row(name: str, runs: Sequence[Record]) -> list[Cell | str]:
    base = _base(runs[0])
    episodes = [len(r.episodes["return"]) for r in runs]
    steps = [int(r.episodes["length"].sum()) for r in runs]
    changed = [
        element("code", f"{field} {' or '.join(values)}") for field, values in changes(runs).items()
    ]
    shown = join(changed, ", ") if changed else Html("none")
    if base != name:
        shown = join([element("code", base), " with ", shown])
    ranges = (_range_cell(values) for values in (episodes, steps))
    return [agent(name), count_cell(len(runs)), *ranges, shown]


def _base(record: Record) -> str:
    """The agent that a variant is made of."""
    name = str(record.config.get("algorithm", record.config["agent"]))
    return VARIANTS[name][0] if name in VARIANTS else name


def changes(runs: Iterable[Record]) -> dict[str, list[str]]:
    """Fields that are not everywhere at their default, each with all its values.

    A support that follows the environment by default is left out where it does.
    """
    values: dict[str, set[str]] = defaultdict(set)
    defaults: dict[str, str] = {}
    for r in runs:
        kind = AGENTS.get(_base(r))
        known: dict[str, Any] = {}
        if kind is not None:
            known = {f.name: f.default for f in dataclasses.fields(kind.config)}
            known |= kind.hyper._field_defaults
        for field, value in {**r.config.get("config", {}), **r.config.get("hyper", {})}.items():
            values[field].add(_say(value))
            defaults[field] = _say(known.get(field))
    return {
        field: sorted(found)
        for field, found in sorted(values.items())
        if found != {defaults[field]} and defaults[field] != "nan"
    }


def _say(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(_say, value)) or "none"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return json.dumps(value) if not isinstance(value, str) else value
    return f"{float(value):g}"


def _range_cell(values: Sequence[int]) -> Cell:
    low, high = min(values), max(values)
    return Cell(f"{low:,}" if low == high else f"{low:,}–{high:,}", float(high), numeric=True)


def provenance_section(results: Results, out: Path, command: str) -> Html:
    """Versions, machines, hashes, failures, links to every record, and how to make this again."""
    records = results.records
    failed = sum(": failed, " in line for line in results.problems)
    digest = fingerprint({str(i): r.config.get("fingerprint", "") for i, r in enumerate(records)})
    facts = [
        ("versions", _versions(records)),
        ("hardware", _said(records, _HARDWARE) or "not recorded"),
        ("sweeps", "; ".join(map(_sweep, results.sweeps)) or "none recorded"),
        ("runs read", f"{len(records):,}"),
        ("runs that failed", f"{failed:,}, listed under problems; their episodes are in no table"),
        ("hash of all settings", digest),
    ]
    pairs = [join([element("dt", name), element("dd", value)]) for name, value in facts]
    return section(
        "Provenance",
        element("dl", *pairs),
        paragraph("This page is made from the runs alone, to the same bytes each time, by"),
        element("pre", element("code", command)),
        details(f"Raw records of all {len(records):,} runs", _records_table(records, out)),
        anchor="provenance",
    )


def _sweep(call: Mapping[str, Any]) -> str:
    runs = call.get("runs", {})
    return (
        f"{runs.get('finished', 0):,} runs of {', '.join(call.get('agents', ()))} in "
        f"{call.get('seconds', 0):,.0f} s on {call.get('device', 'an unknown device')}"
    )


def _versions(records: Iterable[Record]) -> str:
    found = Counter(
        ", ".join(f"{k} {v}" for k, v in sorted(r.config.get("versions", {}).items()))
        for r in records
    )
    return "; ".join(f"{name or 'unknown'} ({n:,} runs)" for name, n in sorted(found.items()))


def _said(records: Iterable[Record], keys: Sequence[str]) -> str:
    found = {
        json.dumps(r.config[k], sort_keys=True) for r in records for k in keys if k in r.config
    }
    return "; ".join(text.strip('"') for text in sorted(found))


def _records_table(records: Sequence[Record], out: Path) -> Html:
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[record.config["env"], record.config["agent"]].append(record)
    each = len(records) <= MOST_LINKED
    rows: list[list[Cell | str]] = []
    for (env, name), runs in groups.items():
        folder = element("a", "folder", href=_link(runs[0].folder.parent, out))
        links = join([_run_link(r, out) for r in runs], " ") if each else Html("")
        rows.append([env, agent(name), folder, links, count_cell(len(runs))])
    return table(
        ("environment", "agent", "records", "seeds: episodes.npz, config.json", "runs"),
        rows,
        caption="Raw records; a seed links to its episodes and, by its hash, to its settings",
    )


def _run_link(record: Record, out: Path) -> Html:
    mark = str(record.config.get("fingerprint", "config"))[:6]
    return element(
        "span",
        element("a", str(record.config["seed"]), href=_link(record.folder / "episodes.npz", out)),
        Html("&nbsp;"),
        element("a", mark, href=_link(record.folder / "config.json", out), class_="hash"),
        class_="run",
    )


def _link(path: Path, out: Path) -> str:
    """From the report's folder, so that both can be moved together."""
    return quote(os.path.relpath(path.resolve(), out.resolve()).replace(os.sep, "/"))
