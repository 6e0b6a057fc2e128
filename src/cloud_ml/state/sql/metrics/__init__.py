"""Metrics in a database: series, their chunks of points, and how far files were read."""
