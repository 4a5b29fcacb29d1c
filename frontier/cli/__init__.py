"""The command line: the only code that prints, reads the environment or exits."""
