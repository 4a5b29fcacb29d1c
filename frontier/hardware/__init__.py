"""Hardware: GPUs, model sizes, the roofline they give, and measured ceilings."""
