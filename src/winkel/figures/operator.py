"""Fig. 2: the five steps of the projection mixture operator."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from winkel.figures import style
from winkel.files import Arrays

_STAGES = ("eta", "target", "quantile", "categorical", "mixture")
NEEDS = {f"{stage}_{field}": 1 for stage in _STAGES for field in ("locations", "probs")}


def draw(results: Arrays) -> Figure:
    """(a) η, (b) T^π η, (c) Π_Q T^π η, (d) Π_C T^π η, (e) Ω_M T^π η, one below the other axis."""
    figure = style.new_figure(height=1.55)
    panels = figure.subplots(1, 5, sharex=True)
    _draw_density(panels[0], results, "eta", style.INK, fill=True)
    _draw_density(panels[1], results, "target", style.INK, fill=True)
    # One height scale for all stems: an atom's height is its mass.
    tallest = 1.12 * max(results[f"{stage}_probs"].max() for stage in _STAGES[2:])
    for axes, stage, colours in (
        (panels[2], "quantile", (style.QUANTILE,)),
        (panels[3], "categorical", (style.CATEGORICAL,)),
        (panels[4], "mixture", (style.QUANTILE, style.CATEGORICAL)),
    ):
        shade = axes.twinx()
        shade.set_axis_off()
        axes.set_zorder(shade.get_zorder() + 1)
        axes.patch.set_visible(False)
        _draw_density(shade, results, "target", style.FAINT, fill=False)
        _draw_stems(axes, results, stage, colours)
        axes.set_ylim(0.0, tallest)
    titles = (
        r"$\eta$",
        r"$\mathcal{T}^\pi\eta$",
        r"$\Pi_Q\,\mathcal{T}^\pi\eta$",
        r"$\Pi_C\,\mathcal{T}^\pi\eta$",
        r"$\Omega_M\mathcal{T}^\pi\eta$",
    )
    for axes, letter, title in zip(panels, "abcde", titles, strict=True):
        style.label_panel(axes, letter, title)
        axes.set_xlim(-2.4, 2.7)
        axes.set_xticks([-2, 0, 2])
        axes.set_xlabel("$z$")
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
    return figure


def _draw_density(axes: Axes, results: Arrays, stage: str, colour: str, *, fill: bool) -> None:
    z, probs = results[f"{stage}_locations"], results[f"{stage}_probs"]
    density = probs / np.gradient(z)
    if fill:
        axes.fill_between(z, density, color=colour, alpha=0.15, linewidth=0)
    axes.plot(z, density, color=colour, linewidth=1.0 if fill else 0.7)
    axes.set_ylim(0.0, 1.15)


def _draw_stems(axes: Axes, results: Arrays, stage: str, colours: tuple[str, ...]) -> None:
    z, probs = results[f"{stage}_locations"], results[f"{stage}_probs"]
    for part_z, part_probs, colour in zip(
        np.split(z, len(colours)), np.split(probs, len(colours)), colours, strict=True
    ):
        axes.vlines(part_z, 0.0, part_probs, color=colour, linewidth=0.9)
        axes.plot(part_z, part_probs, "o", color=colour, markersize=2.2, clip_on=False)
