"""Recipes: from a job and the engine's places to the processes of a gang. Pure and
engine-neutral.
"""
