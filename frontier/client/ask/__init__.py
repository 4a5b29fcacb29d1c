"""Questions to a server beside the load: whether it can be measured, and evidence."""
