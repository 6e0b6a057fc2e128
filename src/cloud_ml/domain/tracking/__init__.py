"""Runs, experiments, and the language in which runs are searched. Pure."""
