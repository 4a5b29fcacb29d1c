"""What to measure next: as pure functions of what was measured."""
