"""Figures: the frontier picture and detail figures, drawn with matplotlib."""
