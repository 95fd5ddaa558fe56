"""Hook of mkdocs: the settings of all agents, from their docstrings, in reference.md."""

from winkel.agents import AGENTS
from winkel.agents.describe import describe_settings

MARK = "<!-- settings of agents -->"


def on_page_markdown(markdown, **_):
    """Replace the mark by a table for each agent."""
    return markdown.replace(MARK, "\n".join(map(settings_table, AGENTS)))


def settings_table(agent):
    """Write the settings of an agent as a table."""
    rows = [
        f"| `{name}` | {default} | {accepts} | {meaning} |"
        for name, default, accepts, meaning in describe_settings(AGENTS[agent], {})
    ]
    return "\n".join(
        [f"### {agent}", "", "| setting | default | accepts | meaning |", "|-|-|-|-|", *rows, ""]
    )
