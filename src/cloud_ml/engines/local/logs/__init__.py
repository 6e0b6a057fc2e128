"""Logs of jobs: how they are written and bounded on disk, which part of one is shown, how the
tasks of a job share one, and how they are followed while they grow.
"""
