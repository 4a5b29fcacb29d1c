"""A minute of scan, and the time that a sweep takes by it: `frontier sweep --dry-run --measure`."""
