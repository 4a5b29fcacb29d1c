"""The API for programs and notebooks: sweep, load, and a run that shows itself."""
