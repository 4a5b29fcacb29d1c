"""Does the answer hold: under independent users, at the highest rate, for hours, and in quality."""
