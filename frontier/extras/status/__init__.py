"""How far a sweep is, from another terminal."""
