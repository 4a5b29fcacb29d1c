"""Devices: what the GPUs of this machine say beside a trial: power, clocks, energy."""
