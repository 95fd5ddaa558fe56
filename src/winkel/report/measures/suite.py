"""Measures of bsuite's scores and of VizDoom."""

from collections.abc import Sequence

from winkel.envs.bsuite.sweep import EXPERIMENTS
from winkel.experiments.collect import collect_radar
from winkel.experiments.collect.common import num_episodes
from winkel.experiments.collect.learning import DOOM, setting_of
from winkel.experiments.score import OFFICIAL_IDS
from winkel.experiments.statistics import wilson_interval
from winkel.report.measures.common import (
    Found,
    Part,
    compare,
    counts,
    known,
    mean_gap,
    notes_of,
    only,
    place,
)
from winkel.runs.results import Results


def score_lead(results: Results, *, agent: str, others: Sequence[str], tag: str) -> Found:
    """Difference of mean scores of a capability; each agent needs all of its experiments."""
    wanted = {name for name, experiment in EXPERIMENTS.items() if tag in experiment.tags}
    official = [r for r in only(results, {agent, *others}).records if r.experiment in wanted]
    official = [r for r in official if r.config["env"] in OFFICIAL_IDS]
    chosen = Results(tuple(official), ())
    lacking = {
        name: sorted(wanted - {r.experiment for r in chosen.of(agent=name)})
        for name in (agent, *others)
    }
    missing = tuple(f"{', '.join(names)} by {who}" for who, names in lacking.items() if names)
    complete = [name for name in others if not lacking[name]]
    if lacking[agent] or not complete:
        return Found(missing=missing)
    chosen = only(chosen, {agent, *complete})
    arrays = collect_radar(chosen)
    column = arrays["tags"].tolist().index(tag)
    scores = {
        name: known(arrays["seed_scores"][place(arrays, name), column])
        for name in (agent, *complete)
    }
    ours = [scores[agent]]
    parts = tuple(
        Part(other, compare(ours, [scores[other]], mean_gap), counts(ours, [scores[other]]))
        for other in complete
    )
    # That the experiments of other capabilities are missing matters not here.
    notes = tuple(note for note in notes_of(arrays) if "of 23 experiments" not in note)
    scale = {"seeds": min(map(len, scores.values())), "settings in full": _in_full(chosen)}
    return Found(parts, missing, scale, notes)


def _in_full(results: Results) -> int:
    """Settings run for bsuite's number of episodes, by the agent and seed with fewest."""
    counts = dict.fromkeys(((r.config["agent"], r.config["seed"]) for r in results.records), 0)
    for r in results.records:
        whole = num_episodes(r) >= EXPERIMENTS[r.experiment].num_episodes
        counts[r.config["agent"], r.config["seed"]] += int(whole)
    return min(counts.values())


def found_share(results: Results, *, agents: Sequence[str], settings: Sequence[str]) -> Found:
    """The share of VizDoom runs with any reward, in the setting where an agent finds least."""
    parts: list[Part] = []
    missing: list[str] = []
    seeds: list[int] = []
    steps: list[int] = []
    for agent in agents:
        shares: list[Part] = []
        doom = [r for r in results.of(agent=agent) if r.experiment == DOOM]
        for setting in settings:
            runs = [r for r in doom if setting_of(r) == setting]
            if not runs:
                missing.append(f"vizdoom {setting} by {agent}")
                continue
            found = sum(bool((r.episodes["return"] > 0).any()) for r in runs)
            interval = wilson_interval(found, len(runs))
            shares.append(Part(f"{agent}, {setting}", interval, str(len(runs))))
            seeds.append(len(runs))
            steps += [int(r.episodes["length"].sum()) for r in runs]
        if len(shares) == len(settings):
            parts.append(min(shares, key=lambda part: part.interval.estimate))
    scale = {"seeds": min(seeds), "steps": min(steps)} if seeds else {}
    return Found(tuple(parts), tuple(missing), scale)
