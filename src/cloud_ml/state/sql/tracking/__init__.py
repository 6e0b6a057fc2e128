"""Runs and experiments in a database."""
