"""Runs, their metrics and differences, and TensorBoards."""
