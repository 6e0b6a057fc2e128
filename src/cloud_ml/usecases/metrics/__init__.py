"""Metrics of runs: they are collected from jobs, and shown."""
