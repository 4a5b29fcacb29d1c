"""What makes the numbers of a window mean nothing, or less."""
