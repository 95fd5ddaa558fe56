"""Colours by theme: what is dark ink on white paper must not be dark on dark."""

THEMED = {
    "#222222": ("ink", "#e7e5df"),
    "#ffffff": ("paper", "#1a1c20"),
    "#9a9a9a": ("faint", "#83858a"),
    "#0072b2": ("quantile", "#6f93f5"),
    "#882255": ("wine", "#e8626c"),
    "#332288": ("indigo", "#8f86e0"),
    "#661100": ("brown", "#c77a5f"),
    "#117733": ("forest", "#4fae6f"),
    "#aa4499": ("purple", "#cf78c2"),
}
"""Colours of figures in light, with the name of the page's variable and the colour in the dark."""


def themed(colour: str) -> str:
    """A colour of a figure as CSS: a variable where the theme decides."""
    plain = "#222222" if colour == "#000000" else colour.lower()
    return f"var(--{THEMED[plain][0]})" if plain in THEMED else colour


def variables() -> str:
    """The rule that gives the variables their values."""
    lines = (f"--{name}:light-dark({light},{dark});" for light, (name, dark) in THEMED.items())
    return f":root{{{''.join(lines)}}}"
