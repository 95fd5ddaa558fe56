"""Fig. 2: the five steps of the projection mixture operator Ω_M T^π on one return distribution."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import norm

from winkel.figures import style
from winkel.files import Arrays
from winkel.mdps import FiniteMDP, uniform_policy
from winkel.operators import bellman, mix, project
from winkel.projections import Categorical, Quantile
from winkel.types import Atoms

NUM_ATOMS, REWARD, GAMMA = 11, 0.6, 0.7


def compute() -> dict[str, np.ndarray]:
    """A two-humped η, T^π η, both projections of that, and their mixture.

    The MDP has one state and a deterministic reward, so that T^π scales and shifts. η has atoms on
    a fine grid, so that it can be drawn as a density.
    """
    mdp = FiniteMDP(transitions=np.ones((1, 1, 1)), rewards=Atoms.of([[[REWARD]]]), gamma=GAMMA)
    z = np.linspace(-2.5, 2.5, 2001)
    density = 0.55 * norm.pdf(z, -0.75, 0.42) + 0.45 * norm.pdf(z, 0.95, 0.25)
    eta = Atoms.of(z[None, None], (density / density.sum())[None, None])
    target = bellman(mdp, uniform_policy(mdp), eta)
    quantile = project(Quantile(num_atoms=NUM_ATOMS), target)
    categorical = project(Categorical(num_atoms=NUM_ATOMS, z_min=-1.5, z_max=2.5), target)
    stages = {
        "eta": eta,
        "target": target,
        "quantile": quantile,
        "categorical": categorical,
        "mixture": mix([quantile, categorical]),
    }
    return {
        f"{name}_{field}": np.asarray(getattr(atoms, field))[0, 0]
        for name, atoms in stages.items()
        for field in Atoms._fields
    }


def draw(results: Arrays) -> Figure:
    """Draw (a) η, (b) T^π η, (c) Π_Q T^π η, (d) Π_C T^π η and (e) Ω_M T^π η side by side."""
    figure = style.new_figure(height=1.55)
    panels = figure.subplots(1, 5, sharex=True)
    _draw_density(panels[0], results, "eta", style.INK, fill=True)
    _draw_density(panels[1], results, "target", style.INK, fill=True)
    colours = {name: [colour] for name, colour in style.PROJECTIONS.items()}
    colours["mixture"] = [style.QUANTILE, style.CATEGORICAL]
    # One height scale for all stems: an atom's height is its mass.
    tallest = 1.12 * max(results[f"{stage}_probs"].max() for stage in colours)
    for axes, stage in zip(panels[2:], colours, strict=True):
        shade = axes.twinx()
        shade.set_axis_off()
        axes.set_zorder(shade.get_zorder() + 1)
        axes.patch.set_visible(False)
        _draw_density(shade, results, "target", style.FAINT, fill=False)
        for place, colour in enumerate(colours[stage]):
            parts = (results[f"{stage}_{field}"] for field in ("locations", "probs"))
            at, mass = (np.split(values, len(colours[stage]))[place] for values in parts)
            axes.vlines(at, 0.0, mass, color=colour, linewidth=0.9)
            axes.plot(at, mass, "o", color=colour, markersize=2.2, clip_on=False)
        axes.set_ylim(0.0, tallest)
    operators = ("", r"\mathcal{T}^\pi", r"\Pi_Q\,\mathcal{T}^\pi", r"\Pi_C\,\mathcal{T}^\pi",
                 r"\Omega_M\mathcal{T}^\pi")  # fmt: skip
    for axes, letter, operator in zip(panels, "abcde", operators, strict=True):
        axes.set_title(rf"({letter}) ${operator}\eta$", pad=4)
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
