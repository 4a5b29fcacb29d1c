"""Does the answer still hold later: `frontier verify --for`, and the figure over its hours."""
