"""What there is to say, worked out once, as frozen data and in words. Terminal, page, picture, JSON
and table for programs lay it out.
"""
