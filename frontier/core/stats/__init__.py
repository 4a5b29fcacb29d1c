"""What arrays of dependent numbers say: quantiles, intervals, steadiness, differences."""
