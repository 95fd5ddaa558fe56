"""`winkel search`: the paper's search for hyperparameters, in lanes; its page; its winner."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from winkel.commands.terminal import console, say
from winkel.errors import InputError
from winkel.runs.presets import write_preset
from winkel.runs.spec import parse_overrides

if TYPE_CHECKING:
    from winkel.search.population import Progress as Standing
    from winkel.search.problem import Problem
    from winkel.search.summary import Summary

MOST_ROWS = 10


@dataclass(frozen=True, kw_only=True)
class SearchCommand:
    """Search for hyperparameters, as appendix B.1 does: `winkel search --agent A --trials N`.

    Then `winkel search report STUDY` writes its page, `winkel search apply STUDY` a preset of the
    winner for `winkel train --preset`; `winkel search space NAME` prints a space to edit. Any field
    of the agent is an option, which fixes it.
    """

    agent: str = "pe_dqn"
    """A name from `winkel list agents`."""
    trials: int = 64
    """Configurations to try, those of other processes and of before included."""
    space: str = "bsuite"
    """What to search over, and where: bsuite, vizdoom, or a file of one's own."""
    envs: tuple[str, ...] = ()
    """Environments in place of the space's, as ID@EPISODES or ID@EPISODES@SCORE."""
    seeds: int = 1
    """Runs of each trial in each environment, with seeds that no other command takes."""
    out: Path | None = None
    """The study's folder; search/AGENT by default."""
    storage: str | None = None
    """Where Optuna keeps the study: any of its URLs; an SQLite file in the folder by default."""
    name: str | None = None
    """What the study is called in its storage; AGENT by default."""
    resume: bool = False
    """Go on with a study, or join one that other processes work on."""
    lanes: int | None = None
    """Runs side by side in a program; 8 on a CPU, 64 elsewhere by default."""
    chunk_steps: int = 100
    """Steps between two looks at the lanes."""
    sampler_seed: int = 0
    """Of the choice of configurations."""
    mnist_dir: Path | None = None
    """Folder with MNIST's IDX files."""
    fields: tyro.conf.Suppress[tuple[str, ...]] = ()

    def run(self) -> None:
        """Search, show it, sum it up, write the page."""
        _require_optuna()
        from winkel.search.population import Population
        from winkel.search.storage import open_study
        from winkel.search.summary import summarise

        problem = self._problem()
        folder = self.out or Path("search") / self.agent
        shared = open_study(
            folder, self.storage, self.name or self.agent, problem.identity(), self.resume
        )
        with Display(f"search for {self.agent}") as display:
            population = Population(
                problem=problem,
                shared=shared,
                wanted=self.trials,
                lanes=self.lanes,
                chunk_steps=self.chunk_steps,
                seed=self.sampler_seed,
                progress=display.show,
                notice=display.say,
            )
            standing = population.run()
        summary = summarise(shared)
        print_summary(summary)
        say(f"updates: {standing.updates:,} here, {summary.updates:,} in all")
        if summary.unfinished:
            say(f"{summary.unfinished} trials are under way elsewhere, or left: see --resume")
        _write_page(summary, folder)

    def _problem(self) -> "Problem":
        from winkel.search.problem import Problem
        from winkel.search.space import environment, load_space

        space = load_space(self.space, self.agent)
        if self.envs:
            space = space._replace(environments=tuple(environment(text) for text in self.envs))
        return Problem(
            agent=self.agent,
            space=space,
            seeds=self.seeds,
            fields=parse_overrides(self.agent, list(self.fields)),
            mnist_dir=self.mnist_dir,
        )


@dataclass(frozen=True, kw_only=True)
class SearchReport:
    """Write the page of a study, also of one under way: `winkel search report STUDY`."""

    study: tyro.conf.Positional[Path]
    """The study's folder."""
    storage: str | None = None
    """Its storage, where the folder does not keep the password."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder for the page, index.html; the study's own by default."""

    def run(self) -> None:
        """Print the best trials and write the page."""
        summary = _summary(self.study, self.storage)
        print_summary(summary)
        _write_page(summary, self.out or self.study, self.study)


@dataclass(frozen=True, kw_only=True)
class SearchApply:
    """Write a study's winner as a preset for `winkel train`: `winkel search apply STUDY`."""

    study: tyro.conf.Positional[Path]
    """The study's folder."""
    name: str | None = None
    """The preset's; AGENT-search by default."""
    storage: str | None = None
    """Its storage, where the folder does not keep the password."""

    def run(self) -> None:
        """Write the file and say how to use it."""
        summary = _summary(self.study, self.storage)
        best = summary.best()
        default = f"{summary.agent}-search".replace("_", "-")
        name = default if self.name is None else self.name
        origin = [
            f"The best of {summary.counted} trials of study {summary.name}: trial {best.number}, "
            f"final score {best.total:.3f} of {len(summary.environments)}.",
            f"Searched over {summary.budget()}.",
            f"winkel {summary.identity['version']}; `winkel train ENV --agent {summary.agent} "
            f"--preset {name}` reads it.",
        ]
        path = write_preset(name, summary.agent, winning_fields(summary), origin)
        say(f"wrote {path}: winkel train ENV --agent {summary.agent} --preset {name}")


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """Print one of the paper's spaces, to edit: `winkel search space bsuite > mine.toml`."""

    space: tyro.conf.Positional[str]
    """bsuite or vizdoom."""

    def run(self) -> None:
        """Print it."""
        _require_optuna()
        from winkel.search.space import paper_text

        console.print(paper_text(self.space), highlight=False, markup=False, soft_wrap=True, end="")


def _summary(study: Path, storage: str | None) -> "Summary":
    _require_optuna()
    from winkel.search.storage import load_study
    from winkel.search.summary import summarise

    return summarise(load_study(study, storage))


def _write_page(summary: "Summary", folder: Path, study: Path | None = None) -> None:
    from winkel.report.study import write_study_page

    say(f"wrote {write_study_page(summary, folder, study or folder)}")


def winning_fields(summary: "Summary") -> dict[str, Any]:
    """All that made the winner: the search's preset, what was fixed, what was found."""
    from winkel.runs.presets import named_preset
    from winkel.search.space import space_from

    space, best = space_from(summary.identity["space"]), summary.best()
    preset = {} if space.preset is None else named_preset(space.preset, summary.agent)
    return {**preset, **summary.identity["fields"], **space.fields(best.values)}


class Display:
    """A bar for all trials, and how they stand."""

    def __init__(self, title: str) -> None:
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(),
            console=console,
        )
        self.task = self.bar.add_task(f"{title}: compiling", total=1.0)
        self.title = title
        self.live = Live(self.bar, console=console, refresh_per_second=4)

    def __enter__(self) -> "Display":
        self.live.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.live.__exit__(*exception)
        if not console.is_terminal:
            console.print()

    def say(self, text: str) -> None:
        """A line above the display."""
        self.live.console.print(text, highlight=False, markup=False)

    def show(self, standing: "Standing") -> None:
        """How the search stands."""
        self.bar.update(self.task, completed=standing.share, description=self.title)
        table = Table(box=None, padding=(0, 2, 0, 0))
        numbers = {
            "trials": standing.wanted,
            "complete": standing.complete,
            "pruned": standing.pruned,
            "failed": standing.failed,
            "running": standing.running,
            "elsewhere": standing.elsewhere,
            "programs": standing.programs,
            "updates": standing.updates,
        }
        for name in numbers:
            table.add_column(name, justify="right")
        table.add_column("best score", justify="right")
        best = "" if standing.best is None else f"{standing.best:.3f}"
        table.add_row(*(f"{number:,}" for number in numbers.values()), best)
        self.live.update(Group(self.bar, table))


def print_summary(summary: "Summary") -> None:
    """The best trials, with their scores by environment."""
    table = Table(title=f"Search for {summary.agent}", title_justify="left")
    table.add_column("trial", justify="right")
    table.add_column("score", justify="right")
    for where in summary.environments:
        table.add_column(f"{where['id']}\n{where['score']}", justify="right")
    names = list(summary.identity["space"]["parameters"])
    for name in names:
        table.add_column(name, justify="right")
    for tried in summary.complete[:MOST_ROWS]:
        found = zip(tried.calibrated, tried.raw, strict=True)
        table.add_row(
            str(tried.number),
            f"{tried.total:.3f}",
            *(f"{one:.2f} ({raw:,.6g})" for one, raw in found),
            *(str(tried.values[name]) for name in names),
        )
    console.print(table)
    counts = f"{len(summary.complete)} complete, {len(summary.pruned)} pruned"
    say(
        f"{summary.counted} trials: {counts}, {len(summary.failed)} failed, "
        f"{summary.unfinished} unfinished; each: {summary.budget()}"
    )


def _require_optuna() -> None:
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise InputError(f"need Optuna: pip install 'winkel[search]' ({error})") from error
