"""Stores of MLflow's client, as they lie on a disk: what they hold, and how they are written."""
