"""From records to decisions: pure functions, no I/O, no clock, no unseeded randomness."""
