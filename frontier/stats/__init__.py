"""Statistics of trials: windows, confidence intervals, estimates, flags."""
