"""Train jobs: their normalised spec, their roles, and how a user restarts or copies one. What moves
an attempt from phase to phase is decided in ``domain/workloads``.
"""
