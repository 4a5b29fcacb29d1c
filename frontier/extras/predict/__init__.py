"""Prediction of frontiers that were not measured, and ceilings of a machine that were."""
