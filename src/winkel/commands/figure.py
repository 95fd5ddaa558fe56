"""`winkel figure`: compute arrays or collect them from runs, save and draw."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import tyro

from winkel.commands.terminal import say
from winkel.errors import InputError
from winkel.figures import COLLECTED, COMPUTED, FIGURES, style
from winkel.figures.learning_curves import DEFAULTS, CurveOptions
from winkel.files import ensure_folder, load_arrays, save_arrays
from winkel.runs.results import read_results
from winkel.training.programs import start_jax

Format = Literal["png", "pdf", "svg"]
if TYPE_CHECKING:
    FigureName = str
else:
    FigureName = Literal[tuple(FIGURES)]
CURVES = ("learning-curves", "vizdoom")
"""Figures over time, which can show a run that has not ended."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Make a figure: compute its data or collect them from runs, save and draw."""

    name: tyro.conf.Positional[FigureName]
    """Computed: toy (fig. 1, two projections of the same data), operator (fig. 2, the five steps of
    Ω_M T^π), iteration (value and bonus iteration on small MDPs). From RUNS: radar and scores
    (bsuite by capability, by experiment), learning-curves (returns in any environment), regret
    (deep sea by size), statistics (section 6.1), coverage (deep sea over episodes), ensemble-size
    (BDQN+P), heatmaps, vizdoom."""
    runs: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="[RUNS]")] = None
    """Folder that `winkel train`, a sweep or `winkel rollout --out` has filled."""
    out: Path = Path("figures")
    """Folder for the pictures and the arrays behind them (NAME.npz)."""
    data: Path | None = None
    """Draw from this .npz file of an earlier call instead of computing or reading runs."""
    unfinished: bool = False
    """Also show runs that have not ended, up to their newest checkpoint, in learning-curves and
    vizdoom; the figure says so."""
    curves: tyro.conf.OmitArgPrefixes[CurveOptions] = DEFAULTS
    """What learning-curves and vizdoom show."""
    formats: tuple[Format, ...] = ("png", "pdf")
    """File formats."""

    def run(self) -> None:
        """Write the files and name them."""
        self._check()
        ensure_folder(self.out)
        written = []
        if self.data is not None:
            arrays = load_arrays(self.data)
        else:
            arrays = self._make_arrays()
            written.append(self.out / f"{self.name}.npz")
            save_arrays(written[0], arrays)
        for note in arrays.get("notes", ()):
            say(f"note: {note}")
        with style.paper_style():
            try:
                figure = FIGURES[self.name].draw(arrays)
            except (IndexError, KeyError, TypeError, ValueError) as error:
                if self.data is None:
                    raise
                raise InputError(
                    f"need arrays of the figure {self.name}, got {self.data} ({error!r})"
                ) from error
            written += style.save(figure, self.out / self.name, self.formats)
        for path in written:
            say(f"wrote {path}")

    def _check(self) -> None:
        if not self.formats:
            raise InputError("need at least one format of png, pdf, svg, got none")
        if self.runs is not None and self.data is not None:
            raise InputError(
                f"need a folder of runs or --data, got both, {self.runs} and {self.data}"
            )
        if self.runs is not None and self.name in COMPUTED:
            raise InputError(f"{self.name} is computed and needs no runs, got {self.runs}")
        if self.runs is None and self.data is None and self.name in COLLECTED:
            raise InputError(f"need a folder of runs: winkel figure {self.name} RUNS")
        if self.unfinished and (self.runs is None or self.name not in CURVES):
            raise InputError(
                f"need {' or '.join(CURVES)} and a folder of runs for --unfinished, since other "
                f"figures are of whole runs, got {self.name}"
            )
        if self.curves != DEFAULTS and (self.runs is None or self.name not in CURVES):
            raise InputError(
                f"need {' or '.join(CURVES)} and a folder of runs for options of curves, "
                f"got {self.name}"
            )
        if self.runs is None and self.data is None:
            start_jax()

    def _make_arrays(self) -> dict[str, np.ndarray]:
        if self.runs is None:
            return FIGURES[self.name].compute()
        results = read_results(self.runs, unfinished=self.unfinished)
        try:
            options = (self.curves,) if self.name in CURVES else ()
            return FIGURES[self.name].collect(results, *options)
        except InputError as error:
            raise InputError(f"{error} in {self.runs}") from error
