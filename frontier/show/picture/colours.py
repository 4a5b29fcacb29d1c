"""Colours of figures, light and dark: Okabe and Ito's palette by role, blended with the paper."""

from frontier.show.picture.data import Line, Role, Theme

# Okabe & Ito's colours (2008), told apart by colour-blind readers too; a shape or a text always
# says the same. Thin lines and text take the "text" colour of a role where its own is too bright
# for them.
COLOURS: dict[Theme, dict[str, str]] = {
    "light": {
        "frontier": "#0072B2",
        "other": "#E69F00",
        "other text": "#8F6200",
        "third": "#CC79A7",
        "third text": "#A3507F",
        "fourth": "#3A3A3A",
        "fifth": "#5E3C99",
        "sixth": "#800000",
        "seventh": "#01665E",
        "eighth": "#7A7A00",
        "dominated": "#8C8C8C",
        "flagged": "#6E6E6E",
        "predicted": "#6A6A6A",
        "operating": "#D55E00",
        "sla": "#009E73",
        "roofline": "#000000",
        "quiet": "#6A6A6A",
        "text": "#000000",
        "paper": "#FFFFFF",
        "grid": "#E6E6E6",
        "axis": "#000000",
    },
    "dark": {
        "frontier": "#56B4E9",
        "other": "#E69F00",
        "third": "#E59CC3",
        "fourth": "#E8E8E8",
        "fifth": "#B2A2E0",
        "sixth": "#F08080",
        "seventh": "#7FCDBB",
        "eighth": "#CFCF5A",
        "dominated": "#8A8F98",
        "flagged": "#A9AEB6",
        "predicted": "#A9AEB6",
        "operating": "#FF8A3D",
        "sla": "#2BC79A",
        "roofline": "#F2F2F2",
        "quiet": "#A9AEB6",
        "text": "#F4F4F4",
        "paper": "#14171C",
        "grid": "#2A2F37",
        "axis": "#C9CDD3",
    },
}


def blend(colour: str, paper: str, share: float) -> str:
    """A colour mixed with the paper in this share, as not every viewer of SVG and PDF supports
    transparency.
    """
    mixed = (round(share * int(colour[i : i + 2], 16) + (1 - share) * int(paper[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{part:02X}" for part in mixed)


def ink(role: Role, theme: Theme = "light") -> str:
    """The colour of a role as text or a thin line."""
    return COLOURS[theme].get(f"{role.value} text", COLOURS[theme][role.value])


def line_colour(line: Line, theme: Theme = "light") -> str:
    """The colour of a line of a detail figure. The parts of a column have the roles' own colours,
    which differ in print without colour too.
    """
    return COLOURS[theme][line.role.value] if line.kind == "layer" else ink(line.role, theme)
