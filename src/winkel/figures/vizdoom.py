"""Fig. 5b: returns over time in VizDoom's maze, a panel for each sparsity."""

import numpy as np
from matplotlib.figure import Figure

from winkel.figures.learning_curves import collect_panels, draw_panels, select_runs, write_caption
from winkel.files import Arrays
from winkel.runs.results import Results, RunRecord

TITLE = "VizDoom (Fig. 5b)"
EXPERIMENT = "doom"
"""The experiment of VizDoom's runs."""

_SPARSITY = ("dense", "sparse", "very-sparse")


def collect(
    results: Results, over: str | None = None, returns: str | None = None
) -> dict[str, np.ndarray]:
    """Returns over time in each setting, as learning curves show them."""
    selection = select_runs(results, "vizdoom", returns, (EXPERIMENT,))
    names = {setting_of(r) for r in selection.records}
    settings = [name for name in _SPARSITY if name in names] + sorted(names - set(_SPARSITY))
    return {
        "settings": np.array(settings),
        **collect_panels(selection, settings, setting_of, over, returns),
    }


def setting_of(record: RunRecord) -> str:
    """Such as 'very-sparse' of 'doom:my-way-home/very-sparse', with options where it has some."""
    return str(record.config["env"]).rpartition("/")[2]


def draw(results: Arrays) -> Figure:
    """Draw returns and their bands, all on one scale."""
    figure = draw_panels(results, results["settings"], sharey=True)
    write_caption(figure, results)
    return figure
