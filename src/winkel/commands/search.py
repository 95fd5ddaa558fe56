"""`winkel search`: search for hyperparameters, write the page of a study, apply its winner."""

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import tyro

from winkel.commands.options import Fields, check_fields, console, exit_if_failed, progress_bar, say
from winkel.errors import InputError
from winkel.runs.presets import named_preset, write_preset
from winkel.runs.spec import Options

if TYPE_CHECKING:  # help needs no Optuna
    from winkel.search.study import Summary

Url = Annotated[str | None, tyro.conf.arg(metavar="URL")]


def search(
    agent: str = "pe_dqn",
    trials: int = 64,
    space: str = "bsuite",
    envs: tuple[str, ...] = (),
    seeds: int = 1,
    out: Path | None = None,
    storage: Url = None,
    name: str | None = None,
    resume: bool = False,
    lanes: int | None = None,
    chunk_steps: int = 100,
    allow_failures: bool = False,
    fields: Fields = MappingProxyType({}),
) -> None:
    """Search for hyperparameters as in appendix B.1: `winkel search --agent A --trials N`.

    `winkel search report STUDY` then writes a page, `winkel search apply STUDY` saves the winner as
    a preset for `winkel train --preset`. `winkel search space NAME` prints a space to edit. Any
    field of the agent is an option, which fixes the field.

    Args:
        agent: A name from `winkel list agents`.
        trials: Number of trials in the study, those of earlier calls and other processes included.
        space: Search space: bsuite, vizdoom, or a TOML file.
        envs: Environments instead of the space's, as ID@EPISODES or ID@STEPSsteps, or with @SCORE.
        seeds: Runs of each trial in each environment, with seeds that no other command uses.
        out: Folder of the study; search/AGENT by default.
        storage: Optuna's storage, as a URL; an SQLite file in the folder by default.
        name: Name of the study in its storage; AGENT by default.
        resume: Continue a study, or join one that other processes work on.
        lanes: Runs side by side in a program; 8 on a CPU, 64 elsewhere by default.
        chunk_steps: Steps between two checks of the lanes.
        allow_failures: Exit with status 0 also if all trials failed.
    """
    from winkel.search.population import Population, choose_lanes
    from winkel.search.problem import load_problem
    from winkel.search.study import REASON, Summary, open_study

    check_fields(search, fields, agent)
    problem = load_problem(space, agent, envs, seeds=seeds, fields=fields)
    problem.check(trials)
    lanes, options = choose_lanes(lanes), Options(chunk_steps=chunk_steps)
    folder = out or Path("search") / agent
    study = open_study(folder, storage, name or agent, problem, resume)
    with progress_bar() as bar:
        task = bar.add_task(f"search for {agent}", total=trials)
        population = Population(
            study=study,
            wanted=trials,
            lanes=lanes,
            options=options,
            progress=lambda text, share: bar.update(
                task, description=text, completed=share * trials
            ),
            notice=lambda text: bar.console.print(text, highlight=False, markup=False),
        )
        population.run()
    summary = Summary(study)
    say(f"updates: {population.updates:,} here, {summary.updates:,} in all")
    if summary.unfinished:
        say(f"{summary.unfinished} trials are not finished; continue with --resume")
    _show(summary, folder, folder)
    if len(summary.failed) == summary.num_trials:
        reasons = [trial.user_attrs[REASON] for trial in summary.failed]
        exit_if_failed("trials", reasons, summary.num_trials, allow_failures)


def search_report(
    study: tyro.conf.Positional[Path],
    storage: Url = None,
    study_name: str | None = None,
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
) -> None:
    """Write the page of a study, finished or not: `winkel search report STUDY`.

    Args:
        study: Folder of the study.
        storage: Storage of the study, if it is not in the folder.
        study_name: Name of the study, if its storage has several.
        out: Folder for the page, index.html; the study's own by default.
    """
    from winkel.search.study import Summary, load_study

    _show(Summary(load_study(study, storage, study_name)), out or study, study)


def search_apply(
    study: tyro.conf.Positional[Path],
    name: str | None = None,
    storage: Url = None,
    study_name: str | None = None,
) -> None:
    """Save the winner of a study as a preset for `winkel train`: `winkel search apply STUDY`.

    Args:
        study: Folder of the study.
        name: Name of the preset; AGENT-search by default.
        storage: Storage of the study, if it is not in the folder.
        study_name: Name of the study, if its storage has several.
    """
    from winkel.search.problem import to_fields
    from winkel.search.study import Summary, load_study

    summary = Summary(load_study(study, storage, study_name))
    if not summary.complete:
        raise InputError(f"{study} has no complete trial yet; continue with --resume")
    best, problem = summary.complete[0], summary.study.problem
    agent = problem.agent
    name = f"{agent}-search".replace("_", "-") if name is None else name
    preset = {} if problem.preset is None else named_preset(problem.preset, agent)
    fields = {**preset, **problem.fields, **to_fields(best.params)}
    origin = [
        f"The best of {summary.num_trials} trials of the study in {study}: trial "
        f"{best.number}, final score {summary.totals[0]:.3f} of {len(problem.environments)}.",
        f"Searched over {summary.budget()}.",
        f"winkel {problem.version}; `winkel train ENV --agent {agent} --preset {name}` reads it.",
    ]
    path = write_preset(name, agent, fields, origin)
    say(f"wrote {path}: winkel train ENV --agent {agent} --preset {name}")


def search_space(space: tyro.conf.Positional[str]) -> None:
    """Print one of the paper's spaces, to edit: `winkel search space bsuite > mine.toml`.

    Args:
        space: bsuite or vizdoom.
    """
    from winkel.search.problem import find_space

    text = find_space(space).read_text("utf-8")
    console.print(text, highlight=False, markup=False, soft_wrap=True, end="")


def _show(summary: "Summary", folder: Path, study: Path) -> None:
    """Print the best trial and how many there are; write the page into a folder."""
    from winkel.report.study import write_study_page

    if summary.complete:
        best = summary.complete[0]
        params = ", ".join(f"{name} {value}" for name, value in best.params.items())
        say(f"best: trial {best.number}, final score {summary.totals[0]:.3f}: {params}")
    say(
        f"{summary.num_trials} trials: {len(summary.complete)} complete, {len(summary.pruned)} "
        f"pruned, {len(summary.failed)} failed, {summary.unfinished} unfinished; "
        f"each: {summary.budget()}"
    )
    say(f"wrote {write_study_page(summary, folder, study)}")
