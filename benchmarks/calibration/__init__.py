"""The calibration study: are the claims as sure as they say, on deployments whose truth is
known?"""
