"""Runs and experiments: what a caller may ask of them. Blocking."""
