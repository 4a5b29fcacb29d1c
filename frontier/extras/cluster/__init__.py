"""Client processes on a Ray cluster, readings of GPUs, and Prometheus metrics of a sweep."""
