"""`winkel search`: search for hyperparameters, write the page of a study, apply its winner."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from winkel.commands.options import check_fields, console, exit_if_failed, progress_bar, say
from winkel.errors import InputError
from winkel.runs.presets import named_preset, write_preset
from winkel.runs.spec import Options

if TYPE_CHECKING:
    from winkel.search.study import Summary


@dataclass(frozen=True, kw_only=True)
class SearchCommand:
    """Search for hyperparameters as in appendix B.1: `winkel search --agent A --trials N`.

    `winkel search report STUDY` then writes a page, `winkel search apply STUDY` saves the winner as
    a preset for `winkel train --preset`. `winkel search space NAME` prints a space to edit. Any
    field of the agent is an option, which fixes the field.
    """

    agent: str = "pe_dqn"
    """A name from `winkel list agents`."""
    trials: int = 64
    """Number of trials in the study, those of earlier calls and other processes included."""
    space: str = "bsuite"
    """Search space: bsuite, vizdoom, or a TOML file."""
    envs: tuple[str, ...] = ()
    """Environments instead of the space's, as ID@EPISODES or ID@STEPSsteps, or with @SCORE."""
    seeds: int = 1
    """Runs of each trial in each environment, with seeds that no other command uses."""
    out: Path | None = None
    """Folder of the study; search/AGENT by default."""
    storage: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Optuna's storage, as a URL; an SQLite file in the folder by default."""
    name: str | None = None
    """Name of the study in its storage; AGENT by default."""
    resume: bool = False
    """Continue a study, or join one that other processes work on."""
    lanes: int | None = None
    """Runs side by side in a program; 8 on a CPU, 64 elsewhere by default."""
    chunk_steps: int = 100
    """Steps between two checks of the lanes."""
    sampler_seed: int = 0
    """Seed of the suggested configurations."""
    allow_failures: bool = False
    """Exit with status 0 also if all trials failed."""
    fields: tyro.conf.Suppress[dict[str, Any]] = field(default_factory=dict)
    """Fields of the agent, from the options that tyro does not know."""

    def run(self) -> None:
        """Search, print a summary and write the page."""
        from winkel.search.population import Population, choose_lanes
        from winkel.search.problem import load_problem
        from winkel.search.study import REASON, Summary, open_study

        check_fields(self, self.agent)
        problem = load_problem(
            self.space,
            self.agent,
            self.envs,
            seeds=self.seeds,
            fields=self.fields,
        )
        problem.check(self.trials)
        lanes, options = choose_lanes(self.lanes), Options(chunk_steps=self.chunk_steps)
        folder = self.out or Path("search") / self.agent
        study = open_study(folder, self.storage, self.name or self.agent, problem, self.resume)
        with progress_bar() as bar:
            task = bar.add_task(f"search for {self.agent}", total=self.trials)

            population = Population(
                study=study,
                wanted=self.trials,
                lanes=lanes,
                options=options,
                seed=self.sampler_seed,
                progress=lambda text, share: bar.update(
                    task, description=text, completed=share * self.trials
                ),
                notice=lambda text: bar.console.print(text, highlight=False, markup=False),
            )
            population.run()
        summary = Summary(study)
        print_summary(summary)
        say(f"updates: {population.updates:,} here, {summary.updates:,} in all")
        if summary.unfinished:
            say(f"{summary.unfinished} trials are not finished; continue with --resume")
        _write_page(summary, folder, folder)
        if len(summary.failed) == summary.num_trials:
            reasons = [trial.user_attrs[REASON] for trial in summary.failed]
            exit_if_failed("trials", reasons, summary.num_trials, self.allow_failures)


@dataclass(frozen=True, kw_only=True)
class SearchReport:
    """Write the page of a study, finished or not: `winkel search report STUDY`."""

    study: tyro.conf.Positional[Path]
    """Folder of the study."""
    storage: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Storage of the study, if it is not in the folder."""
    study_name: str | None = None
    """Name of the study, if its storage has several."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder for the page, index.html; the study's own by default."""

    def run(self) -> None:
        """Print the best trials and write the page."""
        summary = _read_summary(self)
        print_summary(summary)
        _write_page(summary, self.out or self.study, self.study)


@dataclass(frozen=True, kw_only=True)
class SearchApply:
    """Save the winner of a study as a preset for `winkel train`: `winkel search apply STUDY`."""

    study: tyro.conf.Positional[Path]
    """Folder of the study."""
    name: str | None = None
    """Name of the preset; AGENT-search by default."""
    storage: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Storage of the study, if it is not in the folder."""
    study_name: str | None = None
    """Name of the study, if its storage has several."""

    def run(self) -> None:
        """Write the preset and print how to use it."""
        from winkel.search.problem import to_fields

        summary = _read_summary(self)
        if not summary.complete:
            raise InputError(f"{self.study} has no complete trial yet; continue with --resume")
        best, problem = summary.complete[0], summary.study.problem
        agent = problem.agent
        name = f"{agent}-search".replace("_", "-") if self.name is None else self.name
        preset = {} if problem.preset is None else named_preset(problem.preset, agent)
        fields = {**preset, **problem.fields, **to_fields(best.params)}
        origin = [
            f"The best of {summary.num_trials} trials of the study in {self.study}: trial "
            f"{best.number}, final score {summary.totals[0]:.3f} of {len(problem.environments)}.",
            f"Searched over {summary.budget()}.",
            f"winkel {problem.version}; `winkel train ENV --agent {agent} --preset {name}` "
            "reads it.",
        ]
        path = write_preset(name, agent, fields, origin)
        say(f"wrote {path}: winkel train ENV --agent {agent} --preset {name}")


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """Print one of the paper's spaces, to edit: `winkel search space bsuite > mine.toml`."""

    space: tyro.conf.Positional[str]
    """bsuite or vizdoom."""

    def run(self) -> None:
        """Print the file."""
        from winkel.search.problem import read_space

        text = read_space(self.space)
        console.print(text, highlight=False, markup=False, soft_wrap=True, end="")


def print_summary(summary: "Summary") -> None:
    """Print the best trial, and how many there are."""
    if summary.complete:
        best = summary.complete[0]
        params = ", ".join(f"{name} {value}" for name, value in best.params.items())
        say(f"best: trial {best.number}, final score {summary.totals[0]:.3f}: {params}")
    say(
        f"{summary.num_trials} trials: {len(summary.complete)} complete, {len(summary.pruned)} "
        f"pruned, {len(summary.failed)} failed, {summary.unfinished} unfinished; "
        f"each: {summary.budget()}"
    )


def _read_summary(command: SearchReport | SearchApply) -> "Summary":
    from winkel.search.study import Summary, load_study

    return Summary(load_study(command.study, command.storage, command.study_name))


def _write_page(summary: "Summary", folder: Path, study: Path) -> None:
    from winkel.report.study import write_study_page

    say(f"wrote {write_study_page(summary, folder, study)}")
