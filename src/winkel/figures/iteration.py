"""Value iteration converges; the bonus sees errors that the one-step error does not."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from winkel.figures import style
from winkel.files import Arrays

NEEDS = {
    "steps": 1, "to_truth": 1, "residual_bound": 0, "oscillation": 1,
    "visited": 2, "local_error": 2, "bonus": 2, "true_error": 2,
}  # fmt: skip


def draw(results: Arrays) -> Figure:
    """Convergence trace on the left, three maps of deep sea on the right."""
    figure = style.new_figure(height=1.85)
    panels = figure.subplots(1, 4, gridspec_kw={"width_ratios": [1.5, 1, 1, 1]})
    _draw_convergence(panels[0], results)
    maps = (
        ("b", r"$w_1(\hat\eta,\Omega_M\mathcal{T}^\pi\hat\eta)$", "local_error", "one-step error"),
        ("c", r"$\hat b$", "bonus", "propagated bonus"),
        ("d", r"$w_1(\hat\eta,\eta^\pi_E)$", "true_error", "true error"),
    )
    highest = max(np.nanmax(results[name]) for _, _, name, _ in maps)
    for axes, (letter, title, name, caption) in zip(panels[1:], maps, strict=True):
        image = axes.imshow(results[name], vmin=0.0, vmax=highest, cmap="viridis")
        _outline(axes, results["visited"])
        style.label_panel(axes, letter, title)
        axes.set_xlabel(caption)
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_visible(False)
    bar = figure.colorbar(image, ax=list(panels[1:]), shrink=0.75, pad=0.02, aspect=16)
    bar.outline.set_linewidth(0.6)
    return figure


def _draw_convergence(axes: Axes, results: Arrays) -> None:
    k = np.arange(1, len(results["steps"]) + 1)
    lines = (
        (results["steps"], style.MIXTURE, "-", "next iterate"),
        (results["to_truth"], style.QUANTILE, "-", r"$\eta^\pi$"),
        (np.full(k.shape, results["residual_bound"]), style.QUANTILE, ":", r"bound on $\eta^\pi$"),
        (results["oscillation"], style.ACCENT, "--", "oscillator"),
    )
    for values, colour, dash, label in lines:
        axes.semilogy(k[: len(values)], values, dash, color=colour, linewidth=1.1, label=label)
    axes.set_ylim(bottom=1e-9)
    style.label_panel(axes, "a", "value iteration")
    axes.set_xlabel("iteration $k$")
    axes.set_ylabel(r"$\bar w_1$ from $\eta_{E,k}$ to")
    axes.legend(
        loc="lower left", handlelength=1.4, borderaxespad=0.1, labelspacing=0.25, fontsize=6.5
    )


def _outline(axes: Axes, visited: np.ndarray) -> None:
    """A line between visited cells and the others."""
    size = len(visited)
    for row in range(size):
        for column in range(size):
            if visited[row, column] != 1.0:
                continue
            if column + 1 <= row and visited[row, column + 1] == 0.0:
                axes.plot([column + 0.5] * 2, [row - 0.5, row + 0.5], color="white", linewidth=0.9)
            if row + 1 < size and visited[row + 1, column] == 0.0:
                axes.plot(
                    [column - 0.5, column + 0.5], [row + 0.5] * 2, color="white", linewidth=0.9
                )
