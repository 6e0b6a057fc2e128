"""Optuna's storage service on this machine, for processes of one user: ``cloudml hp proxy``."""
