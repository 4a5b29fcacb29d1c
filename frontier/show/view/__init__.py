"""What there is to say, worked out once, as frozen data and in words; terminal, page, picture, JSON
and table for programs lay it out.
"""
