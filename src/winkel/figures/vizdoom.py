"""Fig. 5b: returns over steps in VizDoom's maze, a panel for each sparsity."""

import numpy as np
from matplotlib.figure import Figure

from winkel.figures import common
from winkel.figures.learning_curves import collect_panels, draw_panels, write_caption
from winkel.files import Arrays
from winkel.runs.results import Results, RunRecord

TITLE = "VizDoom (Fig. 5b)"
EXPERIMENT = "doom"
"""The experiment of VizDoom's runs."""

_SPARSITY = ("dense", "sparse", "very-sparse")


def collect(results: Results) -> dict[str, np.ndarray]:
    """Mean returns with 90 % Student t bands over environment steps.

    Returns are of greedy evaluations if all runs of a setting have them, else of training, averaged
    over fiftieths of the time.
    """
    selection = common.select(results, "vizdoom", experiments=(EXPERIMENT,))
    names = {setting_of(r) for r in selection.records}
    settings = [name for name in _SPARSITY if name in names] + sorted(names - set(_SPARSITY))
    return {
        "settings": np.array(settings),
        **collect_panels(selection, settings, setting_of, clock="env_steps"),
    }


def setting_of(record: RunRecord) -> str:
    """Such as 'very-sparse' of 'doom:my-way-home/very-sparse', with options where it has some."""
    return str(record.config["env"]).rpartition("/")[2]


def draw(results: Arrays) -> Figure:
    """Draw mean returns and their 90 % Student t bands, all on one scale."""
    figure = draw_panels(results, results["settings"], "environment steps", sharey=True)
    write_caption(figure, results)
    return figure
