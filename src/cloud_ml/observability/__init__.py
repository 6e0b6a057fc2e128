"""Logs and metrics of the platform itself."""
