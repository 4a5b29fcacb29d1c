"""A metric of a window with its bounds."""
