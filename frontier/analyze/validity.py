"""What makes a point's numbers meaningless or doubtful, found in the sample itself."""

from frontier.analyze.sample import Sample
from frontier.model import Flag, Limit


def flags(sample: Sample, limits: tuple[Limit, ...] = ()) -> tuple[Flag, ...]:
    """Everything that is wrong with this sample."""
    return ()
