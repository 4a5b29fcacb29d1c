"""Quality of answers beside a reference, and as scored by a command."""
