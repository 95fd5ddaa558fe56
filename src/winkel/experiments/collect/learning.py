"""Learning curves: bsuite over episodes by experiment, VizDoom over steps by setting."""

from winkel.envs.bsuite.sweep import EXPERIMENTS
from winkel.experiments.collect.bsuite import hard
from winkel.experiments.collect.common import budget_of, select, text
from winkel.experiments.collect.curves import panels_of
from winkel.runs.results import Arrays, Record, Results

DOOM = "doom"
"""The experiment of VizDoom's runs."""
_SPARSITY = ("dense", "sparse", "very-sparse")


def collect_learning_curves(results: Results) -> Arrays:
    """A panel for each experiment of bsuite: mean returns with 90 % Student t bands.

    Greedy evaluations where all runs of an experiment have them, else training returns, averaged
    over fiftieths of the budget. Returns of '_scale' experiments are divided by their scale.
    """
    whole = select(results, "bsuite", experiment=EXPERIMENTS.__contains__)
    found = {r.experiment for r in whole.records}
    experiments = [name for name in EXPERIMENTS if name in found]
    arrays = panels_of(
        whole,
        experiments,
        lambda record: record.experiment,
        clock="episodes",
        budget=budget_of,
        say=lambda n: f"of {n:,} episodes",
    )
    return {
        "experiments": text(experiments),
        "hard": hard(experiments),
        **arrays,
        "notes": whole.closing_notes(),
    }


def collect_vizdoom(results: Results) -> Arrays:
    """Mean returns with 90 % Student t bands over environment steps.

    Greedy evaluations where all runs of a setting have them, else training returns, averaged over
    fiftieths of the time.
    """
    whole = select(results, "vizdoom", experiment=DOOM.__eq__)
    settings = sorted({setting_of(r) for r in whole.records}, key=_rank)
    arrays = panels_of(whole, settings, setting_of, clock="env_steps", budget=_plan, say=_say_plan)
    return {"settings": text(settings), **arrays, "notes": whole.closing_notes()}


def setting_of(record: Record) -> str:
    """Such as 'very-sparse' of 'doom:my-way-home/very-sparse', with options where it has some."""
    return str(record.config["env"]).rpartition("/")[2]


def _rank(name: str) -> tuple[int, str]:
    return (_SPARSITY.index(name) if name in _SPARSITY else len(_SPARSITY), name)


def _plan(record: Record) -> tuple[int, int]:
    """Steps and episodes that a run was to have; zero where it does not say."""
    horizon = record.config.get("horizon") or {}
    return horizon.get("steps") or 0, horizon.get("episodes") or 0


def _say_plan(plan: tuple[int, int]) -> str:
    steps, episodes = plan
    if not steps and not episodes:
        return "of no stated budget"
    return f"of {steps:,} steps" if steps else f"of {episodes:,} episodes"
