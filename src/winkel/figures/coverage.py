"""App. B.3: state-actions of deep sea seen over episodes, high is better."""

from matplotlib.figure import Figure

from winkel.figures import lines, shapes, style
from winkel.files import Arrays

SHAPES = {
    "agents": "agents",
    "episodes": "episodes",
    "estimate": "agents episodes",
    "low": "agents episodes",
    "high": "agents episodes",
    "num_seeds": "agents",
    "size": "",
    "budget": "",
}
NEEDS = shapes.needs(SHAPES)

_BASELINES = ("dltv", "ids")


def draw(results: Arrays) -> Figure:
    """Medians and quartiles: DLTV and IDS with their variants on the left, all others right."""
    shapes.check(results, SHAPES)
    agents = [str(name) for name in results["agents"]]
    order = style.in_order(agents)
    baselines = [i for i in order if agents[i].startswith(_BASELINES)]
    sides = {
        "DLTV and IDS": baselines,
        "other agents": [i for i in order if i not in baselines],
    }
    sides = {title: shown for title, shown in sides.items() if shown}
    figure = style.new_figure(height=2.2, width=style.TEXT_WIDTH if len(sides) > 1 else 3.3)
    panels = figure.subplots(1, len(sides), sharex=True, sharey=True, squeeze=False)[0]
    for axes, letter, (title, shown) in zip(panels, "ab", sides.items(), strict=False):
        for agent in shown:
            spread = [100 * values for values in lines.spread_of(results, agent)]
            lines.draw_band(axes, results["episodes"], spread, agents[agent], len(shown))
        if len(sides) > 1:
            style.label_panel(axes, letter, title)
        axes.set_xlabel("episodes")
        axes.set_ylim(0, 102)
        lines.count_axis(axes)
        axes.set_xlim(0, float(results["budget"]))
    panels[0].set_ylabel("state-actions seen [%]")
    lines.legend_above(figure, [agents[i] for i in order])
    style.write_below(
        figure,
        f"Deep sea of size {int(results['size'])}: medians and interquartile ranges of "
        f"{style.seeds_text(results['num_seeds'])}.",
        results["notes"],
    )
    return figure
