"""A search so small that its programs compile in seconds, and all tests share them."""

from winkel.runs.spec import Options
from winkel.search.population import Population
from winkel.search.problem import MILESTONES, Problem, parse_environment, parse_parameter
from winkel.search.study import open_study

FIELDS = {"hidden": (8,), "num_atoms": 5, "batch_size": 8, "burn_in": 8, "capacity": 64}
RATES = (1e-4, 2e-4, 3e-4, 4e-4, 5e-4, 6e-4, 7e-4, 8e-4)
CHUNK, EPISODES, LENGTH = 10, 10, 5
SEA = f"deep_sea:size={LENGTH}@{EPISODES}"


def step_of(environment, milestone):
    """Optuna's step for a milestone (from 1) of an environment (from 0)."""
    return environment * MILESTONES + milestone


def problem(*envs, seeds=1, agent="qr_dqn", prune=True, **parameters):
    chosen = parameters or {"learning_rate": RATES}
    fields = {k: v for k, v in FIELDS.items() if k not in chosen}
    if agent == "bdqn":
        fields = {k: v for k, v in fields.items() if k != "num_atoms"} | {"num_members": 2}
    entries = {
        name: [list(v) if isinstance(v, tuple) else v for v in values]
        for name, values in chosen.items()
    }
    made = Problem(
        agent=agent,
        parameters={name: parse_parameter(agent, name, e, name) for name, e in entries.items()},
        environments=[parse_environment(env) for env in envs or (SEA,)],
        prune=prune,
        seeds=seeds,
        fields=fields,
    )
    made.check(1)
    return made


def population(folder, wanted, of=None, resume=False, lanes=2, **others):
    study = open_study(folder, None, "tiny", of or problem(), resume)
    options = Options(chunk_steps=CHUNK)
    return Population(study=study, wanted=wanted, lanes=lanes, options=options, **others)
