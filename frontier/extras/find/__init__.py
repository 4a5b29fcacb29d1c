"""The highest rate of independent arrivals that keeps the SLA: `frontier verify --find`."""
