"""Colours of the dark page: the dark counterpart of each colour of its pictures."""

from functools import cache

from frontier.show.picture.colours import COLOURS, blend

BLENDS = (0.07, 0.18, 0.35, 0.45, 0.55)
"""Shares that colours are blended with the paper in."""


@cache
def dark_colours() -> dict[str, str]:
    """The dark counterpart of each colour of a light picture, in lower case, bare and blended with
    the paper. Where two roles share a light colour, the text's counts.
    """
    light, dark = COLOURS["light"], COLOURS["dark"]
    pairs: dict[str, str] = {}
    for role in ("text", *light):
        pair = light[role], dark.get(role, dark[role.removesuffix(" text")])
        shares = [pair, *((blend(pair[0], light["paper"], s), blend(pair[1], dark["paper"], s)) for s in BLENDS)]
        for one, other in shares:
            pairs.setdefault(one.lower(), other.lower())
    return pairs
